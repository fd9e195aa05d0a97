//! A key-value store that answers as Redis 7 does: its commands on strings, streams and keys.
//!
//! ```text
//! client's words --parse--> Command --encode--> log --decode--> Op --write/read--> Store, reply
//! ```
//!
//! A command or query of the machine is the encoding of one [`Compound`]; its reply is RESP2, ready
//! to be handed to a client; a command may ask for maps of RESP3 ([`Command::with_maps`]). Where
//! the machine differs from Redis:
//!
//! - There is one database, and the types are strings and streams; a string or an entry of a stream
//!   holds 64 MiB ([`MAX_VALUE_LEN`]). Streams have no consumer groups.
//! - XTRIM and XADD with `~` remove multiples of a hundred entries, whatever their size is.
//! - INCRBYFLOAT refuses hexadecimal numbers.
//! - SET with EXAT or PXAT in the past leaves no key behind; with Redis it counts in DBSIZE for a
//!   while. No key is counted here, or listed, after its time.
//! - SCAN meets keys in the order of a fixed hash, and a cursor stays valid across restarts.
//! - EXEC is sometimes refused, once in 65,536 creations of other keys, though no watched key has
//!   changed: a missing key's version is that of all missing keys of its bucket (`shard.rs`).
//! - What OBJECT ENCODING answers follows from the value alone (`object.rs`). Reads are not
//!   recorded, so there are no idle times.
//! - RANDOMKEY answers the same key until something changes.
//!
//! The machine refuses commands that need more memory when the keys take more than the limit
//! ([`Room`]).
//!
//! The machine keeps the users of the cluster ([`Users`]) beside the keys. It does not judge
//! commands: a gateway does, and says by which epoch of the users it has. The machine refuses what
//! was judged by an earlier epoch than its own ([`judged_at`]).

mod budget;
mod codec;
mod command;
mod decoded;
mod entry;
mod footprint;
mod free;
pub(crate) mod glob;
mod hash;
pub mod log;
mod long_double;
mod lowered;
mod number;
mod object;
mod parse;
mod read;
mod reply;
mod room;
mod segment;
mod shard;
mod snapshot;
mod store;
mod stream;
mod table;
mod users;
mod version;
mod work;
mod write;

pub use command::{Command, Compound, Demand, MAX_VALUE_LEN};
pub use room::Room;
pub use table::{CommandInfo, command_info, command_table, knows};
pub use users::{is_outdated, judged_at, known_users};

use crate::acl::Users;
use budget::{Budget, Refusal};
use bytes::Bytes;
use command::Op;
use decoded::Decoded;
use ionian_kernel::guard::LogCommand;
use ionian_kernel::level::Level;
use ionian_kernel::machine::{
    Footprint, Frozen, Need, NotARead, Parts, RestoreError, StateMachine,
};
use ionian_kernel::time::Timestamp;
use ionian_kernel::wire::MAX_ANSWER_BYTES;
use shard::{Key, SEGMENTS};
use snapshot::Picture;
use std::any::Any;
use std::hint::black_box;
use std::sync::Arc;
use store::Store;

/// How many expired keys one command removes besides its own work. More than one, so that a stream
/// of writes with deadlines cannot outrun the removal; and few, so that no command has to wait.
const PURGED_PER_COMMAND: usize = 32;

/// How many expired keys of each part a measurement removes: some tenths of a second of work.
const PURGED_BY_MEASUREMENT: usize = 1 << 20;

/// The level from which on there are users and a limit of memory.
const SINCE: Level = Level(18);

const MALFORMED: &[u8] = b"ERR malformed command";

/// A pipeline stops when its replies have reached this size.
const PIPELINE_REPLY_BYTES: usize = 1 << 20;

/// One command's reply is at most this large, and what comes beyond is refused.
const MAX_REPLY_BYTES: usize = MAX_ANSWER_BYTES - (64 << 10);

/// The key-value store.
#[derive(Default)]
pub struct Kv {
    store: Store,
    /// Who may do what: gateways ask for it, and judge by it.
    users: Arc<Users>,
    /// How much memory the keys may take.
    room: Room,
    /// The time of the last command. It only tells snapshots which keys have expired.
    now: u64,
    /// See [`StateMachine::work`].
    work: u64,
}

impl StateMachine for Kv {
    fn apply(&mut self, now: Timestamp, command: &[u8], reply: &mut Vec<u8>) {
        self.apply_at(Level::LATEST, now, command, reply);
    }

    fn apply_logged(&mut self, now: Timestamp, command: &LogCommand<'_>, reply: &mut Vec<u8>) {
        self.apply_at(command.level, now, command.payload, reply);
    }

