//! One register: the smallest machine that can tell a stale read from a fresh one. For tests.

use ionian_kernel::machine::{Footprint, NotARead, RestoreError, StateMachine};
use ionian_kernel::time::Timestamp;

const WRITE: u8 = b'w';
const READ: u8 = b'r';

/// A register of bytes, empty at first. A write answers nothing, a read answers the content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Register(Vec<u8>);

/// The bytes of a command that writes `value`.
pub fn write(value: &[u8]) -> Vec<u8> {
    [&[WRITE], value].concat()
}

/// The bytes of a command or query that reads the register.
pub fn read() -> Vec<u8> {
    vec![READ]
}

impl StateMachine for Register {
    fn apply(&mut self, _now: Timestamp, command: &[u8], reply: &mut Vec<u8>) {
        match command {
            [WRITE, value @ ..] => self.0 = value.to_vec(),
            [READ] => reply.extend_from_slice(&self.0),
            _ => reply.extend_from_slice(b"malformed command"),
        }
    }

    fn read(&self, _now: Timestamp, query: &[u8], reply: &mut Vec<u8>) -> Result<(), NotARead> {
        match query {
            [WRITE, ..] => return Err(NotARead),
            [READ] => reply.extend_from_slice(&self.0),
            _ => reply.extend_from_slice(b"malformed command"),
        }
        Ok(())
    }

    fn snapshot(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), RestoreError> {
        self.0 = snapshot.to_vec();
        Ok(())
    }

    fn footprint(&self, command: &[u8], footprint: &mut Footprint) {
        match command {
            [WRITE, ..] => footprint.writes.push(0),
            [READ] => footprint.reads.push(0),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_sees_the_last_write() {
        let (mut register, mut reply) = (Register::default(), Vec::new());
        register.apply(Timestamp(1), &write(b"x"), &mut reply);
        assert_eq!(register.read(Timestamp(1), &read(), &mut reply), Ok(()));
        assert_eq!(reply, b"x");
        assert_eq!(
            register.read(Timestamp(1), &write(b"y"), &mut reply),
            Err(NotARead)
        );
    }
}
