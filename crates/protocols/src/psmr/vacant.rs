//! What stands in place of a part of the machine that is not here.

use alloc::vec::Vec;
use ionian_kernel::machine::{NotARead, RestoreError, StateMachine};
use ionian_kernel::time::Timestamp;

/// See the top of this file. It is asked for nothing but deadlines: no command is executed in a
/// group whose part is away.
pub(super) struct Vacant;

const AWAY: &str = "a command of a group whose part is away";

impl StateMachine for Vacant {
    fn apply(&mut self, _: Timestamp, _: &[u8], _: &mut Vec<u8>) {
        unreachable!("{AWAY}")
    }
    fn read(&self, _: Timestamp, _: &[u8], _: &mut Vec<u8>) -> Result<(), NotARead> {
        unreachable!("{AWAY}")
    }
    fn snapshot(&self, _: &mut Vec<u8>) {
        unreachable!("{AWAY}")
    }
    fn restore(&mut self, _: &[u8]) -> Result<(), RestoreError> {
        unreachable!("{AWAY}")
    }
}
