//! A disk in memory that fails on order. What was not synced when the power fails is kept or lost
//! sector by sector, torn within a sector, and in any order; names likewise, one by one.

use ionian_wal::storage::{Storage, StorageFile};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

const SECTOR: usize = 512;

/// What happens at an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It fails. A write may have done a part before; a failed sync has forgotten what was unsynced,
    /// and the next sync reports success.
    Error,
    /// As `Error`, for want of space.
    NoSpace,
    /// It and everything after it fails, until [`FaultDisk::fail_power`].
    Crash,
}

#[derive(Clone)]
pub(crate) struct FaultDisk {
    state: Arc<Mutex<State>>,
    gate: Arc<(Mutex<bool>, Condvar)>,
}

struct State {
    inodes: BTreeMap<u64, Inode>,
    names: BTreeMap<PathBuf, u64>,
    durable_names: BTreeMap<PathBuf, u64>,
    unsynced_names: Vec<NameChange>,
    made: u64,
    nonces: u64,
    operations: u64,
    fault: Option<(u64, Fault)>,
    only_syncs: bool,
    dead: bool,
    random: u64,
}

#[derive(Default)]
struct Inode {
    live: Vec<u8>,
    durable: Vec<u8>,
    unsynced: Vec<(usize, Vec<u8>)>,
}

struct NameChange {
    gone: Option<PathBuf>,
    new: Option<(PathBuf, u64)>,
}

pub(crate) struct FaultFile {
    disk: FaultDisk,
    inode: u64,
}

impl FaultDisk {
    pub(crate) fn new(seed: u64) -> Self {
        let state = State {
            inodes: BTreeMap::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            unsynced_names: Vec::new(),
            made: 0,
            nonces: 0,
            operations: 0,
            fault: None,
            only_syncs: false,
            dead: false,
            random: seed,
        };
        FaultDisk { state: Arc::new(Mutex::new(state)), gate: Arc::new((Mutex::new(true), Condvar::new())) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics with it")
    }

    /// The `after`th operation from now on (counted from 0) fails.
    pub(crate) fn fail_after(&self, after: u64, fault: Fault) {
        let mut state = self.state();
        state.fault = Some((state.operations + after + 1, fault));
        state.only_syncs = false;
    }

    /// The next sync of a file fails.
    pub(crate) fn fail_next_sync(&self, fault: Fault) {
        let mut state = self.state();
        state.fault = Some((0, fault));
        state.only_syncs = true;
    }

    pub(crate) fn heal(&self) {
        self.state().fault = None;
    }

    /// Whether the fault that was ordered is still to come.
    pub(crate) fn fault_is_due(&self) -> bool {
        self.state().fault.is_some()
    }

    /// Whether only [`fail_power`](Self::fail_power) can bring it back.
    pub(crate) fn is_dead(&self) -> bool {
        self.state().dead
    }

    pub(crate) fn operations(&self) -> u64 {
        self.state().operations
    }

    pub(crate) fn random(&self, below: u64) -> u64 {
        self.state().below(below)
    }

    /// What is on the disk is what was synced, and of the rest whatever chance leaves.
    pub(crate) fn fail_power(&self) {
        self.state().fail_power();
    }

    /// While the gate is closed, syncs of files' data wait.
    pub(crate) fn set_gate(&self, open: bool) {
        *self.gate.0.lock().expect("nobody panics with it") = open;
        self.gate.1.notify_all();
    }

    fn pass_gate(&self) {
        let open = self.gate.0.lock().expect("nobody panics with it");
        drop(self.gate.1.wait_while(open, |open| !*open).expect("nobody panics with it"));
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let state = self.state();
        state.names.keys().map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect()
    }

    /// Changes a file behind everybody's back.
    pub(crate) fn edit(&self, path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.state();
        let inode = state.names[path];
        let inode = state.inodes.get_mut(&inode).expect("has a name");
        change(&mut inode.live);
        inode.durable = inode.live.clone();
        inode.unsynced.clear();
    }

    pub(crate) fn content(&self, path: &Path) -> Vec<u8> {
        let state = self.state();
        state.inodes[&state.names[path]].live.clone()
    }

    pub(crate) fn delete(&self, path: &Path) {
        let mut state = self.state();
        state.names.remove(path);
        state.durable_names.remove(path);
    }
}

impl State {
    fn below(&mut self, limit: u64) -> u64 {
        // splitmix64
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }

