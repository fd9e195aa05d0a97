//! Parallel execution of one log (P-SMR, section III: semi-parallel state machine replication,
//! sP-SMR): the replica's thread is the *scheduler*, and gives what is independent to workers.
//!
//! The state machine is divided into parts by keys. A command whose footprint lies in one part goes
//! to the queue of that part, where it is executed after all that came before it there. A command
//! that touches several parts, or everything, waits until those are done, and is executed by the
//! scheduler on the whole machine. So commands that depend on each other are executed in the order
//! of the log; the state and the answers are those of one thread, and do not depend on the number
//! of workers, nor on which is done first.
//!
//! A part is owned by one thread at a time: it moves to a worker with its queue, and back. Whatever
//! comes in the meantime waits here, and is what the worker gets next: under load each hand-over
//! carries many commands. A few commands are not worth a hand-over; the scheduler executes
//! them itself, as it does a lone one.
//!
//! The table of sessions stays with the scheduler, which decides whether a command is new
//! ([`Results`](crate::session::Results)).

use super::part::{Item, Origin, Part, Queue};
use super::tally::Tally;
use super::{Executor, answer_to};
use crate::batch::{AnswersByClient, Batch, Command, Purpose, Value};
use crate::session::Standing;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use ionian_kernel::guard::{Call, Guard, LogCommand};
use ionian_kernel::id::{SessionId, Slot};
use ionian_kernel::machine::Footprint;
use ionian_kernel::time::{Timestamp, earliest};
use ionian_kernel::work::{Task, Workers};

/// The most parts that a machine is divided into: as many as a word has bits.
pub(super) const MAX_PARTS: usize = 64;

/// A part for which this many commands wait is waited for.
const MAX_QUEUED: usize = 4096;

/// See the top of this file.
pub(super) struct Parallel {
    workers: Box<dyn Workers>,
    places: Vec<Place>,
    /// What the command under way touches. Reused.
    footprint: Footprint,
    /// How many commands and queries workers were given, and how many were executed by the
    /// scheduler because they touch several parts.
    given: u64,
    spanning: u64,
    /// How many batches were dispatched.
    batches: u64,
}

/// A part as the scheduler sees it.
struct Place {
    /// The part; none while a worker has it.
    part: Option<Box<Part>>,
    /// What waits for it.
    queue: Queue,
    /// When the passing of time next changes what it answered when it was here last.
    deadline: Option<Timestamp>,
}

/// Where a command is executed.
enum Where {
    /// In this part.
    In(usize),
    /// On the whole machine, with the parts that it touches.
    Spanning,
}

impl Parallel {
    pub(super) fn new(workers: Box<dyn Workers>, count: usize, guard: &Arc<dyn Guard>) -> Self {
        let place = |_| Place {
            part: Some(Box::new(Part::new(guard.clone()))),
            queue: Queue::default(),
            deadline: None,
        };
        Parallel {
            workers,
            places: (0..count).map(place).collect(),
            footprint: Footprint::default(),
            given: 0,
            spanning: 0,
            batches: 0,
        }
    }

    /// Waits until a part is here. Its queue may have grown meanwhile.
    fn wait(&mut self, at: usize) {
        if self.places[at].part.is_none() {
            let task = self.workers.wait(at);
            self.put_back(at, task);
        }
    }

    /// Takes a part back if its worker is done.
    fn poll(&mut self, at: usize) {
        if self.places[at].part.is_none()
            && let Some(task) = self.workers.poll(at)
        {
            self.put_back(at, task);
        }
    }

    fn put_back(&mut self, at: usize, task: Box<dyn Task>) {
        let task: Box<dyn Any> = task;
        let part = task.downcast::<Part>().expect("workers give back parts");
        self.places[at].part = Some(part);
    }

    fn start(&mut self, at: usize, now: Timestamp) {
        let place = &mut self.places[at];
        let mut part = place.part.take().expect("it is here");
        part.add(&mut place.queue, now);
        let pieces = part.queue.len();
        self.given += pieces as u64;
        self.workers.start(at, pieces, part);
    }
}

