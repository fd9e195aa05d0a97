//! A part of the state machine with the commands and queries that wait for it: what one thread
//! works on at a time.

use super::reading_time;
use super::tally::Tally;
use crate::batch::{Answer, AnswersByClient, Outcome, Purpose};
use crate::session::Results;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use bytes::Bytes;
use ionian_kernel::guard::{Call, Guard, LogCommand, Must};
use ionian_kernel::id::{ClientId, SessionId, Slot};
use ionian_kernel::level::Level;
use ionian_kernel::machine::StateMachine;
use ionian_kernel::time::Timestamp;
use ionian_kernel::work::Task;

/// What several commands or queries of one batch have in common.
pub(super) struct Origin {
    /// The bytes of the batch.
    pub(super) bytes: Bytes,
    /// Its slot.
    pub(super) slot: Slot,
    /// The time of the log, as far as the batch.
    pub(super) now: Timestamp,
    /// For queries: the time of this replica.
    pub(super) clock: Timestamp,
    /// The level of the cluster there.
    pub(super) level: Level,
    /// Whether this replica answers.
    pub(super) answers: bool,
}

/// A command of a session, or a query.
pub(super) struct Item {
    /// The place of its origin in the queue, which gives it.
    pub(super) origin: u32,
    pub(super) client: ClientId,
    pub(super) number: u64,
    /// Where its payload begins and ends in the bytes of its batch.
    pub(super) payload: (u32, u32),
    /// Its session, and the floor there; none for a query.
    pub(super) session: Option<(SessionId, u64)>,
}

/// What waits for a part. Commands are executed in their order. Queries come after them: a query
/// may see more than it must.
#[derive(Default)]
pub(super) struct Queue {
    origins: Vec<Origin>,
    commands: VecDeque<Item>,
    queries: VecDeque<Item>,
    /// The number of the batch that was the last origin; 0 where there is none yet.
    last: u64,
}

impl Queue {
    /// How many commands and queries wait.
    pub(super) fn len(&self) -> usize {
        self.commands.len() + self.queries.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.commands.is_empty() && self.queries.is_empty()
    }

    /// What the next items have in common, if they are not of the same batch as the last ones.
    pub(super) fn come_from(&mut self, batch: u64, origin: impl FnOnce() -> Origin) {
        if core::mem::replace(&mut self.last, batch) != batch {
            self.origins.push(origin());
        }
    }

    /// Adds an item of the origin that was added last.
    pub(super) fn push(&mut self, mut item: Item) {
        item.origin = self.origins.len() as u32 - 1;
        match item.session {
            Some(_) => self.commands.push_back(item),
            None => self.queries.push_back(item),
        }
    }

    /// Adds what waits in another queue, which is empty then.
    fn append(&mut self, other: &mut Queue) {
        other.last = 0;
        if self.is_empty() {
            return core::mem::swap(self, other);
        }
        let before = self.origins.len() as u32;
        self.origins.append(&mut other.origins);
        let moved = |mut item: Item| {
            item.origin += before;
            item
        };
        self.commands.extend(other.commands.drain(..).map(moved));
        self.queries.extend(other.queries.drain(..).map(moved));
    }
}

/// See the top of this file.
pub(super) struct Part {
    /// Its state, if that is lent.
    pub(super) machine: Option<Box<dyn StateMachine>>,
    guard: Arc<dyn Guard>,
    pub(super) queue: Queue,
    pub(super) results: Results,
    pub(super) answers: AnswersByClient,
    /// Answers that are full.
    full: Vec<AnswersByClient>,
    /// The time of the log when it was last given anything.
    now: Timestamp,
    reply: Vec<u8>,
    pub(super) failed_reads: u64,
    pub(super) tally: Tally,
}

impl Part {
    pub(super) fn new(guard: Arc<dyn Guard>) -> Self {
        Part {
            machine: None,
            guard,
            queue: Queue::default(),
            results: Results::default(),
            answers: AnswersByClient::default(),
            full: Vec::new(),
            now: Timestamp(0),
            reply: Vec::new(),
            failed_reads: 0,
            tally: Tally::default(),
        }
    }

