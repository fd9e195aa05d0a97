//! The slots of a stripe that its leaders have skipped, as far as a replica has heard and not
//! executed them.

use crate::mencius::stripe::StripePosition;
use alloc::collections::BTreeMap;

/// The number of ranges that are remembered of a stripe; what comes beyond is asked for when its
/// turn comes.
const MAX_RANGES: usize = 1 << 16;

/// Ranges of positions, apart from each other: the end of each by its start.
#[derive(Default)]
pub(super) struct Skipped {
    ranges: BTreeMap<StripePosition, StripePosition>,
}

impl Skipped {
    /// The positions from `start` up to `end` were skipped, whatever is known of some of them (l6).
    pub(super) fn insert(&mut self, mut start: StripePosition, mut end: StripePosition) {
        if start >= end || self.is_full() {
            return;
        }
        while let Some((from, to)) = self
            .ranges
            .range(..=end)
            .next_back()
            .map(|(from, to)| (*from, *to))
            && to >= start
        {
            self.ranges.remove(&from);
            (start, end) = (start.min(from), end.max(to));
        }
        self.ranges.insert(start, end);
    }

    /// Whether no more ranges are taken in.
    pub(super) fn is_full(&self) -> bool {
        self.ranges.len() >= MAX_RANGES
    }

    /// The first position from `position` on that is not skipped.
    pub(super) fn end_from(&self, position: StripePosition) -> StripePosition {
        let before = self.ranges.range(..=position).next_back();
        before.map_or(position, |(_, end)| position.max(*end))
    }

    /// Asserts that the ranges lie apart.
    pub(super) fn invariants(&self) {
        let mut last = None;
        for (start, end) in &self.ranges {
            assert!(
                start < end && last.is_none_or(|last| last < start),
                "ranges of skipped positions overlap or touch"
            );
            last = Some(end);
        }
    }

    /// What lies below `position` is executed.
    pub(super) fn forget_below(&mut self, position: StripePosition) {
        while let Some(first) = self
            .ranges
            .first_entry()
            .filter(|first| *first.get() <= position)
        {
            first.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ranges_know_exactly_what_was_put_in(ranges in prop::collection::vec((0..60u64, 0..9u64), 0..30)) {
            let (mut skipped, mut set) = (Skipped::default(), [false; 80]);
            for (start, length) in ranges {
                skipped.insert(StripePosition(start), StripePosition(start + length));
                set[start as usize..(start + length) as usize].fill(true);
            }
            for position in 0..70 {
                let end = (position..80).find(|at| !set[*at as usize]).expect("it ends");
                prop_assert_eq!(skipped.end_from(StripePosition(position)), StripePosition(end));
            }
            skipped.forget_below(StripePosition(30));
            for position in 30..70 {
                let end = (position..80).find(|at| !set[*at as usize]).expect("it ends");
                prop_assert_eq!(skipped.end_from(StripePosition(position)), StripePosition(end));
            }
        }
    }
}
