//! Skipping what earlier leaders of a stripe left below the watermark (`long_runs.rs`
//! finds it). Each run is reserved by itself: between them is what phase 1 has found, which may be
//! chosen, and which no reservation may cover.

use crate::mencius::stripe::StripePosition;
use alloc::vec::Vec;
use ionian_kernel::id::*;
use ionian_kernel::time::{Duration, Instant};
use ionian_replication::backoff::doubled;
use ionian_replication::quorum::QuorumSystem;

/// The retry interval doubles at most this often.
const MOST_DOUBLINGS: u32 = 5;

/// The gaps of one stripe, in the round in which this leader leads.
#[derive(Default)]
pub(super) struct Gaps {
    gaps: Vec<Gap>,
    /// When those that are not reserved yet are asked for.
    ask_at: Option<Instant>,
    attempts: u32,
}

struct Gap {
    start: StripePosition,
    end: StripePosition,
    /// The acceptors that have noted its reservation.
    noted: AcceptorSet,
    /// Whether they are a write quorum.
    granted: bool,
}

impl Gaps {
    /// Those with these first positions and positions after the last, as the part of the stripe
    /// names them. They are to be asked for at once.
    pub(super) fn new(now: Instant, gaps: &[(Slot, Slot)]) -> Self {
        let gap = |(start, end): &(Slot, Slot)| Gap {
            start: StripePosition::of_part(*start),
            end: StripePosition::of_part(*end),
            noted: Set::EMPTY,
            granted: false,
        };
        let ask_at = (!gaps.is_empty()).then_some(now);
        Gaps {
            gaps: gaps.iter().map(gap).collect(),
            ask_at,
            attempts: 0,
        }
    }

    /// The end of the gap that this position is in, and whether all positions up to there may be
    /// skipped.
    pub(super) fn around(&self, position: StripePosition) -> Option<(StripePosition, bool)> {
        let gap = self
            .gaps
            .iter()
            .find(|gap| gap.start <= position && position < gap.end)?;
        Some((gap.end, gap.granted))
    }

    /// Whether these positions are a gap.
    pub(super) fn has(&self, start: StripePosition, end: StripePosition) -> bool {
        self.gaps
            .iter()
            .any(|gap| (gap.start, gap.end) == (start, end))
    }

    /// An acceptor has noted that this gap may be skipped: true when that makes it so.
    pub(super) fn on_reserved(
        &mut self,
        from: AcceptorId,
        start: StripePosition,
        quorums: &QuorumSystem,
    ) -> bool {
        let Some(gap) = self.gaps.iter_mut().find(|gap| gap.start == start) else {
            return false;
        };
        gap.noted.insert(from);
        let is_new = !gap.granted && quorums.is_write_quorum(gap.noted);
        gap.granted |= is_new;
        if self.gaps.iter().all(|gap| gap.granted) {
            self.ask_at = None;
        }
        is_new
    }

    /// If it is time to ask: the gaps that may not be skipped yet, each with those of `all` that
    /// have not noted it.
    pub(super) fn overdue(
        &mut self,
        now: Instant,
        all: AcceptorSet,
        after: Duration,
    ) -> Vec<(StripePosition, StripePosition, AcceptorSet)> {
        if self.ask_at.is_none_or(|at| at > now) {
            return Vec::new();
        }
        self.ask_at = Some(now + doubled(after, self.attempts, MOST_DOUBLINGS));
        self.attempts += 1;
        let asked = self.gaps.iter().filter(|gap| !gap.granted);
        asked
            .map(|gap| (gap.start, gap.end, all.without(gap.noted)))
            .collect()
    }

    pub(super) fn next_timer(&self) -> Option<Instant> {
        self.ask_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use ionian_kernel::quorum_spec::QuorumSpec;

    const AFTER: Duration = Duration::from_millis(1);

    #[test]
    fn each_gap_needs_a_write_quorum_and_is_asked_for_until_it_has_one() {
        let (all, quorums) = (
            AcceptorSet::first(3),
            QuorumSystem::new(QuorumSpec::Majority, AcceptorSet::first(3), 1),
        );
        let quorums = quorums.unwrap();
        let mut gaps = Gaps::new(Instant(0), &[(Slot(5), Slot(90)), (Slot(91), Slot(300))]);
        let asked = gaps.overdue(Instant(0), all, AFTER);
        assert_eq!(
            asked,
            [
                (StripePosition(5), StripePosition(90), all),
                (StripePosition(91), StripePosition(300), all)
            ]
        );
        assert_eq!(gaps.overdue(Instant(999), all, AFTER), []);
        assert!(!gaps.on_reserved(AcceptorId(0), StripePosition(5), &quorums));
        assert!(
            !gaps.on_reserved(AcceptorId(0), StripePosition(5), &quorums),
            "the same one again"
        );
        assert!(
            !gaps.on_reserved(AcceptorId(1), StripePosition(91), &quorums),
            "that of another gap"
        );
        assert!(
            !gaps.on_reserved(AcceptorId(1), StripePosition(6), &quorums),
            "that was not asked for"
        );
        assert!(gaps.on_reserved(AcceptorId(2), StripePosition(5), &quorums));
        assert!(
            !gaps.on_reserved(AcceptorId(1), StripePosition(5), &quorums),
            "it is known"
        );
        let around = |gaps: &Gaps, position| {
            gaps.around(StripePosition(position))
                .map(|(end, granted)| (end.0, granted))
        };
        assert_eq!(
            [4, 5, 89, 90, 91, 299, 300].map(|position| around(&gaps, position)),
            [
                None,
                Some((90, true)),
                Some((90, true)),
                None,
                Some((300, false)),
                Some((300, false)),
                None
            ]
        );
        let missing = Set::from_bits(0b101);
        assert_eq!(
            gaps.overdue(Instant(1000), all, AFTER),
            [(StripePosition(91), StripePosition(300), missing)]
        );
        // The wait doubles.
        assert_eq!(gaps.next_timer(), Some(Instant(3000)));
        assert!(gaps.on_reserved(AcceptorId(0), StripePosition(91), &quorums));
        assert_eq!(
            (gaps.next_timer(), gaps.overdue(Instant(9000), all, AFTER)),
            (None, vec![])
        );
    }
}
