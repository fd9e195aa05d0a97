//! How far the replicas are, as they have told this leader.

use alloc::vec;
use alloc::vec::Vec;
use ionian_kernel::id::*;

/// One entry a replica.
pub(super) struct Progress {
    f: usize,
    /// How far each has executed.
    executed: Vec<Slot>,
    /// What each keeps through a crash.
    kept: Vec<Slot>,
    /// As `kept`, but only what was said since this leader's round began.
    kept_since: Vec<Slot>,
}

impl Progress {
    pub(super) fn new(replicas: usize, f: usize) -> Self {
        Progress {
            f,
            executed: vec![Slot::ZERO; replicas],
            kept: vec![Slot::ZERO; replicas],
            kept_since: vec![Slot::ZERO; replicas],
        }
    }

    /// A round begins. A replica that reports with it has heard of it, so it speaks of what it has kept
    /// since: what it said before may be lost with the process that said it.
    pub(super) fn begin_round(&mut self) {
        self.kept_since.fill(Slot::ZERO);
    }

    /// Takes a report in; `current` when its sender had heard of this leader's round.
    pub(super) fn report(&mut self, from: ReplicaId, executed: Slot, kept: Slot, current: bool) {
        let raise = |slots: &mut Vec<Slot>, slot: Slot| {
            if let Some(known) = slots.get_mut(usize::from(from.0)) {
                *known = (*known).max(slot);
            }
        };
        raise(&mut self.executed, executed);
        raise(&mut self.kept, kept);
        if current {
            raise(&mut self.kept_since, kept);
        }
    }

    /// The slots below this one are executed by some replica.
    pub(super) fn executed(&self) -> Slot {
        self.executed.iter().copied().max().unwrap_or_default()
    }

    /// The slots below this one are kept by f+1 replicas: acceptors can forget them.
    pub(super) fn kept(&self) -> Slot {
        self.by_enough(&self.kept)
    }

    /// The slots below this one are kept by f+1 replicas that have said so in this round.
    pub(super) fn kept_since(&self) -> Slot {
        self.by_enough(&self.kept_since)
    }

    fn by_enough(&self, slots: &[Slot]) -> Slot {
        let mut slots = slots.to_vec();
        slots.sort_unstable_by(|a, b| b.cmp(a));
        slots.get(self.f).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f_plus_one_replicas_decide_what_is_kept() {
        let mut progress = Progress::new(3, 1);
        progress.report(ReplicaId(0), Slot(9), Slot(9), true);
        assert_eq!((progress.executed(), progress.kept()), (Slot(9), Slot(0)));
        progress.report(ReplicaId(2), Slot(7), Slot(5), true);
        progress.report(ReplicaId(2), Slot(6), Slot(4), true);
        progress.report(ReplicaId(77), Slot(99), Slot(99), true);
        assert_eq!((progress.executed(), progress.kept(), progress.kept_since()), (Slot(9), Slot(5), Slot(5)));
        progress.begin_round();
        progress.report(ReplicaId(2), Slot(8), Slot(8), false);
        assert_eq!((progress.kept(), progress.kept_since()), (Slot(8), Slot(0)));
    }
}
