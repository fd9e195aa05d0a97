//! What a batcher keeps: the batch that it fills, and those that are on their way and not known chosen.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use ionian_kernel::batch::{Batch, OpenBatch};
use ionian_kernel::layout::Options;
use ionian_kernel::random::Random;
use ionian_kernel::time::{Duration, Instant, earliest, transit};

/// Batches that are not known chosen hold at most this many bytes; what clients send beyond it is dropped, and asked
/// again by them.
const MAX_BYTES: usize = 64 << 20;

/// The batches of a batcher, which notes for each of them with whom it is.
pub(crate) struct Batches<W> {
    /// How long a batch may stay unchosen before it is sent again.
    patience: Duration,
    open: OpenBatch,
    /// Closed and not known chosen, by number.
    in_flight: BTreeMap<u64, InFlight<W>>,
    in_flight_bytes: usize,
    next_number: u64,
    /// When to look for batches that are overdue.
    pub(crate) check_at: Option<Instant>,
    closed: u64,
    dropped: u64,
}

struct InFlight<W> {
    batch: Batch,
    with: W,
    attempts: u32,
    due: Instant,
}

impl<W> Batches<W> {
    /// None yet. They will be sent again after `patience`, and then ever more slowly.
    pub(crate) fn new(patience: Duration, random: &mut Random) -> Self {
        Batches {
            patience,
            open: OpenBatch::default(),
            in_flight: BTreeMap::new(),
            in_flight_bytes: 0,
            // What was chosen for an earlier process must not settle a batch of this one.
            next_number: random.any() >> 1,
            check_at: None,
            closed: 0,
            dropped: 0,
        }
    }

    /// Takes commands in if there is room for them; whether the open batch is full now.
    pub(crate) fn take_in(&mut self, now: Instant, commands: &Batch, options: &Options) -> bool {
        if self.in_flight_bytes + self.open.byte_len() + commands.byte_len() > MAX_BYTES {
            self.dropped += commands.len() as u64;
            return false;
        }
        self.open.append(now, commands);
        self.open.is_full(options)
    }

    /// When the open batch waits no longer for more.
    pub(crate) fn closes_at(&self, options: &Options) -> Option<Instant> {
        self.open.closes_at(options)
    }

    /// Whether the open batch should be closed at the end of a burst.
    pub(crate) fn is_due(&self, now: Instant, options: &Options) -> bool {
        self.open.is_due(now, self.in_flight.len(), options)
    }

    /// Closes the open batch, to be sent under this number.
    pub(crate) fn close(&mut self, now: Instant, with: W) -> (u64, Batch) {
        let (number, batch, due) = (self.next_number, self.open.take(), now + self.patience);
        self.next_number += 1;
        self.closed += 1;
        self.in_flight_bytes += batch.byte_len();
        self.in_flight.insert(number, InFlight { batch: batch.clone(), with, attempts: 0, due });
        self.check_at = earliest(self.check_at, Some(due));
        (number, batch)
    }

    /// These are chosen.
    pub(crate) fn settle(&mut self, numbers: &[u64]) {
        for number in numbers {
            if let Some(chosen) = self.in_flight.remove(number) {
                self.in_flight_bytes -= chosen.batch.byte_len();
            }
        }
    }

    /// Whether a batch in flight is overdue.
    pub(crate) fn is_overdue(&self, now: Instant) -> bool {
        let transit = transit(self.in_flight_bytes);
        self.in_flight.values().any(|batch| batch.due + transit <= now)
    }

    /// Those of the batches in flight that are `due`, to be sent again.
    pub(crate) fn again(&mut self, now: Instant, due: impl Fn(Instant) -> bool) -> Vec<(u64, Batch)> {
        let mut again = Vec::new();
        let transit = transit(self.in_flight_bytes);
        for (number, batch) in self.in_flight.iter_mut().filter(|(_, batch)| due(batch.due + transit)) {
            batch.attempts += 1;
            batch.due = now + self.patience * (1 << batch.attempts.min(3));
            again.push((*number, batch.batch.clone()));
        }
        self.check_at = self.in_flight.values().map(|batch| batch.due + transit).min();
        again
    }

    /// With whom a batch in flight is.
    pub(crate) fn with(&mut self, number: u64) -> &mut W {
        &mut self.in_flight.get_mut(&number).expect("a batch in flight").with
    }

    /// Asserts what must hold between two calls.
    pub(crate) fn invariants(&self) {
        let bytes: usize = self.in_flight.values().map(|batch| batch.batch.byte_len()).sum();
        assert_eq!(bytes, self.in_flight_bytes, "a batcher lost count of its bytes");
        assert!(self.in_flight.is_empty() || self.check_at.is_some(), "nobody watches the batches in flight");
    }

    /// Reports figures for people.
    pub(crate) fn status(&self, report: &mut dyn FnMut(&'static str, u64)) {
        report("batches", self.closed);
        report("in_flight", self.in_flight.len() as u64);
        report("dropped_commands", self.dropped);
    }
}
