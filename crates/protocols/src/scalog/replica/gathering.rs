//! Records that a replica has and has not executed, by logs.

use crate::scalog::cut::{Cut, LogId, Range};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use ionian_replication::batch::Batch;

/// The most records, and bytes of them, that wait for a cut. What comes beyond them is dropped, and
/// asked for when a cut covers it.
const MAX_RECORDS: usize = 1 << 18;
const MAX_BYTES: usize = 64 << 20;

/// See the top of this file.
#[derive(Default)]
pub(super) struct Gathering {
    records: BTreeMap<(LogId, u64), Batch>,
    bytes: usize,
    dropped: u64,
}

impl Gathering {
    /// Adds the records of a log that no cut has ordered yet, as far as there is room; those that
    /// the next slot orders always have room. False if some had none.
    pub(super) fn add(
        &mut self,
        (cut, size): (&Cut, usize),
        wanted: &[Range],
        log: LogId,
        first: u64,
        records: Vec<Batch>,
    ) -> bool {
        let is_wanted = |index| {
            let mut ranges = wanted.iter();
            ranges.any(|range| range.log == log && (range.from..range.to).contains(&index))
        };
        let ordered = cut.ordered(log, size).unwrap_or(0);
        let mut has_room = true;
        for (place, batch) in (0..).zip(records) {
            let index = first.saturating_add(place);
            if index < ordered || cut.is_over(log, size) || self.records.contains_key(&(log, index))
            {
                continue;
            }
            let is_full = self.bytes + batch.byte_len() > MAX_BYTES || self.len() >= MAX_RECORDS;
            if is_full && !is_wanted(index) {
                has_room = false;
                self.dropped += 1;
                continue;
            }
            self.bytes += batch.byte_len();
            self.records.insert((log, index), batch);
        }
        has_room
    }

    /// All records of these ranges, in their order, if none is missing.
    pub(super) fn all<'a>(&'a self, ranges: &[Range]) -> Option<Vec<&'a Batch>> {
        let mut all = Vec::new();
        for range in ranges {
            let held = self
                .records
                .range((range.log, range.from)..(range.log, range.to));
            let before = all.len();
            all.extend(held.map(|(_, batch)| batch));
            if (all.len() - before) as u64 != range.to - range.from {
                return None;
            }
        }
        Some(all)
    }

    /// The first record of a range that is missing.
    pub(super) fn first_missing(&self, range: &Range) -> Option<u64> {
        let held = self
            .records
            .range((range.log, range.from)..(range.log, range.to));
        let in_turn = held
            .zip(range.from..)
            .take_while(|(((_, index), _), next)| index == next);
        let first = range.from + in_turn.count() as u64;
        (first < range.to).then_some(first)
    }

    /// Drops what is executed, and what is void: records of a generation that is over, beyond the
    /// last cut of it. Every replica drops the latter at the same slot.
    pub(super) fn pass(&mut self, cut: &Cut, size: usize) {
        let mut logs: Vec<LogId> = Vec::new();
        let mut next = self.records.first_key_value().map(|((log, _), _)| *log);
        while let Some(log) = next {
            logs.push(log);
            let behind = self
                .records
                .range((log, u64::MAX)..)
                .find(|((it, _), _)| *it != log);
            next = behind.map(|((log, _), _)| *log);
        }
        for log in logs {
            let below = match cut.is_over(log, size) {
                true => u64::MAX,
                false => cut.ordered(log, size).unwrap_or(0),
            };
            while let Some((key, _)) = self.records.range((log, 0)..(log, below)).next() {
                let key = *key;
                let batch = self.records.remove(&key).expect("just found");
                self.bytes -= batch.byte_len();
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    pub(super) fn invariants(&self) {
        let bytes: usize = self.records.values().map(Batch::byte_len).sum();
        assert_eq!(bytes, self.bytes, "a replica lost count of its records");
    }
}
