//! The long runs that a leader has skipped in its round.
//!
//! A leader forgets where its suggestions were as soon as some replica has executed them. If that
//! replica is then lost, or restarts from an older snapshot, the others ask for these slots. A run
//! that is remembered here is one message, and no acceptor is asked. The others are repaired.

use crate::mencius::stripe::StripePosition;
use crate::parts::message::RECOVER_SLOTS;
use alloc::collections::VecDeque;

/// The length of a run from which on it is remembered: as many slots as replicas ask for at a time.
const MIN_RUN: u64 = RECOVER_SLOTS as u64;

/// The number of runs that are remembered: the latest.
const MAX_RUNS: usize = 64;

/// See the top of this file. In ascending order; what is here stays skipped while the leader's
/// round lasts, because no later leader makes anything but noops of it either.
#[derive(Default)]
pub(super) struct LongSkips(VecDeque<(StripePosition, StripePosition)>);

impl LongSkips {
    /// The positions from `start` up to `end` are skipped; runs come in ascending order.
    pub(super) fn add(&mut self, start: StripePosition, end: StripePosition) {
        match self.0.back_mut().filter(|(_, last)| *last == start) {
            Some((_, last)) => *last = end,
            None if end.distance(start) >= MIN_RUN => {
                self.0.push_back((start, end));
                if self.0.len() > MAX_RUNS {
                    self.0.pop_front();
                }
            }
            None => {}
        }
    }

    /// The end of the run that contains a position.
    pub(super) fn end_of(&self, position: StripePosition) -> Option<StripePosition> {
        let contains = |(start, end): &&(StripePosition, StripePosition)| {
            *start <= position && position < *end
        };
        self.0.iter().find(contains).map(|(_, end)| *end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_long_runs_are_remembered() {
        let mut skips = LongSkips::default();
        skips.add(StripePosition(0), StripePosition(31));
        assert_eq!(skips.end_of(StripePosition(0)), None, "too short");
        skips.add(StripePosition(100), StripePosition(132));
        skips.add(StripePosition(132), StripePosition(133));
        let ends = [99, 100, 132, 133].map(|position| skips.end_of(StripePosition(position)));
        assert_eq!(
            ends,
            [
                None,
                Some(StripePosition(133)),
                Some(StripePosition(133)),
                None
            ]
        );
        for run in 1..=MAX_RUNS as u64 {
            skips.add(StripePosition(1000 * run), StripePosition(1000 * run + 50));
        }
        let ends = [100, 1000].map(|position| skips.end_of(StripePosition(position)));
        assert_eq!(ends, [None, Some(StripePosition(1050))]);
    }
}
