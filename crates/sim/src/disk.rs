//! A simulated disk: the real write-ahead log and the real snapshot files, on a storage in memory
//! whose syncs take simulated time and whose crashes keep what a disk may. In a memory-only
//! deployment the node hands over vital records alone, and this same log holds just those.
//!
//! The log does all of a sync when it begins, on the spot; the storage holds back what was asked of
//! it until the simulation says that time has passed. A crash before that undoes the operations
//! from a random one on, so it can come between any two of them: in the middle of a group, of a
//! segment's making, of a truncation or a snapshot, or of recovery itself.
//!
//! The storage fails on request only. The node stops at the first error, as in
//! life, and what was durable must be there when it starts again.

use crate::roles::Log;
use crate::trace::{hash_bytes, mix};
use bytes::Bytes;
use ionian_kernel::id::Index;
use ionian_kernel::layout::Address;
use ionian_kernel::role::Lsn;
use ionian_wal::snapshot::Snapshots;
use ionian_wal::testing::{Fault, FaultDisk, Mark};
use ionian_wal::{HandOff, Options, Recovery, Wal, WalError};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const STAMP: &[u8] = b"a simulated node";

/// Snapshots are written in chunks of this size, so that even small ones have several.
const CHUNK: usize = 500;

/// About as many operations of a disk as a small snapshot takes.
const MOST_OPERATIONS: u64 = 12;

/// Recovery is interrupted by another crash once in this many times.
const CRASH_IN_RECOVERY: u64 = 5;

/// The log of one node with the snapshots of its roles; it outlives the node's process.
pub(crate) struct Disk {
    storage: FaultDisk,
    segment_bytes: u64,
    defect: Defect,
    /// The log, while the node's process lives.
    wal: Option<Wal<FaultDisk>>,
    /// Snapshots that nothing was written of yet, and how many syncs go before.
    begun: Vec<(u64, Pending)>,
    pub(crate) snapshots: SnapshotKnobs,
    /// How many snapshots have found no room.
    pub(crate) refused: u64,
    /// The roles whose last snapshot has found no room.
    pub(crate) owed: BTreeSet<Address>,
    syncing: Option<Sync>,
    /// Whether the storage was told to fail.
    fails: bool,
    /// The first error in the life of the process, which ends with it.
    error: Option<String>,
    /// What must be found again.
    pub(crate) promised: Promised,
}

/// How a disk stores snapshots.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SnapshotKnobs {
    /// The most syncs that go before one is written: in life that takes longer than a sync.
    pub(crate) syncs_before: u64,
    /// Once in this many times something else takes the room for a while; 0: never.
    pub(crate) refused_once_in: u64,
}

/// What is wrong with a disk: canaries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Defect {
    None,
    /// It claims that everything is durable as soon as it is appended.
    Lies,
    /// A crash undoes what was synced, too.
    Forgets,
    /// The node takes what failed for done, and goes on.
    IgnoresErrors,
}

/// How a storage fails.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Trouble {
    /// The next sync fails, and has forgotten what was unsynced.
    Sync,
    /// This number of operations succeed, and the next fails.
    After(u64),
    /// There is no space left.
    Full,
}

/// Why a log cannot be opened.
#[derive(Debug)]
pub(crate) enum Unopened {
    /// The storage failed, as it was told to.
    Storage(String),
    /// What an earlier life has left is not what it should be.
    Past(String),
}

impl From<String> for Unopened {
    fn from(what: String) -> Self {
        Unopened::Past(what)
    }
}

/// The author of a snapshot, its stamp and its bytes.
type Pending = (Address, u64, Bytes);

/// A sync under way.
struct Sync {
    reached: u64,
    mark: Mark,
    /// Snapshots with their stamps, and whether there was room for them.
    stored: Vec<(Address, (u64, bool))>,
}

