//! The state machine together with its sessions: what a replica executes the log on.

use crate::batch::{Answer, AnswersByClient, Batch, Command, Outcome, Purpose, Value};
use crate::session::{SESSION_WINDOW, Sessions, Standing};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use bytes::Bytes;
use core::time::Duration;
use ionian_kernel::guard::{Call, Guard, LogCommand, Must, NotDone, Unguarded};
use ionian_kernel::id::{SessionId, Slot};
use ionian_kernel::layout::Layout;
use ionian_kernel::level::Level;
use ionian_kernel::machine::{Footprint, Frozen, Need, NotARead, RestoreError, StateMachine};
use ionian_kernel::membership::Membership;
use ionian_kernel::protocol::Birth;
use ionian_kernel::time::{Timestamp, earliest};
use ionian_kernel::wire::{Reader, Wire};
use ionian_kernel::work::Inline;

mod grouped;
mod notes;
mod parallel;
mod part;
mod picture;
mod tally;
mod unordered;

pub use grouped::{Cut, cuts_in, without_preamble};
use parallel::{MAX_PARTS, Parallel};
pub use picture::refounded;
use picture::{Parts, Picture};
use tally::Tally;
pub use unordered::SETTLE;

/// A larger buffer for replies is not kept beyond the batch that it was needed for.
const MAX_IDLE_REPLY_BYTES: usize = 64 << 10;

/// A state machine, the sessions of its clients, and the time of the log.
pub struct Executor {
    machine: Box<dyn StateMachine>,
    guard: Arc<dyn Guard>,
    sessions: Sessions,
    membership: Membership,
    now: Timestamp,
    /// The machine's reply to the command under way. Reused.
    reply: Vec<u8>,
    failed_reads: u64,
    tally: Tally,
    /// Where several threads execute.
    parallel: Option<Parallel>,
    /// What stands before the state in its pictures, if anything does.
    preamble: Option<Bytes>,
    /// What a picture must begin with, if it must.
    logs: Option<grouped::Logs>,
    /// Whether the preamble is what the protocol noted last.
    keeps_notes: bool,
    /// Whether another log decides the level.
    level_is_elsewhere: bool,
    /// The slot after the last change of the level that was executed here.
    level_changed: Slot,
}

impl Executor {
    /// An empty machine without sessions, which live for `session_expiry` until the log says
    /// otherwise.
    pub fn new(machine: Box<dyn StateMachine>, session_expiry: Duration) -> Self {
        Self::guarded(machine, session_expiry, Arc::new(Unguarded))
    }

    /// What an instance born so executes the log on, in a cluster of this layout.
    pub fn of(birth: &Birth<'_>, layout: &Layout) -> Self {
        let session_expiry = layout.founding_expiry();
        let mut executor = match birth.guard {
            Some(guard) => Self::guarded((birth.machine)(), session_expiry, guard.clone()),
            None => Self::new((birth.machine)(), session_expiry),
        };
        executor.membership = Membership::founding(layout.founding_level);
        executor
    }

    /// As [`of`](Self::of), with this many threads, as far as the driver has them and the machine
    /// has [parts](StateMachine::parts).
    pub fn with_workers(birth: &Birth<'_>, layout: &Layout, workers: usize) -> Self {
        let mut executor = Self::of(birth, layout);
        if let Some(parts) = executor.machine.parts().filter(|_| workers > 1) {
            let hired = birth.workers.unwrap_or(&Inline::hire)(workers);
            let count = parts.divide(hired.count().clamp(1, MAX_PARTS));
            if count > 1 {
                executor.parallel = Some(Parallel::new(hired, count, &executor.guard));
            }
        }
        executor
    }

