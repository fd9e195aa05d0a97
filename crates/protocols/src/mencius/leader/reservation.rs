//! The slots that a leader may skip at will.
//!
//! A skip is learned from the leader alone, without a vote: a replica that has heard of it takes
//! the slot for a noop at once (simple consensus, Mencius 4.2). It must therefore never happen that
//! another leader of the stripe puts a command into that slot. The paper gives that right to one
//! server permanently; here it passes on, so that a stripe survives its leader, and the right to a
//! slot is what is *reserved*: a write quorum of acceptors knows that everything below a position
//! may have been skipped. A later leader of the stripe asks a read quorum before it does anything,
//! hears of the reservation from an acceptor of both, and begins above it; of the slots below,
//! without votes, it can make only noops. Reservations are made in large blocks ahead of need, so
//! leaders rarely wait for one.

use crate::mencius::stripe::StripePosition;
use ionian_kernel::id::*;
use ionian_kernel::small_map::SmallMap;
use ionian_kernel::time::{Duration, Instant};
use ionian_replication::quorum::QuorumSystem;

/// The least and the most positions that are reserved beyond those that are needed. A
/// range costs the same at any length. With a short one, a new leader's clients block together and
/// stay synchronized.
const LEAST_AHEAD: u64 = 256;
const MOST_AHEAD: u64 = 1 << 20;

/// This multiple of what is used in a round trip is reserved ahead, and more is asked for when half
/// of it is left. That is four round trips' worth where one would do for commands that come evenly:
/// clients that wait for answers come all at once, every two round trips, and all that they ask for
/// is used in an instant.
const ROUND_TRIPS_AHEAD: u64 = 8;

/// See the top of this file. Positions are those of one stripe.
#[derive(Default)]
pub(super) struct Reservation {
    /// A write quorum knows that everything below may be skipped.
    granted: StripePosition,
    /// Everything below has been asked for.
    asked: StripePosition,
    /// How far each acceptor knows. The end of a round's reservations only grows, and its start
    /// stays: an acceptor that has noted one has noted all that end earlier, so an answer to an
    /// earlier question counts too.
    noted: SmallMap<AcceptorId, StripePosition>,
    ask_at: Option<Instant>,
    /// What is observed to learn how many positions are used in a round trip.
    observed: Option<Observed>,
    /// How many were used in one lately, on average from one question to the next: commands come in
    /// bursts. It falls by no more than half at a time.
    pace: u64,
}

/// A question, until the next one after its answer.
struct Observed {
    below: StripePosition,
    at: Instant,
    /// The position that the stripe was to go on at when it was asked.
    index: StripePosition,
    round_trip: Option<Duration>,
}

impl Observed {
    /// How many positions are used in a round trip; none when there was no answer yet.
    fn pace(&self, now: Instant, index: StripePosition) -> Option<u64> {
        let (used, round_trip) = (
            index.distance(self.index),
            self.round_trip?.as_micros() as u64,
        );
        let passed = (now.since(self.at).as_micros() as u64).max(round_trip);
        Some(
            used.saturating_mul(round_trip)
                .checked_div(passed)
                .unwrap_or(used),
        )
    }
}

impl Reservation {
    /// Positions below this one can be skipped.
    pub(super) fn granted(&self) -> StripePosition {
        self.granted
    }

    /// Wants to be able to skip everything below `needed`, while all stripes are used up to
    /// `index`: what to ask the acceptors for, if it is time to. So much more is asked for that
    /// no command has to wait for the next answer.
    pub(super) fn want(
        &mut self,
        now: Instant,
        needed: StripePosition,
        index: StripePosition,
        resend_after: Duration,
    ) -> Option<StripePosition> {
        let ahead = (ROUND_TRIPS_AHEAD * self.pace).clamp(LEAST_AHEAD, MOST_AHEAD);
        if needed.plus(ahead / 2) < self.asked {
            return None;
        }
        if let Some(pace) = self
            .observed
            .as_ref()
            .and_then(|observed| observed.pace(now, index))
        {
            self.pace = pace.max(self.pace / 2);
            self.observed = None;
        }
        let ahead = (ROUND_TRIPS_AHEAD * self.pace).clamp(LEAST_AHEAD, MOST_AHEAD);
        self.asked = self.asked.max(needed.plus(ahead));
        self.ask_at = Some(now + resend_after);
        self.observed.get_or_insert(Observed {
            below: self.asked,
            at: now,
            index,
            round_trip: None,
        });
        Some(self.asked)
    }

    /// An acceptor knows that everything below `below` may be skipped: up to where that lets this
    /// leader skip, if it is further than before.
    pub(super) fn on_reserved(
        &mut self,
        now: Instant,
        from: AcceptorId,
        below: StripePosition,
        quorums: &QuorumSystem,
    ) -> Option<StripePosition> {
        if below > self.asked {
            return None;
        }
        let noted = self.noted.entry(from).or_default();
        *noted = below.max(*noted);
        let known_to = |below: StripePosition| self.those(|noted| noted >= below);
        let granted = self
            .noted
            .values()
            .copied()
            .filter(|below| quorums.is_write_quorum(known_to(*below)))
            .max()?;
        if granted <= self.granted {
            return None;
        }
        self.granted = granted;
        if granted == self.asked {
            self.ask_at = None;
        }
        if let Some(observed) = self
            .observed
            .as_mut()
            .filter(|observed| observed.below <= granted)
        {
            observed.round_trip.get_or_insert(now.since(observed.at));
        }
        Some(granted)
    }

