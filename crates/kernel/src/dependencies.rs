//! Which kinds of command depend on each other, and what follows for each kind (P-SMR, section IV:
//! C-Dep, the table of dependencies, and C-G, the function from commands to groups).
//!
//! A machine declares its kinds of command, how often each is expected, and which pairs depend on
//! each other: *always*, or *on the same key*. All other pairs never do. [`Dependencies::classes`]
//! derives a [`Class`] for each kind, and [`Classes::touch`] the
//! [footprint](crate::machine::StateMachine::footprint) of a command from its kind and its keys:
//!
//! ```
//! use ionian_kernel::dependencies::{Class, Dependencies};
//! use ionian_kernel::machine::Footprint;
//!
//! const READ: usize = 0;
//! const UPDATE: usize = 1;
//! const CLEAR: usize = 2;
//!
//! let classes = Dependencies::of(&[("read", 900), ("update", 99), ("clear", 1)])
//!     .on_same_key(UPDATE, &[READ, UPDATE])
//!     .always(CLEAR, &[READ, UPDATE])
//!     .classes();
//! assert_eq!(classes.of(READ), Class::Reads);
//! assert_eq!(classes.of(UPDATE), Class::Writes);
//! assert_eq!(classes.of(CLEAR), Class::Everything);
//!
//! let mut footprint = Footprint::default();
//! classes.touch(UPDATE, [7], &mut footprint);
//! assert_eq!(footprint.writes, [7]);
//! ```
//!
//! **The optimization problem.** Two commands are executed in one order everywhere if their
//! footprints conflict (if they share a group, in the words of the paper). A kind in the class
//! *everything* conflicts with all others, and has all workers wait for each of its commands. So
//! the choice of classes is valid if and only if each pair that always depends has a kind in
//! *everything*, and each pair that depends on the same key has a kind in *everything* or both in
//! classes of keys, not both of them readers. A kind that always depends on itself must be in
//! *everything*. The cost is the sum of the frequencies of the kinds in *everything*: only pairs
//! that always depend force kinds into it, so the minimum is a minimum-weight vertex cover of these
//! pairs. There are tens of kinds, so it is found exactly, by branch and bound. Of the kinds that
//! are left, those in pairs of the same key have classes of keys, even if the other kind touches
//! everything: a command is executed where its keys are. In each pair one must write: again a
//! cover, of least weight, so that readers of a key stay independent where they can.
//!
//! The table may be wrong. `ionian::testing::exercise` executes commands whose footprints do not
//! conflict in both orders, and reports a pair for which the order matters.

mod cover;
mod spread;

pub use spread::{Groups, Spread};

use crate::machine::Footprint;
use alloc::vec::Vec;

/// The most kinds of command that a machine can declare: as many as a word has bits.
pub const MAX_KINDS: usize = 64;

/// The kinds of command of a machine, and which of them depend on each other (C-Dep). A kind is
/// named by its index in the list of kinds. A pair need be declared once, in either order.
#[derive(Clone, Debug)]
pub struct Dependencies {
    kinds: Vec<(&'static str, u32)>,
    always: Vec<u64>,
    on_same_key: Vec<u64>,
}

/// What a kind of command touches. The order of two commands is kept if one touches everything, or
/// if one writes a key that the other reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Everything: it depends on commands whatever their keys. All workers wait for it.
    Everything,
    /// Its keys, which it writes.
    Writes,
    /// Its keys, which it reads.
    Reads,
    /// Nothing that a command of another class than *everything* changes: any worker may execute
    /// it, at any time. A machine with [`Parts`](crate::machine::Parts) executes it while any of
    /// them are lent; if it needs them, the kind must depend on itself, always.
    Nothing,
}

impl Dependencies {
    /// Kinds of command with their names and expected frequencies, in any unit, none of which
    /// depends on another yet.
    ///
    /// # Panics
    /// If there are more than [`MAX_KINDS`].
    pub fn of(kinds: &[(&'static str, u32)]) -> Self {
        let count = kinds.len();
        assert!(
            count <= MAX_KINDS,
            "{count} kinds of command; at most {MAX_KINDS} are possible"
        );
        Dependencies {
            kinds: kinds.to_vec(),
            always: alloc::vec![0; count],
            on_same_key: alloc::vec![0; count],
        }
    }

    /// The order of `kind` and each of `others` matters, whatever their keys.
    ///
    /// # Panics
    /// If a kind was not declared.
    #[must_use]
    pub fn always(mut self, kind: usize, others: &[usize]) -> Self {
        others.iter().for_each(|other| {
            connect(&mut self.always, kind, *other);
        });
        self
    }

    /// The order of `kind` and each of `others` matters if they have a key in common.
    ///
    /// # Panics
    /// If a kind was not declared.
    #[must_use]
    pub fn on_same_key(mut self, kind: usize, others: &[usize]) -> Self {
        others.iter().for_each(|other| {
            connect(&mut self.on_same_key, kind, *other);
        });
        self
    }

    /// The classes of least cost for which the order of every dependent pair is kept. The same
    /// table gives the same classes on every node.
    pub fn classes(&self) -> Classes {
        let weights: Vec<u64> = self.kinds.iter().map(|kind| u64::from(kind.1)).collect();
        let everything = cover::minimum(&self.always, &weights, u64::MAX);
        let writes = cover::minimum(&self.on_same_key, &weights, !everything);
        let class = |kind: usize| match 1 << kind {
            bit if everything & bit != 0 => Class::Everything,
            bit if writes & bit != 0 => Class::Writes,
            _ if self.on_same_key[kind] != 0 => Class::Reads,
            _ => Class::Nothing,
        };
        let kinds = self.kinds.iter().enumerate();
        Classes(
            kinds
                .map(|(kind, (name, _))| (*name, class(kind)))
                .collect(),
        )
    }
}

fn connect(edges: &mut [u64], one: usize, other: usize) {
    let count = edges.len();
    assert!(
        one < count && other < count,
        "kinds {one} and {other} depend on each other; there are {count} kinds, from 0"
    );
    edges[one] |= 1 << other;
    edges[other] |= 1 << one;
}

/// The class of each kind of command of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Classes(Vec<(&'static str, Class)>);

impl Classes {
    /// The class of a kind.
    ///
    /// # Panics
    /// If the kind was not declared.
    pub fn of(&self, kind: usize) -> Class {
        self.0[kind].1
    }

    /// The names of the kinds and their classes, in the order of their declaration.
    pub fn all(&self) -> &[(&'static str, Class)] {
        &self.0
    }

    /// Adds what a command of this kind touches, given **all** its keys: a key that is left out is
    /// not protected. Keys are numbers, or hashes that are equal on every platform.
    ///
    /// # Panics
    /// If the kind was not declared.
    pub fn touch(
        &self,
        kind: usize,
        keys: impl IntoIterator<Item = u64>,
        footprint: &mut Footprint,
    ) {
        match self.of(kind) {
            Class::Everything => footprint.everything = true,
            Class::Writes => footprint.writes.extend(keys),
            Class::Reads => footprint.reads.extend(keys),
            Class::Nothing => {}
        }
    }
}

#[cfg(test)]
mod tests;
