//! How far the replicas are, as they have told this leader.

use crate::multipaxos::config::Config;
use crate::parts::acceptor::MAX_VOTES;
use alloc::vec::Vec;
use ionian_kernel::id::*;

/// One entry a replica.
pub(crate) struct Progress {
    /// Replicas of which f+1 must keep what acceptors forget, with their f: of each configuration
    /// in force.
    keepers: Vec<(Set<ReplicaId>, usize)>,
    /// How far any has executed.
    executed: Slot,
    /// How far each has executed that has sent a report.
    executed_by: [Option<Slot>; MAX_INSTANCES],
    /// What each keeps through a crash.
    kept: [Slot; MAX_INSTANCES],
    /// As `kept`, but only what was said since this leader's round began.
    kept_since: [Slot; MAX_INSTANCES],
}

impl Progress {
    pub(crate) fn new(config: &Config) -> Self {
        let nothing = [Slot::ZERO; MAX_INSTANCES];
        Progress {
            keepers: config.keepers.clone(),
            executed: Slot::ZERO,
            executed_by: [None; MAX_INSTANCES],
            kept: nothing,
            kept_since: nothing,
        }
    }

    /// The membership has changed. Who is not a member any more has nothing to say, and a later one
    /// of the same number begins anew.
    pub(crate) fn reconfigure(&mut self, config: &Config) {
        self.keepers = config.keepers.clone();
        for index in (0..MAX_INSTANCES)
            .filter(|index| !config.replicas().contains(ReplicaId(*index as Index)))
        {
            (self.kept[index], self.kept_since[index]) = (Slot::ZERO, Slot::ZERO);
            self.executed_by[index] = None;
        }
    }

    /// A round begins. A replica that reports with it has heard of it, so it speaks of what it has
    /// kept since: what it said before may be lost with the process that said it.
    pub(crate) fn begin_round(&mut self) {
        self.kept_since.fill(Slot::ZERO);
    }

    /// Takes a report in; `current` when its sender had heard of this leader's round.
    pub(crate) fn report(&mut self, from: ReplicaId, executed: Slot, kept: Slot, current: bool) {
        let raise = |slots: &mut [Slot], slot: Slot| {
            if let Some(known) = slots.get_mut(usize::from(from.0)) {
                *known = (*known).max(slot);
            }
        };
        if let Some(known) = self.executed_by.get_mut(usize::from(from.0)) {
            *known = Some(executed);
            self.executed = self.executed.max(executed);
        }
        raise(&mut self.kept, kept);
        if current {
            raise(&mut self.kept_since, kept);
        }
    }

    /// The slots below this one are executed by some replica.
    pub(super) fn executed(&self) -> Slot {
        self.executed
    }

    /// The slots below this one are kept by f+1 replicas: acceptors can forget them.
    pub(super) fn kept(&self) -> Slot {
        self.by_enough(&self.kept)
    }

    /// The slots below this one are kept by f+1 replicas that have said so in this round.
    pub(super) fn kept_since(&self) -> Slot {
        self.by_enough(&self.kept_since)
    }

    /// Whether f+1 replicas of each configuration keep nearly as much as any has executed. A new
    /// acceptor votes in a window above what they keep: if they were further behind, a round that
    /// needs its vote could choose nothing until they have the state.
    pub(super) fn are_within_reach(&self) -> bool {
        self.executed.0.saturating_sub(self.kept().0) <= MAX_VOTES as u64 / 2
    }

    /// Whether each replica that the change under way adds has executed as much as any, but for
    /// `slack`.
    pub(super) fn added_have_caught_up(&self, slack: usize) -> bool {
        self.added().iter().all(|replica| {
            let executed = self.executed_by[usize::from(replica.0)];
            executed.is_some_and(|executed| self.executed.distance(executed) <= slack as u64)
        })
    }

