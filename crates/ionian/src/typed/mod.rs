//! Machines whose commands and answers are types of yours instead of bytes.
//!
//! [`Machine`] is what you implement, [`Typed`] makes a [`StateMachine`] of it, and
//! [`TypedClient`] sends its commands. Values are encoded by the crate `serde` in the format of the
//! crate `postcard`, which is compact, and stays as it is: the log and snapshots keep it.
//!
//! ```
//! use ionian::{Context, Machine, ReadLevel, Typed, TypedClient};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Default, Serialize, Deserialize)]
//! struct Counter(u64);
//!
//! impl Machine for Counter {
//!     type Command = u64;
//!     type Reply = u64;
//!     type Query = ();
//!     type Answer = u64;
//!
//!     fn apply(&mut self, _: &Context, added: u64) -> u64 {
//!         self.0 = self.0.wrapping_add(added);
//!         self.0
//!     }
//!     fn read(&self, _: &Context, (): ()) -> u64 {
//!         self.0
//!     }
//! }
//!
//! let cluster = ionian::start::<Typed<Counter>>("colocated")?;
//! let client = TypedClient::<Counter>::new(cluster.client());
//! client.write_blocking(&2)?;
//! client.write_blocking(&3)?;
//! assert_eq!(client.read_blocking(&(), ReadLevel::Linearizable)?, 5);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod client;
mod context;
mod form;

use crate::{Footprint, LogCommand, NotARead, RestoreError, StateMachine, Timestamp};
pub use client::{TypedClient, TypedError};
pub use context::{CommandOrigin, Context};
pub(crate) use form::{Asked, asked};
#[cfg(feature = "testing")]
pub(crate) use form::{command, query};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A deterministic service with typed commands: [`Typed`] replicates it.
///
/// Every replica must compute the same state and the same answers from its state and the arguments:
/// no clock and no random numbers but those of the [`Context`], and no `HashMap` in the state,
/// because its order differs from process to process, and so would the snapshots. `BTreeMap` has an
/// order.
/// `testing::exercise`, with the feature `testing`, finds such defects.
///
/// If clients are not to be trusted, commands should not be recursive types, nor contain sequences
/// of elements without bytes, such as `Vec<()>`: short malformed bytes can then ask for a deep
/// stack or for many elements.
///
/// Its state before the first command is `Default`, and its snapshot is its encoding.
///
/// # How the types may change
/// The log and snapshots keep encoded values, so a new release of your program must read those of
/// the old one. The format has no names: add variants to an enum at its end, and never remove,
/// reorder or alter one. A struct may not get another field; wrap it in a new variant instead. All
/// replicas must compute the same, so a command with new behaviour is a new variant, sent only when
/// every node runs the new release: the old one answers it with [`TypedError::NotUnderstood`], and
/// then the replicas would differ.
pub trait Machine: Serialize + DeserializeOwned + Default + Send + 'static {
    /// What changes the state.
    type Command: Serialize + DeserializeOwned;
    /// The answer to a command.
    type Reply: Serialize + DeserializeOwned;
    /// What only reads.
    type Query: Serialize + DeserializeOwned;
    /// The answer to a query.
    type Answer: Serialize + DeserializeOwned;

    /// Executes a command.
    fn apply(&mut self, context: &Context, command: Self::Command) -> Self::Reply;

    /// Answers a query.
    fn read(&self, context: &Context, query: Self::Query) -> Self::Answer;

    /// What a command reads and writes: see [`StateMachine::footprint`]. By default it may touch
    /// everything.
    fn command_footprint(command: &Self::Command, footprint: &mut Footprint) {
        let _ = command;
        footprint.everything = true;
    }

    /// What a query reads, as [`command_footprint`](Self::command_footprint).
    fn query_footprint(query: &Self::Query, footprint: &mut Footprint) {
        let _ = query;
        footprint.everything = true;
    }

    /// The next time at which time alone changes what it answers: see
    /// [`StateMachine::next_deadline`].
    fn next_deadline(&self, now: Timestamp) -> Option<Timestamp> {
        let _ = now;
        None
    }
}

/// A [`Machine`] as a [`StateMachine`]: what [`start`](crate::start) and
/// [`Node::start`](crate::Node::start) run.
///
/// Bytes that are no command of the machine change nothing, and are answered with an error.
///
/// # Panics
/// [`snapshot`](StateMachine::snapshot) panics if the state cannot be encoded: the format needs to
/// know the lengths of sequences before, as those of the standard library are known. The test kit
/// finds that at once.
#[derive(Clone, Debug, Default)]
pub struct Typed<M>(pub M);

impl<M: Machine> Typed<M> {
    fn execute(&mut self, context: &Context, command: &[u8], reply: &mut Vec<u8>) {
        match asked::<M>(command) {
            Some(Asked::Command(command)) => {
                form::append_answer(&self.0.apply(context, command), reply);
            }
            // A protocol that orders reads among writes may execute them so.
            Some(Asked::Query(query)) => form::append_answer(&self.0.read(context, query), reply),
            None => form::append_not_understood(reply),
        }
    }
}

impl<M: Machine> StateMachine for Typed<M> {
    fn apply(&mut self, now: Timestamp, command: &[u8], reply: &mut Vec<u8>) {
        self.execute(&Context::new(now, None), command, reply);
    }

    fn apply_logged(&mut self, now: Timestamp, command: &LogCommand<'_>, reply: &mut Vec<u8>) {
        self.execute(&Context::new(now, Some(command)), command.payload, reply);
    }

    fn read(&self, now: Timestamp, query: &[u8], reply: &mut Vec<u8>) -> Result<(), NotARead> {
        match asked::<M>(query) {
            Some(Asked::Command(_)) => return Err(NotARead),
            Some(Asked::Query(query)) => {
                let answer = self.0.read(&Context::new(now, None), query);
                form::append_answer(&answer, reply);
            }
            None => form::append_not_understood(reply),
        }
        Ok(())
    }

    fn snapshot(&self, out: &mut Vec<u8>) {
        form::append(&self.0, out).expect("the state of a machine can be encoded");
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), RestoreError> {
        let what = std::any::type_name::<M>();
        self.0 = form::decode(snapshot)
            .ok_or_else(|| RestoreError(format!("the bytes are no encoding of {what}")))?;
        Ok(())
    }

    fn footprint(&self, command: &[u8], footprint: &mut Footprint) {
        match asked::<M>(command) {
            Some(Asked::Command(command)) => M::command_footprint(&command, footprint),
            Some(Asked::Query(query)) => M::query_footprint(&query, footprint),
            // It touches nothing: its answer is the same whatever the state.
            None => {}
        }
    }

    fn next_deadline(&self, now: Timestamp) -> Option<Timestamp> {
        self.0.next_deadline(now)
    }
}
