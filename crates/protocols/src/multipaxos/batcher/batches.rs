//! What a batcher keeps: the batch that it fills, and those that are on their way and not known
//! chosen.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use ionian_kernel::layout::Options;
use ionian_kernel::random::Random;
use ionian_kernel::status::Status;
use ionian_kernel::time::{Duration, Instant, earliest, transit};
use ionian_replication::backoff::doubled;
use ionian_replication::batch::{Batch, OpenBatch};
use ionian_replication::flow::ByteWindow;
use ionian_replication::settled::{self, Sweep};

/// Batches that are not known chosen hold at most this many bytes; what clients send beyond it is
/// dropped, and asked again by them.
const MAX_BYTES: usize = 64 << 20;

/// The most batches that are not known to be chosen.
const MAX_BATCHES: usize = 1 << 14;

/// The batches of a batcher, which notes for each of them with whom it is.
pub(crate) struct Batches<W> {
    /// How long a batch may stay unchosen before it is sent again.
    patience: Duration,
    open: OpenBatch,
    /// Closed and not known chosen, by number.
    in_flight: BTreeMap<u64, InFlight<W>>,
    in_flight_bytes: usize,
    /// Those of them that are sent and not known chosen. The others wait for room, in order: so a
    /// new leader is not handed everything at once.
    window: ByteWindow,
    waiting: VecDeque<u64>,
    sweep: Sweep,
    next_number: u64,
    /// When to look for batches that are overdue.
    pub(crate) check_at: Option<Instant>,
    closed: u64,
    dropped: u64,
}

struct InFlight<W> {
    batch: Batch,
    with: W,
    /// Whether it was sent to those who serve now.
    sent: bool,
    /// How often it was sent.
    attempts: u32,
    due: Instant,
}

/// A batch to send.
pub(crate) struct Due {
    pub(crate) number: u64,
    pub(crate) batch: Batch,
    /// Whether it was sent before.
    pub(crate) again: bool,
}

impl<W> Batches<W> {
    /// None yet. They will be sent again after `patience`, and then ever more slowly.
    pub(crate) fn new(patience: Duration, options: &Options, random: &mut Random) -> Self {
        Batches {
            patience,
            open: OpenBatch::default(),
            in_flight: BTreeMap::new(),
            in_flight_bytes: 0,
            window: ByteWindow::new(options.window_bytes),
            waiting: VecDeque::new(),
            sweep: Sweep::default(),
            // What was chosen for an earlier process must not settle a batch of this one.
            next_number: random.any() >> 1,
            check_at: None,
            closed: 0,
            dropped: 0,
        }
    }

    /// Other options.
    pub(crate) fn reconfigure(&mut self, options: &Options) {
        let sent = self.in_flight.values().filter(|it| it.sent);
        self.window
            .resize(options.window_bytes, sent.map(|it| it.batch.byte_len()));
    }

