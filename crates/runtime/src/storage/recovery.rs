//! What the logs have in common when they are read at a start.

use ionian_kernel::layout::Address;
use ionian_wal::storage::Storage;
use ionian_wal::{Entry, Recovery};

/// Says what was cut off from the end of a log, if something was.
pub(crate) fn tell_of_cut<S: Storage>(records: &Recovery<S>) {
    if let Some(cut) = records.cut() {
        let (file, last) = (cut.path.display(), records.last_lsn());
        tracing::warn!(
            "{file}: cut off a write that was interrupted, {} bytes from byte {} on; record {last} is now the last, \
             and nothing says that a later one was on disk",
            cut.bytes,
            cut.offset
        );
    }
}

/// Whose record it is.
pub(crate) fn author(entry: &Entry) -> Address {
    // No instance has such a number, so that a record which cannot be is refused by the node.
    Address {
        kind: entry.kind,
        index: u8::try_from(entry.tag).unwrap_or(u8::MAX),
    }
}