    /// The replicas that the change under way adds.
    fn added(&self) -> Set<ReplicaId> {
        let (first, last) = (self.keepers.first(), self.keepers.last());
        let both = first.zip(last);
        both.map_or(Set::EMPTY, |(before, after)| after.0.without(before.0))
    }

    /// Whether the replicas of the configuration that the cluster changes into keep everything
    /// below `frontier`: enough of them, and each that is new, so that clients can be sent to it.
    pub(crate) fn is_handed_over(&self, frontier: Slot) -> bool {
        let Some(after) = self.keepers.last() else {
            return false;
        };
        let kept = self
            .added()
            .iter()
            .all(|replica| self.kept_since[usize::from(replica.0)] >= frontier);
        kept && by_enough(&self.kept_since, *after) >= frontier
    }

    fn by_enough(&self, slots: &[Slot]) -> Slot {
        self.keepers
            .iter()
            .map(|keepers| by_enough(slots, *keepers))
            .min()
            .unwrap_or_default()
    }
}

/// What f+1 of `replicas` have at least.
fn by_enough(slots: &[Slot], (replicas, f): (Set<ReplicaId>, usize)) -> Slot {
    let mut found = [Slot::ZERO; MAX_INSTANCES];
    let places = found.iter_mut().zip(replicas.iter());
    let count = places
        .map(|(place, replica)| *place = slots[usize::from(replica.0)])
        .count();
    let found = &mut found[..count];
    found.sort_unstable_by(|a, b| b.cmp(a));
    found.get(f).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(keepers: &[(usize, usize)]) -> Progress {
        let keepers = keepers
            .iter()
            .map(|(count, f)| (Set::first(*count), *f))
            .collect();
        let nothing = [Slot::ZERO; MAX_INSTANCES];
        Progress {
            keepers,
            executed: Slot::ZERO,
            executed_by: [None; MAX_INSTANCES],
            kept: nothing,
            kept_since: nothing,
        }
    }

    #[test]
    fn an_added_replica_has_caught_up_when_it_says_that_it_is_near() {
        let mut progress = progress(&[(2, 1), (3, 1)]);
        assert!(!progress.added_have_caught_up(5), "it has said nothing");
        let mut report = |replica, executed| {
            progress.report(ReplicaId(replica), Slot(executed), Slot(0), true);
            progress.added_have_caught_up(5)
        };
        assert!(report(2, 0));
        assert!(!report(0, 6));
        assert!(report(2, 1));
    }

    #[test]
    fn a_change_needs_enough_of_the_new_replicas_and_every_one_that_is_added() {
        let mut progress = progress(&[(2, 1), (3, 1)]);
        for (replica, kept) in [(0, 9), (1, 9)] {
            progress.report(ReplicaId(replica), Slot(9), Slot(kept), true);
        }
        assert!(!progress.is_handed_over(Slot(5)));
        progress.report(ReplicaId(2), Slot(9), Slot(4), true);
        assert!(!progress.is_handed_over(Slot(5)) && progress.is_handed_over(Slot(4)));
    }

    #[test]
    fn f_plus_one_replicas_decide_what_is_kept() {
        let mut progress = progress(&[(3, 1)]);
        progress.report(ReplicaId(0), Slot(9), Slot(9), true);
        assert_eq!((progress.executed(), progress.kept()), (Slot(9), Slot(0)));
        progress.report(ReplicaId(2), Slot(7), Slot(5), true);
        progress.report(ReplicaId(2), Slot(6), Slot(4), true);
        progress.report(ReplicaId(77), Slot(99), Slot(99), true);
        assert_eq!(
            (progress.executed(), progress.kept(), progress.kept_since()),
            (Slot(9), Slot(5), Slot(5))
        );
        progress.begin_round();
        progress.report(ReplicaId(2), Slot(8), Slot(8), false);
        assert_eq!((progress.kept(), progress.kept_since()), (Slot(8), Slot(0)));
    }
}