    /// Takes commands in if there is room for them; whether the open batch is full now.
    pub(crate) fn take_in(&mut self, now: Instant, commands: &Batch, options: &Options) -> bool {
        let bytes = self.in_flight_bytes + self.open.byte_len() + commands.byte_len();
        if bytes > MAX_BYTES || self.in_flight.len() >= MAX_BATCHES {
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

    /// Closes the open batch, to be sent when its turn [comes](Batches::next).
    pub(crate) fn close(&mut self, now: Instant, with: W) {
        let (number, batch) = (self.next_number, self.open.take());
        self.next_number += 1;
        self.closed += 1;
        self.in_flight_bytes += batch.byte_len();
        self.in_flight.insert(
            number,
            InFlight {
                batch,
                with,
                sent: false,
                attempts: 0,
                due: now,
            },
        );
        self.waiting.push_back(number);
        if self.sweep.is_due(now, self.in_flight.len()) {
            self.drop_settled();
        }
    }

    /// Drops what no client waits for any more, and copies of what is in flight.
    fn drop_settled(&mut self) {
        let in_flight = self.in_flight.iter();
        let needless = settled::needless(in_flight.map(|(number, it)| (*number, &it.batch)));
        self.settle(&needless, drop);
    }

    /// The next batch to send, if there is room for one.
    pub(crate) fn next(&mut self, now: Instant) -> Option<Due> {
        while let Some(number) = self.waiting.front().copied() {
            let Some(found) = self.in_flight.get_mut(&number) else {
                self.waiting.pop_front();
                continue;
            };
            if !self.window.has_room(found.batch.byte_len()) {
                return None;
            }
            self.waiting.pop_front();
            self.window.add(found.batch.byte_len());
            found.sent = true;
            let due = found.send(number, now, self.patience);
            self.check_at = earliest(self.check_at, Some(found.due));
            return Some(due);
        }
        None
    }

    /// The new leader may have none of the batches in flight: all are queued again.
    pub(crate) fn requeue(&mut self) {
        self.window.clear();
        self.waiting = self.in_flight.keys().copied().collect();
        self.in_flight
            .values_mut()
            .for_each(|batch| batch.sent = false);
    }

    /// These are chosen; says of each with whom it was.
    pub(crate) fn settle(&mut self, numbers: &[u64], mut was: impl FnMut(W)) {
        for number in numbers {
            if let Some(chosen) = self.in_flight.remove(number) {
                self.in_flight_bytes -= chosen.batch.byte_len();
                if chosen.sent {
                    self.window.remove(chosen.batch.byte_len());
                }
                was(chosen.with);
            }
        }
    }

    /// Takes out the batches that are overdue, to be sent again.
    pub(crate) fn overdue(&mut self, now: Instant) -> Vec<Due> {
        let (transit, patience) = (transit(self.window.bytes()), self.patience);
        let overdue = self
            .in_flight
            .iter_mut()
            .filter(|(_, it)| it.sent && it.overdue_at(transit) <= now);
        let again = overdue
            .map(|(number, batch)| batch.send(*number, now, patience))
            .collect();
        self.check_at = self
            .in_flight
            .values()
            .filter(|it| it.sent)
            .map(|it| it.overdue_at(transit))
            .min();
        again
    }

    /// With whom a batch in flight is.
    pub(crate) fn with(&mut self, number: u64) -> &mut W {
        &mut self
            .in_flight
            .get_mut(&number)
            .expect("a batch in flight")
            .with
    }

    /// Asserts what must hold between two calls.
    pub(crate) fn invariants(&self) {
        let bytes: usize = self
            .in_flight
            .values()
            .map(|batch| batch.batch.byte_len())
            .sum();
        assert_eq!(
            bytes, self.in_flight_bytes,
            "a batcher lost count of its bytes"
        );
        let sent: usize = self
            .in_flight
            .values()
            .filter(|it| it.sent)
            .map(|it| it.batch.byte_len())
            .sum();
        assert_eq!(
            sent,
            self.window.bytes(),
            "a batcher lost count of what is under way"
        );
        let watched = self.check_at.is_some() || self.in_flight.values().all(|it| !it.sent);
        assert!(
            watched
                && self.waiting.len() + self.in_flight.values().filter(|it| it.sent).count()
                    >= self.in_flight.len()
        );
    }

    /// Reports the [batches](crate::multipaxos::metrics::BATCHES).
    pub(crate) fn report(&self, status: &mut Status) {
        status.add([self.closed, self.in_flight.len() as u64, self.dropped]);
    }
}

impl<W> InFlight<W> {
    /// It is sent, once more perhaps; the wait doubles with each time, up to eight times the first.
    fn send(&mut self, number: u64, now: Instant, patience: Duration) -> Due {
        let again = self.attempts > 0;
        self.due = now + doubled(patience, self.attempts, 3);
        self.attempts += 1;
        Due {
            number,
            batch: self.batch.clone(),
            again,
        }
    }

    /// When it is overdue. The allowance for what is under way doubles like the wait: it may be too
    /// small.
    fn overdue_at(&self, transit: Duration) -> Instant {
        self.due + doubled(transit, self.attempts.saturating_sub(1), 3)
    }
}