/// What the node may rely on.
#[derive(Default)]
pub(crate) struct Promised {
    /// Everything up to this position is durable.
    durable: u64,
    /// Everything before this one is not needed any more.
    low: u64,
    /// What was appended at each position from `low` on, as a hash.
    records: BTreeMap<u64, u64>,
    /// The last durable snapshot of each role.
    pub(crate) snapshots: BTreeMap<Address, u64>,
}

/// What a restarted node finds.
pub(crate) struct Past {
    pub(crate) snapshots: Vec<(Address, u64, Bytes)>,
    pub(crate) records: Vec<(Address, Lsn, Bytes)>,
    pub(crate) loss: Loss,
}

/// What a restarted node does not find.
#[derive(Clone, Copy, Default)]
pub(crate) struct Loss {
    /// How many records the crash took with it.
    pub(crate) records: u64,
    /// Whether a torn end was cut off.
    pub(crate) torn: bool,
    /// Whether the oldest records were truncated.
    pub(crate) truncated: bool,
}

impl Disk {
    pub(crate) fn new(seed: u64, segment_bytes: u64, defect: Defect) -> Self {
        Disk {
            storage: FaultDisk::new(seed),
            segment_bytes,
            defect,
            wal: None,
            begun: Vec::new(),
            snapshots: SnapshotKnobs::default(),
            refused: 0,
            owed: BTreeSet::new(),
            syncing: None,
            fails: false,
            error: None,
            promised: Promised::default(),
        }
    }

    /// An empty one of the same kind.
    pub(crate) fn another(&self, seed: u64) -> Self {
        Disk {
            snapshots: self.snapshots,
            ..Disk::new(seed, self.segment_bytes, self.defect)
        }
    }

    fn log(&mut self) -> &mut Wal<FaultDisk> {
        self.wal.as_mut().expect("the node is up")
    }

    /// The position of the last record.
    fn end(&self) -> u64 {
        self.wal.as_ref().map_or(0, Wal::written)
    }

    /// How many records the log has, from the oldest that the node needs to the last.
    pub(crate) fn kept(&self) -> u64 {
        (self.end() + 1).saturating_sub(self.promised.low.max(1))
    }

    /// Whether a sync would have something to do.
    pub(crate) fn has_unsynced(&self) -> bool {
        self.promised.durable < self.end() || !self.begun.is_empty()
    }

    /// Has the storage fail.
    pub(crate) fn order(&mut self, trouble: Trouble) {
        self.fails = true;
        match trouble {
            Trouble::Sync => self.storage.fail_next_sync(Fault::Error),
            Trouble::After(operations) => self.storage.fail_after(operations, Fault::Error),
            Trouble::Full => self.storage.set_full(true),
        }
    }

    /// The storage fails no longer.
    pub(crate) fn repair(&mut self) {
        self.storage.heal();
        self.storage.set_full(false);
        self.snapshots.refused_once_in = 0;
    }

    /// Whether the storage may fail at any moment.
    pub(crate) fn is_failing(&self) -> bool {
        self.fails && (self.storage.fault_is_due() || self.storage.is_full())
    }

    /// The error at which the node has to stop.
    pub(crate) fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// Takes note of what came of an operation; whether the node may go on.
    fn is_done<T>(&mut self, result: Result<T, WalError>) -> bool {
        let Err(error) = result else { return true };
        assert!(
            self.fails && (is_of_storage(&error) || self.defect == Defect::IgnoresErrors),
            "{error}"
        );
        if self.defect != Defect::IgnoresErrors {
            self.error.get_or_insert(error.to_string());
        }
        self.error.is_none()
    }

