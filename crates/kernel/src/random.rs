//! Seeded random numbers. A role holds its own generator, so that the same seed gives the same run.

use crate::time::Duration;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A reproducible source of random numbers.
#[derive(Clone, Debug)]
pub struct Random(Xoshiro256PlusPlus);

impl Random {
    /// The generator of this seed.
    pub fn new(seed: u64) -> Self {
        Random(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// Any number.
    pub fn any(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `bound`, which must not be zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        // Multiplying down is off by less than bound / 2^64, which no schedule notices.
        ((self.any() as u128 * bound as u128) >> 64) as u64
    }

    /// A number from `low` up to and including `high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True once in `times` on average.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// True with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        ((self.any() >> 11) as f64) < probability * (1u64 << 53) as f64
    }

    /// A duration from `low` up to `high`.
    pub fn duration(&mut self, low: Duration, high: Duration) -> Duration {
        Duration::from_micros(self.between(low.as_micros() as u64, high.as_micros() as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers_on_every_machine() {
        let mut random = Random::new(7);
        assert_eq!(
            [random.any(), random.any()],
            [1021219803524665661, 3174977118032272916]
        );
    }

    #[test]
    fn numbers_stay_in_their_range() {
        let mut random = Random::new(1);
        for bound in 1..100 {
            assert!(random.below(bound) < bound);
            assert!((bound..=2 * bound).contains(&random.between(bound, 2 * bound)));
        }
        assert!(
            (0..1000)
                .filter(|_| random.chance(0.5))
                .count()
                .abs_diff(500)
                < 100
        );
    }
}
