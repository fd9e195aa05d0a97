//! The versions of keys, for WATCH.

use super::{hash, work};

/// The ways to modify an entry; each makes another version of the same arguments.
#[derive(Clone, Copy)]
pub(super) enum Change {
    Value = 1,
    Edit = 2,
    Deadline = 3,
    Stream = 4,
}

/// The version of an entry after a change. It is a hash of the versions before, that is of all that
/// happened to the key since it was created, and of the arrivals in its bucket until then. It is
/// not a count of all changes of the machine: commands that touch nothing in common may be executed
/// in either order, and a count would then differ between replicas. It is never zero, and fits into
/// a RESP integer.
pub(super) fn version(before: u64, change: Change, number: u64, bytes: &[u8]) -> u64 {
    work::copy(bytes.len());
    let hash = hash::sip13(before ^ (change as u64) << 61, number, bytes);
    (hash >> 1).max(1)
}
