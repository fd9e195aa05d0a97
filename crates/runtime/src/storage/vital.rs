//! The log of vital records: the few small records, such as promises, that a node stores with every
//! durability. It is a write-ahead log in its own directory, so it detects a missing end, and at
//! the start it writes again what an earlier process may have failed to sync.

use super::directory::DataDirectory;
use super::error::LogError;
use super::recovery;
use super::stamp::{self, Stamp};
use bytes::Bytes;
use ionian_kernel::layout::Address;
use ionian_wal::storage::{Disk, Storage};
use ionian_wal::{HandOff, Options, Recovery, Wal};
use std::path::{Path, PathBuf};

/// A segment has room for more than a hundred elections.
const SEGMENT: u64 = 64 << 10;

/// A record that was found at the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VitalRecord {
    pub(crate) from: Address,
    pub(crate) record: Bytes,
}

/// See the top of this file.
#[derive(Debug)]
pub(crate) struct VitalLog<S: Storage = Disk>(Wal<S>);

impl VitalLog {
    /// Opens the log in the directory `path`, or creates it for a new node. `identity` is the
    /// identity file if it says that the node has taken part: then there must be a log.
    pub(crate) fn open(
        directory: &DataDirectory,
        path: &Path,
        stamp: &Stamp,
        identity: Option<PathBuf>,
    ) -> Result<(Self, Vec<VitalRecord>), LogError> {
        directory.make(path)?;
        DataDirectory::check_log(path, identity)?;
        Self::open_in(Disk, path, stamp)
    }
}

impl<S: Storage> VitalLog<S> {
    fn open_in(
        storage: S,
        path: &Path,
        stamp: &Stamp,
    ) -> Result<(Self, Vec<VitalRecord>), LogError> {
        // Records are small and rare: no thread is needed.
        let options = Options {
            segment_bytes: SEGMENT,
            hand_off: HandOff::Never,
            ..Options::default()
        };
        let (wal, records) = Wal::open_in(storage, path, options, &stamp::encode(stamp))?;
        recovery::log_interrupted_write(&records);
        let records = read(records)?;
        Ok((VitalLog(wal), records))
    }

    /// Appends a record; [`sync`](Self::sync) writes it to disk.
    pub(crate) fn append(&mut self, from: Address, record: &[u8]) {
        self.0.append(from.kind, from.index.into(), record);
    }

    /// Whether records wait for [`sync`](Self::sync).
    pub(crate) fn is_behind(&self) -> bool {
        self.0.durable() < self.0.written()
    }

    /// Writes everything that was appended to disk, and how far the log reaches.
    pub(crate) fn sync(&mut self) -> Result<(), LogError> {
        Ok(self.0.seal()?)
    }
}

fn read<S: Storage>(records: Recovery<S>) -> Result<Vec<VitalRecord>, LogError> {
    let read = |entry: ionian_wal::Entry| VitalRecord {
        from: recovery::author(&entry),
        record: entry.record.into(),
    };
    records.map(|entry| Ok(read(entry?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ionian_wal::testing::{Fault, FaultDisk};

    fn open(disk: &FaultDisk) -> (VitalLog<FaultDisk>, Vec<u8>) {
        let stamp = Stamp {
            cluster: "blue".into(),
            protocol: "toy".into(),
            node: "n0".into(),
        };
        let (log, records) = VitalLog::open_in(disk.clone(), Path::new("/vital"), &stamp).unwrap();
        (log, records.iter().map(|found| found.record[0]).collect())
    }

    const WHO: Address = Address { kind: 1, index: 0 };

    #[test]
    fn failed_sync_stops_the_vital_log_and_recovery_syncs_what_it_found() {
        let mut kept = [0; 2];
        for seed in 0..200 {
            let disk = FaultDisk::new(seed);
            let (mut log, _) = open(&disk);
            log.append(WHO, &[1]);
            log.sync().unwrap();
            log.append(WHO, &[2]);
            disk.fail_next_sync(Fault::Error);
            log.sync().unwrap_err();
            assert!(log.is_behind(), "the record does not count as durable");
            log.append(WHO, &[3]);
            for _ in 0..2 {
                assert!(
                    log.sync()
                        .unwrap_err()
                        .to_string()
                        .contains("stopped at an earlier error")
                );
            }
            drop(log);
            // The second record is in the system's cache, which treats it as written.
            if seed % 2 == 0 {
                disk.fail_power();
            }
            let (log, found) = open(&disk);
            assert!(found == [1] || found == [1, 2], "{found:?}");
            kept[found.len() - 1] += 1;
            drop(log);
            // The second process may have relied on what it found.
            disk.fail_power();
            assert_eq!(open(&disk).1, found, "seed {seed}");
        }
        assert!(kept.iter().all(|count| *count > 10), "{kept:?}");
    }
}
