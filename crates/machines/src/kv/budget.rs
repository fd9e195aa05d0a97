//! What the commands of one compound may do together: how much work, and by how much the state may
//! grow beyond the bytes that the commands have. Both are bounded before a command is executed, by
//! rules that follow from the command and from what clients see, so that all replicas refuse the
//! same commands. Without this a short command could keep all replicas busy for minutes, or use up
//! the memory of all machines.
//!
//! A pipeline stops where its next command has no room, and its gateway sends the others again, as
//! the next compound. Between MULTI and EXEC such a command is answered with an error and not
//! executed; the others are.

use super::command::Op;
use super::decoded::Decoded;
use super::entry::Entry;
use super::glob::{MAX_PATTERN, most_steps};
use super::segment::CROWD;
use super::shard::{Key, SEGMENTS};
use super::store::Store;
use super::stream::{After, Ask, Deed, IN_GROUP, Id, Stream};
use super::{MAX_REPLY_BYTES, MAX_VALUE_LEN, reply};
use ionian_kernel::wire::MAX_ANSWER_BYTES;

/// The steps of one compound: elements that are looked at, and each [`PIECE`] that is copied. Some
/// tenths of a second: on a busy machine, a step of KEYS takes 250 ns, one of SCAN 60 ns. KEYS can
/// look at as many keys as it may, and the largest value can be moved.
pub(super) const WORK: u64 = 1 << 21;

/// The bytes that are copied, or hashed, in a step.
pub(super) const PIECE: u64 = 128;

/// The bytes by which one compound may let the state grow, besides those in its commands.
pub(super) const GROWTH: u64 = 2 * MAX_VALUE_LEN as u64;

/// KEYS looks at all keys, and is refused if there are more.
pub(super) const KEYS: usize = 100_000;

/// SCAN looks at no more keys at once; a larger COUNT means this one.
pub(super) const COUNT: usize = 1000;

/// The steps of matching after which SCAN ends its page.
pub(super) const PAGE: u64 = 1 << 17;

/// Longer keys match no pattern but `*`.
pub(super) const MATCHED: usize = 1 << 16;

/// The steps of matching beyond which KEYS is refused: less than a compound leaves to one that is
/// alone in it, whose error then names SCAN in place of MULTI.
pub(super) const MATCHING: u64 = 3 << 22;

/// What a command counts that looks for keys in segments: at all of them, and at all keys of one.
const LOOK: u64 = (SEGMENTS + CROWD) as u64;

/// The steps of making the masks of a pattern, for each of its bytes: 256 eighths.
const MASKS: u64 = 32;

/// The bytes of an entry of a stream in a reply, at least: no reply has more entries than fit.
const ENTRY_IN_REPLY: usize = 96;

/// The bytes of a reply that has no value: a number, or why a command is refused. What else a
/// command may answer is a part of the command.
const SHORT: usize = 128;

/// A value that grows is copied with room for a quarter more: how often each byte that is added to
/// one value is copied, at most.
const COPIES: u64 = 5;

/// Why a command has no room in its compound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Work,
    Growth,
    /// Of a reply.
    Size,
}

impl Refusal {
    /// The text of the error.
    pub(super) fn text(self) -> String {
        let (what, limit) = match self {
            Refusal::Work => ("work", format!("{WORK} steps")),
            Refusal::Growth => ("memory", format!("{} MiB", GROWTH >> 20)),
            Refusal::Size => return reply::TOO_LARGE.to_owned(),
        };
        format!("ERR too much {what} for one MULTI ({limit}), the command was not executed")
    }
}

fn long_pattern() -> String {
    format!("ERR the pattern is longer than {MAX_PATTERN} bytes")
}

pub(super) fn too_many_keys() -> String {
    format!("ERR too much to do for KEYS (more than {KEYS} keys, or long ones), use SCAN")
}

/// What a command is expected to do, at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cost {
    pub(super) work: u64,
    pub(super) growth: u64,
    /// How much of the work is paid for by commands before it, amortized: of what those have
    /// written, some is copied to get room, or trimmed, once. A budget has this too, for a state in
    /// which it has not been done may be met at any time.
    amortized: u64,
    /// The position of the key whose value is edited.
    edits: Option<u64>,
}

