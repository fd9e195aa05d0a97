//! The limit of memory of the cluster as the gateway knows it (`CONFIG SET maxmemory`), and the
//! measurements that it has the cluster make.
//!
//! The limit is a part of the replicated state, and replicas compare with it what was measured last
//! (`ionian_machines::kv::Room`). Every gateway that has sent writes since its last measurement has
//! the next one made, at most once a second: an idle cluster writes nothing to its log.

use crate::host::Host;
use crate::rights::SINCE;
use bytes::Bytes;
use ionian_kernel::client::{Operation, ReadLevel};
use ionian_machines::kv::{Compound, Room};
use std::cell::Cell;

/// What the gateway knows of the limit.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    known: Cell<Room>,
    /// Whether a client has written since the last measurement.
    wrote: Cell<bool>,
}

impl Memory {
    /// The limit, and what was measured last. Zeros as long as nothing is known.
    pub(crate) fn known(&self) -> Room {
        self.known.get()
    }

    /// Whether there may be something to measure.
    pub(crate) fn has_written(&self) -> bool {
        self.wrote.get()
    }

    /// A write is sent to the cluster, or was answered.
    pub(crate) fn note_write(&self) {
        self.wrote.set(true);
    }

    /// The next question: a measurement if there is a limit and something to measure.
    pub(crate) fn question(&self) -> (Operation, Compound) {
        match self.known.get().limit > 0 && self.wrote.take() {
            true => (Operation::Write, Compound::Measure),
            false => (Operation::Read(ReadLevel::Linearizable), Compound::Room),
        }
    }

    /// Takes the reply to it.
    pub(crate) fn learn(&self, reply: &Bytes) {
        if let Ok(room) = Room::of_reply(reply) {
            self.known.set(room);
            if room.limit == 0 {
                self.wrote.set(false);
            }
        }
    }

    /// A client of this gateway has set the limit. What is used is measured anew.
    pub(crate) fn limit_was_set(&self, limit: u64) {
        let used = if limit == 0 { 0 } else { self.known.get().used };
        self.known.set(Room { limit, used });
        self.wrote.set(true);
    }
}

/// The compound of `CONFIG SET maxmemory VALUE`.
///
/// # Errors
/// The error reply: the value is none, or the cluster has no limit yet.
pub(crate) fn limit(host: &Host, value: &[u8]) -> Result<Compound, String> {
    host.rights.check_level(SINCE, "maxmemory needs")?;
    let bytes = bytes_of(value).ok_or(
        "ERR CONFIG SET failed (possibly related to argument 'maxmemory') - argument must be a \
         memory value",
    )?;
    Ok(Compound::SetLimit(bytes))
}

/// What MEMORY DOCTOR says.
pub(crate) fn diagnosis(host: &Host) -> String {
    let room @ Room { limit, used } = host.memory.known();
    if limit == 0 {
        return "There is no limit of memory for keys and values: CONFIG SET maxmemory sets one.\n"
            .to_owned();
    }
    let finding = match room.is_full() {
        true => "Commands that need memory are refused",
        false => "No problem found",
    };
    format!(
        "{finding}: keys and values took {used} bytes at the last measurement, the limit is \
         {limit} (maxmemory).\n"
    )
}

/// A number of bytes in Redis's notation: `100`, `64k` (64,000), `64kb` (65,536), and so on.
pub(crate) fn bytes_of(text: &[u8]) -> Option<u64> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = std::str::from_utf8(number).ok()?.parse().ok()?;
    let unit = match &*unit.to_ascii_lowercase() {
        b"" | b"b" => 1,
        b"k" => 1000,
        b"kb" => 1 << 10,
        b"m" => 1_000_000,
        b"mb" => 1 << 20,
        b"g" => 1_000_000_000,
        b"gb" => 1 << 30,
        _ => return None,
    };
    number.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;

    #[test]
    fn the_diagnosis_follows_from_the_last_measurement() {
        let host = Host::new(Limits::default(), Box::new(|_| {}));
        for (limit, used, expected) in [
            (0, 0, "There is no limit"),
            (100, 100, "No problem found: keys and values took 100 bytes"),
            (100, 101, "Commands that need memory are refused: keys"),
        ] {
            let room: Bytes = [u64::to_le_bytes(limit), u64::to_le_bytes(used)]
                .concat()
                .into();
            host.memory.learn(&room);
            let text = diagnosis(&host);
            assert!(text.starts_with(expected), "{text}");
        }
    }

    #[test]
    fn numbers_of_bytes_are_those_of_redis() {
        let read = |text: &str| bytes_of(text.as_bytes());
        assert_eq!(
            ["0", "7", "7b", "1k", "1Kb", "2m", "2MB", "1g", "1gb"].map(read),
            [
                0,
                7,
                7,
                1000,
                1024,
                2_000_000,
                2 << 20,
                1_000_000_000,
                1 << 30
            ]
            .map(Some)
        );
        for wrong in [
            "",
            "k",
            "-1",
            "1.5mb",
            "1 mb",
            "1tb",
            "99999999999gb",
            "18446744073709551616",
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn only_what_was_written_is_measured() {
        let (memory, is_write) = (Memory::default(), |(operation, _)| {
            operation == Operation::Write
        });
        memory.note_write();
        assert!(!is_write(memory.question()), "there is no limit");
        memory.limit_was_set(5);
        assert!(is_write(memory.question()));
        assert!(!is_write(memory.question()), "nothing was written since");
        memory.note_write();
        assert!(is_write(memory.question()));
        // Without a limit there is nothing to measure any more.
        memory.note_write();
        memory.learn(&Bytes::from_static(&[0; 16]));
        assert!(!memory.has_written());
    }
}
