//! What acceptors tell a new leader of a stripe beside votes: the positions that earlier leaders
//! have reserved, and may have skipped.

use super::long_runs::long_runs;
use crate::mencius::message::Reserved;
use crate::mencius::stripe::StripePosition;
use crate::parts::leader::Notes;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use ionian_kernel::id::{Round, Slot};
use ionian_replication::batch::Value;

/// All reservations that the acceptors of a read quorum have told.
#[derive(Default)]
pub struct ReservedRanges(Vec<Reserved>);

impl Notes for ReservedRanges {
    type Page = Vec<Reserved>;

    /// It suggests in reserved positions alone.
    const PROPOSES_AT_ONCE: bool = false;

    /// Each page comes with all of them, and each vote is held against each.
    fn add(&mut self, page: Vec<Reserved>) {
        for reserved in page {
            if !self.0.contains(&reserved) {
                self.0.push(reserved);
            }
        }
    }

    /// A leader of a later round that had reserved the position may have skipped it. It had asked a
    /// read quorum, so what was voted for before was not chosen, and will not be.
    fn counts(&self, position: Slot, round: Round) -> bool {
        let position = StripePosition::of_part(position);
        !self.0.iter().any(|reserved| {
            reserved.round > round && reserved.start <= position && position < reserved.end
        })
    }

    /// It was skipped. But a deposed leader may have proposed something there itself, which a later
    /// one has skipped: it cannot know.
    fn is_noop_without_votes(&self, round: Round) -> bool {
        !self.0.iter().any(|reserved| reserved.round > round)
    }

    fn unused_from(&self) -> Slot {
        let ends = self.0.iter().map(|reserved| reserved.end);
        ends.max().unwrap_or_default().in_part()
    }

    fn left_out(start: Slot, end: Slot, values: &BTreeMap<Slot, Value>) -> Vec<(Slot, Slot)> {
        long_runs(start, end, values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn reserved(round: u64, start: u64, end: u64) -> Reserved {
        Reserved {
            round: Round(round),
            start: StripePosition(start),
            end: StripePosition(end),
        }
    }

    /// A leader of a later round than a vote's may have told replicas that the slot is a noop.
    #[test]
    fn a_vote_before_a_reservation_of_a_later_round_does_not_count() {
        let mut ranges = ReservedRanges::default();
        assert_eq!(ranges.unused_from(), Slot(0));
        ranges.add(vec![reserved(4, 1, 3), reserved(2, 7, 9)]);
        let counts = |position, round| ranges.counts(Slot(position), Round(round));
        assert!(counts(0, 2) && counts(3, 2), "neither was reserved");
        assert!(!counts(1, 2) && !counts(2, 3));
        assert!(
            counts(2, 4) && counts(2, 5),
            "its own vote, and a later one"
        );
        assert_eq!(ranges.unused_from(), Slot(9));
        assert!(ranges.is_noop_without_votes(Round(4)));
        assert!(!ranges.is_noop_without_votes(Round(3)), "deposed");
    }

    #[test]
    fn a_reservation_that_comes_with_each_page_is_kept_once() {
        let mut ranges = ReservedRanges::default();
        for _ in 0..50 {
            ranges.add(vec![reserved(4, 100, 200), reserved(4, 300, 400)]);
        }
        assert_eq!(ranges.0, [reserved(4, 100, 200), reserved(4, 300, 400)]);
    }
}