    /// Begins an operation; `Some` if it has to fail.
    fn begin(&mut self, is_sync: bool) -> Option<io::Error> {
        self.operations += 1;
        let (at, fault) = match self.fault {
            _ if self.dead => return Some(io::Error::other("the machine is down")),
            Some((at, fault)) if !self.only_syncs && at == self.operations => (at, fault),
            Some((at, fault)) if self.only_syncs && is_sync => (at, fault),
            _ => return None,
        };
        let _ = at;
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

    fn rename(&mut self, gone: Option<PathBuf>, new: Option<(PathBuf, u64)>) {
        apply(&mut self.names, &gone, &new);
        self.unsynced_names.push(NameChange { gone, new });
    }

    fn fail_power(&mut self) {
        for change in std::mem::take(&mut self.unsynced_names) {
            if self.below(2) == 0 {
                apply(&mut self.durable_names, &change.gone, &change.new);
            }
        }
        self.names = self.durable_names.clone();
        for inode in self.inodes.keys().copied().collect::<Vec<_>>() {
            self.settle(inode);
            let inode = self.inodes.get_mut(&inode).expect("is there");
            inode.live = inode.durable.clone();
        }
        (self.dead, self.fault) = (false, None);
    }

    /// Lets chance decide what of the unsynced writes gets to the disk.
    fn settle(&mut self, inode: u64) {
        let mut writes = std::mem::take(&mut self.inodes.get_mut(&inode).expect("is there").unsynced);
        // All, nothing, or anything in between.
        let mood = self.below(4);
        while !writes.is_empty() {
            let (mut at, bytes) = writes.remove(if mood == 3 { self.below(writes.len() as u64) as usize } else { 0 });
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let (piece, behind) = rest.split_at(rest.len().min(SECTOR - at % SECTOR));
                let kept = match (mood, self.below(8)) {
                    (0, _) => 0,
                    (1, _) | (_, 0..=3) => piece.len(),
                    (_, 4) => self.below(piece.len() as u64) as usize,
                    _ => 0,
                };
                put(&mut self.inodes.get_mut(&inode).expect("is there").durable, at, &piece[..kept]);
                at += piece.len();
                rest = behind;
            }
        }
    }
}

fn apply(names: &mut BTreeMap<PathBuf, u64>, gone: &Option<PathBuf>, new: &Option<(PathBuf, u64)>) {
    if let Some(gone) = gone {
        names.remove(gone);
    }
    if let Some((path, inode)) = new {
        names.insert(path.clone(), *inode);
    }
}

fn put(content: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    if !bytes.is_empty() {
        content.resize(content.len().max(at + bytes.len()), 0);
        content[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

impl Storage for FaultDisk {
    type File = FaultFile;

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        let mut state = self.state();
        state.check()?;
        let here = state.names.keys().filter(|path| path.parent() == Some(directory));
        Ok(here.map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect())
    }

    fn create(&self, path: &Path) -> io::Result<FaultFile> {
        let mut state = self.state();
        state.check()?;
        if state.names.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        state.made += 1;
        let inode = state.made;
        state.inodes.insert(inode, Inode::default());
        state.rename(None, Some((path.to_owned(), inode)));
        Ok(FaultFile { disk: self.clone(), inode })
    }

    fn open(&self, path: &Path) -> io::Result<FaultFile> {
        let mut state = self.state();
        state.check()?;
        let inode = *state.names.get(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(FaultFile { disk: self.clone(), inode })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.check()?;
        let inode = *state.names.get(from).ok_or(io::ErrorKind::NotFound)?;
        state.rename(Some(from.to_owned()), Some((to.to_owned(), inode)));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.check()?;
        if !state.names.contains_key(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        state.rename(Some(path.to_owned()), None);
        Ok(())
    }

    fn sync_directory(&self, _: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.check()?;
        state.durable_names = state.names.clone();
        state.unsynced_names.clear();
        Ok(())
    }

    fn nonce(&self) -> u64 {
        let mut state = self.state();
        state.nonces += 1;
        state.nonces
    }
}

impl StorageFile for FaultFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.state().inodes[&self.inode].live.len() as u64)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut state = self.disk.state();
        state.check()?;
        let content = &state.inodes[&self.inode].live;
        let rest = content.get(offset as usize..).unwrap_or(&[]);
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.disk.state();
        let failed = state.begin(false);
        if state.dead && failed.as_ref().is_some_and(|error| error.to_string() != "injected") {
            return Err(failed.expect("it has"));
        }
        // A write may be short, and a failing one may have done a part of its work.
        let is_short = failed.is_some() || state.below(8) == 0;
        let count = if is_short { state.below(bytes.len() as u64) as usize + 1 } else { bytes.len() };
        let inode = state.inodes.get_mut(&self.inode).expect("is open");
        put(&mut inode.live, offset as usize, &bytes[..count]);
        inode.unsynced.push((offset as usize, bytes[..count].to_vec()));
        failed.map_or(Ok(count), Err)
    }

    fn sync_data(&mut self) -> io::Result<()> {
        self.disk.pass_gate();
        self.sync_all()
    }

    fn sync_all(&mut self) -> io::Result<()> {
        let mut state = self.disk.state();
        if let Some(error) = state.begin(true) {
            if !state.dead {
                state.settle(self.inode);
            }
            return Err(error);
        }
        let inode = state.inodes.get_mut(&self.inode).expect("is open");
        for (at, bytes) in std::mem::take(&mut inode.unsynced) {
            put(&mut inode.durable, at, &bytes);
        }
        Ok(())
    }
}