impl Executor {
    /// How many threads execute commands, how many commands and queries went to another thread, and
    /// how many waited for several parts of the machine.
    pub fn workers(&self) -> [u64; 3] {
        let parallel = self.parallel.as_ref();
        parallel.map_or([1, 0, 0], |it| {
            [it.places.len() as u64, it.given, it.spanning]
        })
    }

    /// Whether several threads execute commands.
    pub fn is_parallel(&self) -> bool {
        self.parallel.is_some()
    }

    fn places(&self) -> core::ops::Range<usize> {
        0..self.parallel.as_ref().map_or(0, |it| it.places.len())
    }

    /// The deadlines of the parts that are lent.
    pub(super) fn next_deadline_of_parts(&self) -> Option<Timestamp> {
        let places = self.parallel.iter().flat_map(|it| &it.places);
        places.fold(None, |first, place| {
            let here = place.part.as_ref();
            let deadline = here.map_or(place.deadline, |part| part.next_deadline(self.now));
            earliest(first, deadline)
        })
    }

    /// The work of the parts that are here.
    pub(super) fn work_of_parts(&self) -> u64 {
        let places = self.parallel.iter().flat_map(|it| &it.places);
        let parts = places.filter_map(|place| place.part.as_ref());
        parts.map(|part| part.work()).sum()
    }

    /// Executes the commands of a batch, or has them executed.
    pub(super) fn dispatch(
        &mut self,
        slot: Slot,
        value: &Value,
        answers: &mut Option<&mut AnswersByClient>,
    ) {
        let batch = self.next_batch();
        for command in value.batch.commands() {
            let level = self.level();
            let Purpose::Execute(session) = command.purpose else {
                if command.purpose == Purpose::Open {
                    // The results count for the limits of the table.
                    self.take_results_back();
                }
                // A change of the level asks the whole machine what it needs, and what comes before
                // it in the batch is executed at the level before.
                if matches!(command.purpose, Purpose::Read | Purpose::Change) {
                    self.gather(u64::MAX);
                }
                self.execute_in_turn::<false>(slot, value, &command, answers);
                continue;
            };
            let (number, floor) = (command.number, command.floor);
            self.reply.clear();
            let begin = &mut self.sessions;
            let mut standing = begin.begin(value.stamp, session, number, floor, &mut self.reply);
            if standing == Standing::Away {
                self.take_results_back();
                let begin = &mut self.sessions;
                standing = begin.begin(value.stamp, session, number, floor, &mut self.reply);
            }
            let touch = Call::Footprint(Some(LogCommand {
                slot,
                session,
                number,
                payload: command.payload,
                level,
            }));
            if standing == Standing::New
                && let Where::In(at) = self.place_of(touch, command.payload)
            {
                let (now, answers) = (self.now, answers.is_some());
                let queue = &mut self.parallel_mut().places[at].queue;
                queue.come_from(batch, || Origin {
                    bytes: value.batch.bytes(),
                    slot,
                    now,
                    clock: Timestamp(0),
                    level,
                    answers,
                });
                let floor = self.sessions.send_away(session, number);
                let item = item(&value.batch, &command, Some((session, floor)));
                self.parallel_mut().places[at].queue.push(item);
                self.hand_over(at);
                continue;
            }
            let outcome = self.settle::<false>(slot, standing, session, &command);
            if let (Some(outcome), Some(answers)) = (outcome, answers.as_mut()) {
                answers.push(&answer_to(&command, outcome));
            }
        }
        super::release(&mut self.reply);
    }