    /// What to ask again, of whom: of those that have not answered in time.
    pub(super) fn overdue(
        &mut self,
        now: Instant,
        all: AcceptorSet,
        after: Duration,
    ) -> Option<(AcceptorSet, StripePosition)> {
        self.ask_at.filter(|at| *at <= now)?;
        self.ask_at = Some(now + after);
        Some((
            all.without(self.those(|noted| noted == self.asked)),
            self.asked,
        ))
    }

    /// The acceptors that know so much.
    fn those(&self, is_it: impl Fn(StripePosition) -> bool) -> AcceptorSet {
        self.noted
            .iter()
            .filter(|(_, noted)| is_it(**noted))
            .map(|(acceptor, _)| *acceptor)
            .collect()
    }

    pub(super) fn next_timer(&self) -> Option<Instant> {
        self.ask_at
    }

    /// Asserts what must hold between two calls.
    pub(super) fn invariants(&self) {
        assert!(
            self.granted <= self.asked,
            "a leader may skip more than it has asked for"
        );
        assert!(
            self.granted == self.asked || self.ask_at.is_some(),
            "a reservation is not asked for again"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ionian_kernel::quorum_spec::QuorumSpec;

    const AFTER: Duration = Duration::from_millis(1);

    const NOW: Instant = Instant(0);

    fn majority() -> QuorumSystem {
        QuorumSystem::new(QuorumSpec::Majority, AcceptorSet::first(3), 1).unwrap()
    }

    #[test]
    fn only_a_write_quorum_grants_and_more_is_asked_for_in_time() {
        let (quorums, mut reservation) = (majority(), Reservation::default());
        assert_eq!(
            reservation.want(NOW, StripePosition(5), StripePosition(5), AFTER),
            Some(StripePosition(261))
        );
        assert_eq!(
            reservation.want(NOW, StripePosition(6), StripePosition(6), AFTER),
            None,
            "it is on its way"
        );
        assert_eq!(
            reservation.on_reserved(NOW, AcceptorId(0), StripePosition(261), &quorums),
            None
        );
        assert_eq!(
            reservation.on_reserved(NOW, AcceptorId(0), StripePosition(261), &quorums),
            None,
            "the same one again"
        );
        assert_eq!(
            reservation.on_reserved(NOW, AcceptorId(1), StripePosition(999), &quorums),
            None,
            "that was not asked for"
        );
        assert_eq!(reservation.granted(), StripePosition(0));
        let again = reservation.overdue(Instant(1000), AcceptorSet::first(3), AFTER);
        assert_eq!(again, Some((Set::from_bits(0b110), StripePosition(261))));
        assert_eq!(
            reservation.on_reserved(NOW, AcceptorId(2), StripePosition(261), &quorums),
            Some(StripePosition(261))
        );
        assert_eq!(
            (reservation.granted(), reservation.next_timer()),
            (StripePosition(261), None)
        );
        assert_eq!(
            reservation.want(NOW, StripePosition(132), StripePosition(5), AFTER),
            None
        );
        assert_eq!(
            reservation.want(NOW, StripePosition(133), StripePosition(5), AFTER),
            Some(StripePosition(389))
        );
    }

    #[test]
    fn answers_that_were_overtaken_count_for_what_they_say() {
        let (quorums, mut reservation) = (majority(), Reservation::default());
        assert_eq!(
            reservation.want(NOW, StripePosition(0), StripePosition(0), AFTER),
            Some(StripePosition(256))
        );
        assert_eq!(
            reservation.want(NOW, StripePosition(200), StripePosition(200), AFTER),
            Some(StripePosition(456))
        );
        assert_eq!(
            reservation.on_reserved(NOW, AcceptorId(0), StripePosition(456), &quorums),
            None
        );
        assert_eq!(
            reservation.on_reserved(NOW, AcceptorId(1), StripePosition(256), &quorums),
            Some(StripePosition(256)),
            "both know so much"
        );
        assert!(
            reservation.next_timer().is_some(),
            "the rest is yet to come"
        );
        assert_eq!(
            reservation.on_reserved(NOW, AcceptorId(1), StripePosition(456), &quorums),
            Some(StripePosition(456))
        );
    }

    #[test]
    fn what_is_used_in_a_round_trip_decides_how_much_is_reserved() {
        let (quorums, mut reservation) = (majority(), Reservation::default());
        // Asks at these milliseconds; the answers come a millisecond later.
        let mut asks = |at: u64, needed: u64| {
            let (asked_at, answered_at) = (Instant(1000 * at), Instant(1000 * at + 1000));
            let asked = reservation.want(
                asked_at,
                StripePosition(needed),
                StripePosition(needed),
                AFTER,
            )?;
            for acceptor in [0, 1] {
                reservation.on_reserved(answered_at, AcceptorId(acceptor), asked, &quorums);
            }
            Some(asked.0)
        };
        assert_eq!(asks(0, 0), Some(256));
        // All 256 were used in the time that the answer took: eight times as many from there on.
        assert_eq!(asks(1, 256), Some(256 + 8 * 256));
        assert_eq!(asks(2, 1000), None, "less than half is used");
        // 1536 in three round trips are 512 in each.
        assert_eq!(asks(4, 1792), Some(1792 + 8 * 512));
        // It falls by no more than half at a time.
        assert_eq!(asks(14, 3840), Some(3840 + 8 * 256));
    }
}
