//! The batcher: gathers commands into batches, so that a disseminator handles one message a batch.
//!
//! Stands between client and disseminator. It keeps every batch until it hears that it was chosen, and hands it to
//! another disseminator when it does not.

use super::config::Config;
use super::{Envelope, disseminator, kind};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use ionian_kernel::batch::{Batch, OpenBatch};
use ionian_kernel::id::*;
use ionian_kernel::messages;
use ionian_kernel::protocol::Birth;
use ionian_kernel::random::Random;
use ionian_kernel::role::{Out, Role};
use ionian_kernel::suspicion::Choice;
use ionian_kernel::time::{Duration, Instant, earliest};
use ionian_kernel::wire::Never;

messages! {
    /// What a batcher is told.
    "batcher" In {
        /// Commands of a client.
        0 => Commands {
            /// The commands.
            commands: Batch,
        },
        /// A disseminator got these batches chosen.
        1 => BatchesChosen {
            /// The disseminator.
            from: DisseminatorId,
            /// This batcher's numbers of the batches.
            numbers: Vec<u64>,
        },
    }
}

/// Batches that are not known chosen hold at most this many bytes; what clients send beyond it is dropped, and
/// asked again by them.
const MAX_BYTES: usize = 64 << 20;

/// How long a disseminator may leave a batch unchosen before another is given it too. Well above what it needs to
/// get round a dead stabilizer or leader, since a batch that is ordered twice is work done twice.
const HAND_OVER_AFTER: Duration = Duration::from_millis(1000);

/// A batcher.
pub struct Batcher {
    id: BatcherId,
    config: Config,
    open: OpenBatch,
    /// Handed to a disseminator and not known chosen, by number.
    in_flight: BTreeMap<u64, InFlight>,
    in_flight_bytes: usize,
    next_number: u64,
    disseminators: Choice<DisseminatorId>,
    check_at: Option<Instant>,
    dropped: u64,
    batches: u64,
}

struct InFlight {
    batch: Batch,
    by: DisseminatorId,
    attempts: u32,
    due: Instant,
}

impl Batcher {
    /// The batcher of this birth.
    pub fn new(config: Config, birth: &Birth<'_>) -> Self {
        let mut random = Random::new(birth.seed);
        let near = config.near(kind::Disseminator, birth.node);
        Batcher {
            id: BatcherId(birth.address.index),
            open: OpenBatch::default(),
            in_flight: BTreeMap::new(),
            in_flight_bytes: 0,
            // What was chosen for an earlier process must not settle a batch of this one.
            next_number: random.any() >> 1,
            disseminators: Choice::new(config.disseminators, near, random.any()),
            check_at: None,
            dropped: 0,
            batches: 0,
            config,
        }
    }

    fn on_commands(&mut self, now: Instant, commands: &Batch, out: &mut Out<'_, Self>) {
        if self.in_flight_bytes + self.open.byte_len() + commands.byte_len() > MAX_BYTES {
            self.dropped += commands.len() as u64;
            return;
        }
        self.open.append(now, commands);
        if self.open.is_full(&self.config.layout().options) {
            self.close(now, out);
        }
    }

    /// Hands the open batch over.
    fn close(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let (number, batch) = (self.next_number, self.open.take());
        self.next_number += 1;
        self.batches += 1;
        self.in_flight_bytes += batch.byte_len();
        self.hand_over(now, number, batch, 0, out);
    }

    fn hand_over(&mut self, now: Instant, number: u64, batch: Batch, attempts: u32, out: &mut Out<'_, Self>) {
        let (by, disseminators) = self.disseminators.next(now).expect("a deployment has disseminators");
        let due = now + HAND_OVER_AFTER * (1 << attempts.min(3));
        let message = disseminator::In::Disseminate { from: self.id, number, batch: batch.clone() };
        out.send(Envelope::ToDisseminators(disseminators, message));
        self.in_flight.insert(number, InFlight { batch, by, attempts, due });
        self.check_at = earliest(self.check_at, Some(due));
    }

    fn on_chosen(&mut self, from: DisseminatorId, numbers: &[u64]) {
        self.disseminators.heard(from);
        for number in numbers {
            if let Some(chosen) = self.in_flight.remove(number) {
                self.in_flight_bytes -= chosen.batch.byte_len();
            }
        }
    }

    fn hand_over_again(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let overdue: Vec<u64> =
            self.in_flight.iter().filter(|(_, batch)| batch.due <= now).map(|(number, _)| *number).collect();
        for number in overdue {
            let InFlight { batch, by, attempts, .. } = self.in_flight.remove(&number).expect("just found");
            self.disseminators.silent(by, now);
            self.hand_over(now, number, batch, attempts + 1, out);
        }
        self.check_at = self.in_flight.values().map(|batch| batch.due).min();
    }
}

impl Role for Batcher {
    type In = In;
    type Send = Envelope;
    type Config = Config;
    type Record = Never;

    fn recover(&mut self, record: Never) {
        match record {}
    }

    fn on_message(&mut self, now: Instant, message: In, out: &mut Out<'_, Self>) {
        match message {
            In::Commands { commands } => self.on_commands(now, &commands, out),
            In::BatchesChosen { from, numbers } => self.on_chosen(from, &numbers),
        }
    }

    fn on_timer(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        if self.check_at.is_some_and(|at| at <= now) {
            self.hand_over_again(now, out);
        }
    }

    fn next_timer(&self) -> Option<Instant> {
        earliest(self.check_at, self.open.closes_at(&self.config.layout().options))
    }

    fn on_burst_end(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        if self.open.is_due(now, self.in_flight.len(), &self.config.layout().options) {
            self.close(now, out);
        }
    }

    fn invariants(&self) {
        let bytes: usize = self.in_flight.values().map(|batch| batch.batch.byte_len()).sum();
        assert_eq!(bytes, self.in_flight_bytes, "a batcher lost count of its bytes");
        assert!(self.in_flight.is_empty() || self.check_at.is_some(), "nobody watches the batches in flight");
    }

    fn status(&self, report: &mut dyn FnMut(&'static str, u64)) {
        report("batches", self.batches);
        report("in_flight", self.in_flight.len() as u64);
        report("dropped_commands", self.dropped);
    }
}
