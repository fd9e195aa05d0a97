//! A machine that does nothing: what is left of a command's cost is the cost of replicating it. For measurements.

use ionian_kernel::machine::{Footprint, NotARead, RestoreError, StateMachine};
use ionian_kernel::time::Timestamp;

/// It takes every command and every query, and answers none of them with a single byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Nothing;

impl StateMachine for Nothing {
    fn apply(&mut self, _: Timestamp, _: &[u8], _: &mut Vec<u8>) {}

    fn read(&self, _: Timestamp, _: &[u8], _: &mut Vec<u8>) -> Result<(), NotARead> {
        Ok(())
    }

    fn snapshot(&self, _: &mut Vec<u8>) {}

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), RestoreError> {
        match snapshot {
            [] => Ok(()),
            _ => Err(RestoreError(format!("there are {} bytes of a machine that has no state", snapshot.len()))),
        }
    }

    fn footprint(&self, _: &[u8], _: &mut Footprint) {}
}