    /// As [`new`](Self::new), with every call of the machine made by `guard`.
    pub fn guarded(
        machine: Box<dyn StateMachine>,
        session_expiry: Duration,
        guard: Arc<dyn Guard>,
    ) -> Self {
        let (sessions, membership) = (Sessions::new(session_expiry), Membership::default());
        Executor {
            machine,
            guard,
            sessions,
            membership,
            now: Timestamp(0),
            reply: Vec::new(),
            failed_reads: 0,
            tally: Tally::default(),
            parallel: None,
            preamble: None,
            logs: None,
            keeps_notes: false,
            level_is_elsewhere: false,
            level_changed: Slot::ZERO,
        }
    }

    /// Another log than this one decides the level of the cluster: machines then cannot tell which
    /// commands come before a change of it.
    pub fn has_its_level_elsewhere(&mut self) {
        self.level_is_elsewhere = true;
    }

    /// Since its start or the last [restore](Self::restore) it has executed changes of the level
    /// below this slot only.
    pub fn level_changed(&self) -> Slot {
        self.level_changed
    }

    /// What the state machine, which has all its parts, needs of the level.
    pub fn needs(&self) -> Option<Need> {
        needs_of(&*self.machine, &*self.guard)
    }

    /// How much [work](StateMachine::work) its commands have taken, as far as it is known: a part
    /// that a worker has says so when it is back.
    pub fn work(&self) -> u64 {
        let mut work = 0;
        self.guard
            .must_call(Must::Question, &mut || work = self.machine.work());
        work + self.work_of_parts()
    }

    /// The level at which commands are executed.
    fn level(&self) -> Level {
        match self.level_is_elsewhere {
            true => Level::LATEST,
            false => self.membership.level,
        }
    }

    /// The time of the log: the largest stamp executed.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// What the log has led to so far.
    pub fn membership(&self) -> &Membership {
        &self.membership
    }

    /// How many sessions are open.
    pub fn session_count(&self) -> usize {
        self.sessions.len()
    }

    /// How many queries the machine has failed to answer.
    pub fn failed_reads(&self) -> u64 {
        self.failed_reads
    }