    fn read(&self, now: Timestamp, query: &[u8], reply: &mut Vec<u8>) -> Result<(), NotARead> {
        match codec::decode(query) {
            Some((_, compound)) if !compound.is_read() => return Err(NotARead),
            Some((judged_at, compound)) if self.is_outdated(judged_at, &compound) => {
                users::outdated(reply);
            }
            Some((_, compound)) => self.answer(now.0, &compound, query, reply),
            None => reply::error(reply, MALFORMED),
        }
        Ok(())
    }

    fn snapshot(&self, out: &mut Vec<u8>) {
        let mut picture = Picture::new(&self.store, (&self.users, self.room), self.now);
        while picture.write_some(out) {}
    }

    fn freeze(&self) -> Box<dyn Frozen> {
        let facts = (&*self.users, self.room);
        Box::new(Picture::new(&self.store, facts, self.now))
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), RestoreError> {
        let (store, users, room) = snapshot::read(snapshot)?;
        *self = Kv {
            store,
            users: Arc::new(users),
            room,
            now: 0,
            work: self.work,
        };
        Ok(())
    }

    fn footprint(&self, command: &[u8], footprint: &mut Footprint) {
        // What cannot be decoded touches nothing.
        if let Some((_, compound)) = codec::decode(command) {
            footprint::of_compound(&compound, footprint);
        }
    }

    fn parts(&mut self) -> Option<&mut dyn Parts> {
        Some(self)
    }

    fn next_deadline(&self, now: Timestamp) -> Option<Timestamp> {
        self.store.next_deadline(now.0).map(Timestamp)
    }

    fn work(&self) -> u64 {
        self.work
    }

    fn needs(&self) -> Option<Need> {
        let facts = [
            (self.users.epoch() > 0, "users, or had some"),
            (self.room.limit > 0, "a limit of memory (maxmemory)"),
        ];
        let held: Vec<&str> = facts.iter().filter(|it| it.0).map(|it| it.1).collect();
        (!held.is_empty()).then(|| Need {
            level: SINCE,
            what: held.join(", and "),
        })
    }
}

/// Each part has the keys of consecutive segments.
impl Parts for Kv {
    fn divide(&mut self, count: usize) -> usize {
        let count = count.clamp(1, SEGMENTS);
        self.store.divide(count);
        count
    }

    fn part_of(&mut self, key: u64) -> usize {
        self.store.shard_of_bucket(key)
    }

    /// Each part has a copy of the users, and of the limit and what was measured.
    fn each_answers(&self, query: &[u8]) -> bool {
        let decoded = codec::decode(query);
        matches!(decoded, Some((_, Decoded::Users { .. } | Decoded::Room)))
    }

    fn lend(&mut self, part: usize) -> Box<dyn StateMachine> {
        Box::new(Kv {
            store: self.store.lend(part),
            users: self.users.clone(),
            room: self.room,
            now: self.now,
            work: 0,
        })
    }

    fn take_back(&mut self, part: usize, lent: Box<dyn StateMachine>) {
        let lent: Box<dyn Any> = lent;
        let lent = lent.downcast::<Kv>().expect("a part of this machine");
        self.now = self.now.max(lent.now);
        self.work += lent.work;
        self.store.take_back(part, lent.store);
    }
}

impl Kv {
    /// Executes a command in a place of the log where the cluster has this level.
    fn apply_at(&mut self, level: Level, now: Timestamp, command: &[u8], reply: &mut Vec<u8>) {
        self.now = now.0;
        self.store.purge(now.0, PURGED_PER_COMMAND);
        let Some((judged_at, compound)) = codec::decode(command) else {
            return reply::error(reply, MALFORMED);
        };
        if self.is_outdated(judged_at, &compound) {
            return users::outdated(reply);
        }
        if level < SINCE
            && let Some(error) = lowered::refusal(level, &compound)
        {
            return lowered::refuse_all(&compound, error, reply);
        }
        // Programs of lower levels know no budget, and execute the same commands.
        let mut budget = (level >= SINCE).then(|| Budget::new(&compound, command, reply));
        match &compound {
            Decoded::Pipeline(commands) => {
                self.approach(commands.as_slice());
                pipeline(commands.as_slice(), reply, |op, reply| {
                    self.execute(now.0, op, budget.as_mut(), reply)
                });
            }
            Decoded::Transaction { commands, .. }
                if self.room.is_full() && commands.iter().any(Op::grows) =>
            {
                let text = [
                    "EXECABORT Transaction discarded because of: ",
                    room::REFUSAL,
                ]
                .concat();
                reply::error(reply, text.as_bytes());
            }
            Decoded::Transaction { watched, commands } if self.unchanged(now.0, watched) => {
                transaction(commands, reply, |op, reply| {
                    self.execute(now.0, op, budget.as_mut(), reply)
                });
            }
            Decoded::SetUser { .. } | Decoded::DeleteUsers(_) => {
                users::change(Arc::make_mut(&mut self.users), &compound, reply);
            }
            Decoded::SetLimit(limit) => {
                self.room.limit = *limit;
                self.measure(now.0);
                reply::ok(reply);
            }
            Decoded::Measure => {
                self.measure(now.0);
                reply.extend_from_slice(&self.room.encode());
            }
            Decoded::Transaction { .. }
            | Decoded::Versions(_)
            | Decoded::Users { .. }
            | Decoded::Room => self.answer(now.0, &compound, command, reply),
        }
        self.work += budget.map_or(0, |budget| budget.taken());
    }

