//! The records that a server holds, by logs: its own and those of its peers, of the present
//! generation and of earlier ones that replicas do not keep yet.

use crate::scalog::cut::LogId;
use crate::scalog::id::{Generation, RecordPlace};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use ionian_kernel::small_map::SmallMap;
use ionian_replication::batch::Batch;
use ionian_replication::page::Page;

/// Above this number of bytes, of all logs, a server takes in no more commands until replicas keep
/// some; it still takes in what its peers have taken in before, which is bounded too. It is more
/// than replicas execute between two snapshots.
pub(super) const MAX_BYTES: usize = 256 << 20;

/// See the top of this file.
#[derive(Default)]
pub(super) struct Logs {
    logs: SmallMap<LogId, Log>,
    next_place: RecordPlace,
    bytes: usize,
}

/// What was found again, until the server starts: a log's beginning is noted behind records that
/// come after it.
#[derive(Default)]
pub(super) struct Recovered {
    records: SmallMap<LogId, BTreeMap<u64, (RecordPlace, Batch)>>,
    starts: SmallMap<LogId, u64>,
}

impl Recovered {
    pub(super) fn record(&mut self, place: RecordPlace, log: LogId, index: u64, batch: Batch) {
        let records = self.records.entry(log).or_default();
        records.insert(index, (place, batch));
    }

    pub(super) fn start(&mut self, log: LogId, start: u64) {
        let known = self.starts.entry(log).or_default();
        *known = start.max(*known);
    }

    /// The logs, each without gaps. Of a log that was forgotten some records may be left, and no
    /// note of its beginning: these are not taken for the beginning.
    pub(super) fn logs(self) -> Logs {
        let Recovered { records, starts } = self;
        let places = records
            .values()
            .flatten()
            .map(|(_, (place, _))| place.next());
        let mut logs = Logs {
            next_place: places.max().unwrap_or_default(),
            ..Logs::default()
        };
        for (id, start) in starts {
            logs.trim(id, start);
        }
        for (id, records) in records {
            let log = logs.logs.entry(id).or_default();
            let all = records
                .into_iter()
                .skip_while(|(index, _)| *index < log.start);
            for (index, (place, batch)) in all {
                if index == log.length() {
                    logs.bytes += batch.byte_len();
                    log.records.push_back((place, batch));
                }
            }
        }
        logs
    }
}

/// A log without its beginning, which replicas keep.
#[derive(Default)]
struct Log {
    /// The index of the first record.
    start: u64,
    records: VecDeque<(RecordPlace, Batch)>,
}

impl Log {
    fn length(&self) -> u64 {
        self.start + self.records.len() as u64
    }
}

impl Logs {
    /// The index after the last record of a log, none of those before it being missing.
    pub(super) fn length(&self, log: LogId) -> u64 {
        self.logs.get(&log).map_or(0, Log::length)
    }

    /// The index of the first record of a log that is here.
    pub(super) fn start(&self, log: LogId) -> u64 {
        self.logs.get(&log).map_or(0, |log| log.start)
    }

    /// What the beginnings of all logs are.
    pub(super) fn starts(&self) -> impl Iterator<Item = (LogId, u64)> {
        self.logs.iter().map(|(id, log)| (*id, log.start))
    }

    /// The bytes of all records.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether there is no room for more commands.
    pub(super) fn is_full(&self) -> bool {
        self.bytes > MAX_BYTES
    }

    /// The records of a log from an index on.
    pub(super) fn from(&self, log: LogId, index: u64) -> impl Iterator<Item = (u64, &Batch)> {
        self.logs.get(&log).into_iter().flat_map(move |log| {
            let skipped = index
                .saturating_sub(log.start)
                .min(log.records.len() as u64);
            let records = log.records.range(skipped as usize..);
            (log.start + skipped..).zip(records.map(|(_, batch)| batch))
        })
    }

    /// The bytes of these.
    pub(super) fn bytes_from(&self, log: LogId, index: u64) -> usize {
        self.from(log, index)
            .map(|(_, batch)| batch.byte_len())
            .sum()
    }

    /// The records from an index on, as many as have this many bytes, at least one; none if that of
    /// the index is not here.
    pub(super) fn read(&self, log: LogId, index: u64, bytes: usize) -> Vec<Batch> {
        if index < self.start(log) {
            return Vec::new();
        }
        let mut page = Page::new(bytes);
        self.from(log, index)
            .map(|(_, batch)| batch)
            .take_while(|batch| page.takes(batch.byte_len()))
            .cloned()
            .collect()
    }

    /// Appends a record; its place, and its index in the log.
    pub(super) fn append(&mut self, log: LogId, batch: Batch) -> (RecordPlace, u64) {
        let place = self.next_place;
        self.next_place = place.next();
        self.bytes += batch.byte_len();
        let log = self.logs.entry(log).or_default();
        let index = log.length();
        log.records.push_back((place, batch));
        (place, index)
    }

    /// Replicas keep the records of a log below an index.
    pub(super) fn trim(&mut self, log: LogId, below: u64) {
        let log = self.logs.entry(log).or_default();
        while log.start < below {
            match log.records.pop_front() {
                Some((_, batch)) => {
                    self.bytes -= batch.byte_len();
                    log.start += 1;
                }
                None => log.start = below,
            }
        }
    }

    /// Takes out the records of a log from an index on.
    pub(super) fn cut_off(&mut self, log: LogId, index: u64) -> Vec<Batch> {
        let Some(log) = self.logs.get_mut(&log) else {
            return Vec::new();
        };
        let left = index
            .saturating_sub(log.start)
            .min(log.records.len() as u64);
        let rest = log.records.split_off(left as usize);
        let rest: Vec<Batch> = rest.into_iter().map(|(_, batch)| batch).collect();
        self.bytes -= rest.iter().map(Batch::byte_len).sum::<usize>();
        rest
    }

    /// Replicas keep all that was ordered of generations before this one.
    pub(super) fn forget_before(&mut self, generation: Generation) {
        self.logs.retain(|log, Log { records, .. }| {
            let is_over = log.generation < generation;
            if is_over {
                let bytes = records.iter().map(|(_, batch)| batch.byte_len());
                self.bytes -= bytes.sum::<usize>();
            }
            !is_over
        });
    }

    /// Records with places before this one are not needed.
    pub(super) fn first_place(&self) -> RecordPlace {
        let firsts = self.logs.values().filter_map(|log| log.records.front());
        let first = firsts.map(|(place, _)| *place).min();
        first.unwrap_or(self.next_place)
    }

    pub(super) fn invariants(&self) {
        let records = self.logs.values().flat_map(|log| &log.records);
        let bytes: usize = records.map(|(_, batch)| batch.byte_len()).sum();
        assert_eq!(bytes, self.bytes, "a server lost count of its bytes");
    }
}
