//! The slots that a leader may skip at will.
//!
//! A skip is learned from the leader alone, without a vote: whoever has heard of it takes the slot for a noop at once
//! (simple consensus, Mencius 4.2). It must therefore never happen that another leader of the stripe puts a command
//! into that slot. The paper gives that right to one server for ever; here it passes on, so that a stripe survives its
//! leader, and the right to a slot is what is *reserved*: a write quorum of acceptors knows that everything below a
//! position may have been skipped. A later leader of the stripe asks a read quorum before it does anything, hears of
//! the reservation from an acceptor of both, and begins above it; of the slots below, without votes, it can make only
//! noops. Reservations are made in large blocks ahead of need, so nobody ever waits for one but a new leader.

use ionian_kernel::id::*;
use ionian_kernel::quorum::QuorumSystem;
use ionian_kernel::time::{Duration, Instant};

/// See the top of this file. Positions are those of one stripe.
#[derive(Default)]
pub(super) struct Reservation {
    /// A write quorum knows that everything below may be skipped.
    granted: Slot,
    asked: Option<Asked>,
}

struct Asked {
    below: Slot,
    answered: AcceptorSet,
    ask_at: Instant,
}

impl Reservation {
    /// Positions below this one can be skipped.
    pub(super) fn granted(&self) -> Slot {
        self.granted
    }

    /// Wants to be able to skip everything below `needed`: what to ask the acceptors for, if it is time to. So much
    /// more is asked for that the next time is far off.
    pub(super) fn want(&mut self, now: Instant, needed: Slot, ahead: u64, resend_after: Duration) -> Option<Slot> {
        let enough = self.asked.as_ref().map_or(self.granted, |asked| asked.below);
        if needed.plus(ahead / 2) < enough {
            return None;
        }
        let below = needed.plus(ahead);
        self.asked = Some(Asked { below, answered: AcceptorSet::EMPTY, ask_at: now + resend_after });
        Some(below)
    }

    /// An acceptor knows that everything below `below` may be skipped; true when that makes a write quorum.
    pub(super) fn on_reserved(&mut self, from: AcceptorId, below: Slot, quorums: &QuorumSystem) -> bool {
        let Some(asked) = self.asked.as_mut().filter(|asked| asked.below == below) else { return false };
        asked.answered.insert(from);
        let granted = quorums.is_write_quorum(asked.answered);
        if granted {
            self.granted = below;
            self.asked = None;
        }
        granted
    }

    /// What to ask again, of whom: of those that have not answered in time.
    pub(super) fn overdue(&mut self, now: Instant, all: AcceptorSet, after: Duration) -> Option<(AcceptorSet, Slot)> {
        let asked = self.asked.as_mut().filter(|asked| asked.ask_at <= now)?;
        asked.ask_at = now + after;
        Some((all.without(asked.answered), asked.below))
    }

    pub(super) fn next_timer(&self) -> Option<Instant> {
        self.asked.as_ref().map(|asked| asked.ask_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ionian_kernel::quorum::QuorumSpec;

    #[test]
    fn only_a_write_quorum_grants_and_more_is_asked_for_in_time() {
        let quorums = QuorumSystem::new(QuorumSpec::Majority, AcceptorSet::first(3), 1).unwrap();
        let (mut reservation, after) = (Reservation::default(), Duration::from_millis(1));
        assert_eq!(reservation.want(Instant(0), Slot(5), 100, after), Some(Slot(105)));
        assert_eq!(reservation.want(Instant(0), Slot(6), 100, after), None, "it is on its way");
        assert!(!reservation.on_reserved(AcceptorId(0), Slot(105), &quorums));
        assert!(!reservation.on_reserved(AcceptorId(0), Slot(105), &quorums), "the same one again");
        assert!(!reservation.on_reserved(AcceptorId(1), Slot(99), &quorums), "of something else");
        assert_eq!(reservation.granted(), Slot(0));
        let again = reservation.overdue(Instant(1000), AcceptorSet::first(3), after);
        assert_eq!(again, Some((Set::from_bits(0b110), Slot(105))));
        assert!(reservation.on_reserved(AcceptorId(2), Slot(105), &quorums));
        assert_eq!((reservation.granted(), reservation.next_timer()), (Slot(105), None));
        assert_eq!(reservation.want(Instant(0), Slot(54), 100, after), None);
        assert_eq!(reservation.want(Instant(0), Slot(55), 100, after), Some(Slot(155)));
    }
}
