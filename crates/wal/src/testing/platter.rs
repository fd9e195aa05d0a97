//! What is on a faulty disk, and what becomes of what was not synced.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const SECTOR: usize = 512;

/// Whether a write is of a part of one sector, which a disk writes whole or not at all.
pub(super) fn lies_in_one_sector(at: usize, length: usize) -> bool {
    length > 0 && at % SECTOR + length < SECTOR
}

/// What is done to a disk.
pub(super) enum Operation {
    /// Bytes are written to a file.
    Write {
        inode: u64,
        at: usize,
        bytes: Vec<u8>,
    },
    /// A file is synced.
    Sync { inode: u64 },
    /// A sync fails, and what was unsynced is forgotten.
    FailedSync { inode: u64 },
    /// A name goes, comes, or moves.
    Name(NameChange),
    /// The names of a directory are synced.
    SyncNames { directory: PathBuf },
}

impl Operation {
    pub(super) fn is_sync(&self) -> bool {
        matches!(self, Operation::Sync { .. } | Operation::SyncNames { .. })
    }
}

/// What became of a name.
#[derive(Clone)]
pub(super) struct NameChange {
    pub(super) gone: Option<PathBuf>,
    pub(super) new: Option<(PathBuf, u64)>,
}

impl NameChange {
    fn is_in(&self, directory: &Path) -> bool {
        let path = self
            .new
            .as_ref()
            .map(|(path, _)| path)
            .or(self.gone.as_ref());
        path.and_then(|path| path.parent()) == Some(directory)
    }
}

/// Files and their names as a reader sees them.
#[derive(Clone, Default)]
pub(super) struct Files {
    pub(super) contents: BTreeMap<u64, Vec<u8>>,
    pub(super) names: BTreeMap<PathBuf, u64>,
}

impl Files {
    pub(super) fn write(&mut self, inode: u64, at: usize, bytes: &[u8]) {
        let content = self.contents.entry(inode).or_default();
        if !bytes.is_empty() {
            content.resize(content.len().max(at + bytes.len()), 0);
            content[at..at + bytes.len()].copy_from_slice(bytes);
        }
    }

    pub(super) fn rename(&mut self, change: &NameChange) {
        if let Some(gone) = &change.gone {
            self.names.remove(gone);
        }
        if let Some((path, inode)) = &change.new {
            self.names.insert(path.clone(), *inode);
            self.contents.entry(*inode).or_default();
        }
    }

    fn forget_nameless(&mut self) {
        let named: Vec<u64> = self.names.values().copied().collect();
        self.contents.retain(|inode, _| named.contains(inode));
    }
}

/// What a power failure leaves of a file's unsynced writes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mood {
    Nothing,
    All,
    /// Some sectors.
    Some,
    /// Some sectors, and where two writes overlap not always the later.
    Shuffled,
}

/// A disk with the system's cache in front of it.
pub(super) struct Platter {
    pub(super) durable: Files,
    /// By inode, oldest first.
    unsynced: BTreeMap<u64, Vec<(usize, Vec<u8>)>>,
    unsynced_names: Vec<NameChange>,
    random: u64,
}

impl Platter {
    pub(super) fn new(seed: u64) -> Self {
        let (durable, unsynced) = (Files::default(), BTreeMap::new());
        Platter {
            durable,
            unsynced,
            unsynced_names: Vec::new(),
            random: seed,
        }
    }

    pub(super) fn below(&mut self, limit: u64) -> u64 {
        // splitmix64
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }

    pub(super) fn apply(&mut self, operation: Operation) {
        match operation {
            Operation::Write { inode, at, bytes } => {
                self.unsynced.entry(inode).or_default().push((at, bytes))
            }
            Operation::Sync { inode } => {
                for (at, bytes) in self.unsynced.remove(&inode).unwrap_or_default() {
                    self.durable.write(inode, at, &bytes);
                }
            }
            Operation::FailedSync { inode } => self.settle(inode),
            Operation::Name(change) => self.unsynced_names.push(change),
            Operation::SyncNames { directory } => {
                let (synced, rest) = std::mem::take(&mut self.unsynced_names)
                    .into_iter()
                    .partition(|change| change.is_in(&directory));
                let synced: Vec<NameChange> = synced;
                synced.iter().for_each(|change| self.durable.rename(change));
                self.unsynced_names = rest;
            }
        }
    }

    /// What processes see: everything, synced or not.
    pub(super) fn seen(&self) -> Files {
        let mut seen = self.durable.clone();
        for (inode, writes) in &self.unsynced {
            writes
                .iter()
                .for_each(|(at, bytes)| seen.write(*inode, *at, bytes));
        }
        self.unsynced_names
            .iter()
            .for_each(|change| seen.rename(change));
        seen
    }

    /// Lets chance decide what of the unsynced is left.
    pub(super) fn fail_power(&mut self) {
        for change in std::mem::take(&mut self.unsynced_names) {
            if self.below(2) == 0 {
                self.durable.rename(&change);
            }
        }
        while let Some(inode) = self.unsynced.keys().next().copied() {
            self.settle(inode);
        }
        self.durable.forget_nameless();
    }

    /// Lets chance decide what of a file's unsynced writes gets to the disk.
    fn settle(&mut self, inode: u64) {
        let mut writes = self.unsynced.remove(&inode).unwrap_or_default();
        let mood = match self.below(8) {
            0 => Mood::Nothing,
            1 => Mood::All,
            2..=4 => Mood::Some,
            _ => Mood::Shuffled,
        };
        while !writes.is_empty() {
            let next = if mood == Mood::Shuffled {
                self.below(writes.len() as u64) as usize
            } else {
                0
            };
            let (mut at, bytes) = writes.remove(next);
            let (mut rest, is_whole) = (&bytes[..], lies_in_one_sector(at, bytes.len()));
            while !rest.is_empty() {
                let (piece, behind) = rest.split_at(rest.len().min(SECTOR - at % SECTOR));
                let kept = match self.kept_of(piece.len(), mood) {
                    kept if is_whole && kept < piece.len() => 0,
                    kept => kept,
                };
                self.durable.write(inode, at, &piece[..kept]);
                at += piece.len();
                rest = behind;
            }
        }
    }

    /// How many bytes of a sector get to the disk.
    fn kept_of(&mut self, length: usize, mood: Mood) -> usize {
        match (mood, self.below(8)) {
            (Mood::Nothing, _) => 0,
            (Mood::All, _) | (_, 0..=3) => length,
            // Rather near the beginning: the end is often nothing but zeros.
            (_, 4..=5) => self.below(length as u64).min(self.below(length as u64)) as usize,
            _ => 0,
        }
    }
}
