//! The batcher: gathers commands into batches, each of which is one entry of the chain.
//!
//! Stands between client and chain node. A batch that is lost is asked again by its clients.

use super::config::Config;
use super::entrance::Entrance;
use super::id::ChainNodeId;
use super::message::Chain;
use super::metrics;
use super::{Envelope, chain_node};
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use ionian_kernel::id::*;
use ionian_kernel::messages;
use ionian_kernel::protocol::Birth;
use ionian_kernel::random::Random;
use ionian_kernel::role::{Out, Role};
use ionian_kernel::status::{Metrics, Status};
use ionian_kernel::time::Instant;
use ionian_kernel::wire::Never;
use ionian_replication::batch::{Batch, OpenBatch};

messages! {
    /// The messages that a batcher receives.
    "batcher" In {
        /// Commands of a client.
        0 for "batch.wait" of commands => Commands {
            /// The commands.
            commands: Batch,
        },
        /// The head has executed these batches.
        1 => BatchesDone {
            /// This batcher's numbers of the batches.
            numbers: Vec<u64>,
        },
        /// A chain that the master has decided.
        2 => Chain {
            /// The chain.
            chain: Chain,
        },
    }
}

/// A batcher.
pub struct Batcher {
    id: BatcherId,
    config: Arc<Config>,
    entrance: Entrance,
    /// When a batch was answered last.
    answered_at: Instant,
    open: OpenBatch,
    /// When each batch under way was sent, and to which node: one that is lost must not count
    /// without end.
    under_way: BTreeMap<u64, (Instant, ChainNodeId)>,
    /// The last batch that was sent to the head and is overdue.
    overdue: Option<u64>,
    next_number: u64,
    batches: u64,
}

impl Batcher {
    /// The batcher of this birth.
    pub fn new(config: Arc<Config>, birth: &Birth<'_>) -> Self {
        Batcher {
            id: BatcherId(birth.address.index),
            entrance: Entrance::new(config.founding()),
            config,
            answered_at: Instant::ZERO,
            open: OpenBatch::default(),
            under_way: BTreeMap::new(),
            overdue: None,
            next_number: Random::new(birth.seed).any() >> 1,
            batches: 0,
        }
    }

    fn close_if_due(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let options = self.config.options();
        while let Some(oldest) = self.under_way.first_entry()
            && now.since(oldest.get().0) > options.resend_after
        {
            let (number, (sent_at, node)) = oldest.remove_entry();
            if self.entrance.is_head(node) {
                self.overdue = Some(number);
            }
            // If later ones were answered it was lost, or is slow.
            if self.answered_at <= sent_at {
                self.entrance.unanswered(now, sent_at);
            }
        }
        if !self.open.is_due(now, self.under_way.len(), options) {
            return;
        }
        let node = self.entrance.next(now, &self.config);
        if let Some(node) = node {
            self.under_way.insert(self.next_number, (now, node));
        }
        let from = Some((self.id, self.next_number));
        self.next_number += 1;
        self.batches += 1;
        let (batch, handed) = (self.open.take(), false);
        let message = chain_node::In::Write {
            batch,
            from,
            handed,
        };
        if let Some(node) = node {
            out.send(Envelope::ToChainNodes(Set::one(node), message));
        }
    }

    /// Whether a batch that is executed was sent to the head.
    fn went_to_head(&mut self, number: u64) -> bool {
        match self.under_way.remove(&number) {
            Some((_, node)) => self.entrance.is_head(node),
            None => self.overdue.is_some_and(|overdue| number <= overdue),
        }
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
        self.config = config;
    }

    fn on_message(&mut self, now: Instant, message: In, out: &mut Out<'_, Self>) {
        match message {
            In::Commands { commands } => {
                self.open.append(now, &commands);
                if self.open.is_full(self.config.options()) {
                    self.close_if_due(now, out);
                }
            }
            In::BatchesDone { numbers } => {
                for number in numbers {
                    if self.went_to_head(number) {
                        self.entrance.head_answered();
                    }
                }
                self.answered_at = now;
            }
            In::Chain { chain } => {
                self.entrance.follow(now, chain);
            }
        }
    }

    fn next_timer(&self) -> Option<Instant> {
        self.open.closes_at(self.config.options())
    }

    fn on_burst_end(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        self.close_if_due(now, out);
    }

    const METRICS: Metrics = &[metrics::BATCHER];

    fn status(&self, status: &mut Status) {
        status.add([self.batches, self.under_way.len() as u64]);
    }
}
