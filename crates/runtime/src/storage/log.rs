//! The log of a node, with either durability: roles `append` records, the event loop calls `flush`
//! at the end of a burst, and the fence uses `durable`. The two kinds of log are `memory_log` and
//! `disk_log`.

use super::directory::DataDirectory;
use super::disk_log::{DiskLog, DiskOptions, DiskPast, EndedSnapshot, NoRoom};
use super::error::LogError;
use super::memory_log::{MemoryLog, Recovered};
use super::stamp::Stamp;
use crate::status::{LogMeasured, LogStatus};
use ionian_kernel::layout::Address;
use ionian_kernel::machine::Frozen;
use ionian_kernel::role::Lsn;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// What survives the end of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Every record of every role.
    Disk,
    /// Only vital records (small and rare, such as promises), and only with a data directory.
    Memory,
}

/// The log of a node.
pub(crate) enum Log {
    Memory(Box<MemoryLog>),
    Disk(Box<DiskLog>),
}

impl Log {
    /// Appends a record.
    pub(crate) fn append(&mut self, from: Address, record: &[u8], vital: bool) -> Lsn {
        match self {
            Log::Memory(log) => log.append(from, record, vital),
            Log::Disk(log) => log.append(from, record),
        }
    }

    /// Whether something that was appended is not durable yet.
    pub(crate) fn is_behind(&self) -> bool {
        match self {
            Log::Memory(log) => log.is_behind(),
            Log::Disk(log) => log.is_behind(),
        }
    }

    /// Makes everything that was appended durable in one sync, or starts to: the log then wakes the
    /// loop when it is done. Returns whether [`durable`](Self::durable) has moved.
    pub(crate) fn flush(&mut self) -> Result<bool, LogError> {
        match self {
            Log::Memory(log) => log.sync().map(|()| true),
            Log::Disk(log) => log.flush(),
        }
    }

    /// Takes over what other threads have finished. Returns whether [`durable`](Self::durable) has
    /// moved.
    pub(crate) fn poll(&mut self) -> Result<bool, LogError> {
        match self {
            Log::Memory(_) => Ok(false),
            Log::Disk(log) => log.poll(),
        }
    }

    pub(crate) fn durable(&self) -> Lsn {
        match self {
            Log::Memory(log) => log.durable(),
            Log::Disk(log) => log.durable(),
        }
    }

    /// Whether the disk takes so long that another node should lead.
    pub(crate) fn is_slow(&self) -> bool {
        matches!(self, Log::Disk(log) if log.is_slow())
    }

    /// For what the disk has no room, if so.
    pub(crate) fn lacks_room(&self) -> Option<NoRoom> {
        match self {
            Log::Memory(_) => None,
            Log::Disk(log) => log.lacks_room(),
        }
    }

    /// How long the sync in progress has taken, if it hangs.
    pub(crate) fn hangs(&self) -> Option<Duration> {
        match self {
            Log::Memory(_) => None,
            Log::Disk(log) => log.hangs(),
        }
    }

    /// Starts to store a snapshot.
    pub(crate) fn store_snapshot(&mut self, from: Address, stamp: u64, frozen: Box<dyn Frozen>) {
        match self {
            Log::Memory(_) => {
                unreachable!("{from:?} stores a snapshot on a node that keeps no records")
            }
            Log::Disk(log) => log.store_snapshot(from, stamp, frozen),
        }
    }

    /// A snapshot that would now survive a crash, or one that found no room and whose role is to
    /// store another one.
    pub(crate) fn next_snapshot(&mut self) -> Result<Option<EndedSnapshot>, LogError> {
        match self {
            Log::Memory(_) => Ok(None),
            Log::Disk(log) => log.next_snapshot(),
        }
    }

    /// When it looks for room on the disk next, if it lacks any.
    pub(crate) fn looks_for_room(&self) -> Option<Instant> {
        match self {
            Log::Memory(_) => None,
            Log::Disk(log) => log.looks_for_room(),
        }
    }

    /// Whether the roles that execute commands are to store snapshots, for the log to be cut. True
    /// once for each time that it is so.
    pub(crate) fn wants_snapshots(&mut self) -> bool {
        match self {
            Log::Memory(_) => false,
            Log::Disk(log) => log.wants_snapshots(),
        }
    }

    /// The role is not on this node any more.
    pub(crate) fn role_left(&mut self, role: Address) {
        if let Log::Disk(log) = self {
            log.role_left(role);
        }
    }

    /// The position of the next record, if a checkpoint is due.
    pub(crate) fn checkpoint_due(&self) -> Option<Lsn> {
        match self {
            Log::Memory(_) => None,
            Log::Disk(log) => log.checkpoint_due(),
        }
    }

    /// The checkpoint was appended: when it is durable, records before `needed` are not needed any
    /// more.
    pub(crate) fn checkpoint_appended(&mut self, needed: Lsn) {
        match self {
            Log::Memory(_) => {}
            Log::Disk(log) => log.checkpoint_appended(needed),
        }
    }

    /// Closes the log when the node stops in order.
    pub(crate) fn close(&mut self) -> Result<(), LogError> {
        match self {
            Log::Memory(log) => log.close(),
            Log::Disk(log) => log.close(),
        }
    }

    /// What it has measured; nothing without a disk.
    pub(crate) fn measured(&self) -> LogMeasured {
        match self {
            Log::Memory(_) => LogMeasured::default(),
            Log::Disk(log) => log.measured(),
        }
    }

    pub(crate) fn status(&self) -> LogStatus {
        match self {
            Log::Memory(log) => log.status(),
            Log::Disk(log) => log.status(),
        }
    }
}

/// What an earlier process of the node has stored.
pub(crate) enum Past {
    Memory(Recovered),
    Disk(Box<DiskPast>),
}

impl Past {
    /// Whether there was an earlier process and most of its records are lost.
    pub(crate) fn is_lost(&self) -> bool {
        matches!(self, Past::Memory(recovered) if recovered.existed)
    }
}

/// Opens the log of a node with durability "disk". `identity` is the identity file if it says that
/// the node has taken part; a thread of the log notifies `wake` when it has finished something.
pub(crate) fn open_disk(
    directory: Rc<DataDirectory>,
    stamp: &Stamp,
    identity: Option<PathBuf>,
    kinds: &'static [&'static str],
    options: DiskOptions,
    wake: &Arc<Notify>,
) -> Result<(Log, Past), LogError> {
    let (log, past) = DiskLog::open(directory, stamp, identity, kinds, options, wake)?;
    Ok((Log::Disk(Box::new(log)), Past::Disk(Box::new(past))))
}

/// Opens the log of a node with durability "memory". `identity` is the identity file if it says
/// that the node has taken part.
pub(crate) fn open_memory(
    directory: Option<Rc<DataDirectory>>,
    stamp: &Stamp,
    identity: Option<PathBuf>,
) -> Result<(Log, Past), LogError> {
    let (log, recovered) = MemoryLog::open(directory, stamp, identity)?;
    Ok((Log::Memory(Box::new(log)), Past::Memory(recovered)))
}
