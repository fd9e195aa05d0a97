//! Execution where replicas execute commuting commands in different orders: by the dependencies of
//! instances, in place of a log.
//!
//! A command that conflicts with every other is a *barrier*: all replicas have executed the same
//! commands before it. Whatever depends on time, on the number of commands, or on the order of
//! commands that touch different keys happens at barriers only: the time of the machine advances,
//! sessions are opened, expire and are evicted, the membership changes, and the marks of
//! [sessions](crate::session) are forgotten.

use super::Executor;
use crate::batch::{AnswersByClient, Batch, Purpose, Value};
use ionian_kernel::id::{SessionId, Slot};
use ionian_kernel::machine::Footprint;

/// A command with a number that this divides is a barrier, at which its session is settled. So a
/// session keeps a mark for this many commands, and for as many as its lane can have under way
/// before and behind them: at most `SESSION_WINDOW` in all.
pub const SETTLE: u64 = 4096;

impl Executor {
    /// Executes a value after all that it depends on; its answers go to `answers` if this replica
    /// is to give them. `is_barrier` says that [what it touches](Self::footprint_unordered) was
    /// everything: the same on every replica. Only the replica that answers carries out reads among
    /// the commands.
    ///
    /// The commands have no slot: their names for operators begin with 0.
    pub fn execute_unordered(
        &mut self,
        value: &Value,
        is_barrier: bool,
        mut answers: Option<&mut AnswersByClient>,
    ) {
        if is_barrier {
            self.pass(value);
        }
        self.execute_batch::<true>(Slot::ZERO, value, &mut answers);
        if is_barrier {
            let sessions = value.batch.commands();
            let sessions = sessions.filter_map(|command| command.purpose.session());
            sessions.for_each(|session| self.sessions.settle(session));
        }
    }

    /// What the commands of a batch touch, with all for whose sake their order matters. It is the
    /// same whatever was executed, if that is true of the machine's.
    pub fn footprint_unordered(&self, batch: &Batch) -> Footprint {
        let mut footprint = Footprint::default();
        self.touches_unordered(batch, &mut footprint);
        footprint
    }

    /// Adds what [`footprint_unordered`](Self::footprint_unordered) says.
    pub fn touches_unordered(&self, batch: &Batch, footprint: &mut Footprint) {
        for command in batch.commands() {
            match command.purpose {
                Purpose::Open | Purpose::Change | Purpose::KeepAlive(_) => {
                    footprint.everything = true;
                }
                Purpose::Execute(session) => {
                    // Of two copies of a command one is the first, on every replica the same.
                    let (number, key) = (command.number, copies_key(session, command.number));
                    footprint.writes.push(key);
                    self.touches(command.payload, footprint);
                    // Time advances at barriers.
                    footprint.everything |=
                        footprint.timed || (number > 0 && number.is_multiple_of(SETTLE));
                }
                Purpose::Read => {
                    // It is answered at the time of the barriers before it, which it conflicts
                    // with.
                    let timed = footprint.timed;
                    self.touches(command.payload, footprint);
                    footprint.timed = timed;
                }
                // A mark in the order of all commands.
                Purpose::Internal => footprint.everything = true,
            }
        }
    }
}

/// The key that all copies of a command write, in the form of the hash of a machine's key. That it
/// may be that of another key only makes a conflict more.
fn copies_key(session: SessionId, number: u64) -> u64 {
    // 2^64 by the golden ratio: an odd number without pattern, so that neighbours differ in many
    // bits.
    const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
    let session = session.0.wrapping_add(1).wrapping_mul(SPREAD);
    (session.rotate_left(32) ^ number).wrapping_mul(SPREAD)
}

#[cfg(test)]
mod tests;
