//! Reads that wait for slots that this replica has not executed yet (3.4), or for large answers to
//! leave.

use alloc::collections::{BTreeMap, VecDeque};
use ionian_kernel::id::Slot;
use ionian_kernel::time::{Duration, Instant};
use ionian_replication::batch::Batch;

/// Batches of reads that wait for slots; one more is dropped, and asked again by its client.
const MAX_DEFERRED: usize = 1 << 14;

/// A read that waits for a slot longer than this is dropped: no lane waits so long for its answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Batches of reads by the slot that must be reached first.
#[derive(Default)]
pub(super) struct Deferred {
    waiting: BTreeMap<Slot, VecDeque<(Instant, Batch)>>,
    count: usize,
}

impl Deferred {
    /// Keeps `reads`, which came at `since`, until every slot below `executed` is executed; false
    /// when too many wait already.
    pub(super) fn push(&mut self, since: Instant, executed: Slot, reads: Batch) -> bool {
        let has_room = self.count < MAX_DEFERRED;
        if has_room {
            self.waiting
                .entry(executed)
                .or_default()
                .push_back((since, reads));
            self.count += 1;
        }
        has_room
    }

    /// Whether there are some that can be answered when every slot below `executed` is executed.
    pub(super) fn is_ready(&self, executed: Slot) -> bool {
        self.waiting
            .first_key_value()
            .is_some_and(|(slot, _)| *slot <= executed)
    }

    /// Takes one of these out, and when it came.
    pub(super) fn pop_ready(&mut self, executed: Slot) -> Option<(Instant, Batch)> {
        let mut entry = self
            .waiting
            .first_entry()
            .filter(|entry| *entry.key() <= executed)?;
        let ready = entry
            .get_mut()
            .pop_front()
            .expect("no slot is without reads");
        if entry.get().is_empty() {
            entry.remove();
        }
        self.count -= 1;
        Some(ready)
    }

    /// Drops reads whose lanes have given up.
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
        assert_eq!(
            self.waiting.values().map(VecDeque::len).sum::<usize>(),
            self.count,
            "a replica lost count of its reads"
        );
    }
}
