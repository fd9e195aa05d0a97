//! Who has yet to be told of which skipped slots.
//!
//! A replica beside the leader whose proposal made this one skip learns of it at once, together
//! with the vote for that proposal: the proposer waits for it (Mencius 4.4, Optimization 1). All
//! others learn of it when this leader proposes something itself (Optimization 2), or when many
//! slots or some time have come together (Accelerator 1). A range is one message, whatever its
//! length.

use crate::mencius::stripe::{Stripe, StripePosition};
use alloc::vec::Vec;
use ionian_kernel::id::*;
use ionian_kernel::time::Instant;

/// Skipped slots of a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) stripe: Stripe,
    /// The first position.
    pub(super) start: StripePosition,
    /// The position after the last.
    pub(super) end: StripePosition,
}

/// See the top of this file.
#[derive(Default)]
pub(super) struct Skips {
    untold: Vec<Untold>,
}

struct Untold {
    range: Range,
    whom: Set<ReplicaId>,
    since: Instant,
}

impl Skips {
    /// These slots were skipped: `whom` is to be told.
    pub(super) fn add(&mut self, now: Instant, range: Range, whom: Set<ReplicaId>) {
        let continues = |last: &&mut Untold| {
            last.range.stripe == range.stripe && last.range.end == range.start && last.whom == whom
        };
        match self
            .untold
            .iter_mut()
            .rev()
            .find(|last| last.range.stripe == range.stripe)
            .filter(continues)
        {
            Some(last) => last.range.end = range.end,
            None => self.untold.push(Untold {
                range,
                whom,
                since: now,
            }),
        }
    }

    /// These replicas alone are members now.
    pub(super) fn reconfigure(&mut self, replicas: Set<ReplicaId>) {
        self.untold.retain_mut(|untold| {
            untold.whom = untold.whom.and(replicas);
            !untold.whom.is_empty()
        });
    }

    /// Has `tell` told what `whom` has yet to be told.
    pub(super) fn tell(
        &mut self,
        whom: Set<ReplicaId>,
        mut tell: impl FnMut(Set<ReplicaId>, Range),
    ) {
        self.untold.retain_mut(|untold| {
            let now = untold.whom.and(whom);
            if !now.is_empty() {
                tell(now, untold.range);
                untold.whom = untold.whom.without(whom);
            }
            !untold.whom.is_empty()
        });
    }

    /// How many slots some replica has yet to learn of.
    pub(super) fn slots(&self) -> u64 {
        self.untold
            .iter()
            .map(|untold| untold.range.end.distance(untold.range.start))
            .sum()
    }

    /// When the oldest was skipped.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.untold.iter().map(|untold| untold.since).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_grow_together_and_each_replica_is_told_once() {
        let (mut skips, all, one) = (Skips::default(), Set::first(3), Set::one(ReplicaId(1)));
        let range = |start, end| Range {
            stripe: Stripe(2),
            start: StripePosition(start),
            end: StripePosition(end),
        };
        skips.add(Instant(5), range(0, 4), all);
        skips.add(Instant(6), range(4, 9), all);
        assert_eq!((skips.slots(), skips.oldest()), (9, Some(Instant(5))));
        let told = |skips: &mut Skips, whom| {
            let mut told = Vec::new();
            skips.tell(whom, |replicas, range| told.push((replicas, range)));
            told
        };
        assert_eq!(told(&mut skips, one), [(one, range(0, 9))]);
        skips.add(Instant(7), range(9, 12), all);
        assert_eq!(told(&mut skips, one), [(one, range(9, 12))]);
        let others = all.without(one);
        assert_eq!(
            told(&mut skips, all),
            [(others, range(0, 9)), (others, range(9, 12))]
        );
        assert_eq!((skips.slots(), skips.oldest()), (0, None));
    }

    /// Between them is a suggestion, or what phase 1 has found.
    #[test]
    fn ranges_with_slots_between_them_or_of_two_stripes_stay_apart() {
        let (mut skips, all) = (Skips::default(), Set::first(3));
        let range = |stripe, start, end| Range {
            stripe: Stripe(stripe),
            start: StripePosition(start),
            end: StripePosition(end),
        };
        let apart = [
            range(0, 0, 4),
            range(0, 5, 9),
            range(1, 9, 12),
            range(0, 2, 3),
        ];
        for one in apart {
            skips.add(Instant(5), one, all);
        }
        let mut told = Vec::new();
        skips.tell(all, |replicas, range| told.push((replicas, range)));
        assert_eq!(told, apart.map(|range| (all, range)));
    }
}
