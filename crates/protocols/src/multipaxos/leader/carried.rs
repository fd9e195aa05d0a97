//! What a leader has found in phase 1 and has yet to propose again.
//!
//! It proposes it in the order of the slots, within the same window of bytes as anything else: after a crash of all nodes
//! it can be as much as the replicas' snapshots lack. Until then the slots are taken, though nothing is proposed in
//! them: whoever misses one has to wait, and only what phase 1 has found may come into it.

use alloc::collections::BTreeMap;
use ionian_kernel::batch::{Batch, Value};
use ionian_kernel::id::Slot;

/// The slots from `next` up to `end`; those without a value take a noop.
pub(super) struct Carried {
    next: Slot,
    end: Slot,
    values: BTreeMap<Slot, Value>,
}

impl Default for Carried {
    fn default() -> Self {
        Carried { next: Slot::ZERO, end: Slot::ZERO, values: BTreeMap::new() }
    }
}

impl Carried {
    pub(super) fn new(next: Slot, end: Slot, values: BTreeMap<Slot, Value>) -> Self {
        Carried { next, end, values }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.next >= self.end
    }

    /// Whether this slot is taken and nothing is proposed in it yet.
    pub(super) fn has(&self, slot: Slot) -> bool {
        self.next <= slot && slot < self.end
    }

    /// How many slots are left.
    pub(super) fn len(&self) -> u64 {
        self.end.distance(self.next)
    }

    pub(super) fn batches(&self) -> impl Iterator<Item = &Batch> {
        self.values.values().map(|value| &value.batch)
    }

    /// The next slot, and the size of what goes into it.
    pub(super) fn peek(&self) -> Option<(Slot, usize)> {
        let bytes = || self.values.get(&self.next).map_or(0, |value| value.batch.byte_len());
        (!self.is_empty()).then(|| (self.next, bytes()))
    }

    /// Takes out what goes into the next slot; none for a noop.
    pub(super) fn take(&mut self) -> Option<Value> {
        let value = self.values.remove(&self.next);
        self.next = self.next.next();
        value
    }

    /// Some replica has executed every slot below `executed`, so that these need not be proposed again; `gone` is told what
    /// would have been.
    pub(super) fn skip_to(&mut self, executed: Slot, mut gone: impl FnMut(&Batch)) {
        while let Some(found) = self.values.first_entry().filter(|found| *found.key() < executed) {
            gone(&found.remove().batch);
        }
        self.next = self.next.max(executed);
    }
}
