//! The snapshots of a node's roles: a file `ROLE-INDEX` for each role instance, and a thread that
//! writes them while the event loop continues.
//!
//! The first chunk of a file is the role's stamp; the others together are the snapshot.
//!
//! One that finds no room is removed. The role gets the reply when there is room, or after a pause,
//! and then stores another one.

use super::error::{LogError, io_error};
use super::stored::StoredList;
use bytes::Bytes;
use ionian_kernel::layout::Address;
use ionian_kernel::machine::Frozen;
use ionian_wal::WalError;
use ionian_wal::snapshot::{Loaded, SnapshotReader, SnapshotWriter, Snapshots};
use ionian_wal::storage::Storage;
use nix::sys::statvfs::statvfs;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// The largest chunk of a file. A user's state machine may return all of its state at once.
const CHUNK: usize = 4 << 20;

/// The directory of the snapshots.
#[derive(Clone)]
pub(crate) struct SnapshotStore {
    path: PathBuf,
    stamp: Arc<[u8]>,
    kinds: &'static [&'static str],
}

impl SnapshotStore {
    /// A store in the existing directory `path`. `stamp` identifies the node.
    pub(crate) fn new(path: &Path, stamp: &[u8], kinds: &'static [&'static str]) -> Self {
        SnapshotStore {
            path: path.to_owned(),
            stamp: stamp.into(),
            kinds,
        }
    }

    fn name(&self, of: Address) -> String {
        format!("{}-{}", self.kinds[of.kind as usize], of.index)
    }

    pub(crate) fn of(&self, address: Address) -> Snapshots {
        Snapshots::new(&self.path, &self.name(address), &self.stamp)
    }

    /// The names of all files, without unfinished ones.
    fn names(&self) -> Result<Vec<String>, LogError> {
        let error = || io_error("list the directory", &self.path);
        let entries = fs::read_dir(&self.path).map_err(error())?;
        let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        let mut names = names
            .collect::<std::io::Result<Vec<String>>>()
            .map_err(error())?;
        names.retain(|name| !name.ends_with(".tmp"));
        Ok(names)
    }

    /// The size of the largest file; 0 if there is none or the disk does not say.
    fn largest(&self) -> u64 {
        let names = self.names().unwrap_or_default().into_iter();
        let sizes = names.filter_map(|name| Some(fs::metadata(self.path.join(name)).ok()?.len()));
        sizes.max().unwrap_or(0)
    }

    /// The files of roles that are not on this node.
    fn without_role(&self, hosted: &[Address]) -> Result<Vec<String>, LogError> {
        let known: Vec<String> = hosted.iter().map(|address| self.name(*address)).collect();
        let mut names = self.names()?;
        names.retain(|name| {
            !known
                .iter()
                .any(|known| name.split('.').next() == Some(known))
        });
        Ok(names)
    }

    /// Deletes the snapshots of roles that a change of the membership has taken from this node.
    pub(crate) fn delete_others(&self, hosted: &[Address]) -> Result<(), LogError> {
        let here: Vec<String> = hosted.iter().map(|address| self.name(*address)).collect();
        StoredList::open(&self.path)?.retain(|name| here.iter().any(|here| here == name))?;
        for name in self.without_role(hosted)? {
            let path = self.path.join(&name);
            fs::remove_file(&path).map_err(io_error("delete", &path))?;
            tracing::info!("{name}: the snapshot of a role that has left this node is deleted");
        }
        Ok(())
    }

    /// Makes sure that every snapshot belongs to a role on this node.
    pub(crate) fn check_owners(&self, hosted: &[Address]) -> Result<(), LogError> {
        self.without_role(hosted)?.first().map_or(Ok(()), |name| {
            let text = "this node has no role of that name. Has the deployment been changed since it was written?".into();
            Err(LogError::Foreign { path: self.path.join(name), text })
        })
    }

    /// The newest undamaged snapshot of a role, with its stamp: there is one if one was stored.
    pub(crate) fn load(&self, of: Address) -> Result<Option<(u64, Bytes)>, LogError> {
        let (name, latest) = (self.name(of), self.of(of).load_latest()?);
        let stored = StoredList::open(&self.path)?;
        stored.check(&name, latest.is_some(), self.path.join(&name))?;
        let Some(Loaded { reader, rejected }) = latest else {
            return Ok(None);
        };
        if let Some(rejected) = rejected {
            let path = reader.path().display();
            tracing::warn!(
                id = "E0203",
                "a snapshot is damaged, so the one before it, {path}, is used: {rejected}"
            );
        }
        read_whole(reader).map(Some)
    }
}

