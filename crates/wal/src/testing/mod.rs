//! A disk in memory, for tests and simulations: it fails on order, and forgets in a crash what a
//! disk may.
//!
//! What was not synced when the power fails is kept or lost sector by sector, torn within a sector
//! (but for writes of a part of one sector), and in any order; creations, renames and removals of
//! names whose directory was not synced likewise, one by one. The same seed forgets the same.

mod platter;
#[cfg(feature = "torn-records")]
mod torn;

use crate::storage::{Storage, StorageFile};
use platter::{Files, NameChange, Operation, Platter, lies_in_one_sector};
use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
#[cfg(feature = "torn-records")]
pub use torn::accepting_torn_records;
#[cfg(feature = "torn-records")]
pub(crate) use torn::torn_records_are_accepted;

/// What happens at an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It fails. A write may have done a part before; a failed sync has forgotten what was
    /// unsynced, and the next sync reports success.
    Error,
    /// As `Error`, for want of space.
    NoSpace,
    /// It and everything after it fails, until [`FaultDisk::fail_power`].
    Crash,
}

/// How far the operations on a [`FaultDisk`] have come at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(u64);

/// The disk. Clones are the same one.
#[derive(Clone)]
pub struct FaultDisk {
    state: Arc<Mutex<State>>,
    gate: Arc<(Mutex<bool>, Condvar)>,
}

struct State {
    /// What processes see.
    seen: Files,
    platter: Platter,
    /// Operations that a crash may still undo, from the last one on; a disk takes its time.
    under_way: VecDeque<Operation>,
    /// How many operations came before these.
    passed: u64,
    made: u64,
    nonces: u64,
    operations: u64,
    fault: Option<(u64, Fault)>,
    only_syncs: bool,
    full: bool,
    dead: bool,
}

/// An open file of a [`FaultDisk`].
pub struct FaultFile {
    disk: FaultDisk,
    inode: u64,
}

