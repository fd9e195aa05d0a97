//! What the simulated clients do and what answers are right: the border between the simulator and
//! the service that a run replicates.

use bytes::Bytes;
use ionian_kernel::client::{Operation, ReadLevel};
use ionian_kernel::machine::StateMachine;
use ionian_kernel::random::Random;
use ionian_kernel::time::Timestamp;
use std::fmt::Display;
use std::hash::Hash;

/// A service as one thread of execution would carry it out: the measure of every answer. It falls
/// apart by key, so that each key's history can be checked alone.
pub trait Specification {
    /// What a client asks.
    type Action: Clone + Display;
    /// Its input.
    type Answer: Clone + PartialEq + Display;
    /// The state of one key.
    type State: Clone + Default + Eq + Hash;

    /// The one key that `action` touches. One for all where histories are kept key by key already.
    fn key(action: &Self::Action) -> u64 {
        let _ = action;
        0
    }
    /// Whether `action` changes nothing.
    fn is_read(action: &Self::Action) -> bool;
    /// Carries `action` out at this time of the log, as the machine was told it.
    fn apply(state: &mut Self::State, action: &Self::Action, at: Timestamp) -> Self::Answer;
}

/// A service with the clients that try it.
pub trait Model: Specification {
    /// Makes up the next request. Payloads of writes must differ from each other: that is how a
    /// command is known again in the log.
    fn next(&mut self, random: &mut Random, want: Want) -> Call<Self::Action>;
    /// Reads a request off one line of a play.
    ///
    /// # Errors
    /// Says what is wrong with the line.
    fn parse(&mut self, text: &str) -> Result<Call<Self::Action>, String>;
    /// Reads the service's reply.
    ///
    /// # Errors
    /// Says why the bytes are no reply to `action`.
    fn interpret(&self, action: &Self::Action, reply: &[u8]) -> Result<Self::Answer, String>;
    /// An empty service.
    fn machine(&self) -> Box<dyn StateMachine>;
}

/// What kind of request is wanted of a [`Model`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// Any, reads being of this level.
    Any(ReadLevel),
    /// One that goes through the log.
    Write,
    /// One that does not.
    Read(ReadLevel),
}

/// A request of a simulated client.
#[derive(Clone, Debug)]
pub struct Call<A> {
    /// Sent as this.
    pub operation: Operation,
    /// The bytes sent.
    pub payload: Bytes,
    /// What they ask. An action that is no read, sent as one, must be refused.
    pub action: A,
}