    /// Where a command or query is executed. If it spans parts, those are back in the machine.
    /// It spans all if the machine fails to say, or is not asked.
    fn place_of(&mut self, what: Call<'_>, payload: &[u8]) -> Where {
        let mut footprint = core::mem::take(&mut self.parallel_mut().footprint);
        footprint.everything = false;
        footprint.reads.clear();
        footprint.writes.clear();
        let Executor {
            machine,
            guard,
            parallel,
            ..
        } = self;
        let call = &mut || machine.footprint(payload, &mut footprint);
        let failed = guard.call(what, call).is_err();
        let parallel = parallel.as_mut().expect("it has parts");
        let parts = machine.parts().expect("it has parts");
        let mut touched = 0_u64;
        for key in footprint.reads.iter().chain(&footprint.writes) {
            touched |= 1 << parts.part_of(*key);
        }
        if footprint.everything || failed {
            touched = u64::MAX;
        }
        parallel.footprint = footprint;
        if touched.is_power_of_two() {
            return Where::In(touched.trailing_zeros() as usize);
        }
        if touched != 0 {
            parallel.spanning += 1;
            self.gather(touched);
        }
        Where::Spanning
    }

    /// A number for the batch that comes next.
    fn next_batch(&mut self) -> u64 {
        let parallel = self.parallel_mut();
        parallel.batches += 1;
        parallel.batches
    }

    fn parallel_mut(&mut self) -> &mut Parallel {
        self.parallel.as_mut().expect("it has parts")
    }

    /// Hands a part over if enough waits for it and it is here.
    fn hand_over(&mut self, at: usize) {
        let parallel = self.parallel_mut();
        let waiting = parallel.places[at].queue.len();
        if waiting < parallel.workers.worth().min(MAX_QUEUED) {
            return;
        }
        match waiting >= MAX_QUEUED {
            true => parallel.wait(at),
            false => parallel.poll(at),
        }
        if self.parallel_mut().places[at].part.is_some() {
            self.start(at);
        }
    }

    /// Gives a part that is here to its worker.
    fn start(&mut self, at: usize) {
        self.lend(at);
        let now = self.now;
        self.parallel_mut().start(at, now);
    }

    /// Gives a part that is here its state, if it does not have it.
    fn lend(&mut self, at: usize) {
        let Executor {
            machine, parallel, ..
        } = self;
        let parallel = parallel.as_mut().expect("it has parts");
        let part = parallel.places[at].part.as_mut().expect("it is here");
        if part.machine.is_none() {
            part.machine = Some(machine.parts().expect("it has parts").lend(at));
        }
    }

    /// Executes what waits for these parts, as far as answers to queries have room: workers do
    /// what is worth it, at the same time, and the scheduler the rest.
    fn run_all(&mut self, touched: u64) {
        let of_them = move |at: &usize| touched & 1 << at != 0;
        for at in self.places().filter(of_them) {
            let parallel = self.parallel_mut();
            parallel.wait(at);
            if parallel.places[at].queue.len() >= parallel.workers.worth() {
                self.start(at);
            }
        }
        self.places().filter(of_them).for_each(|at| self.run(at));
    }

    /// Executes here what waits for a part.
    fn run(&mut self, at: usize) {
        let now = self.now;
        self.parallel_mut().wait(at);
        let place = &mut self.parallel_mut().places[at];
        let part = place.part.as_mut().expect("it is here");
        part.add(&mut place.queue, now);
        if !part.queue.is_empty() {
            self.lend(at);
            let part = self.parallel_mut().places[at].part.as_mut();
            part.expect("it is here").run();
        }
    }

    /// Waits until all commands that were given to these parts are executed, and takes the parts
    /// back into the machine.
    fn gather(&mut self, touched: u64) {
        self.run_all(touched);
        for at in self.places().filter(|at| touched & 1 << at != 0) {
            let Executor {
                machine, parallel, ..
            } = self;
            let place = &mut parallel.as_mut().expect("it has parts").places[at];
            place.deadline = None;
            let part = place.part.as_mut().expect("it is here");
            if let Some(lent) = part.machine.take() {
                machine.parts().expect("it has parts").take_back(at, lent);
            }
        }
    }

    /// Waits for all parts, and takes back the results that they keep.
    fn take_results_back(&mut self) {
        self.run_all(u64::MAX);
        for at in self.places() {
            let Executor {
                sessions, parallel, ..
            } = self;
            let place = &mut parallel.as_mut().expect("it has parts").places[at];
            let part = place.part.as_mut().expect("it is here");
            sessions.take_back(&mut part.results);
        }
    }