impl FaultDisk {
    /// An empty disk; the seed decides what it forgets.
    pub fn new(seed: u64) -> Self {
        let state = State {
            seen: Files::default(),
            platter: Platter::new(seed),
            under_way: VecDeque::new(),
            passed: 0,
            made: 0,
            nonces: 0,
            operations: 0,
            fault: None,
            only_syncs: false,
            full: false,
            dead: false,
        };
        FaultDisk {
            state: Arc::new(Mutex::new(state)),
            gate: Arc::new((Mutex::new(true), Condvar::new())),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics with it")
    }

    /// The `after`th operation from now on (counted from 0) fails.
    pub fn fail_after(&self, after: u64, fault: Fault) {
        let mut state = self.state();
        state.fault = Some((state.operations + after + 1, fault));
        state.only_syncs = false;
    }

    /// The next sync of a file fails.
    pub fn fail_next_sync(&self, fault: Fault) {
        let mut state = self.state();
        state.fault = Some((0, fault));
        state.only_syncs = true;
    }

    /// While it is full, what needs more space than it has fails: new files, and writes behind the
    /// end of one.
    pub fn set_full(&self, full: bool) {
        self.state().full = full;
    }

    /// Whether it is full.
    pub fn is_full(&self) -> bool {
        self.state().full
    }

    /// A fault that was ordered does not come.
    pub fn heal(&self) {
        self.state().fault = None;
    }

    /// Whether the fault that was ordered is still to come.
    pub fn fault_is_due(&self) -> bool {
        self.state().fault.is_some()
    }

    /// Whether only [`fail_power`](Self::fail_power) can bring it back.
    pub fn is_dead(&self) -> bool {
        self.state().dead
    }

    /// How many operations there were that could fail.
    pub fn operations(&self) -> u64 {
        self.state().operations
    }

    /// A number below `below`, drawn from the seed.
    pub fn random(&self, below: u64) -> u64 {
        self.state().platter.below(below)
    }

    /// What is on the disk is what was synced, and of the rest whatever chance leaves.
    pub fn fail_power(&self) {
        let mut state = self.state();
        state.let_go(u64::MAX);
        state.platter.fail_power();
        state.seen = state.platter.seen();
        (state.dead, state.fault) = (false, None);
    }

    /// How far the disk has come: everything that was asked of it up to now.
    pub fn mark(&self) -> Mark {
        let state = self.state();
        Mark(state.passed + state.under_way.len() as u64)
    }

    /// A simulation's time has passed since `mark`: no [`rewind`](Self::rewind) goes behind it any
    /// more.
    pub fn let_go(&self, mark: Mark) {
        self.state().let_go(mark.0);
    }

    /// The operations after some moment since the last mark that was [let go](Self::let_go) were
    /// never done: the process that asked for them had crashed in between. With `whole`, all of
    /// those since the mark.
    pub fn rewind(&self, whole: bool) {
        let mut state = self.state();
        let mut done = 0;
        if !whole {
            let count = state.under_way.len() as u64;
            done = state.platter.below(count + 1) as usize;
            // A disk spends nearly all its time in syncs.
            if state.platter.below(4) > 0 {
                done += state
                    .under_way
                    .range(done..)
                    .take_while(|operation| !operation.is_sync())
                    .count();
            }
        }
        state.under_way.truncate(done);
        state.let_go(u64::MAX);
        state.seen = state.platter.seen();
    }

    /// While the gate is closed, syncs of files' data wait.
    pub fn set_gate(&self, open: bool) {
        *self.gate.0.lock().expect("no thread panics with it") = open;
        self.gate.1.notify_all();
    }

    fn pass_gate(&self) {
        let open = self.gate.0.lock().expect("no thread panics with it");
        drop(
            self.gate
                .1
                .wait_while(open, |open| !*open)
                .expect("no thread panics with it"),
        );
    }

    /// The names of all files, sorted by path.
    pub fn names(&self) -> Vec<String> {
        self.state()
            .seen
            .names
            .keys()
            .filter_map(|path| file_name(path))
            .collect()
    }

    /// Changes a file without the storage's knowledge.
    ///
    /// # Panics
    /// When there is none of that name.
    pub fn edit(&self, path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.state();
        let inode = state.seen.names[path];
        let mut content = state.seen.contents[&inode].clone();
        state.let_go(u64::MAX);
        state.platter.apply(Operation::Sync { inode });
        change(&mut content);
        state
            .platter
            .durable
            .contents
            .insert(inode, content.clone());
        state.seen.contents.insert(inode, content);
    }

    /// What is in a file.
    ///
    /// # Panics
    /// When there is none of that name.
    pub fn content(&self, path: &Path) -> Vec<u8> {
        let state = self.state();
        state.seen.contents[&state.seen.names[path]].clone()
    }

    /// Removes a file without the storage's knowledge, for good.
    pub fn delete(&self, path: &Path) {
        let mut state = self.state();
        state.let_go(u64::MAX);
        state.seen.names.remove(path);
        state.platter.durable.names.remove(path);
    }
}

fn file_name(path: &Path) -> Option<String> {
    Some(path.file_name()?.to_string_lossy().into_owned())
}

impl State {
    /// Begins an operation; `Some` if it has to fail.
    fn begin(&mut self, is_sync: bool) -> Option<io::Error> {
        self.operations += 1;
        let fault = match self.fault {
            _ if self.dead => return Some(io::Error::other("the machine is down")),
            Some((at, fault)) if !self.only_syncs && at == self.operations => fault,
            Some((_, fault)) if self.only_syncs && is_sync => fault,
            _ => return None,
        };
        self.fault = None;
        self.dead = fault == Fault::Crash;
        Some(match fault {
            Fault::NoSpace => io::ErrorKind::StorageFull.into(),
            _ => io::Error::other("injected"),
        })
    }

    fn check(&mut self) -> io::Result<()> {
        self.begin(false).map_or(Ok(()), Err)
    }

