//! All inodes, in segments: what a picture of the state shares with it, and what parts of the state
//! consist of.

use super::inode::Inode;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The number of segments. Inodes are numbered one after the other, so they are spread evenly.
pub(super) const SEGMENTS: usize = 256;

/// Some inodes, by their numbers.
pub(super) type Segment = BTreeMap<u64, Arc<Inode>>;

/// All inodes, or those of a part that is lent.
#[derive(Clone)]
pub(super) struct Store {
    /// None where another thread has it.
    segments: Vec<Option<Arc<Segment>>>,
    parts: usize,
}

impl Default for Store {
    fn default() -> Store {
        Store {
            segments: vec![Some(Arc::default()); SEGMENTS],
            parts: 1,
        }
    }
}

pub(super) fn segment_of(ino: u64) -> usize {
    (ino % SEGMENTS as u64) as usize
}

impl Store {
    /// The inode, if it exists.
    pub(super) fn get(&self, ino: u64) -> Option<&Inode> {
        let segment = &self.segments[segment_of(ino)];
        let segment = segment.as_ref().expect("another thread has it");
        segment.get(&ino).map(|inode| &**inode)
    }

    /// The inode, to change it. Copies what a picture shares.
    pub(super) fn get_mut(&mut self, ino: u64) -> Option<&mut Inode> {
        let segment = &mut self.segments[segment_of(ino)];
        let segment = segment.as_mut().expect("another thread has it");
        if !segment.contains_key(&ino) {
            return None;
        }
        Arc::make_mut(segment).get_mut(&ino).map(Arc::make_mut)
    }

    fn segment_mut(&mut self, ino: u64) -> &mut Segment {
        let segment = &mut self.segments[segment_of(ino)];
        Arc::make_mut(segment.as_mut().expect("another thread has it"))
    }

    /// Adds an inode, which does not exist.
    pub(super) fn insert(&mut self, ino: u64, inode: Inode) {
        let before = self.segment_mut(ino).insert(ino, Arc::new(inode));
        assert!(before.is_none(), "numbers of inodes are not used twice");
    }

    /// Removes an inode, which exists.
    pub(super) fn remove(&mut self, ino: u64) -> Arc<Inode> {
        let removed = self.segment_mut(ino).remove(&ino);
        removed.expect("the inode exists")
    }

    /// The segments as they are now, whatever happens to the store.
    pub(super) fn share(&self) -> Vec<Arc<Segment>> {
        self.segments.iter().flatten().cloned().collect()
    }

    /// All inodes that are here, segment by segment.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &Inode)> {
        let segments = self.segments.iter().flatten();
        segments.flat_map(|segment| segment.iter().map(|(ino, inode)| (*ino, &**inode)))
    }

    /// The number of inodes that are here.
    pub(super) fn len(&self) -> usize {
        self.segments
            .iter()
            .flatten()
            .map(|segment| segment.len())
            .sum()
    }

    /// Divides it into this many parts, all of which are here; into fewer if it cannot have more.
    pub(super) fn divide(&mut self, parts: usize) -> usize {
        assert!(self.segments.iter().all(Option::is_some), "all are here");
        self.parts = parts.clamp(1, SEGMENTS);
        self.parts
    }

    /// The part that an inode is in.
    pub(super) fn part_of(&self, ino: u64) -> usize {
        segment_of(ino) * self.parts / SEGMENTS
    }

    /// Takes out a part.
    pub(super) fn lend(&mut self, part: usize) -> Store {
        let mut lent = Store {
            segments: vec![None; SEGMENTS],
            parts: self.parts,
        };
        for segment in (0..SEGMENTS).filter(|segment| segment * self.parts / SEGMENTS == part) {
            let taken = self.segments[segment].take();
            lent.segments[segment] = Some(taken.expect("it is here"));
        }
        lent
    }

    /// Puts in a part that was lent.
    pub(super) fn take_back(&mut self, lent: Store) {
        for (segment, lent) in self.segments.iter_mut().zip(lent.segments) {
            if let Some(lent) = lent {
                assert!(segment.replace(lent).is_none(), "it was lent");
            }
        }
    }
}
