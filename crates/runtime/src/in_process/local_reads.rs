//! Reads by closures: how a closure gets from a thread of this process to a replica in this
//! process.
//!
//! A closure cannot be a message. It waits at the *desk* of this process under a number, and what
//! travels is an ordinary query that names desk and number. The machines in this process are
//! wrapped ([`Readable`]): one that is asked such a query calls the closure. Everywhere else it is
//! a query like any other, so roles do not change, and what holds of queries holds of closures:
//!
//! - **Levels**: a replica calls the closure when it would answer a query of that level. So the
//!   closure sees what such a query sees, with every protocol.
//! - **Other processes**: their machines do not know the desk, and say so. The read is repeated
//!   until a replica in this process has answered (see `serving.rs`).
//! - **Repetition**: lanes ask again, and two replicas may be asked: a closure may be called
//!   several times. The answer names the call whose result counts. That result is given to the
//!   caller when the answer has come through the lane, not before: only then does the lane know
//!   what the call has seen, and only then may a replica that executes before its disk is done be
//!   believed.
//! - **Panics**: they are caught here. The replica and its machine go on; the panic goes on in the
//!   caller.
//! - **Bounds**: at most [`MAX_WAITING`] closures wait, and of each [`MAX_KEPT`] results are kept.
//!   A closure leaves the desk when its caller has the result, has given up, or the node stops.

use bytes::Bytes;
use ionian_kernel::delegate;
use ionian_kernel::machine::{Footprint, NotARead, StateMachine};
use ionian_kernel::time::Timestamp;
use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// The most closures that wait at a desk.
const MAX_WAITING: usize = 4096;

/// The most results of one closure that are kept: of its last calls.
const MAX_KEPT: usize = 4;

/// The first bytes of queries that name a closure: no others begin so but by intent.
const MARK: [u8; 16] = [
    0xA5, 0x1C, 0xE7, 0x03, 0x5B, 0x92, 0xD8, 0x4F, 0x60, 0xBE, 0x27, 0xF1, 0x8A, 0x39, 0xC4, 0x76,
];

const ID_BYTES: usize = 16;
const QUERY_BYTES: usize = MARK.len() + ID_BYTES + size_of::<u64>();

type Value = Box<dyn Any + Send>;

/// A closure without its types. It returns `None` if the machine is of another type.
pub(crate) struct LocalRead(Box<Closure>);

type Closure = dyn Fn(&dyn Any) -> Option<Value> + Send;

/// What came of a call.
pub(crate) enum Called {
    Returned(Value),
    Panicked(Box<dyn Any + Send>),
    OtherMachine,
}

impl LocalRead {
    pub(crate) fn new<M: StateMachine, R: Send + 'static>(
        read: impl Fn(&M) -> R + Send + 'static,
    ) -> Self {
        LocalRead(Box::new(move |machine| {
            let value: Value = Box::new(read(machine.downcast_ref::<M>()?));
            Some(value)
        }))
    }

    fn call(&self, machine: &dyn Any) -> Called {
        match catch_unwind(AssertUnwindSafe(|| (self.0)(machine))) {
            Ok(Some(value)) => Called::Returned(value),
            Ok(None) => Called::OtherMachine,
            Err(panic) => Called::Panicked(panic),
        }
    }
}

/// A closure that waits, and what came of its last calls.
struct Waiting {
    read: LocalRead,
    calls: u64,
    kept: VecDeque<(u64, Called)>,
}

/// See the top of this file.
pub(crate) struct Desk {
    /// Random: no other process names its closures so.
    id: [u8; ID_BYTES],
    next: AtomicU64,
    waiting: Mutex<HashMap<u64, Arc<Mutex<Waiting>>>>,
    /// How many machines there are at this desk.
    machines: AtomicUsize,
}

impl Desk {
    pub(crate) fn new() -> Arc<Self> {
        let mut id = [0; ID_BYTES];
        for half in id.chunks_exact_mut(size_of::<u64>()) {
            half.copy_from_slice(&RandomState::new().hash_one(()).to_be_bytes());
        }
        Arc::new(Desk {
            id,
            next: AtomicU64::new(0),
            waiting: Mutex::default(),
            machines: AtomicUsize::new(0),
        })
    }

