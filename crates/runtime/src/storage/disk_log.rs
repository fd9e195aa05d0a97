//! The log of a node with `durability = "disk"`: the write-ahead log in `DIRECTORY/wal`, and the
//! snapshots of its roles in `DIRECTORY/snapshots`.
//!
//! Checkpoints cut off the beginning of the log. When the log has grown enough, roles write again
//! those records without keys that they still need, and return the keys of the other records that
//! they need. When that is on disk, the log drops everything before the oldest needed record.
//!
//! While the disk has no room for the next file of the log, the roles that execute commands store
//! snapshots, and the log is cut, as soon as that can make room: so deletions, which need a little
//! of the log, lead out of it.

use super::directory::{DataDirectory, LOG, SNAPSHOTS, VITAL};
use super::error::LogError;
use super::pace::{self, Pace};
use super::recovery;
use super::snapshots::{Report, SnapshotStore, SnapshotThread};
use super::stamp::{self, Stamp};
use crate::status::{LogMeasured, LogStatus, RoomStatus};
use ionian_kernel::layout::Address;
use ionian_kernel::machine::Frozen;
use ionian_kernel::role::Lsn;
use ionian_wal::{Flush, Options, Recovery, Wal};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::Notify;

/// The approximate cost of a record in the log besides its bytes.
const RECORD_OVERHEAD: u64 = 24;

/// When more bytes than these wait for a sync in progress, the event loop waits for the disk too
/// and reads nothing more.
const MAX_GATHERED: usize = 64 << 20;

/// Larger than any command that a gateway accepts: every record of a role must fit.
const MAX_RECORD: usize = 1 << 30;

/// How often a node whose disk is full looks whether it still is.
const LOOK_FOR_ROOM_EVERY: Duration = Duration::from_secs(1);

/// While the disk has no room for the next file of the log, the log is cut when it has grown by
/// this many bytes, ...
const CUT_BYTES: u64 = 256 << 10;

/// ... or after this time, which doubles with each cut and is the same again after each snapshot:
/// when f+1 replicas have stored theirs, records before them are not needed any more.
const CUT_AFTER: Duration = Duration::from_secs(2);

/// That time doubles this often.
const CUT_DOUBLINGS: u32 = 8;

/// While the disk has no room for the next file of the log, snapshots are stored each time the log
/// has grown by this many bytes.
const SNAPSHOT_BYTES: u64 = 2 << 20;

/// The bytes of the log, given those of one of its files, that are kept for what a node writes
/// though its clients may write no more: promises, checkpoints, and what clients of other nodes
/// write until their nodes have no room either. The logs of nodes that have stored the same differ
/// by less than a file.
fn reserve(segment_bytes: u64) -> u64 {
    segment_bytes + segment_bytes / 4
}

/// How a node with durability "disk" uses the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskOptions {
    /// The log is cut at its beginning when it has grown by this many bytes.
    pub checkpoint_bytes: u64,
    /// The size of one file of the log in bytes: a multiple of 4096, at least 8192, at most 2^30.
    pub segment_bytes: u64,
}

impl Default for DiskOptions {
    fn default() -> Self {
        DiskOptions {
            checkpoint_bytes: 64 << 20,
            segment_bytes: 16 << 20,
        }
    }
}

/// See the top of this file.
pub(crate) struct DiskLog {
    wal: Wal,
    snapshots: SnapshotThread,
    /// The roles whose last snapshot found no room, and its size.
    without_room: BTreeMap<Address, u64>,
    options: DiskOptions,
    /// By how many bytes the log has grown since the last checkpoint.
    grown: u64,
    checkpoint: Option<Checkpoint>,
    checkpoints: u64,
    snapshots_stored: u64,
    measured: LogMeasured,
    pace: Pace,
    looked_for_room: Option<Instant>,
    /// There is one while the disk has no room for the next file of the log.
    shortage: Option<Shortage>,
    /// The sync that the log's thread does.
    in_progress: Option<Sync>,
    /// Holds the lock. It is the last field, so the threads of the others have ended when it is
    /// dropped.
    _directory: Rc<DataDirectory>,
}

