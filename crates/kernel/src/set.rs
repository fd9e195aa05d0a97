//! Sets of instances of one role: who votes, and to whom a message goes.

use crate::id::Id;
use crate::wire::{Reader, Wire, WireError};
use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;

/// The number of an instance among those of its kind.
#[cfg(not(feature = "hundreds"))]
pub type Index = u8;

/// The number of an instance among those of its kind.
#[cfg(feature = "hundreds")]
pub type Index = u16;

/// Words of a set. With one, sets are as cheap as a number; with the feature `hundreds` a kind can
/// have more instances, and all sets are that large.
const WORDS: usize = if cfg!(feature = "hundreds") { 8 } else { 1 };

/// The most instances of one role that a deployment can have.
pub const MAX_INSTANCES: usize = 64 * WORDS;

/// The numbers of some instances of one kind, untyped: for the drivers, which serve every protocol
/// alike. Roles have [`Set`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Members([u64; WORDS]);

impl Members {
    /// None.
    pub const EMPTY: Members = Members([0; WORDS]);

    /// The size of a set as bytes.
    pub const BYTES: usize = 8 * WORDS;

    /// Of the first 64 instances those whose bit is set.
    pub const fn from_bits(bits: u64) -> Self {
        let mut words = [0; WORDS];
        words[0] = bits;
        Members(words)
    }

    /// The first `count` instances.
    pub const fn first(count: usize) -> Self {
        assert!(count <= MAX_INSTANCES);
        let mut words = [0; WORDS];
        let mut at = 0;
        while at < count.div_ceil(64) {
            let rest = count - 64 * at;
            words[at] = if rest >= 64 {
                u64::MAX
            } else {
                (1 << rest) - 1
            };
            at += 1;
        }
        Members(words)
    }

    /// One alone.
    #[inline]
    pub fn one(index: Index) -> Self {
        let mut members = Members::EMPTY;
        members.insert(index);
        members
    }

    /// Adds an instance; says whether it was new.
    #[inline]
    pub fn insert(&mut self, index: Index) -> bool {
        let (word, bit) = place(index);
        let new = self.0[word] & bit == 0;
        self.0[word] |= bit;
        new
    }

    /// Takes an instance out.
    #[inline]
    pub fn remove(&mut self, index: Index) {
        let (word, bit) = place(index);
        self.0[word] &= !bit;
    }

    /// Whether an instance is a member.
    #[inline]
    pub fn contains(self, index: Index) -> bool {
        let (word, bit) = place(index);
        self.0[word] & bit != 0
    }

    /// The members of both.
    #[inline]
    pub fn and(self, other: Self) -> Self {
        self.combine(other, |one, other| one & other)
    }

    /// The members of either.
    #[inline]
    pub fn or(self, other: Self) -> Self {
        self.combine(other, |one, other| one | other)
    }

    /// The members that are not in `other`.
    #[inline]
    pub fn without(self, other: Self) -> Self {
        self.combine(other, |one, other| one & !other)
    }

    #[inline]
    fn combine(mut self, other: Self, operation: impl Fn(u64, u64) -> u64) -> Self {
        for (word, other) in self.0.iter_mut().zip(other.0) {
            *word = operation(*word, other);
        }
        self
    }

    /// The members as bytes: bit `i` of the whole, little-endian, is set for instance `i`.
    #[inline]
    pub fn to_le_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        for (place, word) in bytes.chunks_exact_mut(8).zip(self.0) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// The inverse of [`to_le_bytes`](Members::to_le_bytes).
    #[inline]
    pub fn from_le_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let mut members = Members::EMPTY;
        for (word, bytes) in members.0.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        members
    }

    /// A number that depends on all members, for checksums: their bits if a set is one word.
    #[inline]
    pub fn digest(self) -> u64 {
        const PRIME: u64 = 0x9e37_79b9_7f4a_7c15;
        let add = |sum: u64, word: &u64| (sum ^ sum >> 32).wrapping_mul(PRIME) ^ word;
        self.0.iter().fold(0, add)
    }

    /// How many members there are.
    #[inline]
    pub fn len(self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == [0; WORDS]
    }

    /// Takes out the first member.
    #[inline]
    pub fn pop_first(&mut self) -> Option<Index> {
        for (at, word) in self.0.iter_mut().enumerate() {
            if *word != 0 {
                let bit = word.trailing_zeros();
                *word &= *word - 1;
                return Some(64 * at as Index + bit as Index);
            }
        }
        None
    }

    /// The members, in order.
    #[inline]
    pub fn iter(mut self) -> impl Iterator<Item = Index> {
        core::iter::from_fn(move || self.pop_first())
    }
}

