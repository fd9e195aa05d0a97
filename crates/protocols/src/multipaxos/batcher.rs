//! The batcher (4.1): gathers commands into batches, so that the leader handles one message a batch.
//!
//! Stands between client and leader. It keeps every batch until a proxy leader says that it was chosen,
//! and hands what is left to a new leader at once, so that a leader's death costs no client a retry.

use super::canary::Canary;
use super::config::Config;
use super::message::Proposer;
use super::{Envelope, kind, leader};
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use ionian_kernel::batch::{Batch, OpenBatch};
use ionian_kernel::id::*;
use ionian_kernel::layout::NodeId;
use ionian_kernel::messages;
use ionian_kernel::protocol::Birth;
use ionian_kernel::random::Random;
use ionian_kernel::role::{Out, Role};
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
        /// A proxy leader got these batches chosen.
        1 => BatchesChosen {
            /// This batcher's numbers of the batches.
            numbers: Vec<u64>,
        },
        /// A leader has finished phase 1.
        2 => NewLeader {
            /// Its round.
            round: Round,
        },
        /// A batch came to a leader that does not lead.
        3 => NotLeader {
            /// The highest round that it knows of.
            round: Round,
        },
    }
}

/// Batches that are proposed and not known chosen hold at most this many bytes; what clients send
/// beyond it is dropped, and asked again by them.
const MAX_BYTES: usize = 64 << 20;

/// How long the leader may leave a batch unchosen before it is proposed again. Well above what the
/// proxy leaders need to get round a dead acceptor, since a batch proposed twice is work done twice.
const PROPOSE_AGAIN_AFTER: Duration = Duration::from_millis(250);

/// A batcher.
pub struct Batcher {
    id: BatcherId,
    config: Arc<Config>,
    node: NodeId,
    near: Set<ReplicaId>,
    open: OpenBatch,
    /// Proposed and not known chosen, by number.
    in_flight: BTreeMap<u64, InFlight>,
    in_flight_bytes: usize,
    next_number: u64,
    round: Round,
    /// Turns to the next leader when the one of the round is silent.
    stray: u64,
    check_at: Option<Instant>,
    dropped: u64,
    proposed: u64,
}

struct InFlight {
    batch: Batch,
    propose_at: Instant,
    attempts: u32,
}

impl Batcher {
    /// The batcher of this birth.
    pub fn new(config: Arc<Config>, birth: &Birth<'_>) -> Self {
        Batcher {
            id: BatcherId(birth.address.index),
            node: birth.node,
            near: config.near(kind::Replica, birth.node),
            open: OpenBatch::default(),
            in_flight: BTreeMap::new(),
            in_flight_bytes: 0,
            // What was chosen for an earlier process must not settle a batch of this one.
            next_number: Random::new(birth.seed).any() >> 1,
            round: Round(0),
            stray: 0,
            check_at: None,
            dropped: 0,
            proposed: 0,
            config,
        }
    }

    fn on_commands(&mut self, now: Instant, commands: &Batch, out: &mut Out<'_, Self>) {
        if self.in_flight_bytes + self.open.byte_len() + commands.byte_len() > MAX_BYTES {
            self.dropped += commands.len() as u64;
            return;
        }
        self.open.append(now, commands);
        if self.open.is_full(self.config.options()) {
            self.close(now, out);
        }
    }

    /// Proposes the open batch.
    fn close(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let batch = self.open.take();
        let number = self.next_number;
        self.next_number += 1;
        self.proposed += 1;
        self.in_flight_bytes += batch.byte_len();
        self.propose(number, batch.clone(), out);
        self.in_flight.insert(number, InFlight { batch, propose_at: now + PROPOSE_AGAIN_AFTER, attempts: 0 });
        self.check_at = earliest(self.check_at, Some(now + PROPOSE_AGAIN_AFTER));
    }

