//! Which group (P-SMR: which worker) each key belongs to.

use crate::machine::Footprint;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// A fixed number of groups and the keys of each: by a hash of the key, which is the same on every
/// platform, except for keys that were placed. A key is a number that a
/// [footprint](Footprint) names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spread {
    count: usize,
    placed: BTreeMap<u64, usize>,
}

/// The groups of a command (C-G). Two commands whose footprints conflict have a group in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Groups {
    /// It touches nothing: any group will do, and it must be the same if the command is repeated.
    Any,
    /// All that it touches belongs to this group.
    One(usize),
    /// It touches everything, or keys of several groups.
    All,
}

impl Spread {
    /// Keys are in `count` groups by their hashes.
    ///
    /// # Panics
    /// If there are no groups.
    pub fn hashed(count: usize) -> Self {
        assert!(count > 0, "keys belong to at least one group");
        Spread {
            count,
            placed: BTreeMap::new(),
        }
    }

    /// As [`hashed`](Spread::hashed), with some heavy keys placed: from the heaviest on, each in
    /// the group that has the least weight of them then. The heaviest group gets at most 4/3 of
    /// what it must in the best placement (Graham 1969, LPT). `heavy` has each key with its weight,
    /// which is how often commands touch it; weights of a key that comes twice are added. The order
    /// does not matter.
    ///
    /// # Panics
    /// If there are no groups.
    pub fn placed(count: usize, heavy: &[(u64, u64)]) -> Self {
        let mut spread = Spread::hashed(count);
        let mut loads = vec![0_u128; count];
        let mut keys: Vec<_> = added(heavy).into_iter().collect();
        keys.sort_by_key(|(key, weight)| (Reverse(*weight), *key));
        for (key, weight) in keys {
            let least = (0..count).min_by_key(|group| loads[*group]);
            let least = least.expect("there is a group");
            loads[least] += weight;
            spread.placed.insert(key, least);
        }
        spread
    }

    /// The number of groups.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The group of a key.
    #[inline]
    pub fn group_of(&self, key: u64) -> usize {
        if !self.placed.is_empty()
            && let Some(group) = self.placed.get(&key)
        {
            return *group;
        }
        ((u128::from(mix(key)) * self.count as u128) >> 64) as usize
    }

    /// The groups of a command that touches this.
    pub fn groups(&self, footprint: &Footprint) -> Groups {
        if footprint.everything {
            return Groups::All;
        }
        let mut keys = footprint.reads.iter().chain(&footprint.writes);
        let Some(first) = keys.next().map(|key| self.group_of(*key)) else {
            return Groups::Any;
        };
        match keys.all(|key| self.group_of(*key) == first) {
            true => Groups::One(first),
            false => Groups::All,
        }
    }

    /// The load of the heaviest group, as predicted, in the unit of the weights: the keys of
    /// `heavy`, wherever they are, and an equal share of `rest`, the weight of all other keys, as
    /// hashes spread many light keys evenly. Divided by the whole weight this is the largest share
    /// of the commands that one group gets.
    pub fn heaviest_load(&self, heavy: &[(u64, u64)], rest: u64) -> u128 {
        let mut loads = vec![0_u128; self.count];
        for (key, weight) in added(heavy) {
            loads[self.group_of(key)] += weight;
        }
        let most = loads.into_iter().max().unwrap_or(0);
        most + u128::from(rest).div_ceil(self.count as u128)
    }
}

/// The weight of each key.
fn added(heavy: &[(u64, u64)]) -> BTreeMap<u64, u128> {
    let mut keys = BTreeMap::new();
    for (key, weight) in heavy {
        *keys.entry(*key).or_default() += u128::from(*weight);
    }
    keys
}

