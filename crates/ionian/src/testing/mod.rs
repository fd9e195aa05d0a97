//! A test kit for a state machine of yours: [`exercise`] tries the machine by itself,
//! [`Simulation`] tries it replicated, under faults, in the simulator that tests the protocols.
//!
//! Both need [`Commands`]: what clients of your service send; for a typed machine,
//! [`TypedCommands`]. Both decide everything by the seed:
//! the same seed gives the same run. The feature `testing` brings them; use it in
//! `dev-dependencies`, so that the simulator is in no program that you ship.
//!
//! ```
//! use ionian::testing::{Commands, Random, Simulation, exercise};
//! use ionian::{NotARead, RestoreError, StateMachine, Timestamp};
//!
//! #[derive(Default)]
//! struct Sum(u64);
//!
//! impl StateMachine for Sum {
//!     fn apply(&mut self, _: Timestamp, command: &[u8], reply: &mut Vec<u8>) {
//!         self.0 = command.iter().fold(self.0, |sum, byte| sum.wrapping_add(u64::from(*byte)));
//!         reply.extend_from_slice(&self.0.to_le_bytes());
//!     }
//!     fn read(&self, _: Timestamp, query: &[u8], reply: &mut Vec<u8>) -> Result<(), NotARead> {
//!         if !query.is_empty() {
//!             return Err(NotARead);
//!         }
//!         reply.extend_from_slice(&self.0.to_le_bytes());
//!         Ok(())
//!     }
//!     fn snapshot(&self, out: &mut Vec<u8>) {
//!         out.extend_from_slice(&self.0.to_le_bytes());
//!     }
//!     fn restore(&mut self, snapshot: &[u8]) -> Result<(), RestoreError> {
//!         let bytes = snapshot.try_into().map_err(|_| RestoreError("a sum has 8 bytes".into()))?;
//!         self.0 = u64::from_le_bytes(bytes);
//!         Ok(())
//!     }
//! }
//!
//! impl Commands for Sum {
//!     fn random_write(random: &mut Random) -> Vec<u8> {
//!         vec![random.below(256) as u8 | 1]
//!     }
//!     fn random_read(_: &mut Random) -> Vec<u8> {
//!         Vec::new()
//!     }
//! }
//!
//! exercise::<Sum>(0..20)?;
//! let report = Simulation::new("colocated").seeds(0..5).run::<Sum>()?;
//! assert!(report.acknowledged > 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod exercise;
mod order;
mod simulation;
mod typed;

pub use crate::Random;
use crate::StateMachine;
pub use exercise::{Exercised, MachineFault, exercise};
pub use ionian_sim::Report;
pub use simulation::{Simulation, SimulationFailure};
pub use typed::TypedCommands;

/// A state machine and what its clients send. `Default` is its state before the first command.
pub trait Commands: StateMachine + Default + 'static {
    /// A command for the log: any that clients send, including malformed ones.
    fn random_write(random: &mut Random) -> Vec<u8>;

    /// A query for [`read`](StateMachine::read).
    fn random_read(random: &mut Random) -> Vec<u8>;

    /// For the check of linearizability, the part of the state that a command or query is about, if
    /// the state falls into parts that have nothing to do with each other, such as keys. Each
    /// part's history is checked alone, which is much faster. The default is one part.
    fn part(command: &[u8]) -> u64 {
        let _ = command;
        0
    }
}
