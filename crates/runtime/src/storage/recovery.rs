//! What the logs share when they are read at a start.

use ionian_kernel::id::Index;
use ionian_kernel::layout::Address;
use ionian_wal::storage::Storage;
use ionian_wal::{Entry, Recovery};

/// Logs what the write-ahead log removed from its end, if anything.
pub(crate) fn log_interrupted_write<S: Storage>(records: &Recovery<S>) {
    if let Some(cut) = records.cut() {
        let (file, last) = (cut.path.display(), records.last_lsn());
        tracing::warn!(
            id = "E0204",
            "{file}: removed an interrupted write, {} bytes from byte {} on; record {last} is now the last, \
             and no later record is known to have been on disk",
            cut.bytes,
            cut.offset
        );
    }
}

/// The role instance that wrote a record.
pub(crate) fn author(entry: &Entry) -> Address {
    // No instance has the number `u8::MAX`, so the node refuses a record whose number is too large.
    Address {
        kind: entry.kind,
        index: Index::try_from(entry.tag).unwrap_or(Index::MAX),
    }
}