/// What is left for the commands of a compound.
#[derive(Debug)]
pub(super) struct Budget {
    /// Less than none after a command that took more than was left.
    work: i64,
    growth: u64,
    amortized: u64,
    /// The position of the key that the last write has edited. Its value has room behind it, and is
    /// copied again only when that is used up.
    edited: Option<u64>,
    /// How long the buffer of the reply may become by values: what follows them has room too.
    end: usize,
    /// Whether a read has had no room in the reply. Those behind it are not tried.
    is_full: bool,
}

impl Budget {
    /// That of a compound, whose reply is to be appended to `reply`.
    #[inline]
    pub(super) fn new(compound: &Decoded, encoded: &[u8], reply: &[u8]) -> Budget {
        let others = SHORT * compound.commands().len() + encoded.len();
        Budget {
            work: WORK as i64,
            growth: GROWTH,
            amortized: 0,
            edited: None,
            end: reply.len() + MAX_ANSWER_BYTES.saturating_sub(others),
            is_full: false,
        }
    }

    /// Checks whether the reply has room for the value that a write answers.
    ///
    /// # Errors
    /// It has none.
    #[inline]
    pub(super) fn check_answer(
        &self,
        store: &Store,
        now: u64,
        op: &Op<&[u8]>,
        reply: &[u8],
    ) -> Result<(), Refusal> {
        let key = op.answers_value_of();
        let value = key.map_or(0, |key| len(store.get(Key::new(key), now)));
        match reply.len() + value as usize > self.end {
            true => Err(Refusal::Size),
            false => Ok(()),
        }
    }

    /// Keeps what a read has added to the reply, which was this long before, if it has room.
    ///
    /// # Errors
    /// It has none. To write it all the same was work, which is done once in a compound.
    #[inline]
    pub(super) fn keep_answer(
        &mut self,
        reply: &mut Vec<u8>,
        before: usize,
    ) -> Result<(), Refusal> {
        if reply.len() <= self.end {
            return Ok(());
        }
        self.is_full = true;
        reply.truncate(before);
        Err(Refusal::Size)
    }

    /// How much the commands so far have let the state grow.
    pub(super) fn grown(&self) -> u64 {
        GROWTH - self.growth
    }

    /// Takes what a command costs. That it is refused costs something, too: to see that takes a
    /// look at the state.
    ///
    /// # Errors
    /// Too little is left.
    pub(super) fn take(&mut self, cost: Cost) -> Result<(), Refusal> {
        let Some(growth) = self.growth.checked_sub(cost.growth) else {
            self.work -= 1;
            return Err(Refusal::Growth);
        };
        if self.left() < cost.work {
            self.work -= LOOK.max(cost.work / 16) as i64;
            return Err(Refusal::Work);
        }
        self.work -= cost.work as i64;
        self.amortized += cost.amortized;
        (self.growth, self.edited) = (growth, cost.edits);
        Ok(())
    }

    /// Takes what a read costs that looks only at keys that it names.
    ///
    /// # Errors
    /// Nothing is left.
    #[inline]
    pub(super) fn take_one(&mut self) -> Result<(), Refusal> {
        if self.work <= 0 {
            return Err(Refusal::Work);
        }
        self.work -= 1;
        Ok(())
    }

    /// Takes the steps of matching that a command has needed, and those of passing over keys that
    /// have expired. Eight of them take about as long as one other step.
    pub(super) fn matched(&mut self, steps: u64) {
        self.work -= (steps / 8) as i64;
    }

    /// The steps that are left.
    pub(super) fn left(&self) -> u64 {
        self.work.max(0) as u64
    }

    /// The steps that were taken, but for those that commands before have paid for.
    pub(super) fn taken(&self) -> u64 {
        (WORK as i64 - self.work) as u64 - self.amortized
    }

    /// Checks whether a read may still be answered.
    ///
    /// # Errors
    /// An answer before has had no room.
    #[inline]
    pub(super) fn check_room(&self) -> Result<(), Refusal> {
        match self.is_full {
            true => Err(Refusal::Size),
            false => Ok(()),
        }
    }

