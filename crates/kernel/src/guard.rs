//! What stands between an executor and the user's machine. Every call of the machine goes through
//! it, so that a driver can do what a role cannot: catch a panic, and leave out a command that was
//! given up.

use crate::id::{SessionId, Slot};
use crate::level::Level;

/// What a machine is called for that can fail, or be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call<'a> {
    /// A command of the log is executed.
    Apply(LogCommand<'a>),
    /// It is asked what a query touches, or a command: this one of the log, if it is in it.
    Footprint(Option<LogCommand<'a>>),
    /// A query is answered.
    Read(&'a [u8]),
}

/// What a machine is called for that has no other outcome than that it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Must {
    /// A picture of the state is taken or written out.
    Snapshot,
    /// The state is replaced by that of a snapshot.
    Restore,
    /// It is asked when time next makes a difference, or what the state needs.
    Question,
}

/// A command of the log, in the batch of this slot: the same on every replica. A command has one
/// session and number, also if it is in the log twice; then it is executed at the first place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogCommand<'a> {
    /// The slot: with P-SMR in the log of the command's group, with EPaxos, which has no log,
    /// always 0.
    pub slot: Slot,
    /// The session that numbers the command.
    pub session: SessionId,
    /// Its number there.
    pub number: u64,
    /// The bytes that the machine is given.
    pub payload: &'a [u8],
    /// The level of the cluster in this place of the log; with CRAQ, where another log decides it,
    /// the highest that the program supports.
    pub level: Level,
}

/// The machine was not called, or its call has changed nothing: there is no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotDone;

/// See the top of this file. Shared by all machines of a node, and with the threads that write
/// their pictures.
pub trait Guard: Send + Sync {
    /// Runs `call`, which calls the machine, or skips it.
    ///
    /// A guard that leaves a command out does so on every replica alike: what is in the log has one
    /// effect everywhere.
    ///
    /// # Errors
    /// [`NotDone`]. A command was left out; a query failed, or what it or a command touches could
    /// not be found out: nothing has changed.
    fn call(&self, what: Call<'_>, call: &mut dyn FnMut()) -> Result<(), NotDone>;

    /// Runs `call`, which calls the machine. If that fails, it does not return.
    fn must_call(&self, what: Must, call: &mut dyn FnMut());
}

/// Makes every call. A panic goes where panics go.
pub struct Unguarded;

impl Guard for Unguarded {
    fn call(&self, _: Call<'_>, call: &mut dyn FnMut()) -> Result<(), NotDone> {
        call();
        Ok(())
    }

    fn must_call(&self, _: Must, call: &mut dyn FnMut()) {
        call();
    }
}
