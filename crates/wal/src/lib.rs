//! The write-ahead log: records that are found again after a crash; and [snapshots](snapshot).
//!
//! A record is bytes with a kind and a tag, which mean something to the caller only. [`Wal::append`]
//! puts it in memory, [`Wal::flush`] writes and syncs everything that was appended since the last time
//! as one group, [`Wal::durable`] says how far that has come. The owner is one thread that need not
//! wait: under load a thread of the log syncs, and the owner gathers the next group meanwhile.
//!
//! ```text
//! append .. append -> flush -> Done                               few records: synced at once
//!                           -> Started .. append ..               many: the log's thread syncs
//!                     on_complete() -> poll_completed -> durable
//! ```
//!
//! What holds, whatever fails:
//!
//! - What `durable` has covered is found after a crash, unless the disk loses what it had; and if it
//!   does, the log is not opened, except where the loss looks exactly like a crash: in the last group.
//! - What is found was appended, in that order, without a gap from [`Recovery::first_lsn`] on.
//! - After the first error nothing becomes durable any more.
//!
//! Files with one job each: `record` and `segment` are the formats (read these two first), `writer` is
//! the end of the log, `recovery` its beginning, `sync` the thread, `wal` puts them together.
//!
//! # Which thread syncs
//!
//! A group of fewer than [`HAND_OFF_RECORDS`] records is synced by the caller. Measured on a shared
//! machine with 2 virtual cores and ext4 on a virtual disk, where a sync takes 0.08 ms or 3 ms as the host
//! pleases (the phases last minutes; compare within a block only), one short run each, 10 us of work a
//! record, records of 6.5 kB:
//!
//! ```text
//!                                    inline                     handed off
//! disk  in flight    records/s  p50 us  p99 us    records/s  p50 us  p99 us   group handed off at
//! fast          1        3 476     101     287        3 152     113     498   1
//! fast         16       43 748     148     631       37 698     205     729   1
//! fast        128       66 560   1 693   2 731       75 840   1 413   2 522   32
//! fast      1 024       69 632  14 375  22 482       78 592  12 337  27 067   32
//! slow        128       19 968   5 258  23 158       11 520   8 627  22 841   32 (1.5 ms added)
//! slow        128       26 112   3 852  11 941       28 160   3 837  11 918   128
//! slow      1 024       30 720  31 131  56 378       42 496  23 796  35 338   256
//! slow      1 024       30 720  33 228  49 989       41 984  22 340  47 270   256 (1.5 ms added)
//! ```
//!
//! Clients wait for answers, so to sync one half of their records while the other half is taken in
//! makes groups half as large. That pays only when taking in a group takes longer than to sync it: from
//! some 30 records on a fast disk, some hundreds on a slow one. With 256, 1 024 in flight gained a third
//! on a slow disk (with records of 128 bytes between nothing and an eighth), and up to 128 in flight
//! nothing is lost; on a fast disk an eighth is left on the table there. For one record at a time the thread costs 10 us, and a fifth of the throughput of sixteen.
//!
//! With 128 bytes a record and 2 us of work, fast disk, synced inline: 3 804 records/s with 1 in flight
//! (p50 88 us, p99 110), 69 333 with 16 (53, 103), 304 857 with 128 (244, 366).
//!
//! ```text
//! cargo run --release -p ionian-wal --example wal_bench -- DIRECTORY 0.5 10        (WORK_US; the rows
//!                                                  with 1 and 32 had `burst` 32 in the example)
//! cargo run --release -p ionian-wal --example wal_bench -- DIRECTORY 0.5 10 1500   (SLOWER_US)
//! ```
#![forbid(unsafe_code)]

mod error;
mod read_only;
mod record;
mod recovery;
mod segment;
pub mod snapshot;
pub mod storage;
mod sync;
#[cfg(feature = "testing")]
pub mod testing;
mod wal;
mod writer;

pub use error::WalError;
pub use read_only::{ReadOnly, read_log};
pub use recovery::{Cut, Entry, Recovery};
pub use wal::{Flush, HAND_OFF_RECORDS, HandOff, Options, Wal};