    /// What a command costs, besides work and memory in proportion to its own bytes.
    ///
    /// # Errors
    /// Nothing is left.
    pub(super) fn cost(&self, store: &Store, now: u64, op: &Op<&[u8]>) -> Result<Cost, Refusal> {
        if self.work <= 0 {
            return Err(Refusal::Work);
        }
        let find = |key: &[u8]| store.get(Key::new(key), now);
        let (mut work, mut growth, mut amortized, mut edits) = (1, 0, 0, None);
        match op {
            Op::Append { key, .. } => {
                (amortized, edits) = self.edit(store, now, key, 0);
                work += amortized;
            }
            Op::SetRange { key, offset, .. } => {
                if *offset <= MAX_VALUE_LEN as u64 {
                    growth = offset.saturating_sub(len(find(key)));
                }
                let copied;
                (copied, edits) = self.edit(store, now, key, growth);
                work += copied;
                // Otherwise the zeros are new.
                amortized = if growth == 0 { copied } else { 0 };
            }
            // A value is copied, and its version is computed from it.
            Op::Rename { from, .. } => work += 2 * find(from).map_or(0, string_bytes) / PIECE,
            Op::Copy { from, .. } => {
                let entry = find(from);
                work += 2 * entry.map_or(0, string_bytes) / PIECE;
                growth = entry.map_or(0, Entry::bytes);
            }
            Op::Keys(pattern) => {
                let keys = store.live_len(now).min(KEYS) as u64;
                work += LOOK + 2 * keys + masks(Some(pattern));
            }
            Op::Scan { count, pattern, .. } => {
                work += LOOK + (*count).min(COUNT as u64) + masks(pattern.as_deref());
            }
            // It looks from some place on, and then from the beginning.
            Op::RandomKey => work += 2 * LOOK,
            Op::FlushAll => work += LOOK,
            Op::StreamRead(ask) => work += of_ask(ask, &find),
            Op::StreamWrite(deed) => {
                amortized = of_deed(deed, &find);
                work += amortized;
            }
            _ => {}
        }
        if looks(op) {
            // Few have expired, unless a gateway asks this replica alone; they are passed over
            // twice.
            let expired = store.len() - store.live_len(now);
            work += (expired as u64 / 4).min(WORK / 2);
        }
        if op.is_read() {
            edits = self.edited;
        }
        Ok(Cost {
            work,
            growth,
            amortized,
            edits,
        })
    }

    /// The work of copying a value that is edited, and grows by this much before its edited part,
    /// and the position of its key. The value is copied when it has no room behind it, once in a
    /// compound: then it gets a quarter.
    fn edit(&self, store: &Store, now: u64, key: &[u8], growth: u64) -> (u64, Option<u64>) {
        let key = Key::new(key);
        let whole = 2 * (len(store.get(key, now)) + growth);
        let bytes = match self.edited == Some(key.position) {
            true => whole.min(COPIES * growth),
            false => whole,
        };
        (bytes / PIECE, Some(key.position))
    }
}

/// The most steps that a command takes in the log, whatever the state is, but for those that
/// commands before have paid for: what [`Budget::taken`] counts. Those of APPEND are: a value that
/// it copies has room for a quarter more afterwards, and what makes it without room (a write of its
/// bytes, COPY, RENAME) is paid for. A gateway knows no more of a command than this.
pub(super) fn most<B: AsRef<[u8]>>(op: &Op<B>) -> u64 {
    let moved = |bytes: u64| 1 + 2 * bytes / PIECE;
    let largest = MAX_VALUE_LEN as u64;
    match op {
        Op::Rename { .. } | Op::Copy { .. } => moved(largest),
        // What is beyond is refused.
        Op::SetRange { offset, .. } if *offset <= largest => moved(*offset),
        // The steps of matching are as many as the budget has.
        Op::Keys(_) => WORK,
        Op::Scan { count, pattern, .. } => {
            let pattern = pattern.as_ref().map(AsRef::as_ref);
            // What has been begun is finished: one key, and the one before it.
            let matching = PAGE + pattern.map_or(1, |it| most_steps(it.len(), MATCHED));
            1 + LOOK + (*count).min(COUNT as u64) + masks(pattern) + (matching + PAGE) / 8
        }
        Op::RandomKey => 1 + 2 * LOOK,
        Op::FlushAll => 1 + LOOK,
        Op::StreamRead(ask) => 1 + most_of_ask(ask),
        _ => 1,
    }
}

