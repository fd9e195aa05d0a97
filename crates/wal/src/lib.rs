//! The write-ahead log: records that are found again after a crash; and [snapshots](snapshot).
//!
//! A record is bytes with a kind and a tag, which mean something to the caller only.
//! [`Wal::append`] puts it in memory, [`Wal::flush`] writes and syncs everything that was appended
//! since the last time as one group, [`Wal::durable`] says how far that has come. The owner is one
//! thread that need not wait: under load a thread of the log syncs, and the owner gathers the next
//! group meanwhile.
//!
//! ```text
//! append .. append -> flush -> Done                               a small group: synced at once
//!                           -> Started .. append ..               a large one: the log's thread syncs
//!                     on_complete() -> poll_completed -> durable
//! ```
//!
//! What holds, whatever fails:
//!
//! - What `durable` has covered is found after a crash, unless the disk loses what it had; and if
//!   it does, or if a part was removed, the log is not opened. The one exception: a loss
//!   in what was written within a second before the machine failed looks exactly like that failure
//!   (`extent`).
//! - What is found was appended, in that order, without a gap from [`Recovery::first_lsn`] on.
//! - After the first error nothing becomes durable any more.
//!
//! Files with one job each: `record`, `segment` and `extent` are the formats (read these first),
//! `writer` is the end of the log, `recovery` its beginning, `sync` the threads, `wal` puts them
//! together.
//!
//! # Which thread syncs
//!
//! A group of fewer than [`HAND_OFF_BYTES`] bytes is synced by the caller. Clients wait for
//! answers, so to sync one half of their records while the other half is taken in makes groups half
//! as large. That pays only when a group is so large that to write it takes as long as to take in
//! the next: the records must be many *and* large. An owner whose disk is slow wants it for all
//! groups, to do other work meanwhile ([`Wal::hand_off_all`]). The measurement is in
//! `docs/decisions/0011-own-log.md`; it is made by
//!
//! ```text
//! cargo run --release -p ionian-wal --example wal_bench -- DIRECTORY [SECONDS] [WORK_US] [SLOWER_US]
//! ```
#![forbid(unsafe_code)]
#![warn(clippy::disallowed_methods, clippy::disallowed_types)]

mod error;
mod extent;
mod options;
mod read_only;
mod record;
mod recovery;
mod segment;
pub mod snapshot;
pub mod storage;
mod sync;
pub mod testing;
mod wal;
mod writer;

pub use error::WalError;
pub use options::{HAND_OFF_BYTES, HandOff, Options};
pub use read_only::{ReadOnly, read_log};
pub use recovery::{Cut, Entry, Recovery};
pub use wal::{Flush, Wal};
