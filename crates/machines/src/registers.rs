//! The register service of the Mencius paper (section 7.1): some number of registers, called κ
//! there, and commands that read or write one of them and carry dummy bytes. Commands commute
//! unless they are about one register and one of them writes it, so κ says how often they do.
//!
//! A command is its operation (one byte), the name of the register (two), the client's number of
//! the request (four), and the dummy bytes. Numbers are little-endian. The paper's replies are
//! empty, and so are the replies to writes here; a read answers the number of the request that
//! wrote the register last, so that an order can be told from another.

use ionian_kernel::machine::{Footprint, NotARead, RestoreError, StateMachine};
use ionian_kernel::time::Timestamp;

const READ: u8 = 0;
const WRITE: u8 = 1;
/// Operation, name and number.
const HEAD: usize = 7;
const CELL: usize = size_of::<u32>();

/// Registers, each with the number of the request that wrote it last, 0 at first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registers(Vec<u32>);

impl Registers {
    /// This number of registers, named from 0.
    pub fn new(count: u16) -> Self {
        Registers(vec![0; usize::from(count)])
    }
}

/// The bytes of a command or query that reads `register`, with `padding` dummy bytes.
pub fn read(register: u16, number: u32, padding: usize) -> Vec<u8> {
    command(READ, register, number, padding)
}

/// The bytes of a command that writes `number` into `register`, with `padding` dummy bytes.
pub fn write(register: u16, number: u32, padding: usize) -> Vec<u8> {
    command(WRITE, register, number, padding)
}

fn command(operation: u8, register: u16, number: u32, padding: usize) -> Vec<u8> {
    let mut command = Vec::with_capacity(HEAD + padding);
    command.push(operation);
    command.extend_from_slice(&register.to_le_bytes());
    command.extend_from_slice(&number.to_le_bytes());
    command.resize(HEAD + padding, 0);
    command
}

/// Operation, register and number of a command.
fn parse(command: &[u8]) -> Option<(u8, u16, u32)> {
    let [operation @ (READ | WRITE), a, b, c, d, e, f, ..] = *command else {
        return None;
    };
    Some((
        operation,
        u16::from_le_bytes([a, b]),
        u32::from_le_bytes([c, d, e, f]),
    ))
}

impl Registers {
    fn answer(&self, register: u16, reply: &mut Vec<u8>) {
        match self.0.get(usize::from(register)) {
            Some(number) => reply.extend_from_slice(&number.to_le_bytes()),
            None => self.refuse(reply),
        }
    }

    fn refuse(&self, reply: &mut Vec<u8>) {
        reply.extend_from_slice(
            format!("malformed command, or no register below {}", self.0.len()).as_bytes(),
        );
    }
}

impl StateMachine for Registers {
    fn apply(&mut self, _now: Timestamp, command: &[u8], reply: &mut Vec<u8>) {
        match parse(command) {
            Some((WRITE, register, number)) => match self.0.get_mut(usize::from(register)) {
                Some(cell) => *cell = number,
                None => self.refuse(reply),
            },
            Some((_, register, _)) => self.answer(register, reply),
            None => self.refuse(reply),
        }
    }

    fn read(&self, _now: Timestamp, query: &[u8], reply: &mut Vec<u8>) -> Result<(), NotARead> {
        match parse(query) {
            Some((WRITE, ..)) => return Err(NotARead),
            Some((_, register, _)) => self.answer(register, reply),
            None => self.refuse(reply),
        }
        Ok(())
    }

    fn snapshot(&self, out: &mut Vec<u8>) {
        self.0
            .iter()
            .for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), RestoreError> {
        let (cells, rest) = snapshot.as_chunks::<CELL>();
        if !rest.is_empty() || cells.len() != self.0.len() {
            let (bytes, count) = (snapshot.len(), self.0.len());
            return Err(RestoreError(format!(
                "{bytes} bytes are not {count} registers of {CELL} bytes each"
            )));
        }
        self.0 = cells.iter().map(|cell| u32::from_le_bytes(*cell)).collect();
        Ok(())
    }

    fn footprint(&self, command: &[u8], footprint: &mut Footprint) {
        match parse(command) {
            Some((WRITE, register, _)) => footprint.writes.push(u64::from(register)),
            Some((_, register, _)) => footprint.reads.push(u64::from(register)),
            // It changes nothing and answers the same at any time.
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(registers: &mut Registers, command: &[u8]) -> Vec<u8> {
        let mut reply = Vec::new();
        registers.apply(Timestamp(1), command, &mut reply);
        reply
    }

    fn footprint(command: &[u8]) -> Footprint {
        let mut footprint = Footprint::default();
        Registers::new(8).footprint(command, &mut footprint);
        footprint
    }

    #[test]
    fn a_read_sees_the_last_write_of_its_register() {
        let mut registers = Registers::new(3);
        assert_eq!(apply(&mut registers, &write(2, 70_000, 4000)), b"");
        assert_eq!(apply(&mut registers, &write(1, 9, 0)), b"");
        assert_eq!(
            apply(&mut registers, &read(2, 71_000, 4000)),
            70_000u32.to_le_bytes()
        );
        let mut reply = Vec::new();
        assert_eq!(
            registers.read(Timestamp(1), &read(1, 0, 0), &mut reply),
            Ok(())
        );
        assert_eq!(reply, 9u32.to_le_bytes());
        assert_eq!(
            registers.read(Timestamp(1), &write(1, 0, 0), &mut reply),
            Err(NotARead)
        );
    }

    #[test]
    fn a_command_has_the_size_that_the_paper_says() {
        assert_eq!((read(1, 2, 0).len(), write(1, 2, 4000).len()), (7, 4007));
    }

    #[test]
    fn bytes_that_are_no_command_change_nothing_and_are_answered() {
        let mut registers = Registers::new(2);
        for wrong in [
            &b""[..],
            b"\x01\x00\x00\x01\x00\x00",
            b"\x02\x00\x00\x01\x00\x00\x00",
            &write(2, 1, 0),
            &read(2, 1, 0),
        ] {
            assert_eq!(
                apply(&mut registers, wrong),
                b"malformed command, or no register below 2",
                "{wrong:?}"
            );
        }
        assert_eq!(registers, Registers::new(2));
    }

    #[test]
    fn commands_conflict_when_one_writes_the_register_of_the_other() {
        let conflict = |one: &[u8], other: &[u8]| footprint(one).conflicts(&footprint(other));
        assert!(
            conflict(&write(1, 1, 0), &write(1, 2, 0)) && conflict(&read(1, 1, 0), &write(1, 2, 0))
        );
        assert!(
            !conflict(&read(1, 1, 0), &read(1, 2, 0))
                && !conflict(&write(1, 1, 0), &write(2, 2, 0))
        );
        assert!(!footprint(&write(1, 1, 0)).everything);
    }

    #[test]
    fn a_snapshot_brings_every_register_back() {
        let mut registers = Registers::new(4);
        apply(&mut registers, &write(3, 5, 0));
        let mut snapshot = Vec::new();
        registers.snapshot(&mut snapshot);
        let mut other = Registers::new(4);
        other.restore(&snapshot).unwrap();
        assert_eq!(other, registers);
        let error = other.restore(&snapshot[1..]).unwrap_err().0;
        assert_eq!(error, "15 bytes are not 4 registers of 4 bytes each");
        assert_eq!(
            Registers::new(3).restore(&snapshot).unwrap_err().0,
            "16 bytes are not 3 registers of 4 bytes each"
        );
        assert_eq!(other, registers, "and stays as it was");
    }
}