/// Why a command is refused whatever else there is in its compound.
pub(super) fn refusal(store: &Store, now: u64, op: &Op<&[u8]>) -> Option<String> {
    let is_long = |pattern: &[u8]| pattern.len() > MAX_PATTERN;
    match op {
        Op::Keys(pattern)
        | Op::Scan {
            pattern: Some(pattern),
            ..
        } if is_long(pattern) => Some(long_pattern()),
        Op::Keys(_) if store.live_len(now) > KEYS => Some(too_many_keys()),
        _ => None,
    }
}

/// Whether a command looks for keys that it does not name.
pub(super) fn looks<B>(op: &Op<B>) -> bool {
    matches!(
        op,
        Op::Keys(_) | Op::Scan { .. } | Op::RandomKey | Op::DbSize | Op::Expiring
    )
}

/// The length of a string.
fn len(entry: Option<&Entry>) -> u64 {
    let value = entry.and_then(|entry| entry.string().ok());
    value.map_or(0, |value| value.len() as u64)
}

/// The bytes of a string; the entries of a stream are not copied.
fn string_bytes(entry: &Entry) -> u64 {
    entry.string().map_or(0, |value| value.len() as u64)
}

fn of_ask<'a>(ask: &Ask<&[u8]>, find: &impl Fn(&[u8]) -> Option<&'a Entry>) -> u64 {
    let stream = |key: &[u8]| find(key).and_then(|entry| entry.stream().ok());
    match ask {
        Ask::Range {
            key,
            from,
            to,
            count,
            ..
        } => in_reply(stream(key).map_or(0, |stream| {
            between(stream, *from, *to, count.unwrap_or(u64::MAX))
        })),
        Ask::Read { streams, count, .. } => {
            let count = if *count == 0 { u64::MAX } else { *count };
            let entries = streams
                .iter()
                .map(|(key, after)| match (stream(key), after) {
                    (Some(stream), After::Id(id)) => between(stream, *id, Id::MAX, count),
                    _ => 0,
                });
            streams.len() as u64 + in_reply(entries.fold(0, u64::saturating_add))
        }
        Ask::Tails(keys) => keys.len() as u64,
        Ask::Len(_) | Ask::Info { .. } => 1,
    }
}

/// The same, whatever the streams are.
fn most_of_ask<B>(ask: &Ask<B>) -> u64 {
    match ask {
        Ask::Range {
            from, to, count, ..
        } => {
            let between = if from >= to { FEW } else { u64::MAX };
            in_reply(between.min(count.unwrap_or(u64::MAX)))
        }
        Ask::Read { streams, count, .. } => {
            let count = if *count == 0 { u64::MAX } else { *count };
            let streams = streams.len() as u64;
            streams + in_reply(streams.saturating_mul(count))
        }
        Ask::Tails(keys) => keys.len() as u64,
        Ask::Len(_) | Ask::Info { .. } => 1,
    }
}

/// The work of entries that are looked at for a reply: no more than it can have.
fn in_reply(entries: u64) -> u64 {
    1 + entries.min((MAX_REPLY_BYTES / ENTRY_IN_REPLY) as u64)
}

/// The work of making the masks of a pattern that is short enough.
fn masks(pattern: Option<&[u8]>) -> u64 {
    MASKS * pattern.map_or(0, |it| it.len().min(MAX_PATTERN)) as u64
}

/// Entries that are trimmed go away by whole groups, but for those of the last one.
fn of_deed<'a>(deed: &Deed<&[u8]>, find: &impl Fn(&[u8]) -> Option<&'a Entry>) -> u64 {
    let (Deed::Add {
        trim: Some(trim), ..
    }
    | Deed::Trim { trim, .. }) = deed
    else {
        return 0;
    };
    let stream = find(deed.key()).and_then(|entry| entry.stream().ok());
    stream.map_or(0, |stream| {
        let removed = stream.excess(*trim) + 1;
        removed.min(IN_GROUP) + removed / IN_GROUP
    })
}

/// What is no more than this is not counted exactly.
const FEW: u64 = 128;

/// At least how many entries are looked at, of those from one ID to another.
fn between(stream: &Stream, from: Id, to: Id, count: u64) -> u64 {
    let most = count.min(stream.len() as u64);
    if from > to {
        return 0;
    }
    if most <= FEW {
        return most;
    }
    let behind = to
        .next()
        .map_or(stream.len() as u64, |next| stream.count_before(next));
    most.min(behind.saturating_sub(stream.count_before(from)))
}

#[cfg(test)]
mod worst;
