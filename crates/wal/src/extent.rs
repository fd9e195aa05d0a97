//! The file `extent`: how far the log reaches, written beside the log.
//!
//! ```text
//! slot     magic "IONEXTNT", u16 format, u16 zero, u32 crc32c of the stamp, u64 generation,
//!          u64 first segment, u64 last segment, u64 durable, u32 crc32c of all this
//! file     three slots, each at the beginning of a page
//! ```
//!
//! A log alone cannot tell whether its oldest or newest part was removed: what is left looks like a
//! log that was truncated, or one that a crash has interrupted. So a second place says how much of
//! it there must be. What it says is never more than the truth:
//!
//! - `first` is the oldest segment that is needed; synced before older ones are dropped.
//! - `last` is a segment that exists; synced before anything is written to that segment.
//! - `durable` is a record that is on disk; written after the sync of its group. That alone costs
//!   no sync: it is there after a crash of the process, which leaves the system's cache. It is
//!   synced when a segment is begun, when the log is closed in order or opened, and by a thread a
//!   moment later ([`SYNC_AFTER`]).
//!
//! So an end that is missing is noticed, except of what was written in that moment before the
//! machine itself failed. Of the three slots one is on disk for certain, one may be on its way
//! there, and one is written to: a crash that undoes all unsynced writes leaves the first.
//!
//! A slot lies in one sector, and a sector is written whole or not at all: a disk finds one that it
//! has written in part by the sector's own checksum, and reports an error when it is read. So a
//! crash leaves each slot as it was before or after a write, and a slot that is neither empty nor
//! whole is damage. It may have been the newest, which alone shows that the end is lost: the
//! log is refused.

use crate::error::{WalError, io_error};
use crate::segment::file_name;
use crate::storage::{Directory, Storage, StorageFile, read_full, write_all};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How soon the system is asked to put on disk what was written.
pub(crate) const SYNC_AFTER: Duration = Duration::from_secs(1);

/// The name of the file.
pub(crate) const NAME: &str = "extent";
const DRAFT: &str = "extent.new";
const MAGIC: &[u8; 8] = b"IONEXTNT";
const FORMAT: u16 = 1;
const SUM_AT: usize = 48;
const SLOT: usize = SUM_AT + 4;
const SLOTS: usize = 3;
/// Why a file with a slot that is not whole is refused, and what to do.
const DAMAGED: &str = "this entry is not whole and of this log, and may be the one that shows \
    whether the end of the log is missing; put this very file back if a copy of it exists, or \
    replace the node by one with another name";
/// What the system writes at once.
const PAGE: usize = 4096;

/// How far a log reaches at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// The oldest segment that is needed.
    pub(crate) first: u64,
    /// The newest segment; 0 before there is one.
    pub(crate) last: u64,
    /// The newest record that is on disk.
    pub(crate) durable: u64,
}

/// The extent of a log that has nothing.
pub(crate) const EMPTY: Extent = Extent {
    first: 1,
    last: 0,
    durable: 0,
};

fn encode(extent: &Extent, generation: u64, stamp: &[u8]) -> Vec<u8> {
    let mut slot = MAGIC.to_vec();
    slot.extend_from_slice(&FORMAT.to_le_bytes());
    slot.extend_from_slice(&[0; 2]);
    slot.extend_from_slice(&crc32c::crc32c(stamp).to_le_bytes());
    for number in [generation, extent.first, extent.last, extent.durable] {
        slot.extend_from_slice(&number.to_le_bytes());
    }
    let sum = crc32c::crc32c(&slot);
    slot.extend_from_slice(&sum.to_le_bytes());
    slot
}

/// A slot that is not empty: its generation and what it says, if it is whole and of this log.
fn decode(slot: &[u8], stamp: &[u8]) -> Option<(u64, Extent)> {
    let slot = slot.get(..SLOT)?;
    let long = |at: usize| u64::from_le_bytes(slot[at..at + 8].try_into().expect("eight bytes"));
    let (generation, extent) = (
        long(16),
        Extent {
            first: long(24),
            last: long(32),
            durable: long(40),
        },
    );
    (slot == encode(&extent, generation, stamp)).then_some((generation, extent))
}

fn place(slot: usize) -> u64 {
    (slot * PAGE) as u64
}