    fn propose(&self, number: u64, batch: Batch, out: &mut Out<'_, Self>) {
        let leader = self.config.leader(self.round, self.stray);
        let proposer = Proposer::Batcher { id: self.id, number };
        out.send(Envelope::ToLeaders(Set::one(leader), leader::In::Propose { proposer, near: self.near, batch }));
    }

    fn on_chosen(&mut self, numbers: &[u64]) {
        for number in numbers {
            if let Some(chosen) = self.in_flight.remove(number) {
                self.in_flight_bytes -= chosen.batch.byte_len();
            }
        }
    }

    /// Turns to the leader of `round`, which may have none of what is in flight.
    fn follow(&mut self, now: Instant, round: Round, out: &mut Out<'_, Self>) {
        (self.round, self.stray) = (round, 0);
        if !self.config.has(Canary::L10DeposedLeaderDrops) {
            self.propose_again(now, |_| true, out);
        }
    }

    fn propose_again(&mut self, now: Instant, which: impl Fn(&InFlight) -> bool, out: &mut Out<'_, Self>) {
        let mut again = Vec::new();
        for (number, batch) in self.in_flight.iter_mut().filter(|(_, batch)| which(batch)) {
            batch.attempts += 1;
            batch.propose_at = now + PROPOSE_AGAIN_AFTER * (1 << batch.attempts.min(3));
            again.push((*number, batch.batch.clone()));
        }
        for (number, batch) in again {
            self.propose(number, batch, out);
        }
        self.check_at = self.in_flight.values().map(|batch| batch.propose_at).min();
    }
}

impl Role for Batcher {
    type In = In;
    type Send = Envelope;
    type Config = Arc<Config>;
    type Record = Never;

    fn recover(&mut self, record: Never) {
        match record {}
    }

    fn on_reconfigure(&mut self, _: Instant, config: Arc<Config>, _: &mut Out<'_, Self>) {
        self.near = config.near(kind::Replica, self.node);
        self.config = config;
    }

    fn on_message(&mut self, now: Instant, message: In, out: &mut Out<'_, Self>) {
        match message {
            In::Commands { commands } => self.on_commands(now, &commands, out),
            In::BatchesChosen { numbers } => self.on_chosen(&numbers),
            In::NewLeader { round } if round >= self.round => self.follow(now, round, out),
            In::NotLeader { round } if round > self.round => self.follow(now, round, out),
            // The stray was wrong. (Not when there was none: then the leader of the round itself does not
            // lead, and nobody better is known.)
            In::NotLeader { round } if round == self.round && self.stray > 0 => self.follow(now, round, out),
            In::NewLeader { .. } | In::NotLeader { .. } => {}
        }
    }

    fn on_timer(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        if self.check_at.is_some_and(|at| at <= now) {
            if self.in_flight.values().any(|batch| batch.propose_at <= now) {
                self.stray += 1;
            }
            if self.config.has(Canary::L10DeposedLeaderDrops) {
                self.check_at = None;
            } else {
                self.propose_again(now, |batch| batch.propose_at <= now, out);
            }
        }
    }

    fn next_timer(&self) -> Option<Instant> {
        // l9: a batch that is not full must not wait for ever.
        let waits = self.config.has(Canary::L9PartBatchWaits);
        earliest(self.check_at, self.open.closes_at(self.config.options()).filter(|_| !waits))
    }

    fn on_burst_end(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let due = self.open.is_due(now, self.in_flight.len(), self.config.options());
        if due && !self.config.has(Canary::L9PartBatchWaits) {
            self.close(now, out);
        }
    }

    fn invariants(&self) {
        let bytes: usize = self.in_flight.values().map(|batch| batch.batch.byte_len()).sum();
        assert_eq!(bytes, self.in_flight_bytes, "a batcher lost count of its bytes");
        assert!(self.in_flight.is_empty() || self.check_at.is_some() || self.config.canary.is_some());
    }

    fn status(&self, report: &mut dyn FnMut(&'static str, u64)) {
        report("batches", self.proposed);
        report("in_flight", self.in_flight.len() as u64);
        report("dropped_commands", self.dropped);
    }
}