    fn inode(&self, path: &Path) -> io::Result<u64> {
        self.seen
            .names
            .get(path)
            .copied()
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn rename(&mut self, gone: Option<PathBuf>, new: Option<(PathBuf, u64)>) {
        let change = NameChange { gone, new };
        self.seen.rename(&change);
        self.under_way.push_back(Operation::Name(change));
    }

    fn let_go(&mut self, mark: u64) {
        while self.passed < mark
            && let Some(operation) = self.under_way.pop_front()
        {
            self.platter.apply(operation);
            self.passed += 1;
        }
    }
}

impl Storage for FaultDisk {
    type File = FaultFile;

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        let mut state = self.state();
        state.check()?;
        let here = state
            .seen
            .names
            .keys()
            .filter(|path| path.parent() == Some(directory));
        Ok(here.filter_map(|path| file_name(path)).collect())
    }

    fn create(&self, path: &Path) -> io::Result<FaultFile> {
        let mut state = self.state();
        state.check()?;
        if state.seen.names.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        if state.full {
            return Err(io::ErrorKind::StorageFull.into());
        }
        state.made += 1;
        let inode = state.made;
        state.rename(None, Some((path.to_owned(), inode)));
        Ok(FaultFile {
            disk: self.clone(),
            inode,
        })
    }

    fn open(&self, path: &Path) -> io::Result<FaultFile> {
        let mut state = self.state();
        state.check()?;
        Ok(FaultFile {
            disk: self.clone(),
            inode: state.inode(path)?,
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.check()?;
        let inode = state.inode(from)?;
        state.rename(Some(from.to_owned()), Some((to.to_owned(), inode)));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.check()?;
        state.inode(path)?;
        state.rename(Some(path.to_owned()), None);
        Ok(())
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.check()?;
        state.under_way.push_back(Operation::SyncNames {
            directory: directory.to_owned(),
        });
        Ok(())
    }

    /// No two are the same, whatever is undone; but they can be guessed.
    fn nonce(&self) -> u64 {
        let mut state = self.state();
        state.nonces += 1;
        state.nonces
    }
}

impl StorageFile for FaultFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.state().seen.contents[&self.inode].len() as u64)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut state = self.disk.state();
        state.check()?;
        let content = &state.seen.contents[&self.inode];
        let rest = content.get(offset as usize..).unwrap_or(&[]);
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.disk.state();
        let was_dead = state.dead;
        let failed = state.begin(false);
        if was_dead {
            return Err(failed.expect("it is dead"));
        }
        let length = state.seen.contents[&self.inode].len() as u64;
        let room = if state.full {
            length.saturating_sub(offset)
        } else {
            u64::MAX
        };
        if room == 0 {
            return Err(failed.unwrap_or_else(|| io::ErrorKind::StorageFull.into()));
        }
        let bytes = &bytes[..bytes.len().min(room.min(usize::MAX as u64) as usize)];
        // A write may be short, and a failing one may have done a part of its work.
        let is_short = failed.is_some() || state.platter.below(8) == 0;
        let count = if lies_in_one_sector(offset as usize, bytes.len()) {
            if failed.is_some() { 0 } else { bytes.len() }
        } else if is_short {
            state.platter.below(bytes.len() as u64) as usize + 1
        } else {
            bytes.len()
        };
        let (inode, at, bytes) = (self.inode, offset as usize, bytes[..count].to_vec());
        state.seen.write(inode, at, &bytes);
        state
            .under_way
            .push_back(Operation::Write { inode, at, bytes });
        failed.map_or(Ok(count), Err)
    }

    fn sync_data(&mut self) -> io::Result<()> {
        self.disk.pass_gate();
        self.sync_all()
    }

    fn sync_all(&mut self) -> io::Result<()> {
        let mut state = self.disk.state();
        let inode = self.inode;
        let failed = state.begin(true);
        if failed.is_none() {
            state.under_way.push_back(Operation::Sync { inode });
        } else if !state.dead {
            state.under_way.push_back(Operation::FailedSync { inode });
        }
        failed.map_or(Ok(()), Err)
    }
}
