//! What stands between an executor and the user's machine. Every call of the machine goes through
//! it, so that a driver can do what a role cannot: catch a panic, and leave out a command that was
//! given up.

use crate::id::{SessionId, Slot};
use crate::level::Level;

/// What a machine is called for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call<'a> {
    /// A command of the log is executed.
    Apply(LogCommand<'a>),
    /// It is asked what a command of the log touches, before that is executed.
    Touch(LogCommand<'a>),
    /// A query is answered.
    Read(&'a [u8]),
    /// A picture of the state is taken or written out.
    Snapshot,
    /// The state is replaced by that of a snapshot.
    Restore,
    /// It is asked what a command that is in no log yet touches, or when time next makes a
    /// difference.
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
    /// [`NotDone`], for a command, what it touches, or a query only. A call of any other kind is
    /// made, or does not return.
    fn call(&self, what: Call<'_>, call: &mut dyn FnMut()) -> Result<(), NotDone>;
}

/// Makes every call. A panic goes where panics go.
pub struct Unguarded;

impl Guard for Unguarded {
    fn call(&self, _: Call<'_>, call: &mut dyn FnMut()) -> Result<(), NotDone> {
        call();
        Ok(())
    }
}