    /// Whether the gateway judged a compound by users that have changed since. What gateways send
    /// for themselves needs no user.
    fn is_outdated(&self, judged_at: u64, compound: &Decoded) -> bool {
        let is_judged = !matches!(
            compound,
            Decoded::Users { .. } | Decoded::Room | Decoded::Measure
        );
        judged_at < self.users.epoch() && is_judged
    }

    /// Counts what keys and values take. Without a limit there is nothing to compare it with.
    fn measure(&mut self, now: u64) {
        self.room.used = match self.room.limit {
            0 => 0,
            _ => {
                // Otherwise each measurement would look at all keys that have expired.
                self.store.purge(now, PURGED_BY_MEASUREMENT);
                self.store.live_bytes(now)
            }
        };
    }

    fn unchanged(&self, now: u64, watched: &[(&[u8], u64)]) -> bool {
        watched
            .iter()
            .all(|(key, version)| self.store.version(Key::new(key), now) == *version)
    }

    /// A command spends most of its time on waiting for memory. What several commands wait for can
    /// come at the same time, if it is asked for before the first of them is executed.
    fn approach(&self, ops: &[Op<&[u8]>]) {
        if ops.len() < 2 {
            return;
        }
        // Positions first: a processor looks only a few hundred instructions ahead, and should find
        // many places in them.
        let mut positions = [0; 16];
        for some in ops.chunks(positions.len()) {
            let keys = some.iter().filter_map(Op::key);
            let count = positions
                .iter_mut()
                .zip(keys)
                .map(|(place, key)| *place = hash::position(key))
                .count();
            let found = positions[..count]
                .iter()
                .fold(false, |found, position| found ^ self.store.touch(*position));
            black_box(found);
        }
    }

    /// Executes a command.
    ///
    /// # Errors
    /// The budget has no room for it.
    fn execute(
        &mut self,
        now: u64,
        op: &Op<&[u8]>,
        mut budget: Option<&mut Budget>,
        reply: &mut Vec<u8>,
    ) -> Executed {
        if op.is_read() {
            // Otherwise it would pass over what has expired, of which each replica has kept other
            // keys.
            if budget.is_some() && budget::looks(op) {
                self.store.purge_all(now);
            }
            return self.look_up(now, op, budget, reply);
        }
        let mut growth = 0;
        if let Some(budget) = &mut budget {
            let cost = budget.cost(&self.store, now, op)?;
            growth = budget.grown() + cost.growth;
            // What would be refused for want of memory takes none.
            if !op.grows() || !self.room.is_full_with(growth) {
                budget.check_answer(&self.store, now, op, reply)?;
                budget.take(cost)?;
            }
        }
        if op.grows() && self.room.is_full_with(growth) {
            reply::error(reply, room::REFUSAL.as_bytes());
        } else {
            write::execute(&mut self.store, now, op, reply);
        }
        Ok(())
    }

    /// Answers a command that is a read.
    ///
    /// # Errors
    /// The budget has no room for it.
    fn look_up(
        &self,
        now: u64,
        op: &Op<&[u8]>,
        budget: Option<&mut Budget>,
        reply: &mut Vec<u8>,
    ) -> Executed {
        let Some(budget) = budget else {
            read::answer(&self.store, now, op, None, reply);
            return Ok(());
        };
        budget.check_room()?;
        // Other reads look only at the keys that they name, and are never refused.
        if matches!(op, Op::StreamRead(_)) || budget::looks(op) {
            budget.take(budget.cost(&self.store, now, op)?)?;
            if let Some(text) = budget::refusal(&self.store, now, op) {
                reply::error(reply, text.as_bytes());
                return Ok(());
            }
        } else {
            budget.take_one()?;
        }
        let (before, left) = (reply.len(), budget.left());
        let steps = read::answer(&self.store, now, op, Some(left), reply);
        budget.matched(steps);
        // Alone it may have more.
        if matches!(op, Op::Keys(_)) && steps > 8 * left && steps <= budget::MATCHING {
            reply.truncate(before);
            return Err(Refusal::Work);
        }
        budget.keep_answer(reply, before)
    }

