//! How a log behaves.

use std::fmt;

/// When a group is synced by the calling thread, and when by a thread of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandOff {
    /// Always by the calling thread. Nothing of the log runs on another thread.
    Never,
    /// By the log's thread, if the group has at least this many bytes, or the owner wants it
    /// ([`Wal::hand_off_all`](crate::Wal::hand_off_all)).
    From(usize),
}

/// See the crate's documentation for the measurement behind it.
pub const HAND_OFF_BYTES: usize = 1 << 20;

/// How a log behaves.
pub struct Options {
    /// The size of a segment but the first; 16 MiB. A record that is too large for it gets a
    /// segment of its own size.
    pub segment_bytes: u64,
    /// The largest record; 64 MiB.
    pub max_record_bytes: usize,
    /// How many files that are no longer needed are kept, to become segments again; 2.
    pub spares: usize,
    /// Which thread syncs.
    pub hand_off: HandOff,
    /// Called on the log's thread when a sync is done: makes the owner call
    /// [`Wal::poll_completed`](crate::Wal::poll_completed) soon. Must not block.
    pub on_complete: Box<dyn Fn() + Send>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            segment_bytes: 16 << 20,
            max_record_bytes: 64 << 20,
            spares: 2,
            hand_off: HandOff::From(HAND_OFF_BYTES),
            on_complete: Box::new(|| {}),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Options {
            segment_bytes,
            max_record_bytes,
            spares,
            hand_off,
            ..
        } = self;
        formatter
            .debug_tuple("Options")
            .field(&(segment_bytes, max_record_bytes, spares, hand_off))
            .finish()
    }
}