/// What the file says of the directory that has files of these names, and segments of these
/// numbers, in order. Checks that those can be all there are.
pub(crate) fn read<S: Storage>(
    directory: &Directory<S>,
    names: &[String],
    sequences: &[u64],
) -> Result<Extent, WalError> {
    let exists = names.iter().any(|name| name == NAME);
    if !exists && let Some(first) = sequences.first() {
        let (path, proof) = (
            directory.path.join(NAME),
            directory.path.join(file_name(*first)),
        );
        return Err(WalError::Gone { path, proof });
    }
    let extent = if exists { load(directory)?.1 } else { EMPTY };
    let missing = |sequence: u64| {
        let (path, proof) = (
            directory.path.join(file_name(sequence)),
            directory.path.join(NAME),
        );
        Err(WalError::Gone { path, proof })
    };
    match (sequences.first(), sequences.last()) {
        (None, _) if extent.last > 0 => missing(extent.last),
        (Some(first), _) if *first > extent.first => missing(extent.first),
        (_, Some(last)) if *last < extent.last => missing(last + 1),
        _ => Ok(extent),
    }
}

fn load<S: Storage>(directory: &Directory<S>) -> Result<(Slot, Extent), WalError> {
    let path = directory.path.join(NAME);
    let file = directory.open(NAME)?;
    let mut content = vec![0; SLOTS * PAGE];
    let length = read_full(&file, &path, 0, &mut content)?;
    if length < content.len() {
        return Err(WalError::corrupt(
            &path,
            length as u64,
            "its end is cut off",
        ));
    }
    let mut newest = None;
    for (slot, page) in content.chunks(PAGE).enumerate() {
        if page[..SLOT] == [0; SLOT] {
            continue;
        }
        let Some((generation, extent)) = decode(page, &directory.stamp) else {
            return Err(WalError::corrupt(&path, place(slot), DAMAGED));
        };
        let is_newer = |(newest, _): &(Slot, Extent)| newest.generation < generation;
        if newest.as_ref().is_none_or(is_newer) {
            newest = Some((Slot { slot, generation }, extent));
        }
    }
    newest.ok_or_else(|| WalError::corrupt(&path, 0, "it has no entry"))
}

/// Where something was written.
struct Slot {
    slot: usize,
    generation: u64,
}

/// The file of a log that is open. Shared by the threads of the log.
pub(crate) struct ExtentFile<S: Storage> {
    path: PathBuf,
    stamp: Vec<u8>,
    state: Mutex<State<S>>,
    /// A handle of its own, so that a write need not wait for a sync. It also sees to one sync at a
    /// time.
    syncs: Mutex<S::File>,
}

struct State<S: Storage> {
    file: S::File,
    generation: u64,
    extent: Extent,
    /// The slot that is on disk for certain.
    synced: usize,
    /// The slot that is written to.
    open: usize,
    /// Whether it was, since the last sync began.
    is_ahead: bool,
}

impl<S: Storage> ExtentFile<S> {
    /// Makes the file, or opens it; on return it says `extent`, also after a crash.
    pub(crate) fn open(directory: &Directory<S>, extent: Extent) -> Result<Self, WalError> {
        let (path, stamp) = (directory.path.join(NAME), directory.stamp.to_vec());
        let exists = directory.list()?.iter().any(|name| name == NAME);
        if !exists {
            create(directory, &extent)?;
        }
        let (Slot { slot, generation }, found) = load(directory)?;
        let mut file = directory.open(NAME)?;
        if exists {
            // It may be in the system's cache alone, and if its sync failed, be held for clean
            // there.
            write_all(
                &mut file,
                &path,
                place(slot),
                &encode(&found, generation, &stamp),
            )?;
            file.sync_all().map_err(io_error("sync", &path))?;
        }
        let open = (slot + 1) % SLOTS;
        let state = State {
            file,
            generation,
            extent: found,
            synced: slot,
            open,
            is_ahead: false,
        };
        let file = ExtentFile {
            path,
            stamp,
            state: Mutex::new(state),
            syncs: Mutex::new(directory.open(NAME)?),
        };
        file.note(|noted| *noted = extent)?;
        file.sync()?;
        Ok(file)
    }

