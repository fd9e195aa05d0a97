//! Reads that wait for slots that this replica has not executed yet (3.4).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use ionian_kernel::batch::Batch;
use ionian_kernel::id::Slot;
use ionian_kernel::time::{Duration, Instant};

/// Batches of reads that wait for slots; one more is dropped, and asked again by its client.
const MAX_DEFERRED: usize = 1 << 14;

/// A read that waits for a slot longer than this is dropped: no lane waits so long for its answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Batches of reads by the slot that must be reached first.
#[derive(Default)]
pub(super) struct Deferred {
    waiting: BTreeMap<Slot, Vec<(Instant, Batch)>>,
    count: usize,
}

impl Deferred {
    /// Keeps `reads` until every slot below `executed` is executed; false when too many wait already.
    pub(super) fn push(&mut self, now: Instant, executed: Slot, reads: Batch) -> bool {
        let has_room = self.count < MAX_DEFERRED;
        if has_room {
            self.waiting.entry(executed).or_default().push((now, reads));
            self.count += 1;
        }
        has_room
    }

    /// Takes out those that can be answered when every slot below `executed` is executed.
    pub(super) fn take_ready(&mut self, executed: Slot) -> Vec<Batch> {
        let mut ready = Vec::new();
        while let Some(entry) = self.waiting.first_entry().filter(|entry| *entry.key() <= executed) {
            ready.extend(entry.remove().into_iter().map(|(_, reads)| reads));
        }
        self.count -= ready.len();
        ready
    }

    /// Lets go of those that nobody waits for any more.
    pub(super) fn drop_hopeless(&mut self, now: Instant) {
        self.waiting.retain(|_, waiting| {
            let before = waiting.len();
            waiting.retain(|(since, _)| now.since(*since) < PATIENCE);
            self.count -= before - waiting.len();
            !waiting.is_empty()
        });
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn invariants(&self) {
        assert_eq!(self.waiting.values().map(Vec::len).sum::<usize>(), self.count, "a replica lost count of its reads");
    }
}