impl fmt::Binary for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, word) in self.0.iter().enumerate() {
            if at == 0 {
                fmt::Binary::fmt(word, f)?;
            } else if *word != 0 {
                write!(f, " and {word:#b} from {} on", 64 * at)?;
            }
        }
        Ok(())
    }
}

/// The word of an instance, and its bit there.
#[inline]
fn place(index: Index) -> (usize, u64) {
    let word = if WORDS == 1 {
        0
    } else {
        usize::from(index) / 64
    };
    (word, 1 << (index % 64))
}

impl Extend<Index> for Members {
    fn extend<T: IntoIterator<Item = Index>>(&mut self, indices: T) {
        for index in indices {
            self.insert(index);
        }
    }
}

impl FromIterator<Index> for Members {
    fn from_iter<T: IntoIterator<Item = Index>>(indices: T) -> Self {
        let mut members = Members::EMPTY;
        members.extend(indices);
        members
    }
}

impl Wire for Members {
    fn encode(&self, out: &mut Vec<u8>) {
        for word in self.0 {
            word.encode(out);
        }
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let mut members = Members::EMPTY;
        for word in &mut members.0 {
            *word = u64::decode(reader)?;
        }
        Ok(members)
    }
}

/// A set of instances of one role; also the destination of a message.
pub struct Set<I> {
    members: Members,
    kind: PhantomData<I>,
}

impl<I> Set<I> {
    /// The set without members.
    pub const EMPTY: Set<I> = Set::from_members(Members::EMPTY);

    /// The set of those whose numbers are in `members`.
    pub const fn from_members(members: Members) -> Self {
        Set {
            members,
            kind: PhantomData,
        }
    }

    /// The set whose member `i`, of the first 64, is bit `i`.
    pub const fn from_bits(bits: u64) -> Self {
        Set::from_members(Members::from_bits(bits))
    }

    /// The numbers of its members.
    #[inline]
    pub const fn members(self) -> Members {
        self.members
    }

    /// The first `count` instances.
    pub const fn first(count: usize) -> Self {
        Set::from_members(Members::first(count))
    }
}

impl<I: Id> Set<I> {
    /// The set of `id` alone.
    #[inline]
    pub fn one(id: I) -> Self {
        Set::from_members(Members::one(id.index()))
    }

    /// Adds `id`; says whether it was new.
    #[inline]
    pub fn insert(&mut self, id: I) -> bool {
        self.members.insert(id.index())
    }

    /// Takes `id` out.
    #[inline]
    pub fn remove(&mut self, id: I) {
        self.members.remove(id.index());
    }

    /// Whether `id` is a member.
    #[inline]
    pub fn contains(self, id: I) -> bool {
        self.members.contains(id.index())
    }

    /// Whether every member of `other` is a member.
    #[inline]
    pub fn covers(self, other: Self) -> bool {
        other.without(self).is_empty()
    }

    /// Whether the two have a member in common.
    #[inline]
    pub fn meets(self, other: Self) -> bool {
        !self.and(other).is_empty()
    }

    /// The members of both.
    #[inline]
    pub fn and(self, other: Self) -> Self {
        Set::from_members(self.members.and(other.members))
    }

    /// The members of either.
    #[inline]
    pub fn or(self, other: Self) -> Self {
        Set::from_members(self.members.or(other.members))
    }

    /// The members that are not in `other`.
    #[inline]
    pub fn without(self, other: Self) -> Self {
        Set::from_members(self.members.without(other.members))
    }

    /// How many members it has.
    #[inline]
    pub fn len(self) -> usize {
        self.members.len()
    }

