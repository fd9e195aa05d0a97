//! The parts of the state: each key is in one of several trees.
//!
//! A hash of the key says in which. Ranges of keys would let a short scan look into one tree only.
//! But ranges of equal size are useless if keys are numbered in sequence, as they often are, and
//! ranges that follow the keys would have to move while the machine works, at the same command on
//! every replica; and a range that is busy is busy in one part. With a hash, parts have the same
//! size and nearly the same load whatever the keys are. A scan merges as many trees as there are
//! parts, and is undivided in an undivided machine. It touches everything in any case, because the
//! keys that it meets do not follow from the command.

use super::bplus::Tree;
use ionian_kernel::dependencies::Spread;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The most parts.
pub(super) const MAX_PARTS: usize = 64;

/// The entries, each in the tree of its part.
pub(super) struct Trees {
    places: Vec<Place>,
    spread: Spread,
}

enum Place {
    Here(Tree),
    /// Another thread has it. It had this number of keys when it was lent.
    Away(usize),
}

impl Trees {
    /// Empty trees, one for each of this number of parts.
    pub(super) fn new(count: usize) -> Self {
        Trees {
            places: (0..count).map(|_| Place::Here(Tree::default())).collect(),
            spread: Spread::hashed(count),
        }
    }

    pub(super) fn count(&self) -> usize {
        self.places.len()
    }

    #[inline]
    pub(super) fn part_of(&self, key: u64) -> usize {
        self.spread.group_of(key)
    }

    /// Takes out a tree, as one of trees that are all away but this one.
    pub(super) fn lend(&mut self, part: usize) -> Self {
        let mut lent: Vec<Place> = self
            .places
            .iter()
            .map(|place| Place::Away(place.len()))
            .collect();
        std::mem::swap(&mut lent[part], &mut self.places[part]);
        assert!(matches!(lent[part], Place::Here(_)), "part {part} is away");
        Trees {
            places: lent,
            spread: self.spread.clone(),
        }
    }

    /// Puts in a tree that was lent.
    pub(super) fn take_back(&mut self, part: usize, mut lent: Self) {
        assert!(
            matches!(self.places[part], Place::Away(_)),
            "part {part} was not lent"
        );
        std::mem::swap(&mut lent.places[part], &mut self.places[part]);
    }

    /// The tree of a key.
    ///
    /// # Panics
    /// If another thread has it: then the command has a footprint without the key.
    #[inline]
    pub(super) fn of(&self, key: u64) -> &Tree {
        self.places[self.part_of(key)].here()
    }

    /// The tree of a key, to be changed.
    ///
    /// # Panics
    /// As [`of`](Trees::of).
    #[inline]
    pub(super) fn of_mut(&mut self, key: u64) -> &mut Tree {
        let part = self.part_of(key);
        match &mut self.places[part] {
            Place::Here(tree) => tree,
            Place::Away(_) => away(),
        }
    }

    /// The number of keys. Those of trees that are away are counted as they were lent.
    pub(super) fn len(&self) -> usize {
        self.places.iter().map(Place::len).sum()
    }

    /// All trees.
    ///
    /// # Panics
    /// If another thread has one.
    pub(super) fn all(&self) -> impl Iterator<Item = &Tree> {
        self.places.iter().map(Place::here)
    }
}

impl Place {
    fn here(&self) -> &Tree {
        match self {
            Place::Here(tree) => tree,
            Place::Away(_) => away(),
        }
    }

    fn len(&self) -> usize {
        match self {
            Place::Here(tree) => tree.len(),
            Place::Away(len) => *len,
        }
    }
}

fn away() -> ! {
    panic!("a command touches a part that its footprint does not name")
}

/// Entries of several trees in the order of their keys.
pub(super) struct Merge<I> {
    trees: Vec<I>,
    /// The next entry of each tree that has one, and which tree that is.
    heads: BinaryHeap<Reverse<((u64, u64), usize)>>,
}

impl<I: Iterator<Item = (u64, u64)>> Merge<I> {
    pub(super) fn new(trees: impl Iterator<Item = I>) -> Self {
        let mut trees: Vec<I> = trees.collect();
        let heads = trees.iter_mut().enumerate();
        let heads = heads.filter_map(|(at, tree)| Some(Reverse((tree.next()?, at))));
        Merge {
            heads: heads.collect(),
            trees,
        }
    }
}

impl<I: Iterator<Item = (u64, u64)>> Iterator for Merge<I> {
    type Item = (u64, u64);

    fn next(&mut self) -> Option<(u64, u64)> {
        let mut first = self.heads.peek_mut()?;
        let Reverse((entry, at)) = *first;
        match self.trees[at].next() {
            Some(next) => *first = Reverse((next, at)),
            None => drop(std::collections::binary_heap::PeekMut::pop(first)),
        }
        Some(entry)
    }
}
