//! What is chosen, on its way to the replicas beside acceptors that were asked through relays
//! (PigPaxos 2.1, "phase 3").
//!
//! A proxy leader names slots of the round of its present request: an acceptor that voted in that
//! round has the value that was chosen. A vote of another round may be for another value: an
//! acceptor must not hand it to replicas as chosen.

use super::message::{MAX_CHOSEN, Run};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use ionian_kernel::id::{ReplicaId, Round, Slot};
use ionian_kernel::time::{Duration, Instant};

/// Slots that a proxy leader knows to be chosen and has not told yet.
#[derive(Default)]
pub(crate) struct Untold {
    round: Round,
    runs: Vec<Run>,
    slots: u64,
    since: Instant,
}

impl Untold {
    /// A value of `round` is chosen in a slot. What was chosen in an earlier round and not told is
    /// dropped: replicas find it missing and ask for it.
    pub(crate) fn add(&mut self, now: Instant, round: Round, slot: Slot, replier: ReplicaId) {
        if round != self.round {
            *self = Untold {
                round,
                ..Untold::default()
            };
        }
        if self.runs.is_empty() {
            self.since = now;
        }
        if self.slots >= MAX_CHOSEN {
            return;
        }
        self.slots += 1;
        if let Some(last) = self.runs.last_mut()
            && last.replier == replier
            && last.start.plus(last.count) == slot
        {
            last.count += 1;
            return;
        }
        let (start, count) = (slot, 1);
        self.runs.push(Run {
            start,
            count,
            replier,
        });
    }

    /// What can be told with a request of `round`.
    pub(crate) fn take(&mut self, round: Round) -> Box<[Run]> {
        if round != self.round {
            return Box::default();
        }
        self.slots = 0;
        core::mem::take(&mut self.runs).into_boxed_slice()
    }

    /// The round of what is untold.
    pub(crate) fn round(&self) -> Round {
        self.round
    }

    /// When it must be sent at the latest.
    pub(crate) fn due(&self, delay: Duration) -> Option<Instant> {
        (!self.runs.is_empty()).then(|| self.since + delay)
    }
}

/// Slots that an acceptor knows to be chosen and in which it has not voted: the request is on its
/// way by another relay.
#[derive(Default)]
pub(crate) struct Early(BTreeMap<Slot, (Round, ReplicaId)>);

/// The most slots noted. Of others the replicas ask their peers.
const MAX_EARLY: usize = 1 << 12;

impl Early {
    /// Notes that the value of `round` is chosen in a slot.
    pub(crate) fn add(&mut self, slot: Slot, round: Round, replier: ReplicaId) {
        self.0.insert(slot, (round, replier));
        if self.0.len() > MAX_EARLY {
            self.0.pop_first();
        }
    }

    /// The acceptor votes in this slot and round: the replica that answers the clients, if the
    /// value is known to be chosen.
    pub(crate) fn voted(&mut self, slot: Slot, round: Round) -> Option<ReplicaId> {
        // As most often.
        if self.0.is_empty() {
            return None;
        }
        let (chosen, replier) = self.0.remove(&slot)?;
        (chosen == round).then_some(replier)
    }
}

/// The slots of these runs, each with the replica that answers, up to a limit: a damaged message
/// may name any number.
pub(crate) fn slots(runs: &[Run]) -> impl Iterator<Item = (Slot, ReplicaId)> {
    let each = runs.iter().flat_map(|run| {
        let slots = run.start.until(run.start.plus(run.count));
        slots.map(|slot| (slot, run.replier))
    });
    each.take(MAX_CHOSEN as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ionian_kernel::id::{Epoch, LeaderId};

    fn round(count: u64) -> Round {
        Round::new(Epoch(0), count, LeaderId(0))
    }

    fn run(start: u64, count: u64, replier: u8) -> Run {
        Run {
            start: Slot(start),
            count,
            replier: ReplicaId(replier),
        }
    }

    #[test]
    fn slots_in_a_row_with_one_replier_are_one_run() {
        let mut untold = Untold::default();
        for (slot, replier) in [(5, 0), (6, 0), (7, 1), (9, 1)] {
            untold.add(Instant(3), round(1), Slot(slot), ReplicaId(replier));
        }
        assert_eq!(untold.due(Duration::from_micros(4)), Some(Instant(7)));
        assert_eq!(*untold.take(round(2)), [], "of another round");
        let runs = untold.take(round(1));
        assert_eq!(*runs, [run(5, 2, 0), run(7, 1, 1), run(9, 1, 1)]);
        let of_runs: Vec<_> = slots(&runs).map(|(slot, _)| slot.0).collect();
        assert_eq!(of_runs, [5, 6, 7, 9]);
        assert_eq!(
            (untold.take(round(1)), untold.due(Duration::ZERO)),
            (Box::default(), None)
        );
    }

    #[test]
    fn a_new_round_drops_what_the_one_before_has_not_told() {
        let mut untold = Untold::default();
        untold.add(Instant(3), round(1), Slot(5), ReplicaId(0));
        untold.add(Instant(4), round(2), Slot(6), ReplicaId(0));
        assert_eq!(*untold.take(round(2)), [run(6, 1, 0)]);
    }

    #[test]
    fn a_run_without_end_is_cut_off() {
        assert_eq!(slots(&[run(1, u64::MAX, 0)]).count() as u64, MAX_CHOSEN);
    }

    #[test]
    fn what_was_chosen_early_is_known_by_slot_and_round_and_bounded() {
        let mut early = Early::default();
        early.add(Slot(4), round(1), ReplicaId(1));
        assert_eq!(early.voted(Slot(3), round(1)), None);
        assert_eq!(early.voted(Slot(4), round(1)), Some(ReplicaId(1)));
        assert_eq!(early.voted(Slot(4), round(1)), None, "it is handed on once");
        early.add(Slot(4), round(1), ReplicaId(1));
        assert_eq!(early.voted(Slot(4), round(2)), None, "another round");
        for slot in 0..2 * MAX_EARLY as u64 {
            early.add(Slot(slot), round(1), ReplicaId(1));
        }
        assert_eq!(early.0.len(), MAX_EARLY);
    }
}
