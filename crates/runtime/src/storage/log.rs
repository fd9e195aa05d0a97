//! Where roles' records go, whatever the durability: `append` while roles run, `flush` when the
//! burst is over, `durable` for the fence. The two kinds of log are in files of their own,
//! `memory_log` and `disk_log`.

use super::directory::DataDirectory;
use super::disk_log::{DiskLog, DiskOptions, DiskPast};
use super::error::LogError;
use super::memory_log::{MemoryLog, Recovered};
use super::stamp::Stamp;
use crate::status::LogStatus;
use ionian_kernel::layout::Address;
use ionian_kernel::machine::Frozen;
use ionian_kernel::role::Lsn;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::Notify;

/// What survives the end of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Everything that a role persists.
    Disk,
    /// Only vital records (small and rare, such as promises), and those only with a data directory.
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

    /// Makes everything that was appended durable, in one sync, or begins to: the loop is then
    /// woken when it is done. Returns whether [`durable`](Self::durable) has moved.
    pub(crate) fn flush(&mut self) -> Result<bool, LogError> {
        match self {
            Log::Memory(log) => log.sync().map(|()| true),
            Log::Disk(log) => log.flush(),
        }
    }

    /// Takes note of what other threads have done. Returns whether [`durable`](Self::durable) has
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

    /// Begins to store a snapshot.
    pub(crate) fn store_snapshot(&mut self, from: Address, stamp: u64, frozen: Box<dyn Frozen>) {
        match self {
            Log::Memory(_) => {
                unreachable!("{from:?} stores a snapshot on a node that keeps no records")
            }
            Log::Disk(log) => log.store_snapshot(from, stamp, frozen),
        }
    }

    /// A snapshot that would now be found again after a crash: whose it is, and its stamp.
    pub(crate) fn stored_snapshot(&mut self) -> Result<Option<(Address, u64)>, LogError> {
        match self {
            Log::Memory(_) => Ok(None),
            Log::Disk(log) => log.stored_snapshot(),
        }
    }

    /// The position of the next record, when it is time for a checkpoint.
    pub(crate) fn checkpoint_due(&self) -> Option<Lsn> {
        match self {
            Log::Memory(_) => None,
            Log::Disk(log) => log.checkpoint_due(),
        }
    }

    /// The checkpoint was appended: when that is durable, nothing before `needed` is needed any
    /// more.
    pub(crate) fn checkpoint_appended(&mut self, needed: Lsn) {
        match self {
            Log::Memory(_) => {}
            Log::Disk(log) => log.checkpoint_appended(needed),
        }
    }

    /// Ends the log in order.
    pub(crate) fn close(&mut self) -> Result<(), LogError> {
        match self {
            Log::Memory(log) => log.close(),
            Log::Disk(log) => log.close(),
        }
    }

    pub(crate) fn status(&self) -> LogStatus {
        match self {
            Log::Memory(log) => log.status(),
            Log::Disk(log) => log.status(),
        }
    }
}

/// What an earlier process of the node has left behind.
pub(crate) enum Past {
    Memory(Recovered),
    Disk(Box<DiskPast>),
}

impl Past {
    /// Whether there was an earlier process, and most of what it knew is gone.
    pub(crate) fn is_lost(&self) -> bool {
        matches!(self, Past::Memory(recovered) if recovered.existed)
    }
}

/// Opens the log of a node with durability "disk". `identity` is the file that says that the node
/// has taken part, if it has; `wake` is notified when a thread of the log has done something.
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

/// Opens the log of a node with durability "memory". `identity` is the file that says that the node
/// has taken part, if it has.
pub(crate) fn open_memory(
    directory: Option<Rc<DataDirectory>>,
    stamp: &Stamp,
    identity: Option<PathBuf>,
) -> Result<(Log, Past), LogError> {
    let (log, recovered) = MemoryLog::open(directory, stamp, identity)?;
    Ok((Log::Memory(Box::new(log)), Past::Memory(recovered)))
}
