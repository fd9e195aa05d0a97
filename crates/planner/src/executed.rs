//! How many commands a message makes a node execute. Where the message that has them executed does
//! not contain them (a cut of Scalog, an acknowledgement of CRAQ), its cost depends on their
//! number, and not on its bytes.

use bytes::Bytes;
use ionian_costs::Service;
use ionian_kernel::client::Operation;
use ionian_kernel::delegate;
use ionian_kernel::machine::{NotARead, StateMachine};
use ionian_kernel::time::Timestamp;
use std::cell::Cell;

thread_local! {
    static EXECUTED: Cell<u64> = const { Cell::new(0) };
}

/// How many commands and queries the machines that are [`Counted`] have executed on this thread.
pub fn executed() -> u64 {
    EXECUTED.get()
}

/// A state machine whose commands and queries are counted.
pub struct Counted(pub Box<dyn StateMachine>);

impl StateMachine for Counted {
    delegate!(0: snapshot freeze restore footprint parts next_deadline work);

    fn apply(&mut self, now: Timestamp, command: &[u8], reply: &mut Vec<u8>) {
        EXECUTED.set(EXECUTED.get() + 1);
        self.0.apply(now, command, reply);
    }

    fn read(&self, now: Timestamp, query: &[u8], reply: &mut Vec<u8>) -> Result<(), NotARead> {
        EXECUTED.set(EXECUTED.get() + 1);
        self.0.read(now, query, reply)
    }
}

/// A service whose machine counts.
pub struct CountedService<S>(pub S);

impl<S: Service> Service for CountedService<S> {
    fn machine(&self) -> Box<dyn StateMachine> {
        Box::new(Counted(self.0.machine()))
    }

    fn command(&self, number: usize) -> (Operation, Bytes) {
        self.0.command(number)
    }
}
