//! Where roles' records go. The write-ahead log will stand beside [`MemoryLog`], with the same four
//! calls: `append` while roles run, `is_behind` and `sync` when the burst is over, `durable` for the
//! fence.

use crate::directory::DataDirectory;
use crate::vital::{self, Stamp, VitalFile, VitalRecord};
use ionian_kernel::layout::Address;
use ionian_kernel::role::Lsn;
use std::io;
use std::path::{Path, PathBuf};

/// What is wrong with a data directory.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The operating system says no.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What came of it.
        source: io::Error,
    },
    /// Another process has the directory.
    #[error("the data directory {} is in use by another process", path.display())]
    Locked {
        /// The directory.
        path: PathBuf,
    },
    /// The directory is not this node's.
    #[error("{} is not a file of this node: {text}", path.display())]
    Foreign {
        /// The file that says so.
        path: PathBuf,
        /// What it says.
        text: String,
    },
    /// The file was damaged, and not by a crash in the middle of a write.
    #[error(
        "{} is damaged at byte {offset}: {text}. What this node promised may be lost, so it must not run from this \
         directory",
        path.display()
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Where.
        offset: u64,
        /// What is wrong there.
        text: String,
    },
}

/// For `map_err`: says what was tried on what.
pub(crate) fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> LogError {
    let path = path.to_owned();
    move |source| LogError::Io { action, path, source }
}

/// Keeps nothing but vital records, and those only in a data directory. Ordinary records count as
/// durable at once: with `durability = "memory"` the cluster survives as long as its processes do.
#[derive(Debug, Default)]
pub(crate) struct MemoryLog {
    /// How many records were appended, by this process and those before it.
    position: u64,
    durable: u64,
    vital: Option<VitalFile>,
    /// Vital records of the burst under way, encoded.
    group: Vec<u8>,
    syncs: u64,
    /// Holds the lock.
    _directory: Option<DataDirectory>,
}

/// What an earlier process of the node has left behind.
#[derive(Debug, Default)]
pub(crate) struct Recovered {
    pub(crate) records: Vec<VitalRecord>,
    /// Whether there was an earlier process.
    pub(crate) existed: bool,
}

impl MemoryLog {
    /// Opens the log in `data`, or without a directory one that forgets everything.
    pub(crate) fn open(data: Option<&Path>, stamp: &Stamp) -> Result<(Self, Recovered), LogError> {
        let Some(path) = data else { return Ok(Default::default()) };
        let directory = DataDirectory::open(path)?;
        let (vital, recovered) = VitalFile::open(&directory, stamp)?;
        let position = recovered.records.len() as u64;
        let log = MemoryLog {
            position,
            durable: position,
            vital: Some(vital),
            _directory: Some(directory),
            ..MemoryLog::default()
        };
        Ok((log, recovered))
    }

    /// Appends a record.
    pub(crate) fn append(&mut self, from: Address, record: &[u8], is_vital: bool) -> Lsn {
        self.position += 1;
        if is_vital && self.vital.is_some() {
            vital::encode_record(&mut self.group, from, record);
        }
        if self.group.is_empty() {
            self.durable = self.position;
        }
        Lsn(self.position)
    }

    /// Whether records wait for [`sync`](Self::sync).
    pub(crate) fn is_behind(&self) -> bool {
        self.durable < self.position
    }

    /// Makes everything that was appended durable: one write and one sync for all of it.
    pub(crate) fn sync(&mut self) -> Result<(), LogError> {
        if let Some(vital) = &mut self.vital
            && !self.group.is_empty()
        {
            vital.append_group(&self.group)?;
            self.group.clear();
            self.syncs += 1;
        }
        self.durable = self.position;
        Ok(())
    }

    pub(crate) fn durable(&self) -> Lsn {
        Lsn(self.durable)
    }

    pub(crate) fn syncs(&self) -> u64 {
        self.syncs
    }
}