    fn state(&self) -> MutexGuard<'_, State<S>> {
        self.state.lock().expect("no thread panics with it")
    }

    /// Changes what it says. On disk it is after a [`sync`](Self::sync).
    pub(crate) fn note(&self, change: impl FnOnce(&mut Extent)) -> Result<(), WalError> {
        let state = &mut *self.state();
        let before = state.extent;
        change(&mut state.extent);
        if state.extent == before {
            return Ok(());
        }
        (state.generation, state.is_ahead) = (state.generation + 1, true);
        let slot = encode(&state.extent, state.generation, &self.stamp);
        write_all(&mut state.file, &self.path, place(state.open), &slot)
    }

    /// Puts on disk what it says.
    pub(crate) fn sync(&self) -> Result<(), WalError> {
        let mut file = self.syncs.lock().expect("no thread panics with it");
        let mut state = self.state();
        if !std::mem::take(&mut state.is_ahead) {
            return Ok(());
        }
        // Numbered 0 to 2, so the third is what is left of their sum.
        let (under_way, synced) = (state.open, state.synced);
        state.open = SLOTS - under_way - synced;
        drop(state);
        file.sync_data().map_err(io_error("sync", &self.path))?;
        self.state().synced = under_way;
        Ok(())
    }
}

/// A thread that syncs the file a moment after it was written.
pub(crate) struct LateSync {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<Late>,
    changed: Condvar,
}

#[derive(Default)]
struct Late {
    wanted: bool,
    over: bool,
    failed: Option<WalError>,
}

impl LateSync {
    /// Starts the thread.
    pub(crate) fn start<S: Storage>(file: Arc<ExtentFile<S>>) -> Result<Self, WalError> {
        let shared = Arc::new(Shared::default());
        let run = shared.clone();
        #[expect(
            clippy::disallowed_methods,
            reason = "a sync blocks its thread; with HandOff::Never this one is not started"
        )]
        let spawned = thread::Builder::new()
            .name("extent".into())
            .spawn(move || run.work(|| file.sync()));
        let thread = spawned.map_err(io_error(
            "start the thread",
            Path::new("that syncs the extent"),
        ))?;
        Ok(LateSync {
            shared,
            thread: Some(thread),
        })
    }

    /// The file was written.
    ///
    /// # Errors
    /// When a sync has failed.
    pub(crate) fn wants(&self) -> Result<(), WalError> {
        let mut late = self.shared.state.lock().expect("no thread panics with it");
        if let Some(error) = late.failed.take() {
            return Err(error);
        }
        if !late.wanted {
            late.wanted = true;
            self.shared.changed.notify_one();
        }
        Ok(())
    }
}

impl Shared {
    fn work(&self, sync: impl Fn() -> Result<(), WalError>) {
        let lock = || self.state.lock().expect("no thread panics with it");
        loop {
            let waited = self
                .changed
                .wait_while(lock(), |late| !late.wanted && !late.over);
            drop(waited.expect("no thread panics with it"));
            let waited = self
                .changed
                .wait_timeout_while(lock(), SYNC_AFTER, |late| !late.over);
            let (mut late, _) = waited.expect("no thread panics with it");
            if late.over {
                return;
            }
            late.wanted = false;
            drop(late);
            if let Err(error) = sync() {
                lock().failed = Some(error);
                return;
            }
        }
    }
}

impl Drop for LateSync {
    /// Waits for the thread: the next to open the log must find no thread writing to it.
    fn drop(&mut self) {
        self.shared
            .state
            .lock()
            .expect("no thread panics with it")
            .over = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // What panicked there was reported by the standard library.
            let _ = thread.join();
        }
    }
}

fn create<S: Storage>(directory: &Directory<S>, extent: &Extent) -> Result<(), WalError> {
    if directory.list()?.iter().any(|name| name == DRAFT) {
        directory.remove(DRAFT)?;
    }
    let path = directory.path.join(DRAFT);
    let mut file = directory.create(DRAFT)?;
    let mut content = encode(extent, 1, &directory.stamp);
    content.resize(SLOTS * PAGE, 0);
    write_all(&mut file, &path, 0, &content)?;
    file.sync_all().map_err(io_error("sync", &path))?;
    directory.rename(DRAFT, NAME)
}