    /// Wraps a machine of this process.
    pub(crate) fn serve(self: &Arc<Self>, machine: Box<dyn StateMachine>) -> Box<dyn StateMachine> {
        self.machines.fetch_add(1, Ordering::Relaxed);
        Box::new(Readable {
            machine,
            desk: self.clone(),
        })
    }

    /// Whether there is a machine in this process.
    pub(crate) fn has_machine(&self) -> bool {
        self.machines.load(Ordering::Relaxed) > 0
    }

    /// A query that no closure answers, and every machine of the library: with nothing.
    pub(crate) fn no_query(&self) -> Bytes {
        self.query(u64::MAX)
    }

    fn query(&self, number: u64) -> Bytes {
        [&MARK[..], &self.id, &number.to_be_bytes()].concat().into()
    }

    /// Puts a closure on the desk, until the ticket is dropped; none if too many wait.
    pub(crate) fn put(self: &Arc<Self>, read: LocalRead) -> Option<Ticket> {
        let mut waiting = lock(&self.waiting);
        if waiting.len() >= MAX_WAITING {
            return None;
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let place = Arc::new(Mutex::new(Waiting {
            read,
            calls: 0,
            kept: VecDeque::new(),
        }));
        waiting.insert(number, place.clone());
        Some(Ticket {
            desk: self.clone(),
            number,
            query: self.query(number),
            place,
        })
    }

    /// Calls the closure that a query names, if it waits here.
    fn answer(&self, query: &[u8], machine: &dyn Any, reply: &mut Vec<u8>) {
        let (ours, number) = query.split_at(MARK.len() + ID_BYTES);
        if ours[MARK.len()..] != self.id {
            return reply.extend_from_slice(&MARK);
        }
        let number = u64::from_be_bytes(number.try_into().expect("the length was checked"));
        let Some(place) = lock(&self.waiting).get(&number).cloned() else {
            return;
        };
        let mut place = lock(&place);
        let called = place.read.call(machine);
        place.calls += 1;
        let call = place.calls;
        place.kept.push_back((call, called));
        if place.kept.len() > MAX_KEPT {
            place.kept.pop_front();
        }
        reply.extend_from_slice(query);
        reply.extend_from_slice(&call.to_be_bytes());
    }
}

/// A closure on the desk.
pub(crate) struct Ticket {
    desk: Arc<Desk>,
    number: u64,
    query: Bytes,
    place: Arc<Mutex<Waiting>>,
}

impl Ticket {
    /// The query that has the closure called.
    pub(crate) fn query(&self) -> Bytes {
        self.query.clone()
    }

    /// What came of the call that an answer names; none if a machine answered that does not know
    /// the closure.
    pub(crate) fn take(&self, answer: &[u8]) -> Option<Called> {
        let call = answer.strip_prefix(&self.query[..])?;
        let call = u64::from_be_bytes(call.try_into().ok()?);
        let mut place = lock(&self.place);
        let at = place.kept.iter().position(|(it, _)| *it == call)?;
        place.kept.remove(at).map(|(_, called)| called)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        lock(&self.desk.waiting).remove(&self.number);
    }
}

/// A machine that calls closures, and is otherwise the machine within.
struct Readable {
    machine: Box<dyn StateMachine>,
    desk: Arc<Desk>,
}

/// Whether this is the answer of a machine in another process that knows such queries: to it the
/// query reads everything.
pub(crate) fn is_of_another_process(answer: &[u8]) -> bool {
    answer == MARK
}

fn names_closure(query: &[u8]) -> bool {
    query.len() == QUERY_BYTES && query.starts_with(&MARK)
}

impl StateMachine for Readable {
    delegate!(machine: apply snapshot freeze restore parts next_deadline needs work);

    fn read(&self, now: Timestamp, query: &[u8], reply: &mut Vec<u8>) -> Result<(), NotARead> {
        if names_closure(query) {
            self.desk.answer(query, &*self.machine, reply);
            return Ok(());
        }
        self.machine.read(now, query, reply)
    }

