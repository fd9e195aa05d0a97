//! Counts of measured values by size. Drivers keep them, roles do not: what a role does must not
//! depend on time.

/// The number of upper bounds; values above the last one are counted apart.
pub const BOUNDS: usize = 20;

/// How often values of each size were measured. The first upper bound is `FIRST`, and each bound is
/// twice the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Histogram<const FIRST: u64> {
    counts: [u64; BOUNDS + 1],
    sum: u64,
}

/// Times in microseconds, with bounds from 50 us to 26 s.
pub type Times = Histogram<50>;

/// Sizes in bytes, with bounds from 64 B to 32 MiB.
pub type Sizes = Histogram<64>;

/// Numbers of things, with bounds from 1 to 524,288.
pub type Numbers = Histogram<1>;

impl<const FIRST: u64> Default for Histogram<FIRST> {
    fn default() -> Self {
        Histogram {
            counts: [0; BOUNDS + 1],
            sum: 0,
        }
    }
}

impl<const FIRST: u64> Histogram<FIRST> {
    /// Counts a value.
    pub fn record(&mut self, value: u64) {
        // How often FIRST must be doubled until the value is not above it.
        let doublings = u64::BITS - (value.saturating_sub(1) / FIRST).leading_zeros();
        self.counts[(doublings as usize).min(BOUNDS)] += 1;
        self.sum = self.sum.saturating_add(value);
    }

    /// The sum of all values.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// The number of values.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// A bound that at least this share of the values, in thousandths, does not exceed: that of
    /// their bucket, twice the last bound if they are above it, and 0 without values.
    pub fn quantile(&self, thousandths: u64) -> u64 {
        let all = self.count();
        let mut reached = 0;
        let bucket = self.buckets().find(|(_, count)| {
            reached += count;
            reached > 0 && reached * 1000 >= all * thousandths
        });
        bucket.map_or(0, |(bound, _)| bound.unwrap_or(FIRST << BOUNDS))
    }

    /// The number of values up to each upper bound and above the one before it. The last has no
    /// upper bound.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<u64>, u64)> {
        let counts = self.counts.iter().enumerate();
        counts.map(|(place, count)| ((place < BOUNDS).then(|| FIRST << place), *count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn a_value_counts_in_the_first_bucket_whose_bound_it_does_not_exceed() {
        let values = [
            0, 1, 49, 50, 51, 100, 101, 199, 200, 201, 26_214_400, 26_214_401,
        ];
        for value in values.into_iter().chain([u64::MAX]) {
            let mut times = Times::default();
            times.record(value);
            assert_eq!((times.count(), times.sum()), (1, value));
            let buckets: Vec<_> = times.buckets().collect();
            let expected = buckets
                .iter()
                .position(|(bound, _)| bound.is_none_or(|bound| value <= bound));
            let counted = buckets.iter().position(|(_, count)| *count == 1);
            assert_eq!(counted, expected, "{value}");
        }
    }

    #[test]
    fn a_quantile_is_the_bound_of_its_bucket() {
        let mut times = Times::default();
        assert_eq!(times.quantile(990), 0);
        (0..98).for_each(|_| times.record(60));
        times.record(300);
        times.record(u64::MAX);
        let found = [1, 500, 980, 981, 990, 991, 1000].map(|share| times.quantile(share));
        assert_eq!(found, [100, 100, 100, 400, 400, 52_428_800, 52_428_800]);
    }

    #[test]
    fn bounds_double() {
        let bounds: Vec<u64> = Times::default()
            .buckets()
            .filter_map(|(bound, _)| bound)
            .collect();
        assert_eq!((bounds[0], bounds[1], bounds.len()), (50, 100, BOUNDS));
        assert_eq!(bounds.last(), Some(&26_214_400));
        let last = Numbers::default().buckets().filter_map(|it| it.0).last();
        assert_eq!(last, Some(524_288));
    }
}
