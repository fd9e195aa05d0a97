//! Reads that wait for slots that this replica has not executed yet (3.4), or for large answers to
//! leave.

use alloc::collections::{BTreeMap, VecDeque};
use ionian_kernel::id::Slot;
use ionian_kernel::time::{Duration, Instant};
use ionian_replication::batch::Batch;

/// The most batches of reads that wait, and the most bytes that they hold together. A batch beyond
/// either limit is dropped, and its clients send the reads again. A batch that waits alone may be
/// larger.
const MAX_DEFERRED: usize = 1 << 14;
const MAX_DEFERRED_BYTES: usize = 64 << 20;

/// A read that waits for a slot longer than this is dropped: no lane waits so long for its answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Batches of reads by the slot that must be reached first.
#[derive(Default)]
pub(super) struct Deferred {
    waiting: BTreeMap<Slot, VecDeque<(Instant, Batch)>>,
    count: usize,
    bytes: usize,
}

impl Deferred {
    /// Keeps `reads`, which came at `since`, until every slot below `executed` is executed. Returns
    /// false if there is no room for them.
    pub(super) fn push(&mut self, since: Instant, executed: Slot, reads: Batch) -> bool {
        let bytes = self.bytes + reads.byte_len();
        let has_room =
            self.count == 0 || (self.count < MAX_DEFERRED && bytes <= MAX_DEFERRED_BYTES);
        if has_room {
            self.bytes = bytes;
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
        let (since, reads) = entry
            .get_mut()
            .pop_front()
            .expect("no slot is without reads");
        if entry.get().is_empty() {
            entry.remove();
        }
        self.count -= 1;
        self.bytes -= reads.byte_len();
        Some((since, reads))
    }

    /// Drops reads whose lanes have given up.
    pub(super) fn drop_hopeless(&mut self, now: Instant) {
        self.waiting.retain(|_, waiting| {
            waiting.retain(|(since, reads)| {
                let stays = now.since(*since) < PATIENCE;
                if !stays {
                    self.count -= 1;
                    self.bytes -= reads.byte_len();
                }
                stays
            });
            !waiting.is_empty()
        });
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn invariants(&self) {
        let all = || self.waiting.values().flatten();
        let bytes: usize = all().map(|(_, reads)| reads.byte_len()).sum();
        assert_eq!(
            (all().count(), bytes),
            (self.count, self.bytes),
            "a replica lost count of its reads"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;
    use ionian_kernel::id::{ClientId, SessionId};
    use ionian_replication::batch::{Command, Purpose};

    fn reads(bytes: usize) -> Batch {
        Batch::one(&Command {
            client: ClientId(0),
            purpose: Purpose::Execute(SessionId(1)),
            number: 0,
            floor: 0,
            payload: vec![7; bytes].into(),
        })
    }

    const AT: Instant = Instant(5);

    #[test]
    fn reads_beyond_the_limit_of_bytes_are_dropped_until_others_have_left() {
        let mut deferred = Deferred::default();
        let quarter = reads(MAX_DEFERRED_BYTES / 4);
        let pushed: Vec<bool> = (0..5)
            .map(|slot| deferred.push(AT, Slot(slot % 2), quarter.clone()))
            .collect();
        // A command takes a few bytes beside its payload, so four quarters are too many.
        assert_eq!(pushed, [true, true, true, false, false]);
        deferred.invariants();
        assert!(deferred.pop_ready(Slot(0)).is_some());
        assert!(deferred.push(AT, Slot(9), quarter.clone()));
        assert!(!deferred.push(AT, Slot(9), quarter.clone()));
        deferred.drop_hopeless(AT + PATIENCE);
        deferred.invariants();
        assert_eq!((deferred.len(), deferred.bytes), (0, 0));
        assert!(deferred.push(AT, Slot(9), quarter));
    }

    #[test]
    fn reads_beyond_the_limit_of_batches_are_dropped() {
        let mut deferred = Deferred::default();
        assert!((0..MAX_DEFERRED).all(|_| deferred.push(AT, Slot(9), reads(1))));
        assert!(!deferred.push(AT, Slot(9), reads(1)));
    }

    #[test]
    fn a_batch_that_waits_alone_may_be_larger_than_the_limit() {
        let mut deferred = Deferred::default();
        assert!(deferred.push(AT, Slot(9), reads(MAX_DEFERRED_BYTES + 1)));
        assert!(!deferred.push(AT, Slot(9), reads(1)));
    }
}