/// A snapshot with its stamp.
pub(crate) fn read_whole<S: Storage>(
    mut chunks: SnapshotReader<S>,
) -> Result<(u64, Bytes), LogError> {
    let stamp = read_stamp(&mut chunks)?;
    let mut snapshot = Vec::new();
    for chunk in chunks {
        snapshot.append(&mut chunk?);
    }
    Ok((stamp, Bytes::from(snapshot)))
}

/// The stamp alone: the first chunk.
pub(crate) fn read_stamp<S: Storage>(chunks: &mut SnapshotReader<S>) -> Result<u64, LogError> {
    let stamp = chunks
        .next()
        .transpose()?
        .and_then(|chunk| chunk.try_into().ok());
    let no_stamp = || LogError::Foreign {
        path: chunks.path().to_owned(),
        text: "it does not begin with a stamp".into(),
    };
    Ok(u64::from_le_bytes(stamp.ok_or_else(no_stamp)?))
}

/// How often the thread looks at the room on the disk.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// The same while a snapshot waits for room.
const LOOK_FOR_ROOM_EVERY: Duration = Duration::from_secs(1);

/// The least time from a snapshot that found no room to the next one of the role, if the disk has
/// no more room than before: the state may need less by then.
const PAUSE: Duration = Duration::from_secs(5);

/// That time is at least this many times what the last attempt took.
const PAUSES: u32 = 4;

/// The thread that writes snapshots, one after the other.
pub(crate) struct SnapshotThread {
    jobs: Option<Sender<Job>>,
    done: Receiver<Result<Report, LogError>>,
    room: Arc<Room>,
    stop: Arc<AtomicBool>,
    handle: Option<JoinHandle<()>>,
}

/// What the thread reports.
pub(crate) enum Report {
    /// A snapshot is on disk.
    Stored(Stored),
    /// The disk has no room for the snapshot of this role, which has this many bytes.
    NoRoom(Address, u64),
    /// The role of that snapshot, with this stamp, is to store another one.
    Again(Address, u64),
}

/// A snapshot that is on disk.
pub(crate) struct Stored {
    pub(crate) from: Address,
    pub(crate) stamp: u64,
    /// How long it took to write.
    pub(crate) took: Duration,
    /// The size of what the role has written.
    pub(crate) bytes: u64,
}

struct Job {
    from: Address,
    stamp: u64,
    frozen: Box<dyn Frozen>,
}

/// The room on the disk, as the thread has found it last.
pub(crate) struct Room {
    /// `u64::MAX` if that is not known.
    free: AtomicU64,
    /// The size of the largest snapshot: the next is about as large.
    largest: AtomicU64,
}

impl Room {
    /// Free bytes, and the size of the largest snapshot.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        let load = |it: &AtomicU64| it.load(Ordering::Relaxed);
        (load(&self.free), load(&self.largest))
    }
}

/// A snapshot that has found no room.
struct Waiting {
    from: Address,
    stamp: u64,
    bytes: u64,
    /// Free bytes after the attempt.
    free: u64,
    began: Instant,
    ended: Instant,
}

impl Waiting {
    /// Whether its role is to store another one: there is room now and was none, or enough time has
    /// passed.
    fn is_over(&self, now: Instant, free: u64) -> bool {
        let took = self.ended.saturating_duration_since(self.began);
        let waited = now.saturating_duration_since(self.ended);
        (self.free < self.bytes && self.bytes <= free) || waited >= PAUSE.max(took * PAUSES)
    }
}

/// The body of the thread.
struct Writer {
    store: SnapshotStore,
    list: StoredList,
    results: Sender<Result<Report, LogError>>,
    room: Arc<Room>,
    stopped: Arc<AtomicBool>,
    waiting: Vec<Waiting>,
    /// The roles whose last snapshot found no room, and its size.
    refused: BTreeMap<Address, u64>,
    /// Dropped last: the loop is woken when the thread has ended.
    wake: NotifyAtEnd,
}