    /// Waits until the commands are executed that were given to parts, and shows what each part
    /// sums up.
    pub(super) fn tally_of_parts(&mut self, act: &mut dyn FnMut(&mut Tally)) {
        if self.parallel.is_none() {
            return;
        }
        self.run_all(u64::MAX);
        for at in self.places() {
            let place = &mut self.parallel_mut().places[at];
            act(&mut place.part.as_mut().expect("it is here").tally);
        }
    }

    /// Makes the machine and the table of sessions whole: for a snapshot, or to replace them.
    pub(super) fn make_whole(&mut self) {
        if self.parallel.is_some() {
            self.take_results_back();
            self.gather(u64::MAX);
        }
    }

    /// The machine was replaced: divides it again.
    pub(super) fn divide_again(&mut self) {
        if let Some(parallel) = &self.parallel
            && let Some(parts) = self.machine.parts()
        {
            let count = parts.divide(parallel.places.len());
            assert_eq!(count, parallel.places.len(), "a machine has other parts");
        }
    }

    /// Has the queries of a batch answered.
    pub(super) fn dispatch_reads(
        &mut self,
        clock: Timestamp,
        batch: &Batch,
        answers: &mut AnswersByClient,
    ) -> Option<Batch> {
        let number = self.next_batch();
        for (done, command) in (0..).zip(batch.commands()) {
            if answers.is_full() {
                return Some(batch.after(done));
            }
            match self.place_of(Call::Footprint(None), command.payload) {
                Where::In(at) => {
                    let (now, level) = (self.now, self.level());
                    let queue = &mut self.parallel_mut().places[at].queue;
                    queue.come_from(number, || Origin {
                        bytes: batch.bytes(),
                        slot: Slot::ZERO,
                        now,
                        clock,
                        level,
                        answers: true,
                    });
                    queue.push(item(batch, &command, None));
                    self.hand_over(at);
                }
                Where::Spanning => {
                    let now = self.reading_time(clock);
                    let outcome = self.read_one(now, command.payload);
                    answers.push(&answer_to(&command, outcome));
                }
            }
        }
        None
    }

    /// Gives out the answers of parts that are done, with `give`; begins what waits, if it is worth
    /// it. Does not wait.
    pub fn collect(&mut self, give: &mut dyn FnMut(&mut AnswersByClient)) {
        for at in self.places() {
            self.parallel_mut().poll(at);
            self.give_answers(at, give);
            self.hand_over(at);
        }
    }

    /// Waits until all that was dispatched is executed, and gives out the answers with `give`.
    pub fn finish(&mut self, give: &mut dyn FnMut(&mut AnswersByClient)) {
        if self.parallel.is_none() {
            return;
        }
        loop {
            self.run_all(u64::MAX);
            let mut waiting = false;
            for at in self.places() {
                self.give_answers(at, give);
                let place = &mut self.parallel_mut().places[at];
                let part = place.part.as_ref().expect("it is here");
                waiting |= !part.queue.is_empty();
            }
            if !waiting {
                break;
            }
        }
        let parallel = self.parallel_mut();
        let mut results = parallel.places.iter().flat_map(|it| &it.part);
        if results.any(|part| part.results.are_many()) {
            self.take_results_back();
        }
    }

    fn give_answers(&mut self, at: usize, give: &mut dyn FnMut(&mut AnswersByClient)) {
        let now = self.now;
        let place = &mut self.parallel_mut().places[at];
        if let Some(part) = &mut place.part {
            place.deadline = part.next_deadline(now);
            let failed = core::mem::take(&mut part.failed_reads);
            part.take_answers()
                .for_each(|mut answers| give(&mut answers));
            if !part.answers.is_empty() {
                give(&mut part.answers);
            }
            self.failed_reads += failed;
        }
    }
}

fn item(batch: &Batch, command: &Command<&[u8]>, session: Option<(SessionId, u64)>) -> Item {
    Item {
        origin: 0,
        client: command.client,
        number: command.number,
        payload: batch.place_of(command.payload),
        session,
    }
}

#[cfg(test)]
mod tests;