    fn footprint(&self, command: &[u8], footprint: &mut Footprint) {
        match names_closure(command) {
            true => footprint.everything = true,
            false => self.machine.footprint(command, footprint),
        }
    }
}

impl Drop for Readable {
    fn drop(&mut self) {
        self.desk.machines.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The lock is not held while foreign code runs, but for a closure whose panic is caught.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no holder of this lock panics")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ionian_kernel::machine::RestoreError;

    struct Number(u64);

    impl StateMachine for Number {
        fn apply(&mut self, _: Timestamp, _: &[u8], _: &mut Vec<u8>) {
            self.0 += 1;
        }
        fn read(&self, _: Timestamp, query: &[u8], reply: &mut Vec<u8>) -> Result<(), NotARead> {
            reply.extend_from_slice(query);
            Ok(())
        }
        fn snapshot(&self, _: &mut Vec<u8>) {}
        fn restore(&mut self, _: &[u8]) -> Result<(), RestoreError> {
            Ok(())
        }
        fn footprint(&self, _: &[u8], footprint: &mut Footprint) {
            footprint.reads.push(1);
        }
    }

    fn ask(machine: &dyn StateMachine, query: &[u8]) -> Vec<u8> {
        let mut reply = Vec::new();
        machine
            .read(Timestamp(1), query, &mut reply)
            .expect("a read");
        reply
    }

    fn number(called: Option<Called>) -> Option<u64> {
        match called? {
            Called::Returned(value) => value.downcast().ok().map(|number| *number),
            _ => None,
        }
    }

    #[test]
    fn each_call_has_its_result_and_only_the_last_are_kept() {
        let desk = Desk::new();
        let mut machine = desk.serve(Box::new(Number(0)));
        let ticket = desk.put(LocalRead::new(|it: &Number| it.0)).expect("room");
        let mut answers = Vec::new();
        for _ in 0..MAX_KEPT + 1 {
            machine.apply(Timestamp(1), b"", &mut Vec::new());
            answers.push(ask(&*machine, &ticket.query()));
        }
        assert_eq!(number(ticket.take(&answers[0])), None, "not kept");
        assert_eq!(number(ticket.take(&answers[3])), Some(4));
        assert_eq!(number(ticket.take(&answers[3])), None, "taken");
        assert_eq!(number(ticket.take(&answers[4])), Some(5));
        assert_eq!(number(ticket.take(b"an answer of a machine")), None);
    }

    #[test]
    fn a_machine_of_another_process_says_so_and_other_queries_pass() {
        let (desk, other) = (Desk::new(), Desk::new());
        let ticket = desk.put(LocalRead::new(|it: &Number| it.0)).expect("room");
        let (here, there) = (
            desk.serve(Box::new(Number(7))),
            other.serve(Box::new(Number(7))),
        );
        let elsewhere = ask(&*there, &ticket.query());
        assert!(is_of_another_process(&elsewhere) && ticket.take(&elsewhere).is_none());
        assert_eq!(ask(&*here, &desk.no_query()), b"");
        assert_eq!(ask(&*here, b"query"), b"query");
        let mut footprint = Footprint::default();
        here.footprint(b"query", &mut footprint);
        assert!(!footprint.everything && footprint.reads == [1]);
        here.footprint(&ticket.query(), &mut footprint);
        assert!(footprint.everything);
        let query = ticket.query();
        drop(ticket);
        assert_eq!(ask(&*here, &query), b"", "it has left the desk");
        assert!(desk.has_machine());
        drop(here);
        assert!(!desk.has_machine());
    }

    #[test]
    fn a_panic_and_another_type_are_told_apart() {
        let desk = Desk::new();
        let machine = desk.serve(Box::new(Number(0)));
        let fails = desk.put(LocalRead::new(|_: &Number| -> u64 { panic!("on purpose") }));
        let fails = fails.expect("room");
        let called = fails.take(&ask(&*machine, &fails.query()));
        assert!(matches!(called, Some(Called::Panicked(_))));
        let called = fails.take(&ask(&*machine, &fails.query()));
        assert!(
            matches!(called, Some(Called::Panicked(_))),
            "it can be called again"
        );
        let other = desk
            .put(LocalRead::new(|_: &Readable| 1_u64))
            .expect("room");
        let called = other.take(&ask(&*machine, &other.query()));
        assert!(matches!(called, Some(Called::OtherMachine)));
    }

    #[test]
    fn the_desk_has_a_limit() {
        let desk = Desk::new();
        let put = || desk.put(LocalRead::new(|it: &Number| it.0));
        let all: Vec<_> = (0..MAX_WAITING).map(|_| put().expect("room")).collect();
        assert!(put().is_none());
        drop(all);
        assert!(put().is_some());
    }
}
