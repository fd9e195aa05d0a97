//! What an executor's snapshot consists of, in this order: a preamble, if the protocol has one
//! (`grouped.rs`, `notes.rs`); the time of the log; the membership; the sessions; the machine's own
//! snapshot. Code that needs a part of it takes it from here.

use super::grouped;
use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use bytes::Bytes;
use ionian_kernel::guard::{Guard, Must};
use ionian_kernel::level::Level;
use ionian_kernel::machine::{Frozen, RestoreError};
use ionian_kernel::membership::Membership;
use ionian_kernel::time::Timestamp;
use ionian_kernel::wire::{Reader, Wire, WireError};

/// The parts of a snapshot.
pub(super) struct Parts {
    pub(super) preamble: Option<Bytes>,
    pub(super) now: Timestamp,
    pub(super) membership: Membership,
    /// The sessions and the machine's snapshot, which no length separates.
    pub(super) rest: Bytes,
}

impl Parts {
    /// Those of this snapshot.
    ///
    /// # Errors
    /// Says what is wrong with the bytes.
    pub(super) fn of(snapshot: &Bytes) -> Result<Self, RestoreError> {
        let (preamble, snapshot) = grouped::split(snapshot)?;
        let mut reader = Reader::new(&snapshot);
        let malformed = |error: WireError| RestoreError(error.to_string());
        let now = Timestamp::decode(&mut reader).map_err(malformed)?;
        let membership = Membership::decode(&mut reader).map_err(malformed)?;
        let rest = snapshot.slice(snapshot.len() - reader.remaining()..);
        Ok(Parts {
            preamble,
            now,
            membership,
            rest,
        })
    }
}

/// A snapshot with the same state, for a cluster of its own that is founded with this level:
/// nothing has ever changed its membership, and a preamble would tell of logs that it has not.
///
/// # Errors
/// Says what is wrong with the bytes.
pub fn refounded(snapshot: &Bytes, level: Level) -> Result<Bytes, RestoreError> {
    let Parts { now, rest, .. } = Parts::of(snapshot)?;
    let mut out = Vec::new();
    now.encode(&mut out);
    Membership::founding(level).encode(&mut out);
    out.extend_from_slice(&rest);
    Ok(Bytes::from(out))
}

/// The picture of an executor: sessions are copied, results included, the machine shares what it
/// can.
pub(super) struct Picture {
    head: Option<Vec<u8>>,
    machine: Box<dyn Frozen>,
    guard: Arc<dyn Guard>,
}

impl Picture {
    /// `head` is what comes before the machine's snapshot.
    pub(super) fn new(head: Vec<u8>, machine: Box<dyn Frozen>, guard: Arc<dyn Guard>) -> Self {
        Picture {
            head: Some(head),
            machine,
            guard,
        }
    }
}

impl Frozen for Picture {
    fn write_some(&mut self, out: &mut Vec<u8>) -> bool {
        match self.head.take() {
            Some(mut head) => {
                out.append(&mut head);
                true
            }
            None => {
                let Picture { machine, guard, .. } = self;
                let mut more = false;
                guard.must_call(Must::Snapshot, &mut || more = machine.write_some(out));
                more
            }
        }
    }
}