/// A hash of a number, the finalizer of SplitMix64 (Steele, Lea, Flood 2014). All nodes must agree
/// on it, so it may never change.
#[inline]
fn mix(key: u64) -> u64 {
    let key = (key ^ (key >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let key = (key ^ (key >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    key ^ (key >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// Nodes of different platforms and versions must agree.
    #[test]
    fn the_group_of_a_key_is_fixed() {
        let spread = Spread::hashed(8);
        let groups = [0, 1, 2, 3, 1000, u64::MAX].map(|key| spread.group_of(key));
        assert_eq!(groups, [0, 2, 6, 0, 6, 5]);
    }

    #[test]
    fn a_command_belongs_to_one_group_if_all_its_keys_do() {
        let spread = Spread::placed(3, &[(10, 3), (11, 2), (12, 1), (13, 1)]);
        let groups = [10, 11, 12, 13].map(|key| spread.group_of(key));
        assert_eq!(groups, [0, 1, 2, 2]);
        let groups = |reads: &[u64], writes: &[u64], everything| {
            spread.groups(&Footprint {
                everything,
                timed: false,
                reads: reads.to_vec(),
                writes: writes.to_vec(),
            })
        };
        assert_eq!(groups(&[12, 13], &[12], false), Groups::One(2));
        assert_eq!(groups(&[12, 13, 10], &[], false), Groups::All);
        assert_eq!(groups(&[12, 13], &[12, 10], false), Groups::All);
        assert_eq!(groups(&[12], &[], true), Groups::All);
        assert_eq!(groups(&[], &[], false), Groups::Any);
    }

    #[test]
    fn consecutive_keys_are_spread_evenly() {
        for count in [1, 3, 8, 64] {
            let mut sizes = vec![0_usize; count];
            let spread = Spread::hashed(count);
            (0..10_000 * count as u64).for_each(|key| sizes[spread.group_of(key)] += 1);
            assert!(
                sizes.iter().all(|size| size.abs_diff(10_000) < 500),
                "{sizes:?}"
            );
        }
    }

    /// Of ten million keys with Zipf's distribution (exponent 1), the ten thousand heaviest are
    /// placed in eight groups.
    #[test]
    fn placed_keys_of_a_zipf_distribution_are_spread_evenly() {
        let heavy: Vec<(u64, u64)> = (0..10_000).map(|i| (i, 1_000_000_000 / (i + 1))).collect();
        // The sum of 1/i for i from 10001 to 10^7.
        let rest = 6_907_705_329;
        let whole: u64 = rest + heavy.iter().map(|(_, weight)| weight).sum::<u64>();
        let share =
            |spread: Spread| spread.heaviest_load(&heavy, rest) as f64 / whole as f64 * 100.0;
        let (hashed, placed) = (share(Spread::hashed(8)), share(Spread::placed(8, &heavy)));
        assert!((16.0..20.0).contains(&hashed), "{hashed} %");
        assert!((12.5..12.51).contains(&placed), "{placed} %");
    }

    /// The heaviest load of the best placement of all.
    fn best(count: usize, weights: &[u64]) -> u128 {
        let placements = (count as u64).pow(weights.len() as u32);
        let heaviest = |mut placement: u64| {
            let mut loads = vec![0_u128; count];
            for weight in weights {
                loads[(placement % count as u64) as usize] += u128::from(*weight);
                placement /= count as u64;
            }
            loads.into_iter().max().unwrap_or(0)
        };
        (0..placements).map(heaviest).min().unwrap_or(0)
    }

    fn footprint() -> impl Strategy<Value = Footprint> {
        (0..6, vec(0..9_u64, 0..3), vec(0..9_u64, 0..3)).prop_map(|(all, reads, writes)| {
            Footprint {
                everything: all == 0,
                timed: false,
                reads,
                writes,
            }
        })
    }

    proptest! {
        #[test]
        fn a_placement_is_at_most_a_third_above_the_best(
            count in 1..4_usize,
            weights in vec(0..30_u64, 1..7),
        ) {
            let heavy: Vec<_> = (100..).zip(weights.iter().copied()).collect();
            let spread = Spread::placed(count, &heavy);
            let load = spread.heaviest_load(&heavy, 0);
            let bound = best(count, &weights) * (4 * count as u128 - 1);
            prop_assert!(load * 3 * count as u128 <= bound, "{load}");
            let backwards: Vec<_> = heavy.iter().rev().copied().collect();
            prop_assert_eq!(Spread::placed(count, &backwards), spread);
        }

        #[test]
        fn commands_that_conflict_have_a_group_in_common(
            one in footprint(),
            other in footprint(),
            count in 1..5_usize,
            heavy in vec((0..9_u64, 1..9_u64), 0..4),
        ) {
            let spread = Spread::placed(count, &heavy);
            let share = match (spread.groups(&one), spread.groups(&other)) {
                (Groups::One(one), Groups::One(other)) => one == other,
                (Groups::Any, _) | (_, Groups::Any) => false,
                _ => true,
            };
            // What touches nothing shares no group, but everything waits for it.
            let everything = one.everything || other.everything;
            prop_assert!(share || everything || !one.conflicts(&other));
        }
    }
}
