//! What stands in place of a part of the machine that is not here.

use alloc::vec::Vec;
use ionian_kernel::machine::{NotARead, RestoreError, StateMachine};
use ionian_kernel::time::Timestamp;

/// See the top of this file. No command reaches it: none is executed in a group whose part is away,
/// and none is sent to a group that has no part. One that a faulty node sends has no effect, the
/// same on every replica.
pub(super) struct Vacant;

impl StateMachine for Vacant {
    fn apply(&mut self, _: Timestamp, _: &[u8], _: &mut Vec<u8>) {}
    fn read(&self, _: Timestamp, _: &[u8], _: &mut Vec<u8>) -> Result<(), NotARead> {
        Err(NotARead)
    }
    fn snapshot(&self, _: &mut Vec<u8>) {}
    fn restore(&mut self, _: &[u8]) -> Result<(), RestoreError> {
        Err(RestoreError("this part of the machine is away".into()))
    }
}
