//! The log of a node with `durability = "memory"`.

use super::directory::{DataDirectory, LOG, VITAL};
use super::error::LogError;
use super::stamp::Stamp;
use super::vital::{VitalLog, VitalRecord};
use crate::status::LogStatus;
use ionian_kernel::layout::Address;
use ionian_kernel::role::Lsn;
use std::path::PathBuf;
use std::rc::Rc;

/// Stores only vital records, and only in a data directory. Other records count as durable at once:
/// with `durability = "memory"` the cluster survives as long as its processes do.
#[derive(Debug, Default)]
pub(crate) struct MemoryLog {
    /// How many records this process and earlier ones have appended.
    position: u64,
    durable: u64,
    vital: Option<VitalLog>,
    syncs: u64,
    /// Holds the lock.
    _directory: Option<Rc<DataDirectory>>,
}

/// What an earlier process of the node has stored.
#[derive(Debug, Default)]
pub(crate) struct Recovered {
    pub(crate) records: Vec<VitalRecord>,
    /// Whether an earlier process has taken part in the cluster.
    pub(crate) existed: bool,
}

impl MemoryLog {
    /// Opens the log in the directory, or without a directory a log that stores nothing. `identity`
    /// is the identity file if it says that the node has taken part: then there must be a log.
    pub(crate) fn open(
        directory: Option<Rc<DataDirectory>>,
        stamp: &Stamp,
        identity: Option<PathBuf>,
    ) -> Result<(Self, Recovered), LogError> {
        let Some(directory) = directory else {
            return Ok(Default::default());
        };
        let (vital, existed) = (directory.path().join(VITAL), identity.is_some());
        directory.refuse_durability(LOG, "disk", "memory")?;
        let (vital, records) = VitalLog::open(&directory, &vital, stamp, identity)?;
        let position = records.len() as u64;
        let log = MemoryLog {
            position,
            durable: position,
            vital: Some(vital),
            _directory: Some(directory),
            ..MemoryLog::default()
        };
        Ok((log, Recovered { records, existed }))
    }

    /// Appends a record.
    pub(crate) fn append(&mut self, from: Address, record: &[u8], is_vital: bool) -> Lsn {
        self.position += 1;
        if is_vital && let Some(vital) = &mut self.vital {
            vital.append(from, record);
        }
        if !self.vital.as_ref().is_some_and(VitalLog::is_behind) {
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
        if let Some(vital) = self.vital.as_mut().filter(|vital| vital.is_behind()) {
            vital.sync()?;
            self.syncs += 1;
        }
        self.durable = self.position;
        Ok(())
    }

    pub(crate) fn close(&mut self) -> Result<(), LogError> {
        self.sync()
    }

    pub(crate) fn durable(&self) -> Lsn {
        Lsn(self.durable)
    }

    pub(crate) fn status(&self) -> LogStatus {
        LogStatus {
            durability: "memory".into(),
            position: self.position,
            lag: self.position - self.durable,
            syncs: self.syncs,
            ..LogStatus::default()
        }
    }
}