/// The disk has no room for the next file of the log, which goes on to the end of the files that it
/// has.
struct Shortage {
    /// By how many bytes the log has grown since snapshots were asked for.
    grown: u64,
    /// When the log is cut next, and how often it was cut since the last snapshot.
    cut_at: Instant,
    cuts: u32,
}

impl Shortage {
    /// The log was cut so often since the last snapshot.
    fn was_cut(&mut self, cuts: u32) {
        self.cut_at = Instant::now() + CUT_AFTER * (1 << cuts.min(CUT_DOUBLINGS));
        self.cuts = cuts;
    }
}

/// A sync, for measurements.
#[derive(Clone, Copy)]
struct Sync {
    began: Instant,
    bytes: usize,
    /// The last record on disk before it.
    after: u64,
}

/// The role instance of a snapshot, its stamp, and whether it was stored.
pub(crate) type EndedSnapshot = (Address, (u64, bool));

/// What a disk has no room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoRoom {
    /// Not even for more records in the files that there are.
    Log,
    LogFile,
    /// Of this many bytes.
    Snapshot(u64),
}

impl fmt::Display for NoRoom {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoRoom::Log => formatter.write_str("more of the log"),
            NoRoom::LogFile => formatter.write_str("the next file of the log"),
            NoRoom::Snapshot(bytes) => write!(formatter, "a snapshot of {bytes} bytes"),
        }
    }
}

/// A checkpoint that is not on disk yet.
struct Checkpoint {
    /// The last of its records.
    written: u64,
    /// The first record that is still needed after the checkpoint.
    needed: u64,
}

/// What an earlier process of the node has stored.
pub(crate) struct DiskPast {
    pub(crate) snapshots: SnapshotStore,
    pub(crate) records: Recovery,
}

fn wal_options(options: DiskOptions, wake: Arc<Notify>) -> Options {
    Options {
        segment_bytes: options.segment_bytes,
        max_record_bytes: MAX_RECORD,
        // As many as a checkpoint frees, so that the next interval needs no new file. Filling a
        // file with zeros costs the disk as much as writing all its groups.
        spares: (options.checkpoint_bytes / options.segment_bytes) as usize + 2,
        on_complete: Box::new(move || wake.notify_one()),
        ..Options::default()
    }
}