    /// Adds what waits in a queue, which is empty then. The log has this time by now.
    pub(super) fn add(&mut self, queue: &mut Queue, now: Timestamp) {
        self.queue.append(queue);
        self.now = now;
    }

    /// Answers of which there were too many for one message.
    pub(super) fn take_answers(&mut self) -> impl Iterator<Item = AnswersByClient> {
        self.full.drain(..)
    }

    /// When the passing of time next changes what it answers.
    pub(super) fn next_deadline(&self, now: Timestamp) -> Option<Timestamp> {
        let machine = self.machine.as_ref()?;
        let mut deadline = None;
        self.guard.must_call(Must::Question, &mut || {
            deadline = machine.next_deadline(now)
        });
        deadline
    }

    /// How much work its commands have taken since it was lent.
    pub(super) fn work(&self) -> u64 {
        let Some(machine) = &self.machine else {
            return 0;
        };
        let mut work = 0;
        self.guard
            .must_call(Must::Question, &mut || work = machine.work());
        work
    }

    fn answer(&mut self, item: &Item, purpose: Purpose, outcome: Option<Outcome<()>>) {
        let outcome = match outcome {
            None => Outcome::Done(&self.reply[..]),
            Some(Outcome::NotARead) => Outcome::NotARead,
            Some(_) => Outcome::Failed,
        };
        if self.answers.is_full() {
            self.full.push(core::mem::take(&mut self.answers));
        }
        self.answers.push(&Answer {
            client: item.client,
            purpose,
            number: item.number,
            outcome,
        });
    }

    fn execute(&mut self, item: &Item, session: SessionId, floor: u64) {
        let origin = &self.queue.origins[item.origin as usize];
        let payload = &origin.bytes[item.payload.0 as usize..item.payload.1 as usize];
        let logged = LogCommand {
            slot: origin.slot,
            session,
            number: item.number,
            payload,
            level: origin.level,
        };
        let (machine, reply) = (self.machine.as_mut().expect("lent"), &mut self.reply);
        let call = &mut || machine.apply_logged(origin.now, &logged, reply);
        let done = self.guard.call(Call::Apply(logged), call);
        let (is_done, answers) = (done.is_ok(), origin.answers);
        let result = is_done.then_some(&self.reply[..]);
        self.tally.begin(origin.slot);
        self.tally.add(origin.slot, session, item.number, result);
        self.results.keep(session, item.number, floor, result);
        if answers {
            let failed = (!is_done).then_some(Outcome::Failed);
            self.answer(item, Purpose::Execute(session), failed);
        }
    }

    fn read(&mut self, item: &Item) {
        let origin = &self.queue.origins[item.origin as usize];
        let query = &origin.bytes[item.payload.0 as usize..item.payload.1 as usize];
        // No other part's deadline matters here. The state may be that of a later time than when
        // the query came.
        let log = self.now.max(origin.now);
        let now = reading_time(log, origin.clock, self.next_deadline(log));
        let (machine, reply) = (self.machine.as_ref().expect("lent"), &mut self.reply);
        let mut read = Ok(());
        let call = &mut || read = machine.read(now, query, reply);
        let outcome = match self.guard.call(Call::Read(query), call) {
            Ok(()) => read.is_err().then_some(Outcome::NotARead),
            Err(_) => {
                self.failed_reads += 1;
                Some(Outcome::Failed)
            }
        };
        self.answer(item, Purpose::Read, outcome);
    }
}

impl Task for Part {
    /// Executes all commands, and answers queries until the answers are
    /// [full](AnswersByClient::is_full).
    fn run(&mut self) {
        while let Some(item) = self.queue.commands.pop_front() {
            self.reply.clear();
            let (session, floor) = item.session.expect("a command has a session");
            self.execute(&item, session, floor);
        }
        while !self.answers.is_full()
            && let Some(item) = self.queue.queries.pop_front()
        {
            self.reply.clear();
            self.read(&item);
        }
        super::release(&mut self.reply);
        if self.queue.is_empty() {
            self.queue.origins.clear();
        }
    }
}