    /// Starts a sync of all there is; false when one is under way or there is nothing to do, and
    /// when the storage fails.
    pub(crate) fn begin_sync(&mut self) -> bool {
        if self.syncing.is_some() || self.error.is_some() || !self.has_unsynced() {
            return false;
        }
        // In life a thread of its own writes snapshots, which may be quicker or slower than the
        // log.
        let snapshots_first = self.storage.random(2) == 0;
        let is_next = |(syncs, _): &mut (u64, Pending)| *syncs == 0;
        let begun = self.begun.extract_if(.., is_next).map(|(_, one)| one);
        let begun: Vec<_> = begun.collect();
        self.begun.iter_mut().for_each(|(syncs, _)| *syncs -= 1);
        let mut refused = BTreeSet::new();
        let mut written = if snapshots_first {
            self.write_snapshots(&begun, &mut refused)
        } else {
            Ok(())
        };
        written = written.and_then(|()| self.log().flush().map(drop));
        if !snapshots_first {
            written = written.and_then(|()| self.write_snapshots(&begun, &mut refused));
        }
        if !self.is_done(written) {
            return false;
        }
        self.refused += refused.len() as u64;
        self.owed.extend(&refused);
        let stored = |(from, stamp, _): &Pending| (*from, (*stamp, !refused.contains(from)));
        self.syncing = Some(Sync {
            reached: self.end(),
            mark: self.storage.mark(),
            stored: begun.iter().map(stored).collect(),
        });
        true
    }

    /// Adds the roles whose snapshots find no room.
    fn write_snapshots(
        &self,
        begun: &[Pending],
        refused: &mut BTreeSet<Address>,
    ) -> Result<(), WalError> {
        for (from, stamp, snapshot) in begun {
            let snapshots = self.snapshots_of(*from);
            let once_in = self.snapshots.refused_once_in;
            let has_room = self.fails || once_in == 0 || self.storage.random(once_in) > 0;
            if !has_room {
                let after = self.storage.random(MOST_OPERATIONS);
                self.storage.fail_after(after, Fault::NoSpace);
            }
            let written = write_snapshot(&snapshots, *stamp, snapshot);
            if !has_room {
                self.storage.heal();
            }
            match written {
                Err(error) if error.is_full() => {
                    snapshots.remove_unfinished()?;
                    refused.insert(*from);
                }
                written => written?,
            }
        }
        Ok(())
    }

    fn snapshots_of(&self, role: Address) -> Snapshots<FaultDisk> {
        let name = format!("{}-{}", role.kind, role.index);
        Snapshots::new_in(self.storage.clone(), Path::new("/snapshots"), &name, STAMP)
    }

    /// The sync is done. Returns the snapshots that it has tried to store, and whether they are
    /// there now.
    pub(crate) fn complete_sync(&mut self) -> Vec<(Address, (u64, bool))> {
        let Some(Sync {
            reached,
            mark,
            stored,
        }) = self.syncing.take()
        else {
            return Vec::new();
        };
        self.promised.durable = reached;
        let kept = stored.iter().filter(|(_, (_, stored))| *stored);
        let kept = kept.map(|(from, (stamp, _))| (*from, *stamp));
        self.promised.snapshots.extend(kept);
        self.let_go(mark);
        stored
    }

    /// Whether the disk has no room for more of the log, so that roles are to store snapshots:
    /// now and then where snapshots find no room.
    pub(crate) fn wants_snapshots(&self) -> bool {
        let once_in = self.snapshots.refused_once_in;
        once_in > 0 && self.storage.random(4 * once_in) == 0
    }

    fn let_go(&mut self, mark: Mark) {
        if self.defect != Defect::Forgets {
            self.storage.let_go(mark);
        }
    }

    /// Says that durable records before `lsn` are not needed any more.
    pub(crate) fn truncate_below(&mut self, lsn: Lsn) {
        if self.error.is_some() {
            return;
        }
        let truncated = self.log().truncate_below(lsn.0);
        // Where it fails some of them may be gone all the same.
        self.is_done(truncated);
        self.promised.low = self.promised.low.max(lsn.0);
        self.promised.records = self.promised.records.split_off(&lsn.0);
    }

