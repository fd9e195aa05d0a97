//! The level of a cluster: what its nodes may say to each other, store and execute.
//!
//! A program supports a range of levels. The log of a cluster decides its level, which is never
//! above what every member supports, so that nodes of two releases work together during an upgrade
//! (`docs/decisions/0044-levels.md`). A form of a message or record never changes once it is
//! released: what is new is a new variant, which names the level [since](crate::wire::Wire::since)
//! which nodes understand it, and which they do not use before.

use core::fmt;

/// A level. Each release that changes a message, a record or what a command does has the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Level(pub u16);

/// Added to the numbers of levels where nodes greet each other and on disk, by builds with larger
/// sets and ids: these do not understand other builds.
const APART: u16 = if cfg!(feature = "hundreds") {
    10_000
} else {
    0
};

impl Level {
    /// That of the programs which knew no levels, and of clusters that were founded by them.
    pub const FIRST: Level = Level(17);

    /// The lowest that this program supports.
    pub const OLDEST: Level = Level::FIRST;

    /// The highest that this program supports.
    pub const LATEST: Level = Level(18);

    /// Whether this program supports it.
    pub fn is_supported(self) -> bool {
        (Self::OLDEST..=Self::LATEST).contains(&self)
    }

    /// The number that stands for it in the greeting of a connection and on disk.
    pub const fn number(self) -> u16 {
        self.0 + APART
    }

    /// The level for which [`number`](Level::number) stands; none if it is of another kind of
    /// build.
    pub fn of_number(number: u16) -> Option<Level> {
        let level = number.checked_sub(APART)?;
        (level < 10_000).then_some(Level(level))
    }
}

impl Default for Level {
    fn default() -> Self {
        Level::FIRST
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_levels_are_read_back_and_those_of_other_builds_are_none() {
        for level in [Level::OLDEST, Level::LATEST, Level(19)] {
            assert_eq!(Level::of_number(level.number()), Some(level));
        }
        let other = if APART == 0 { 10_017 } else { 17 };
        assert_eq!(Level::of_number(other), None);
        assert!(!Level(16).is_supported() && !Level(Level::LATEST.0 + 1).is_supported());
    }
}