impl DiskLog {
    /// Opens the log in the directory. `identity` is the identity file if it says that the node has
    /// taken part: then there must be a log. A thread of the log notifies `wake` when it has
    /// finished something.
    pub(crate) fn open(
        directory: Rc<DataDirectory>,
        stamp: &Stamp,
        identity: Option<PathBuf>,
        kinds: &'static [&'static str],
        options: DiskOptions,
        wake: &Arc<Notify>,
    ) -> Result<(Self, DiskPast), LogError> {
        let path = directory.path();
        let (log_path, snapshots_path) = (path.join(LOG), path.join(SNAPSHOTS));
        directory.refuse_durability(VITAL, "memory", "disk")?;
        directory.make(&log_path)?;
        DataDirectory::check_log(&log_path, identity)?;
        let stamp = stamp::encode(stamp);
        let store = SnapshotStore::new(&snapshots_path, &stamp, kinds);
        let (wal, records) = Wal::open(&log_path, wal_options(options, wake.clone()), &stamp)?;
        directory.make(&snapshots_path)?;
        recovery::log_interrupted_write(&records);
        let snapshots = SnapshotThread::start(store.clone(), wake.clone())?;
        let log = DiskLog {
            // Recovered bytes count as growth: a node that restarts often still has checkpoints.
            grown: wal.size(),
            wal,
            snapshots,
            without_room: BTreeMap::new(),
            options,
            checkpoint: None,
            checkpoints: 0,
            snapshots_stored: 0,
            measured: LogMeasured::default(),
            pace: Pace::default(),
            looked_for_room: None,
            shortage: None,
            in_progress: None,
            _directory: directory,
        };
        Ok((
            log,
            DiskPast {
                snapshots: store,
                records,
            },
        ))
    }

    pub(crate) fn append(&mut self, from: Address, record: &[u8]) -> Lsn {
        let grown = record.len() as u64 + RECORD_OVERHEAD;
        self.grown += grown;
        if let Some(shortage) = &mut self.shortage {
            shortage.grown += grown;
        }
        Lsn(self.wal.append(from.kind, from.index.into(), record))
    }

    pub(crate) fn is_behind(&self) -> bool {
        self.wal.durable() < self.wal.written()
    }

    pub(crate) fn durable(&self) -> Lsn {
        Lsn(self.wal.durable())
    }

    pub(crate) fn flush(&mut self) -> Result<bool, LogError> {
        let sync = self.next_sync();
        let mut outcome = self.wal.flush()?;
        if outcome == Flush::Started && self.wal.gathered_bytes() > MAX_GATHERED {
            self.wal.sync()?;
            outcome = Flush::Done;
        }
        if outcome == Flush::Done {
            self.measured.loop_sync_us += sync.began.elapsed().as_micros() as u64;
        }
        self.note_syncs(sync);
        self.moved_since(sync.after)
    }

    pub(crate) fn poll(&mut self) -> Result<bool, LogError> {
        self.look_for_room()?;
        let next = self.in_progress.map(|_| self.next_sync());
        let before = self.wal.durable();
        self.wal.poll_completed()?;
        if let Some(next) = next {
            self.note_syncs(next);
        }
        self.moved_since(before)
    }

    /// While the disk has no room for the next file of the log, tries now and then to make it.
    fn look_for_room(&mut self) -> Result<(), LogError> {
        if !self.wal.is_short() {
            self.shortage = None;
            return Ok(());
        }
        let now = Instant::now();
        let is_due = |at| now.saturating_duration_since(at) >= LOOK_FOR_ROOM_EVERY;
        if self.looked_for_room.is_none_or(is_due) {
            self.looked_for_room = Some(now);
            self.wal.make_spare()?;
        }
        Ok(())
    }

    /// For what the disk has no room, if so.
    pub(crate) fn lacks_room(&self) -> Option<NoRoom> {
        match self.wal.is_short() {
            true if self.wal.left() < reserve(self.options.segment_bytes) => Some(NoRoom::Log),
            true => Some(NoRoom::LogFile),
            false => self
                .without_room
                .values()
                .max()
                .copied()
                .map(NoRoom::Snapshot),
        }
    }

    /// When the log looks for room next, if it lacks any: the event loop then runs though nothing
    /// has come.
    pub(crate) fn looks_for_room(&self) -> Option<Instant> {
        let looked = self.looked_for_room.filter(|_| self.wal.is_short())?;
        Some(looked + LOOK_FOR_ROOM_EVERY)
    }

    /// Whether the roles that execute commands are to store snapshots, for the log to be cut. True
    /// once for each time that it is so.
    pub(crate) fn wants_snapshots(&mut self) -> bool {
        if !self.wal.is_short() {
            return false;
        }
        let is_new = self.shortage.is_none();
        let shortage = self.shortage.get_or_insert_with(|| Shortage {
            grown: 0,
            cut_at: Instant::now() + CUT_AFTER,
            cuts: 0,
        });
        let wants = is_new || shortage.grown >= SNAPSHOT_BYTES;
        if wants {
            shortage.grown = 0;
        }
        wants
    }

    /// The role is not on this node any more.
    pub(crate) fn role_left(&mut self, role: Address) {
        self.without_room.remove(&role);
    }

    /// The sync of what was gathered, if it begins now.
    fn next_sync(&self) -> Sync {
        Sync {
            began: Instant::now(),
            bytes: self.wal.gathered_bytes(),
            after: self.wal.durable(),
        }
    }

    /// Counts the sync that has ended since `next`, and notes whether another thread does `next`.
    fn note_syncs(&mut self, next: Sync) {
        let durable = self.wal.durable();
        if durable > next.after {
            let ended = self.in_progress.take().unwrap_or(next);
            let LogMeasured {
                sync_times,
                sync_bytes,
                sync_records,
                ..
            } = &mut self.measured;
            let now = Instant::now();
            let took = now.saturating_duration_since(ended.began);
            sync_times.record(took.as_micros() as u64);
            self.pace.record(now, took);
            self.wal.hand_off_all(self.pace.hands_off());
            sync_bytes.record(ended.bytes as u64);
            sync_records.record(durable - ended.after);
        }
        if durable < self.wal.written() && self.in_progress.is_none() {
            self.in_progress = Some(next);
        }
    }

    /// Whether the disk takes so long that another node should lead.
    pub(crate) fn is_slow(&self) -> bool {
        let began = self.waits_since();
        // Called in each run of the event loop.
        (began.is_some() || self.pace.was_slow()) && self.pace.is_slow(Instant::now(), began)
    }

    /// How long the sync in progress has taken, if it hangs.
    pub(crate) fn hangs(&self) -> Option<Duration> {
        pace::hangs(Instant::now(), self.waits_since())
    }

    fn waits_since(&self) -> Option<Instant> {
        self.in_progress.map(|sync| sync.began)
    }

    /// What it has measured.
    pub(crate) fn measured(&self) -> LogMeasured {
        self.measured
    }

    pub(crate) fn close(&mut self) -> Result<(), LogError> {
        Ok(self.wal.seal()?)
    }

    fn moved_since(&mut self, before: u64) -> Result<bool, LogError> {
        let durable = self.wal.durable();
        if let Some(Checkpoint { written, needed }) = self.checkpoint
            && durable >= written
        {
            self.wal.truncate_below(needed)?;
            self.checkpoint = None;
            self.checkpoints += 1;
        }
        Ok(durable > before)
    }

    pub(crate) fn store_snapshot(&mut self, from: Address, stamp: u64, frozen: Box<dyn Frozen>) {
        self.snapshots.store(from, stamp, frozen);
    }

    /// A snapshot that is on disk, or whose role is to store another one.
    pub(crate) fn next_snapshot(&mut self) -> Result<Option<EndedSnapshot>, LogError> {
        let stored = loop {
            match self.snapshots.poll()? {
                None => return Ok(None),
                Some(Report::NoRoom(from, bytes)) => _ = self.without_room.insert(from, bytes),
                Some(Report::Again(from, stamp)) => return Ok(Some((from, (stamp, false)))),
                Some(Report::Stored(stored)) => break stored,
            }
        };
        self.without_room.remove(&stored.from);
        if let Some(shortage) = &mut self.shortage {
            shortage.was_cut(0);
        }
        self.snapshots_stored += 1;
        let unix = SystemTime::now().duration_since(UNIX_EPOCH);
        self.measured.snapshot_stored_at = unix.unwrap_or_default().as_secs();
        self.measured.snapshot_bytes = stored.bytes;
        let took = stored.took.as_micros() as u64;
        self.measured.snapshot_times.record(took);
        Ok(Some((stored.from, (stored.stamp, true))))
    }

    pub(crate) fn checkpoint_due(&self) -> Option<Lsn> {
        let is_short = |it: &Shortage| self.grown >= CUT_BYTES || Instant::now() >= it.cut_at;
        let is_long = self.grown >= self.options.checkpoint_bytes;
        let due = is_long || self.shortage.as_ref().is_some_and(is_short);
        (due && self.checkpoint.is_none()).then_some(Lsn(self.wal.written() + 1))
    }

    pub(crate) fn checkpoint_appended(&mut self, needed: Lsn) {
        self.checkpoint = Some(Checkpoint {
            written: self.wal.written(),
            needed: needed.0,
        });
        self.grown = 0;
        if let Some(shortage) = &mut self.shortage {
            shortage.was_cut(shortage.cuts + 1);
        }
    }

    fn room(&self) -> Option<RoomStatus> {
        let (free_bytes, snapshot) = self.snapshots.room().bytes();
        let needed_bytes = snapshot + self.options.checkpoint_bytes;
        (free_bytes < u64::MAX).then_some(RoomStatus {
            free_bytes,
            needed_bytes,
        })
    }

    pub(crate) fn status(&self) -> LogStatus {
        LogStatus {
            durability: "disk".into(),
            bytes: self.wal.size(),
            position: self.wal.written(),
            lag: self.wal.written() - self.wal.durable(),
            syncs: self.wal.syncs(),
            checkpoints: self.checkpoints,
            snapshots: self.snapshots_stored,
            is_slow: self.is_slow(),
            is_full: self.lacks_room().is_some(),
            room: self.room(),
        }
    }
}