    /// When the passing of time next changes what the machine answers.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        let mut deadline = None;
        self.guard.must_call(Must::Question, &mut || {
            deadline = self.machine.next_deadline(self.now)
        });
        earliest(deadline, self.next_deadline_of_parts())
    }

    /// Executes the value of a slot of the log; its answers go to `answers` if this replica is to
    /// give them.
    pub fn execute(
        &mut self,
        slot: Slot,
        value: &Value,
        mut answers: Option<&mut AnswersByClient>,
    ) {
        self.pass(value);
        self.execute_in_order(slot, value, &mut answers);
    }

    /// Executes a value before others that come earlier in the log, with all of which it
    /// [commutes](Executor::commutes_until): time stands still. When its turn comes it is
    /// [passed](Executor::pass).
    pub fn execute_early(
        &mut self,
        slot: Slot,
        value: &Value,
        mut answers: Option<&mut AnswersByClient>,
    ) {
        self.execute_in_order(slot, value, &mut answers);
    }

    fn execute_in_order(
        &mut self,
        slot: Slot,
        value: &Value,
        answers: &mut Option<&mut AnswersByClient>,
    ) {
        match self.parallel {
            None => self.execute_batch::<false>(slot, value, answers),
            Some(_) => self.dispatch(slot, value, answers),
        }
    }

    /// Advances the log time to the value's stamp: all that is left to do when the turn has come of
    /// one that was executed early.
    pub fn pass(&mut self, value: &Value) {
        // A new leader's clock may be behind: time in the log never falls.
        self.now = self.now.max(value.stamp);
        self.sessions.expire(self.now);
    }

    /// Whether the order of commands makes no difference but by the keys that they touch, if
    /// `latest` is the largest stamp of any of them: no key's and no session's life ends by then.
    pub fn commutes_until(&self, latest: Timestamp) -> bool {
        self.next_deadline()
            .is_none_or(|deadline| deadline > latest)
            && self.sessions.is_quiet_until(latest)
    }

    /// What the commands of a batch touch.
    pub fn footprint(&self, batch: &Batch) -> Footprint {
        let mut footprint = Footprint::default();
        self.add_footprint(batch, &mut footprint);
        footprint
    }

    /// Adds the same to what `footprint` has.
    pub fn add_footprint(&self, batch: &Batch, footprint: &mut Footprint) {
        for Command {
            purpose,
            number,
            floor,
            payload,
            ..
        } in batch.commands()
        {
            match purpose {
                // Sessions are numbered in the order in which they are opened.
                Purpose::Open | Purpose::Change | Purpose::KeepAlive(_) => {
                    footprint.everything = true;
                }
                // Whether it is still executed depends on what was executed before.
                Purpose::Execute(_) if number.saturating_sub(floor) >= SESSION_WINDOW / 2 => {
                    footprint.everything = true;
                }
                Purpose::Execute(_) | Purpose::Read => self.touches(payload, footprint),
                Purpose::Internal => {}
            }
        }
    }

    /// Whether each command of a batch reads one key at most, and writes none.
    pub fn reads_single_keys(&self, batch: &Batch) -> bool {
        batch.commands().all(|command| {
            let mut footprint = Footprint::default();
            self.touches(command.payload, &mut footprint);
            !footprint.everything && footprint.reads.len() <= 1 && footprint.writes.is_empty()
        })
    }

    /// Adds what a command touches: everything, if the machine fails to say. It fails on every
    /// replica alike, since that follows from the command alone. A machine that sets a flag for
    /// this command, in place of adding to it, must not clear it for those before.
    fn touches(&self, payload: &[u8], footprint: &mut Footprint) {
        let (everything, timed) = (footprint.everything, footprint.timed);
        let call = &mut || self.machine.footprint(payload, footprint);
        let failed = self.guard.call(Call::Footprint(None), call).is_err();
        footprint.everything |= everything || failed;
        footprint.timed |= timed;
    }

    /// `UNORDERED` says whether other replicas may execute commands that commute in another order.
    fn execute_batch<const UNORDERED: bool>(
        &mut self,
        slot: Slot,
        value: &Value,
        answers: &mut Option<&mut AnswersByClient>,
    ) {
        self.tally.begin(slot);
        for command in value.batch.commands() {
            if command.purpose == Purpose::Read && answers.is_none() {
                continue;
            }
            self.execute_in_turn::<UNORDERED>(slot, value, &command, answers);
        }
        release(&mut self.reply);
    }

    /// Executes one command, and adds the answer if there is one and this replica is to give it.
    fn execute_in_turn<const UNORDERED: bool>(
        &mut self,
        slot: Slot,
        value: &Value,
        command: &Command<&[u8]>,
        answers: &mut Option<&mut AnswersByClient>,
    ) {
        let outcome = self.execute_command::<UNORDERED>(slot, value.stamp, command);
        if let (Some(outcome), Some(answers)) = (outcome, answers) {
            answers.push(&answer_to(command, outcome));
        }
    }

    /// Executes one command unless it was before; `None` when no client waits for the answer.
    fn execute_command<const UNORDERED: bool>(
        &mut self,
        slot: Slot,
        stamp: Timestamp,
        command: &Command<&[u8]>,
    ) -> Option<Outcome<&[u8]>> {
        self.reply.clear();
        let Command { floor, .. } = *command;
        match command.purpose {
            Purpose::Execute(session) => {
                self.execute_once::<UNORDERED>(slot, stamp, session, command)
            }
            Purpose::KeepAlive(session) => {
                let known = self.sessions.keep_alive(stamp, session, floor);
                (!known).then_some(Outcome::NoSession)
            }
            Purpose::Open => Some(Outcome::Opened(self.sessions.open(self.now))),
            Purpose::Change => Some(self.change(slot, command.payload)),
            Purpose::Read => {
                let now = self.reading_time(stamp);
                Some(self.read_one(now, command.payload))
            }
            Purpose::Internal => {
                self.take_note(command.payload);
                None
            }
        }
    }

    /// Executes a change of the membership.
    fn change(&mut self, slot: Slot, payload: &[u8]) -> Outcome<&[u8]> {
        let (before, level) = (self.membership.expiry, self.membership.level);
        let Executor { machine, guard, .. } = self;
        let needs = || needs_of(&**machine, &**guard);
        let change = Bytes::copy_from_slice(payload);
        let verdict = self.membership.execute(&change, needs);
        self.reply.extend_from_slice(&verdict);
        if self.membership.level != level {
            self.level_changed = slot.next();
        }
        let expiry = self.membership.expiry;
        if let Some(expiry) = expiry.filter(|_| expiry != before) {
            self.sessions
                .set_expiry(self.now, Duration::from_millis(expiry.now_ms));
        }
        Outcome::Done(&self.reply)
    }

    /// Executes a command of a session, or answers it from what was kept of its first execution.
    fn execute_once<const UNORDERED: bool>(
        &mut self,
        slot: Slot,
        stamp: Timestamp,
        session: SessionId,
        command: &Command<&[u8]>,
    ) -> Option<Outcome<&[u8]>> {
        let Command { number, floor, .. } = *command;
        let (sessions, reply) = (&mut self.sessions, &mut self.reply);
        let standing = match UNORDERED {
            false => sessions.begin(stamp, session, number, floor, reply),
            true => sessions.begin_unordered(stamp, session, number, floor, reply),
        };
        self.settle::<UNORDERED>(slot, standing, session, command)
    }

    /// What is done with a command of a session of which this is known.
    fn settle<const UNORDERED: bool>(
        &mut self,
        slot: Slot,
        standing: Standing,
        session: SessionId,
        command: &Command<&[u8]>,
    ) -> Option<Outcome<&[u8]>> {
        let Command {
            number, payload, ..
        } = *command;
        let level = self.level();
        match standing {
            Standing::New => {
                let Executor {
                    machine,
                    guard,
                    sessions,
                    now,
                    reply,
                    tally,
                    ..
                } = self;
                let logged = LogCommand {
                    slot,
                    session,
                    number,
                    payload,
                    level,
                };
                let call = &mut || machine.apply_logged(*now, &logged, reply);
                match guard.call(Call::Apply(logged), call) {
                    Ok(()) => {
                        tally.add(slot, session, number, Some(reply));
                        match UNORDERED {
                            false => sessions.finish(session, number, reply),
                            true => sessions.finish_unordered(session, number, reply),
                        }
                        Some(Outcome::Done(reply))
                    }
                    Err(NotDone) => {
                        tally.add(slot, session, number, None);
                        match UNORDERED {
                            false => sessions.give_up(session, number),
                            true => sessions.give_up_unordered(session, number),
                        }
                        Some(Outcome::Failed)
                    }
                }
            }
            Standing::GivenUp => Some(Outcome::Failed),
            Standing::Executed => Some(Outcome::Done(&self.reply)),
            Standing::Settled => None,
            Standing::Away => unreachable!("what is away was fetched"),
            Standing::NoSession => Some(Outcome::NoSession),
        }
    }

    /// Answers the reads of a batch from the present state, `clock` being this replica's own time,
    /// until the answers are [full](AnswersByClient::is_full); gives back the reads that are left
    /// then.
    pub fn read(
        &mut self,
        clock: Timestamp,
        batch: &Batch,
        answers: &mut AnswersByClient,
    ) -> Option<Batch> {
        if self.parallel.is_some() {
            return self.dispatch_reads(clock, batch, answers);
        }
        let now = self.reading_time(clock);
        let mut rest = None;
        for (done, command) in (0..).zip(batch.commands()) {
            if answers.is_full() {
                rest = Some(batch.after(done));
                break;
            }
            let outcome = self.read_one(now, command.payload);
            answers.push(&answer_to(&command, outcome));
        }
        release(&mut self.reply);
        rest
    }

    #[inline]
    fn read_one(&mut self, now: Timestamp, query: &[u8]) -> Outcome<&[u8]> {
        let Executor {
            machine,
            guard,
            reply,
            failed_reads,
            ..
        } = self;
        reply.clear();
        let mut read = Ok(());
        let call = &mut || read = machine.read(now, query, reply);
        match guard.call(Call::Read(query), call) {
            Ok(()) => match read {
                Ok(()) => Outcome::Done(&reply[..]),
                Err(NotARead) => Outcome::NotARead,
            },
            Err(NotDone) => {
                *failed_reads += 1;
                Outcome::Failed
            }
        }
    }

    fn reading_time(&self, clock: Timestamp) -> Timestamp {
        reading_time(self.now, clock, self.next_deadline())
    }

    /// A snapshot of machine, sessions and time, the same bytes on every replica in this state.
    pub fn snapshot(&mut self) -> Bytes {
        self.make_whole();
        let mut out = self.head();
        self.guard
            .must_call(Must::Snapshot, &mut || self.machine.snapshot(&mut out));
        Bytes::from(out)
    }

    /// A picture of the state that can be written out while commands go on.
    pub fn freeze(&mut self) -> Box<dyn Frozen> {
        self.make_whole();
        let mut machine: Option<Box<dyn Frozen>> = None;
        self.guard.must_call(Must::Snapshot, &mut || {
            machine = Some(self.machine.freeze())
        });
        let machine = machine.expect("it was frozen");
        Box::new(Picture::new(self.head(), machine, self.guard.clone()))
    }

    /// What comes before the machine's state in a snapshot.
    fn head(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.put_preamble(&mut out);
        self.now.encode(&mut out);
        self.membership.encode(&mut out);
        self.sessions.snapshot(&mut out);
        out
    }

    /// Replaces everything by a snapshot's.
    ///
    /// # Errors
    /// Says what is wrong with the bytes; nothing is then changed.
    pub fn restore(&mut self, snapshot: &Bytes) -> Result<(), RestoreError> {
        let Parts {
            preamble,
            now,
            membership,
            rest,
        } = Parts::of(snapshot)?;
        self.check_preamble(preamble.as_ref())?;
        let mut sessions = self.sessions.clone();
        if let Some(expiry) = membership.expiry {
            // The sweep that this may bring forward is that of the snapshot, which comes next.
            sessions.set_expiry(now, Duration::from_millis(expiry.now_ms));
        }
        let mut reader = Reader::new(&rest);
        sessions.restore(&mut reader)?;
        let length = reader.remaining();
        let state = reader.take(length).expect("the rest");
        self.make_whole();
        let (guard, machine, mut restored) = (&*self.guard, &mut self.machine, Ok(()));
        guard.must_call(Must::Restore, &mut || restored = machine.restore(state));
        restored?;
        (self.now, self.sessions, self.membership) = (now, sessions, membership);
        self.preamble = preamble;
        self.divide_again();
        Ok(())
    }
}

fn answer_to<'a>(command: &Command<&[u8]>, outcome: Outcome<&'a [u8]>) -> Answer<&'a [u8]> {
    Answer {
        client: command.client,
        purpose: command.purpose,
        number: command.number,
        outcome,
    }
}

/// The time at which a read is executed. The log's time stands still while nothing is written, but
/// the remaining life of a key must still count down; and only a stamp in the log can end it. So it
/// is the replica's `clock`, but never later than just before the next deadline.
fn reading_time(log: Timestamp, clock: Timestamp, deadline: Option<Timestamp>) -> Timestamp {
    let Timestamp(deadline) = deadline.unwrap_or(Timestamp(u64::MAX));
    log.max(clock.min(Timestamp(deadline.saturating_sub(1))))
}

fn needs_of(machine: &dyn StateMachine, guard: &dyn Guard) -> Option<Need> {
    let mut need = None;
    guard.must_call(Must::Question, &mut || need = machine.needs());
    need
}

/// Empties a buffer for replies, and gives back what only a large reply has needed.
fn release(reply: &mut Vec<u8>) {
    // What is still in it would keep its memory.
    reply.clear();
    reply.shrink_to(MAX_IDLE_REPLY_BYTES);
}

#[cfg(test)]
mod tests;
