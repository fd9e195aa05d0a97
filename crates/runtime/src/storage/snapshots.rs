//! The snapshots of a node's roles: a file `ROLE-INDEX` for each role instance, and a thread that
//! writes them while the event loop continues.
//!
//! The first chunk of a file is the role's stamp; the others together are the snapshot.

use super::error::{LogError, io_error};
use super::stored::StoredList;
use bytes::Bytes;
use ionian_kernel::layout::Address;
use ionian_kernel::machine::Frozen;
use ionian_wal::WalError;
use ionian_wal::snapshot::{Loaded, SnapshotReader, SnapshotWriter, Snapshots};
use ionian_wal::storage::Storage;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
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

/// The thread that writes snapshots, one after the other.
pub(crate) struct SnapshotThread {
    jobs: Option<Sender<Job>>,
    done: Receiver<Result<Stored, LogError>>,
    stop: Arc<AtomicBool>,
    handle: Option<JoinHandle<()>>,
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

impl SnapshotThread {
    /// Starts the thread. It notifies `wake` when a snapshot is stored, and when it ends.
    pub(crate) fn start(store: SnapshotStore, wake: Arc<Notify>) -> Result<Self, LogError> {
        let mut list = StoredList::open(&store.path)?;
        let (jobs, todo) = channel::<Job>();
        let (results, done) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, path) = (stop.clone(), store.path.clone());
        let run = move || {
            let wake = NotifyAtEnd(wake);
            // Moved in, so that it is dropped before the loop is woken for the last time.
            let results = results;
            for Job {
                from,
                stamp,
                frozen,
            } in todo
            {
                let began = Instant::now();
                let written = write(&store.of(from), stamp, frozen, &stopped);
                let listed = written
                    .map_err(LogError::from)
                    .and_then(|bytes| match bytes {
                        Some(bytes) => list.add(store.name(from)).map(|()| Some(bytes)),
                        None => Ok(None),
                    });
                match listed {
                    Ok(Some(bytes)) => drop(results.send(Ok(Stored {
                        from,
                        stamp,
                        took: began.elapsed(),
                        bytes,
                    }))),
                    Ok(None) => return,
                    Err(error) => drop(results.send(Err(error))),
                }
                wake.0.notify_one();
            }
        };
        let spawned = std::thread::Builder::new()
            .name("snapshots".into())
            .spawn(run);
        let handle = spawned.map_err(io_error("start the thread that writes to", &path))?;
        Ok(SnapshotThread {
            jobs: Some(jobs),
            done,
            stop,
            handle: Some(handle),
        })
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

    /// A snapshot that was stored since the last call.
    pub(crate) fn poll(&mut self) -> Result<Option<Stored>, LogError> {
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
pub(crate) fn begin(snapshots: &Snapshots, stamp: u64) -> Result<SnapshotWriter, WalError> {
    let mut writer = snapshots.begin()?;
    writer.push(&stamp.to_le_bytes())?;
    Ok(writer)
}

/// Writes one snapshot and returns its size. `None` if it was stopped; the previous snapshot is
/// then unchanged.
fn write(
    snapshots: &Snapshots,
    stamp: u64,
    mut frozen: Box<dyn Frozen>,
    stopped: &AtomicBool,
) -> Result<Option<u64>, WalError> {
    let mut writer = begin(snapshots, stamp)?;
    let mut piece = Vec::new();
    let mut bytes = 0;
    while frozen.write_some(&mut piece) {
        bytes += piece.len() as u64;
        for chunk in piece.chunks(CHUNK) {
            writer.push(chunk)?;
        }
        piece.clear();
        if stopped.load(Ordering::Relaxed) {
            return Ok(None);
        }
    }
    writer.finish()?;
    Ok(Some(bytes))
}