    /// Answers a compound that is a read, or a transaction that is not executed.
    fn answer(&self, now: u64, compound: &Decoded, encoded: &[u8], reply: &mut Vec<u8>) {
        let mut budget = Budget::new(compound, encoded, reply);
        let answer =
            |op: &Op<&[u8]>, reply: &mut Vec<u8>| self.look_up(now, op, Some(&mut budget), reply);
        match compound {
            Decoded::Pipeline(commands) => {
                self.approach(commands.as_slice());
                pipeline(commands.as_slice(), reply, answer);
            }
            Decoded::Transaction { watched, .. } if !self.unchanged(now, watched) => {
                reply::null_array(reply);
            }
            Decoded::Transaction { commands, .. } => transaction(commands, reply, answer),
            Decoded::Versions(keys) => {
                reply::array(reply, keys.len());
                for key in keys {
                    let version = self.store.version(Key::new(key), now);
                    reply::integer(reply, version as i64);
                }
            }
            Decoded::Users { known } => users::answer(&self.users, *known, reply),
            Decoded::Room => reply.extend_from_slice(&self.room.encode()),
            Decoded::SetUser { .. }
            | Decoded::DeleteUsers(_)
            | Decoded::SetLimit(_)
            | Decoded::Measure => unreachable!("it is no read"),
        }
    }
}

/// Whether a command was carried out, or why there is no room for it.
type Executed = Result<(), Refusal>;

/// Carries out commands one by one, and stops when their replies have become large, or the budget
/// has no room for the next: a short request can have a reply of any size, every replica keeps the
/// replies to writes for a while, and a client that asked may be slow to take them. [`answered`]
/// tells the sender how far it went.
fn pipeline(
    commands: &[Op<&[u8]>],
    reply: &mut Vec<u8>,
    mut carry_out: impl FnMut(&Op<&[u8]>, &mut Vec<u8>) -> Executed,
) {
    let start = reply.len();
    for (before, op) in commands.iter().enumerate() {
        let done = match carry_out(op, reply) {
            Ok(()) => before + 1,
            Err(_) if before > 0 => before,
            Err(refusal) => {
                reply::error(reply, refusal.text().as_bytes());
                1
            }
        };
        let is_large = reply.len() - start >= PIPELINE_REPLY_BYTES;
        if done < commands.len() && (done == before || is_large) {
            let mut mark = [STOPPED; 5];
            mark[1..].copy_from_slice(&(done as u32).to_le_bytes());
            reply.splice(start..start, mark);
            return;
        }
    }
}

/// Carries out all commands. Reads are refused when the replies have become as large as a reply can
/// be.
fn transaction(
    commands: &[Op<&[u8]>],
    reply: &mut Vec<u8>,
    mut carry_out: impl FnMut(&Op<&[u8]>, &mut Vec<u8>) -> Executed,
) {
    let start = reply.len();
    reply::array(reply, commands.len());
    for op in commands {
        let executed = match op.is_read() && reply.len() - start >= MAX_REPLY_BYTES {
            true => Err(Refusal::Size),
            false => carry_out(op, reply),
        };
        if let Err(refusal) = executed {
            reply::error(reply, refusal.text().as_bytes());
        }
    }
}

/// The first byte of the reply to a pipeline that was not carried out to its end. No reply of Redis
/// begins so.
const STOPPED: u8 = 0;

/// How many commands of a pipeline were carried out, if not all, and their replies. The sender
/// sends the others again: none of them had any effect.
///
/// A program of a lower level answers a pipeline that it cannot read with one error:
/// [`is_malformed`].
pub fn answered(reply: &Bytes) -> (Option<usize>, Bytes) {
    match reply.first_chunk::<5>() {
        Some([STOPPED, count @ ..]) => {
            (Some(u32::from_le_bytes(*count) as usize), reply.slice(5..))
        }
        _ => (None, reply.clone()),
    }
}

/// In which of 64 ranges of hashes a key is. Each part of a divided machine has ranges that follow
/// each other: a range is divided only where one part ends and the next begins.
pub fn range_of(key: &[u8]) -> u8 {
    (hash::position(key) >> 58) as u8
}

/// Whether a machine has answered that it cannot read the compound, none of which it has executed.
pub fn is_malformed(reply: &[u8]) -> bool {
    let error = reply.strip_prefix(b"-");
    let text = error.and_then(|error| error.strip_suffix(b"\r\n"));
    text == Some(MALFORMED)
}

#[cfg(test)]
mod tests;
