//! A machine that does nothing: what is left of a command's cost is the cost of replicating it. For
//! measurements.

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
            _ => Err(RestoreError(format!(
                "there are {} bytes of a machine that has no state",
                snapshot.len()
            ))),
        }
    }

    fn footprint(&self, _: &[u8], _: &mut Footprint) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_answers_with_nothing_and_restores_nothing() {
        let (mut machine, mut bytes) = (Nothing, Vec::new());
        machine.apply(Timestamp::default(), b"SET", &mut bytes);
        assert_eq!(
            (
                machine.read(Timestamp::default(), b"GET", &mut bytes),
                bytes.len()
            ),
            (Ok(()), 0)
        );
        machine.snapshot(&mut bytes);
        assert!(machine.restore(&bytes).is_ok() && machine.restore(b"a key").is_err());
    }
}