impl Writer {
    fn run(mut self, todo: &Receiver<Job>) {
        loop {
            self.look();
            let next = match self.waiting.is_empty() {
                true => LOOK_EVERY,
                false => LOOK_FOR_ROOM_EVERY,
            };
            match todo.recv_timeout(next) {
                Ok(job) => {
                    if !self.write(job) {
                        return;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Looks at the room on the disk. Only messages and pauses depend on it, so errors are ignored.
    fn look(&mut self) {
        let Room { free, largest } = &*self.room;
        if let Ok(disk) = statvfs(&self.store.path) {
            let bytes = disk.blocks_available().saturating_mul(disk.fragment_size());
            free.store(bytes, Ordering::Relaxed);
        }
        let wanted = self.waiting.iter().map(|it| it.bytes).max();
        let found = self.store.largest().max(wanted.unwrap_or(0));
        largest.store(found, Ordering::Relaxed);
        let (now, free) = (Instant::now(), free.load(Ordering::Relaxed));
        for Waiting { from, stamp, .. } in self.waiting.extract_if(.., |it| it.is_over(now, free)) {
            drop(self.results.send(Ok(Report::Again(from, stamp))));
            self.wake.0.notify_one();
        }
    }

    /// Writes one snapshot. Returns false if it was stopped.
    fn write(&mut self, job: Job) -> bool {
        let began = Instant::now();
        let Job {
            from,
            stamp,
            frozen,
        } = job;
        // What surely has no room is measured only: the state may have become smaller.
        let wanted = self.refused.remove(&from).unwrap_or(0);
        let tries = wanted <= self.room.bytes().0;
        let report = match self.store_one((from, stamp), frozen, tries) {
            Ok(None) => return false,
            Ok(Some(Written {
                bytes,
                stored: true,
            })) => Ok(Report::Stored(Stored {
                from,
                stamp,
                took: began.elapsed(),
                bytes,
            })),
            Ok(Some(Written { bytes, .. })) => {
                self.look();
                self.refused.insert(from, bytes);
                self.waiting.push(Waiting {
                    from,
                    stamp,
                    bytes,
                    free: if tries { self.room.bytes().0 } else { 0 },
                    began,
                    ended: Instant::now(),
                });
                Ok(Report::NoRoom(from, bytes))
            }
            Err(error) => Err(error),
        };
        drop(self.results.send(report));
        self.wake.0.notify_one();
        true
    }

    fn store_one(
        &mut self,
        (from, stamp): (Address, u64),
        frozen: Box<dyn Frozen>,
        tries: bool,
    ) -> Result<Option<Written>, LogError> {
        let snapshots = self.store.of(from);
        let writer = match tries {
            true => unless_full(&snapshots, begin(&snapshots, stamp))?,
            false => None,
        };
        let written = write(&snapshots, writer, frozen, &self.stopped)?;
        let Some(Written {
            bytes,
            stored: true,
        }) = written
        else {
            return Ok(written);
        };
        let stored = match self.list.add(self.store.name(from)) {
            Err(error) if error.is_full() => false,
            added => added.map(|()| true)?,
        };
        Ok(Some(Written { bytes, stored }))
    }
}

impl SnapshotThread {
    /// Starts the thread. It notifies `wake` when it has something to report, and when it ends.
    pub(crate) fn start(store: SnapshotStore, wake: Arc<Notify>) -> Result<Self, LogError> {
        let path = store.path.clone();
        let (jobs, todo) = channel::<Job>();
        let (results, done) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let room = Arc::new(Room {
            free: AtomicU64::new(u64::MAX),
            largest: AtomicU64::new(0),
        });
        let writer = Writer {
            list: StoredList::open(&store.path)?,
            store,
            results,
            room: room.clone(),
            stopped: stop.clone(),
            waiting: Vec::new(),
            refused: BTreeMap::new(),
            wake: NotifyAtEnd(wake),
        };
        let spawned = std::thread::Builder::new()
            .name("snapshots".into())
            .spawn(move || writer.run(&todo));
        let handle = spawned.map_err(io_error("start the thread that writes to", &path))?;
        Ok(SnapshotThread {
            jobs: Some(jobs),
            done,
            room,
            stop,
            handle: Some(handle),
        })
    }

    /// The room on the disk.
    pub(crate) fn room(&self) -> &Room {
        &self.room
    }

    pub(crate) fn store(&mut self, from: Address, stamp: u64, frozen: Box<dyn Frozen>) {
        let jobs = self
            .jobs
            .as_ref()
            .expect("the thread lives as long as this");
        // If the thread has ended, `poll` reports it.
        let _ = jobs.send(Job {
            from,
            stamp,
            frozen,
        });
    }

    /// What has happened since the last call.
    pub(crate) fn poll(&mut self) -> Result<Option<Report>, LogError> {
        match self.done.try_recv() {
            Ok(result) => Ok(Some(result?)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(WalError::ThreadDied {
                task: "writes snapshots",
            }
            .into()),
        }
    }
}

impl Drop for SnapshotThread {
    /// Waits for the thread: nothing may write to the directory after it is unlocked.
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.jobs = None;
        if let Some(handle) = self.handle.take() {
            // The call that missed its result has reported a panic of the thread.
            let _ = handle.join();
        }
    }
}

/// Notifies the loop when the thread ends, even if it panics.
struct NotifyAtEnd(Arc<Notify>);

impl Drop for NotifyAtEnd {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

/// Starts a file: the stamp comes first.
pub(crate) fn begin<S: Storage>(
    snapshots: &Snapshots<S>,
    stamp: u64,
) -> Result<SnapshotWriter<S>, WalError> {
    let mut writer = snapshots.begin()?;
    writer.push(&stamp.to_le_bytes())?;
    Ok(writer)
}

/// What came of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Written {
    /// Its size.
    bytes: u64,
    /// Whether the disk had room for it.
    stored: bool,
}

/// Writes one snapshot, or without a writer finds out its size. `None` if it was stopped. Unless it
/// is stored, the previous snapshot is unchanged, and if there was no room nothing is left of it.
fn write<S: Storage>(
    snapshots: &Snapshots<S>,
    mut writer: Option<SnapshotWriter<S>>,
    mut frozen: Box<dyn Frozen>,
    stopped: &AtomicBool,
) -> Result<Option<Written>, WalError> {
    let mut piece = Vec::new();
    let mut bytes = 0;
    // To the end even if there is no room: an operator is to know how much it takes.
    while frozen.write_some(&mut piece) {
        bytes += piece.len() as u64;
        if let Some(open) = &mut writer {
            let pushed = piece.chunks(CHUNK).try_for_each(|chunk| open.push(chunk));
            if unless_full(snapshots, pushed)?.is_none() {
                writer = None;
            }
        }
        piece.clear();
        if stopped.load(Ordering::Relaxed) {
            return Ok(None);
        }
    }
    let stored = match writer {
        Some(writer) => unless_full(snapshots, writer.finish())?.is_some(),
        None => false,
    };
    Ok(Some(Written { bytes, stored }))
}

/// `None` if the disk has no room: what was begun is then removed.
fn unless_full<S: Storage, T>(
    snapshots: &Snapshots<S>,
    result: Result<T, WalError>,
) -> Result<Option<T>, WalError> {
    match result {
        Err(error) if error.is_full() => snapshots.remove_unfinished().map(|()| None),
        result => result.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ionian_wal::testing::{Fault, FaultDisk};
    use std::collections::BTreeSet;

    /// 30 pieces of 100 bytes.
    struct Pieces(u8);

    impl Frozen for Pieces {
        fn write_some(&mut self, out: &mut Vec<u8>) -> bool {
            if self.0 == 30 {
                return false;
            }
            self.0 += 1;
            out.extend_from_slice(&[self.0; 100]);
            true
        }
    }

    fn of(disk: &FaultDisk) -> Snapshots<FaultDisk> {
        Snapshots::new_in(disk.clone(), Path::new("/snapshots"), "replica-0", b"own")
    }

    fn try_write(disk: &FaultDisk, stamp: u64) -> Result<Option<Written>, WalError> {
        let snapshots = of(disk);
        let writer = unless_full(&snapshots, begin(&snapshots, stamp))?;
        write(
            &snapshots,
            writer,
            Box::new(Pieces(0)),
            &AtomicBool::new(false),
        )
    }

    #[test]
    fn a_snapshot_without_room_is_removed_and_measured_wherever_the_room_ends() {
        let mut seen = BTreeSet::new();
        for after in 0..60 {
            let disk = FaultDisk::new(after);
            let whole = try_write(&disk, 1).expect("room").expect("not stopped");
            assert_eq!(
                whole,
                Written {
                    bytes: 3000,
                    stored: true
                }
            );
            disk.fail_after(after, Fault::NoSpace);
            let second = try_write(&disk, 2).expect("no error").expect("not stopped");
            disk.heal();
            assert_eq!(second.bytes, 3000, "{after}");
            let names = disk.list(Path::new("/snapshots")).expect("names");
            assert!(names.iter().all(|it| !it.ends_with(".tmp")), "{names:?}");
            let loaded = of(&disk).load_latest().expect("sound").expect("one");
            let (stamp, _) = read_whole(loaded.reader).expect("sound");
            assert!(
                if second.stored {
                    stamp == 2
                } else {
                    stamp <= 2
                },
                "{after}"
            );
            seen.insert((second.stored, stamp));
        }
        assert!(
            seen.contains(&(false, 1)) && seen.contains(&(true, 2)),
            "{seen:?}"
        );
        let disk = FaultDisk::new(1);
        disk.fail_after(9, Fault::Error);
        assert!(
            try_write(&disk, 1).is_err(),
            "another error is one of the disk"
        );
    }

    #[test]
    fn another_attempt_comes_when_there_is_room_or_after_a_pause() {
        let (began, second) = (Instant::now(), Duration::from_secs(1));
        let ended = began + 3 * second;
        let waiting = |free| Waiting {
            from: Address { kind: 0, index: 0 },
            stamp: 1,
            bytes: 100,
            free,
            began,
            ended,
        };
        let (short, odd) = (waiting(99), waiting(100));
        assert!(!short.is_over(ended + second, 99) && short.is_over(ended + second, 100));
        // The disk says that there was room. It may be a share that is used up.
        assert!(!odd.is_over(ended + 11 * second, 200) && odd.is_over(ended + 12 * second, 0));
    }
}
