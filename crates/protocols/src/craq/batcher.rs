//! The batcher: gathers commands into batches, each of which is one entry of the chain.
//!
//! Stands between client and chain node. A batch that is lost is asked again by its clients.

use super::config::Config;
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
        0 => Commands {
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
    chain: Chain,
    /// Turns to other nodes than the head while it leaves everything unanswered: each hands on what
    /// is not for it.
    stray: u64,
    /// When a batch was answered last.
    answered_at: Instant,
    open: OpenBatch,
    /// When each batch under way was sent: one that is lost must not count without end.
    under_way: BTreeMap<u64, Instant>,
    next_number: u64,
    batches: u64,
}

impl Batcher {
    /// The batcher of this birth.
    pub fn new(config: Arc<Config>, birth: &Birth<'_>) -> Self {
        Batcher {
            id: BatcherId(birth.address.index),
            chain: config.founding(),
            config,
            stray: 0,
            answered_at: Instant::ZERO,
            open: OpenBatch::default(),
            under_way: BTreeMap::new(),
            next_number: Random::new(birth.seed).any() >> 1,
            batches: 0,
        }
    }

    fn close_if_due(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let options = self.config.options();
        while let Some(oldest) = self.under_way.first_entry()
            && now.since(*oldest.get()) > options.resend_after
        {
            // If later ones were answered it was lost, or is slow.
            let sent_at = oldest.remove();
            self.stray += u64::from(self.answered_at <= sent_at);
        }
        if !self.open.is_due(now, self.under_way.len(), options) {
            return;
        }
        self.under_way.insert(self.next_number, now);
        let from = Some((self.id, self.next_number));
        self.next_number += 1;
        self.batches += 1;
        let (batch, handed) = (self.open.take(), false);
        let message = chain_node::In::Write {
            batch,
            from,
            handed,
        };
        if let Some(node) = head_or_other(&self.chain, &self.config, self.stray) {
            out.send(Envelope::ToChainNodes(Set::one(node), message));
        }
    }
}

/// The head of the chain; or, while it leaves writes unanswered, another node in each turn.
pub(super) fn head_or_other(chain: &Chain, config: &Config, stray: u64) -> Option<ChainNodeId> {
    let head = chain.head().filter(|_| stray == 0);
    head.or_else(|| config.nodes().pick(stray))
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
                numbers.iter().for_each(|number| {
                    self.under_way.remove(number);
                });
                (self.stray, self.answered_at) = (0, now);
            }
            // A node that knows no later chain confirms that the head is right.
            In::Chain { chain } => {
                if !self.chain.is_later_than(&chain) {
                    (self.chain, self.stray) = (chain, 0);
                }
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
