//! What a leader has found in phase 1 and has yet to propose again.
//!
//! It proposes it in the order of the slots, within the same window of bytes as anything else:
//! after a crash of all nodes it can be as much as the replicas' snapshots lack. Until then the
//! slots are taken, though nothing is proposed in them: a replica that misses one has to wait, and
//! only what phase 1 has found may come into it. Runs in which it has found nothing can be left out
//! ([`Notes::left_out`](super::Notes::left_out)).

use alloc::collections::{BTreeMap, VecDeque};
use ionian_kernel::id::Slot;
use ionian_replication::batch::{Batch, Value};

/// The slots from `next` up to `end` but for those that are left out; those without a value take a
/// noop.
pub(super) struct Carried {
    next: Slot,
    end: Slot,
    values: BTreeMap<Slot, Value>,
    /// The runs from `next` on that are left out, lowest first.
    left_out: VecDeque<(Slot, Slot)>,
}

impl Default for Carried {
    fn default() -> Self {
        Carried {
            next: Slot::ZERO,
            end: Slot::ZERO,
            values: BTreeMap::new(),
            left_out: VecDeque::new(),
        }
    }
}

impl Carried {
    pub(super) fn new(
        (next, end): (Slot, Slot),
        values: BTreeMap<Slot, Value>,
        left_out: &[(Slot, Slot)],
    ) -> Self {
        let mut carried = Carried {
            next,
            end,
            values,
            left_out: left_out.iter().copied().collect(),
        };
        carried.go_on_at(next);
        carried
    }

    /// The next slot is this one, or the first behind the run that it is in, if that is left out.
    fn go_on_at(&mut self, slot: Slot) {
        self.next = slot;
        while let Some((_, end)) = self
            .left_out
            .front()
            .copied()
            .filter(|(start, _)| *start <= self.next)
        {
            self.left_out.pop_front();
            self.next = self.next.max(end);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.next >= self.end
    }

    /// Whether this slot is taken and nothing is proposed in it yet.
    pub(super) fn has(&self, slot: Slot) -> bool {
        let is_left_out = self
            .left_out
            .iter()
            .any(|(start, end)| *start <= slot && slot < *end);
        self.next <= slot && slot < self.end && !is_left_out
    }

    /// How many slots are left.
    pub(super) fn len(&self) -> u64 {
        let left_out: u64 = self
            .left_out
            .iter()
            .map(|(start, end)| end.distance(*start))
            .sum();
        self.end.distance(self.next) - left_out
    }

    pub(super) fn batches(&self) -> impl Iterator<Item = &Batch> {
        self.values.values().map(|value| &value.batch)
    }

    /// The next slot, and the size of what goes into it.
    pub(super) fn peek(&self) -> Option<(Slot, usize)> {
        let bytes = || {
            self.values
                .get(&self.next)
                .map_or(0, |value| value.batch.byte_len())
        };
        (!self.is_empty()).then(|| (self.next, bytes()))
    }

    /// Takes out what goes into the next slot; none for a noop.
    pub(super) fn take(&mut self) -> Option<Value> {
        let value = self.values.remove(&self.next);
        self.go_on_at(self.next.next());
        value
    }

    /// Some replica has executed every slot below `executed`, so that these need not be proposed
    /// again; calls `gone` with each dropped batch.
    pub(super) fn skip_to(&mut self, executed: Slot, mut gone: impl FnMut(&Batch)) {
        while let Some(found) = self
            .values
            .first_entry()
            .filter(|found| *found.key() < executed)
        {
            gone(&found.remove().batch);
        }
        self.go_on_at(self.next.max(executed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use ionian_kernel::time::Timestamp;

    fn value(stamp: u64) -> Value {
        Value {
            stamp: Timestamp(stamp),
            ..Value::default()
        }
    }

    /// The slots that are proposed, and the stamp of what was found for each.
    fn rest(mut carried: Carried) -> Vec<(u64, u64)> {
        let mut rest = Vec::new();
        while let Some((slot, _)) = carried.peek() {
            let left = carried.len();
            assert!(carried.has(slot));
            rest.push((slot.0, carried.take().map_or(0, |value| value.stamp.0)));
            assert!(carried.len() == left - 1 && !carried.has(slot));
        }
        assert_eq!(carried.len(), 0);
        rest
    }

    #[test]
    fn runs_are_left_out_wherever_it_goes_on() {
        let left_out = [(Slot(2), Slot(4)), (Slot(5), Slot(8))];
        let carried = || {
            Carried::new(
                (Slot(2), Slot(10)),
                BTreeMap::from([(Slot(4), value(40))]),
                &left_out,
            )
        };
        assert_eq!(
            (carried().len(), rest(carried())),
            (3, Vec::from([(4, 40), (8, 0), (9, 0)]))
        );
        for (executed, expected) in [
            (3, &[(4, 40), (8, 0), (9, 0)][..]),
            (5, &[(8, 0), (9, 0)]),
            (6, &[(8, 0), (9, 0)]),
            (12, &[]),
        ] {
            let (mut carried, mut gone) = (carried(), 0);
            carried.skip_to(Slot(executed), |_| gone += 1);
            assert_eq!(
                (gone, rest(carried)),
                (u32::from(executed > 4), expected.to_vec()),
                "executed {executed}"
            );
        }
        let all = Carried::new((Slot(2), Slot(8)), BTreeMap::new(), &[(Slot(2), Slot(8))]);
        assert!(all.is_empty() && rest(all).is_empty());
    }
}
