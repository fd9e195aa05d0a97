//! How far replicas keep what is ordered, and what that is in terms of a shard's logs.

use crate::scalog::cut::Shard;
use crate::scalog::id::Generation;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use ionian_kernel::id::{ReplicaId, Slot};
use ionian_kernel::small_map::SmallMap;

/// The most marks. Beyond them the last one is replaced: what it covers is kept a little longer.
const MAX_MARKS: usize = 1024;

/// See the top of this file.
#[derive(Default)]
pub(super) struct Kept {
    /// How far each replica keeps the log, as it said last.
    each: SmallMap<ReplicaId, Slot>,
    /// How far f+1 of them ever did at once.
    enough: Slot,
    /// What was ordered before some slots.
    marks: VecDeque<Mark>,
}

/// What was ordered of a shard before a slot.
pub(super) struct Mark {
    slot: Slot,
    pub(super) generation: Generation,
    pub(super) lengths: Vec<u64>,
}

impl Kept {
    /// A replica keeps every slot below `kept`; `needed` replicas are enough.
    pub(super) fn heard(&mut self, from: ReplicaId, kept: Slot, needed: usize) {
        self.each.insert(from, kept);
        let mut each: Vec<Slot> = self.each.values().copied().collect();
        each.sort_unstable_by(|a, b| b.cmp(a));
        let enough = each.get(needed - 1).copied().unwrap_or_default();
        self.enough = self.enough.max(enough);
    }

    /// f+1 replicas keep every slot below this one: f of them may fail.
    pub(super) fn enough(&self) -> Slot {
        self.enough
    }

    /// What was ordered before a slot later than all before.
    pub(super) fn mark(&mut self, slot: Slot, shard: &Shard) {
        let mark = Mark {
            slot,
            generation: shard.generation,
            lengths: shard.lengths.clone(),
        };
        if self.marks.len() >= MAX_MARKS {
            self.marks.pop_back();
        }
        self.marks.push_back(mark);
    }

    /// The last mark of those at slots up to this one, which are passed.
    pub(super) fn pass(&mut self, kept: Slot) -> Option<Mark> {
        let passed = self.marks.partition_point(|mark| mark.slot <= kept);
        self.marks.drain(..passed).next_back()
    }
}
