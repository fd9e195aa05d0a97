//! What the simulated clients send and which answers are correct: the interface between the
//! simulator and the replicated service.

use bytes::Bytes;
use ionian_kernel::client::{Operation, ReadLevel};
use ionian_kernel::machine::StateMachine;
use ionian_kernel::random::Random;
use ionian_kernel::time::Timestamp;
use std::fmt::Display;
use std::hash::Hash;

/// A service as a single thread would execute it, which defines the correct answers. Keys are
/// independent, so each key's history can be checked alone, but with those of the keys that some
/// action touches together with it.
pub trait Specification {
    /// A client's request.
    type Action: Clone + Display;
    /// The answer.
    type Answer: Clone + PartialEq + Display;
    /// The state of the keys of a history.
    type State: Clone + Default + Eq + Hash;

    /// The key that `action` touches; the only one, if it has no [others](Self::others). The same
    /// for all actions if histories are separated by key already.
    fn key(action: &Self::Action) -> u64 {
        let _ = action;
        0
    }
    /// The keys that `action` touches beside that one: all at one moment.
    fn others(action: &Self::Action) -> Others {
        let _ = action;
        Others::None
    }
    /// Whether `action` changes nothing.
    fn is_read(action: &Self::Action) -> bool;
    /// Executes `action` at this time in the log, as the machine received it.
    fn apply(state: &mut Self::State, action: &Self::Action, at: Timestamp) -> Self::Answer;
}

/// What a request touches beside its [key](Specification::key).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Others {
    /// No other key.
    None,
    /// This key.
    One(u64),
    /// All keys.
    All,
}

/// A service with the clients that test it.
pub trait Model: Specification {
    /// Creates the next request. Payloads of writes must differ from each other, because they
    /// identify a command in the log.
    fn next(&mut self, random: &mut Random, want: Want) -> Call<Self::Action>;
    /// Parses the service's reply.
    ///
    /// # Errors
    /// Describes why the bytes are not a reply to `action`.
    fn interpret(&self, action: &Self::Action, reply: &[u8]) -> Result<Self::Answer, String>;
    /// An empty service.
    fn machine(&self) -> Box<dyn StateMachine>;
}

/// The kind of request that a [`Model`] must create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// Any kind; reads have this level.
    Any(ReadLevel),
    /// A request that goes through the log.
    Write,
    /// A request that does not go through the log.
    Read(ReadLevel),
}

/// A request of a simulated client.
#[derive(Clone, Debug)]
pub struct Call<A> {
    /// The kind of operation.
    pub operation: Operation,
    /// The bytes sent.
    pub payload: Bytes,
    /// The meaning of the bytes. An action that is not a read, sent as one, must be refused.
    pub action: A,
}
