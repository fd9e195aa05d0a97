//! How often stabilizers have lost their memory: what tells an acknowledgement that still counts
//! from one of a former life. The argument is in `stabilizer/copying.rs`.

use super::id::StabilizerId;
use alloc::vec::Vec;
use ionian_kernel::id::{Epoch, Set};
use ionian_kernel::small_map::SmallMap;

/// A stabilizer counts its lives from an epoch times this number on, and one that is new the places
/// of its records too: another stabilizer may have had its number in an earlier epoch, and counted
/// from a lower one.
const OF_AN_EPOCH: u64 = 1 << 40;

/// The first life of a stabilizer in this epoch, and the place of the first record of one that is
/// new in it.
pub(super) fn first_of(epoch: Epoch) -> u64 {
    u64::from(epoch.0) * OF_AN_EPOCH
}

/// The life that each stabilizer lives, as far as it is known: 0 for those of which nothing is.
#[derive(Debug, Default)]
pub(super) struct Lives(SmallMap<StabilizerId, u64>);

/// What follows from the lives that a stabilizer knows of.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Heard {
    /// Stabilizers that live a later life than was known.
    pub(super) renewed: Set<StabilizerId>,
    /// Whether the stabilizer speaks in the latest life of its own that is known.
    pub(super) is_present: bool,
}

impl Lives {
    /// The life of this stabilizer.
    pub(super) fn of(&self, stabilizer: StabilizerId) -> u64 {
        self.0.get(&stabilizer).copied().unwrap_or_default()
    }

    /// Takes in that a stabilizer lives this life; whether that is news.
    pub(super) fn learn(&mut self, stabilizer: StabilizerId, life: u64) -> bool {
        let is_news = life > self.of(stabilizer);
        if is_news {
            self.0.insert(stabilizer, life);
        }
        is_news
    }

    /// Takes in what `from` knows.
    pub(super) fn hear(&mut self, from: StabilizerId, lives: &[(StabilizerId, u64)]) -> Heard {
        let mut renewed = Set::EMPTY;
        for (stabilizer, life) in lives {
            if self.learn(*stabilizer, *life) {
                renewed.insert(*stabilizer);
            }
        }
        let own = lives.iter().find(|(stabilizer, _)| *stabilizer == from);
        let is_present = own.map_or(0, |(_, life)| *life) >= self.of(from);
        Heard {
            renewed,
            is_present,
        }
    }

    /// All that are known.
    pub(super) fn all(&self) -> Vec<(StabilizerId, u64)> {
        let all = self.0.iter();
        all.map(|(stabilizer, life)| (*stabilizer, *life)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acknowledgement_of_a_former_life_is_recognized_as_soon_as_anyone_tells_of_the_present_one()
     {
        let (x, y) = (StabilizerId(0), StabilizerId(1));
        let mut lives = Lives::default();
        let heard = |renewed, is_present| Heard {
            renewed,
            is_present,
        };
        assert_eq!(lives.hear(x, &[]), heard(Set::EMPTY, true));
        assert_eq!(lives.hear(y, &[(x, 2)]), heard(Set::one(x), true));
        assert_eq!(lives.hear(x, &[(x, 1)]), heard(Set::EMPTY, false));
        assert_eq!(lives.hear(x, &[(x, 2), (y, 1)]), heard(Set::one(y), true));
        assert_eq!(lives.all(), [(x, 2), (y, 1)]);
    }

    #[test]
    fn a_stabilizer_of_a_later_epoch_lives_later_lives_than_any_before_it() {
        let lost_often = first_of(Epoch(2)) + 1_000_000;
        assert!(first_of(Epoch(3)) > lost_often);
        assert_eq!(first_of(Epoch(0)), 0);
    }
}