    /// Whether it has none.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.members.is_empty()
    }

    /// The members, in order.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = I> {
        self.members.iter().map(I::at)
    }

    /// Those of `some` that are members, or all members when none of them is: to whom work is
    /// given.
    #[inline]
    pub fn preferring(self, some: Self) -> Self {
        let some = self.and(some);
        if some.is_empty() { self } else { some }
    }

    /// The member that comes `turn` places on, going round: for dealing work out evenly.
    #[inline]
    pub fn pick(self, turn: u64) -> Option<I> {
        let count = self.len() as u64;
        if count == 0 {
            return None;
        }
        let mut members = self.members;
        for _ in 0..turn % count {
            members.pop_first();
        }
        members.pop_first().map(I::at)
    }
}

impl<I: Id> FromIterator<I> for Set<I> {
    fn from_iter<T: IntoIterator<Item = I>>(ids: T) -> Self {
        let mut set = Set::EMPTY;
        for id in ids {
            set.insert(id);
        }
        set
    }
}

impl<I> Clone for Set<I> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<I> Copy for Set<I> {}

impl<I> Default for Set<I> {
    fn default() -> Self {
        Set::EMPTY
    }
}

impl<I> PartialEq for Set<I> {
    fn eq(&self, other: &Self) -> bool {
        self.members == other.members
    }
}

impl<I> Eq for Set<I> {}

impl<I: Id> fmt::Debug for Set<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set()
            .entries(self.iter().map(|id| id.index()))
            .finish()
    }
}

impl<I: Id> Wire for Set<I> {
    fn encode(&self, out: &mut Vec<u8>) {
        self.members.encode(out);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        Members::decode(reader).map(Set::from_members)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::BatcherId;
    use crate::wire::{decode_all, encode_all};

    type Batchers = Set<BatcherId>;

    const LAST: Index = (MAX_INSTANCES - 1) as Index;

    #[test]
    fn sets_hold_what_was_put_in() {
        let mut set = Batchers::first(3);
        assert!(!set.insert(BatcherId(2)) && set.insert(BatcherId(LAST)));
        set.remove(BatcherId(1));
        assert_eq!(
            set.iter().collect::<Vec<_>>(),
            [BatcherId(0), BatcherId(2), BatcherId(LAST)]
        );
        assert!(set.contains(BatcherId(LAST)) && !set.contains(BatcherId(1)));
        assert_eq!(set.pick(4), Some(BatcherId(2)));
        assert_eq!(set.pick(5), Some(BatcherId(LAST)));
        assert_eq!(Batchers::EMPTY.pick(4), None);
    }

    #[test]
    fn the_first_of_them_are_as_many_as_asked_for() {
        for count in [0, 1, 63, MAX_INSTANCES - 1, MAX_INSTANCES] {
            let set = Batchers::first(count);
            assert_eq!(set.len(), count);
            assert!(set.iter().eq((0..count as Index).map(BatcherId)));
        }
    }

    #[test]
    fn sets_are_combined_member_by_member() {
        let set = |members: &[Index]| -> Members { members.iter().copied().collect() };
        let (one, other) = (set(&[0, 5, LAST]), set(&[5, 6, LAST]));
        assert_eq!(one.and(other), set(&[5, LAST]));
        assert_eq!(one.or(other), set(&[0, 5, 6, LAST]));
        assert_eq!(one.without(other), set(&[0]));
        assert!(!Batchers::from_members(one).covers(Set::from_members(other)));
        assert!(Batchers::from_members(one).meets(Set::from_members(other)));
    }

    #[test]
    fn sets_survive_their_codecs_and_differ_in_their_digests() {
        let mut digests = alloc::collections::BTreeSet::new();
        for index in 0..=LAST {
            let members = Members::one(index).or(Members::one(3));
            assert_eq!(Members::from_le_bytes(members.to_le_bytes()), members);
            assert_eq!(decode_all(&encode_all(&members).into()), Ok(members));
            digests.insert(members.digest());
        }
        assert_eq!(digests.len(), MAX_INSTANCES);
    }
}