    /// The node crashes: its process alone, or with it the system and its cache.
    pub(crate) fn crash(&mut self) {
        self.die();
        self.storage.rewind(false);
        if self.storage.random(4) > 0 {
            self.storage.fail_power();
        }
    }

    /// As [`crash`](Disk::crash), of all the ends the worst: nothing that was not durable is kept.
    /// Says how many records are gone.
    pub(crate) fn crash_hard(&mut self) -> u64 {
        let lost = self.end() - self.promised.durable;
        self.die();
        self.storage.rewind(true);
        lost
    }

    /// The node stops at an error. Everything that it asked for before was done; what a failed sync
    /// has forgotten the system may go on showing for a while.
    pub(crate) fn stop(&mut self) {
        self.die();
        self.storage.let_go(self.storage.mark());
        if self.storage.random(2) == 0 {
            self.storage.rewind(false);
        }
    }

    fn die(&mut self) {
        self.wal = None;
        self.error = None;
        self.begun.clear();
        self.owed.clear();
        self.syncing = None;
    }

    /// Opens the log for a node that starts, and reads what is there for it and for the roles at
    /// `addresses`.
    ///
    /// # Errors
    /// When the storage fails, or something is wrong with what an earlier life has left.
    pub(crate) fn open(&mut self, addresses: &[Address]) -> Result<Past, Unopened> {
        let explain = |fails: bool, error: WalError| match fails && is_of_storage(&error) {
            true => Unopened::Storage(error.to_string()),
            false => Unopened::Past(error.to_string()),
        };
        while self.storage.random(CRASH_IN_RECOVERY) == 0 {
            self.read(addresses)
                .map_err(|error| explain(self.fails, error))?;
            self.crash();
        }
        let mut past = self
            .read(addresses)
            .map_err(|error| explain(self.fails, error))?;
        if !matches!(self.defect, Defect::Forgets | Defect::IgnoresErrors) {
            self.promised.check(&past)?;
        }
        self.fails = self.is_failing();
        self.let_go(self.storage.mark());
        // The log drops whole segments. What a role does not need it must not miss, wherever those
        // end.
        if self.storage.random(2) == 0 {
            past.records
                .retain(|(_, lsn, _)| lsn.0 >= self.promised.low);
        }
        self.promised.take_up(&past, self.end());
        Ok(past)
    }

    fn read(&mut self, addresses: &[Address]) -> Result<Past, WalError> {
        let options = Options {
            segment_bytes: self.segment_bytes,
            hand_off: HandOff::Never,
            ..Options::default()
        };
        let (wal, recovery) =
            Wal::open_in(self.storage.clone(), Path::new("/wal"), options, STAMP)?;
        let end = self
            .promised
            .records
            .keys()
            .next_back()
            .copied()
            .unwrap_or(0);
        let loss = Loss {
            records: end.saturating_sub(wal.written()),
            torn: recovery.cut().is_some(),
            truncated: recovery.first_lsn() > 1,
        };
        self.wal = Some(wal);
        let mut snapshots = Vec::new();
        // Also of what lived here once and may come back: nothing removes its files.
        let known: BTreeSet<Address> = addresses
            .iter()
            .chain(self.promised.snapshots.keys())
            .copied()
            .collect();
        for address in known {
            snapshots.extend(self.read_snapshot(address)?);
        }
        Ok(Past {
            snapshots,
            records: read_records(recovery)?,
            loss,
        })
    }

    fn read_snapshot(&self, of: Address) -> Result<Option<(Address, u64, Bytes)>, WalError> {
        let Some(loaded) = self.snapshots_of(of).load_latest()? else {
            return Ok(None);
        };
        // A crash damages nothing that was whole.
        loaded.rejected.map_or(Ok(()), Err)?;
        let mut whole: Vec<u8> = loaded.reader.collect::<Result<Vec<_>, _>>()?.concat();
        let snapshot = whole.split_off(8);
        let stamp = u64::from_le_bytes(whole.try_into().expect("the stamp comes first"));
        Ok(Some((of, stamp, Bytes::from(snapshot))))
    }
}

impl Log for Disk {
    fn append(&mut self, from: Address, record: &[u8]) -> Lsn {
        let lsn = self.log().append(from.kind, from.index.into(), record);
        self.promised.records.insert(lsn, digest(from, record));
        Lsn(lsn)
    }

    fn next(&self) -> Lsn {
        Lsn(self.end() + 1)
    }

    /// The position up to which the node may rely on the disk.
    fn durable(&self) -> Lsn {
        Lsn(if self.defect == Defect::Lies {
            self.end()
        } else {
            self.promised.durable
        })
    }

    fn store_snapshot(&mut self, from: Address, stamp: u64, snapshot: Bytes) {
        self.owed.remove(&from);
        let syncs = match self.snapshots.syncs_before {
            0 => 0,
            most => self.storage.random(most + 1),
        };
        self.begun.push((syncs, (from, stamp, snapshot)));
    }
}

fn write_snapshot(
    snapshots: &Snapshots<FaultDisk>,
    stamp: u64,
    snapshot: &Bytes,
) -> Result<(), WalError> {
    let mut writer = snapshots.begin()?;
    writer.push(&stamp.to_le_bytes())?;
    let mut chunks = snapshot.chunks(CHUNK);
    chunks.try_for_each(|chunk| writer.push(chunk))?;
    writer.finish()
}

fn read_records(recovery: Recovery<FaultDisk>) -> Result<Vec<(Address, Lsn, Bytes)>, WalError> {
    let records = recovery.map(|entry| {
        let entry = entry?;
        Ok((
            Address {
                kind: entry.kind,
                index: entry.tag as Index,
            },
            Lsn(entry.lsn),
            Bytes::from(entry.record),
        ))
    });
    records.collect()
}

/// Whether the storage said no.
fn is_of_storage(error: &WalError) -> bool {
    matches!(error, WalError::Io { .. })
}

fn digest(from: Address, record: &[u8]) -> u64 {
    mix(
        u64::from(from.kind) << 8 | u64::from(from.index),
        hash_bytes(record),
    )
}

impl Past {
    fn digests(&self) -> BTreeMap<u64, u64> {
        self.records
            .iter()
            .map(|(from, lsn, record)| (lsn.0, digest(*from, record)))
            .collect()
    }
}

impl Promised {
    /// Compares what was found with what must be there.
    fn check(&self, past: &Past) -> Result<(), String> {
        let found = past.digests();
        if let Some(lsn) = found
            .keys()
            .find(|lsn| **lsn >= self.low && !self.records.contains_key(lsn))
        {
            return Err(format!("record {lsn} is found and was never appended"));
        }
        for (lsn, record) in &self.records {
            match found.get(lsn) {
                Some(found) if found == record => {}
                Some(_) => {
                    return Err(format!(
                        "record {lsn} is found and is not what was appended"
                    ));
                }
                None if *lsn <= self.durable => {
                    return Err(format!("record {lsn} was durable and is lost"));
                }
                None => {}
            }
        }
        for (role, stamp) in &self.snapshots {
            let found = past
                .snapshots
                .iter()
                .find(|(found, ..)| found == role)
                .map(|(_, found, _)| *found);
            if found < Some(*stamp) {
                return Err(format!(
                    "snapshot {stamp} of {role:?} was stored, and found is {found:?}"
                ));
            }
        }
        Ok(())
    }

    /// What was found is durable now, and the rest never was.
    fn take_up(&mut self, past: &Past, end: u64) {
        self.durable = end;
        self.records = past.digests().split_off(&self.low);
        self.snapshots = past
            .snapshots
            .iter()
            .map(|(from, stamp, _)| (*from, *stamp))
            .collect();
    }
}

#[cfg(test)]
mod tests;
