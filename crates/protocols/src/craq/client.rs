//! The client lane of CRAQ; see [`crate::multipaxos::client`] for what a lane is.
//!
//! Stands at both ends of the chart. Writes go to a batcher, or to the head of the chain where
//! there are no batchers; reads go to a chain node, if possible on its own node. Any chain node
//! hands on a write that is not for it, and says what the chain is.

use super::config::Config;
use super::entrance::Entrance;
use super::id::ChainNodeId;
use super::message::Chain;
use super::metrics;
use super::{Envelope, batcher, chain_node, kind};
use alloc::sync::Arc;
use ionian_kernel::client::{ReadLevel, Request};
use ionian_kernel::id::*;
use ionian_kernel::layout::NodeId;
use ionian_kernel::messages;
use ionian_kernel::protocol::Birth;
use ionian_kernel::random::Random;
use ionian_kernel::role::{Out, Role};
use ionian_kernel::status::{Metrics, Status};
use ionian_kernel::time::Instant;
use ionian_kernel::wire::Never;
use ionian_replication::batch::{Answers, Batch, BatchBuilder, Command, Purpose};
use ionian_replication::lane::{Due, DueWrite, Lane};
use ionian_replication::suspicion::Choice;

messages! {
    /// The messages that a client lane receives.
    "client" In {
        /// The application wants this done.
        0 => Submit {
            /// The command.
            request: Request,
        },
        /// A chain node's answers, perhaps by way of an unbatcher.
        1 for "answers" of answers => Answers {
            /// The answers to this lane.
            answers: Answers,
        },
        /// A chain that the master has decided.
        2 => Chain {
            /// The chain.
            chain: Chain,
        },
    }
}

/// A client lane.
pub struct ClientLane {
    id: ClientId,
    node: NodeId,
    config: Arc<Config>,
    lane: Lane,
    due: Due,
    /// Where writes go, if there are no batchers.
    entrance: Entrance,
    batchers: Choice<BatcherId>,
    /// Where reads go.
    nodes: Choice<ChainNodeId>,
    /// Changes of the membership that were sent.
    turn: u64,
    /// Writes of this burst, for a batcher.
    writes: BatchBuilder,
    writes_via: Option<(BatcherId, Set<BatcherId>)>,
    /// Linearizable reads of this burst.
    reads: BatchBuilder,
    reads_via: Option<(ChainNodeId, Set<ChainNodeId>)>,
}

impl ClientLane {
    /// The lane of this birth.
    pub fn new(config: &Arc<Config>, birth: &Birth<'_>) -> Self {
        let mut random = Random::new(birth.seed);
        let id = ClientId(birth.address.index);
        let mut lane = Lane::new(id, config.options(), Random::new(random.any()));
        lane.goes_round(askable(config));
        ClientLane {
            id,
            node: birth.node,
            lane,
            due: Due::default(),
            entrance: Entrance::new(config.founding()),
            batchers: Choice::new(
                config.all(kind::Batcher),
                config.near(kind::Batcher, birth.node),
                random.any(),
            ),
            nodes: Choice::new(
                config.nodes(),
                config.near(kind::ChainNode, birth.node),
                random.any(),
            ),
            turn: random.any() >> 1,
            writes: BatchBuilder::default(),
            writes_via: None,
            reads: BatchBuilder::default(),
            reads_via: None,
            config: config.clone(),
        }
    }

    fn carry_out(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let mut due = core::mem::take(&mut self.due);
        for reply in due.replies.drain(..) {
            out.send(Envelope::ToApplication(self.id, reply));
        }
        // An empty drain is not free, and nearly always one of the three is filled.
        if !due.writes.is_empty() {
            for write in due.writes.drain(..) {
                self.write(now, write, out);
            }
        }
        if !due.reads.is_empty() {
            for (level, command, via) in due.reads.drain(..) {
                self.read(now, level, &command, via, out);
            }
        }
        self.due = due;
    }

    fn write(&mut self, now: Instant, write: DueWrite, out: &mut Out<'_, Self>) {
        let DueWrite { command, via, .. } = write;
        if command.purpose == Purpose::Change {
            return self.change(&command, out);
        }
        if self.batchers.is_empty() {
            let Some(node) = self.entrance.next(now, &self.config) else {
                return;
            };
            let (purpose, number) = (command.purpose, command.number);
            self.lane.sent_via(purpose, number, node.index());
            let message = chain_node::In::Write {
                batch: Batch::one(&command),
                from: None,
                handed: false,
            };
            return out.send(Envelope::ToChainNodes(Set::one(node), message));
        }
        if let Some(silent) = via {
            self.batchers.silent(BatcherId(silent), now);
            self.writes_via = self
                .writes_via
                .filter(|(batcher, _)| batcher.index() != silent);
        }
        if self.writes_via.is_none() {
            self.flush_writes(out);
            self.writes_via = self.batchers.next(now);
        }
        let (batcher, _) = self.writes_via.expect("there are batchers");
        let (purpose, number) = (command.purpose, command.number);
        self.lane.sent_via(purpose, number, batcher.index());
        self.writes.push(&command);
        if self.writes.byte_len() >= self.config.options().batch_bytes {
            self.flush_writes(out);
        }
    }

    /// Any chain node hands a change of the membership to the master: each in turn.
    fn change(&mut self, command: &Command, out: &mut Out<'_, Self>) {
        self.turn += 1;
        if let Some(node) = self.config.nodes().pick(self.turn) {
            let message = chain_node::In::Write {
                batch: Batch::one(command),
                from: None,
                handed: false,
            };
            out.send(Envelope::ToChainNodes(Set::one(node), message));
        }
    }

    fn read(
        &mut self,
        now: Instant,
        level: ReadLevel,
        command: &Command,
        via: Option<Index>,
        out: &mut Out<'_, Self>,
    ) {
        if let Some(silent) = via {
            self.nodes.silent(ChainNodeId(silent), now);
            self.reads_via = self.reads_via.filter(|(node, _)| node.index() != silent);
        }
        let executed = match level {
            ReadLevel::Linearizable => None,
            ReadLevel::Sequential => Some(self.lane.seen()),
            ReadLevel::Eventual => Some(Slot::ZERO),
        };
        if self.reads_via.is_none() {
            self.flush_reads(out);
            self.reads_via = self.nodes.next(now);
        }
        let (node, nodes) = self.reads_via.expect("there are chain nodes");
        self.lane
            .sent_via(command.purpose, command.number, node.index());
        match executed {
            None => self.reads.push(command),
            Some(executed) => {
                let reads = Batch::one(command);
                let message = chain_node::In::ReadAt { reads, executed };
                out.send(Envelope::ToChainNodes(nodes, message));
            }
        }
        if self.reads.byte_len() >= self.config.options().batch_bytes {
            self.flush_reads(out);
        }
    }

    fn flush_writes(&mut self, out: &mut Out<'_, Self>) {
        if let Some((_, batchers)) = self.writes_via
            && !self.writes.is_empty()
        {
            let message = batcher::In::Commands {
                commands: self.writes.take(),
            };
            out.send(Envelope::ToBatchers(batchers, message));
        }
    }

    fn flush_reads(&mut self, out: &mut Out<'_, Self>) {
        if let Some((_, nodes)) = self.reads_via
            && !self.reads.is_empty()
        {
            let (reads, handed) = (self.reads.take(), false);
            let message = chain_node::In::Read { reads, handed };
            out.send(Envelope::ToChainNodes(nodes, message));
        }
    }

    /// The chain is another: its head may have none of what is in flight.
    fn follow(&mut self, now: Instant, chain: Chain, out: &mut Out<'_, Self>) {
        let is_other_head = self.entrance.follow(now, chain);
        // Where there are batchers they learn it too. A lane that has no session yet asks all the
        // same: it must have one before it can serve a client.
        let asks = self.batchers.is_empty() || !self.lane.is_open();
        if asks && is_other_head {
            self.lane.resend_writes(now, &mut self.due);
            self.carry_out(now, out);
        }
    }
}

/// Among how many instances it goes round with what is not answered.
fn askable(config: &Config) -> usize {
    match config.all::<BatcherId>(kind::Batcher).len() {
        0 => config.nodes().len(),
        batchers => batchers,
    }
}

impl Role for ClientLane {
    type In = In;
    type Send = Envelope;
    type Config = Arc<Config>;
    type Record = Never;

    fn recover(&mut self, record: Never) {
        match record {}
    }

    fn on_start(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        self.lane.start(now, &mut self.due);
        self.carry_out(now, out);
    }

    fn on_reconfigure(&mut self, now: Instant, config: Arc<Config>, _: &mut Out<'_, Self>) {
        self.lane.reconfigure(now, config.options());
        self.lane.goes_round(askable(&config));
        let node = self.node;
        self.batchers
            .reconfigure(config.all(kind::Batcher), config.near(kind::Batcher, node));
        self.nodes
            .reconfigure(config.nodes(), config.near(kind::ChainNode, node));
        self.config = config;
    }

    fn on_retire(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        self.lane.give_up_all(&mut self.due);
        self.carry_out(now, out);
    }

    fn on_message(&mut self, now: Instant, message: In, out: &mut Out<'_, Self>) {
        match message {
            In::Submit { request } => self.lane.submit(now, request, &mut self.due),
            In::Answers { answers } => {
                // The tail answers writes, also while it can answer no linearizable read.
                let mut purposes = answers.borrowed().map(|answer| answer.purpose);
                if purposes.any(|purpose| purpose == Purpose::Read) {
                    self.nodes.heard(ChainNodeId(answers.from));
                }
                let via = self.lane.on_answers(now, &answers, &mut self.due);
                Set::from_members(via.reads)
                    .iter()
                    .for_each(|node| self.nodes.heard(node));
                if self.batchers.is_empty() {
                    let mut asked = Set::from_members(via.writes).iter();
                    if asked.any(|node| self.entrance.is_head(node)) {
                        self.entrance.head_answered();
                    }
                } else {
                    Set::from_members(via.writes)
                        .iter()
                        .for_each(|batcher| self.batchers.heard(batcher));
                }
            }
            In::Chain { chain } => self.follow(now, chain, out),
        }
        self.carry_out(now, out);
    }

    fn on_timer(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        self.lane.on_timer(now, &mut self.due);
        if core::mem::take(&mut self.due.writes_overdue) {
            self.entrance.unanswered(now, now);
        }
        self.carry_out(now, out);
    }

    fn next_timer(&self) -> Option<Instant> {
        self.lane.next_timer()
    }

    fn on_burst_end(&mut self, _: Instant, out: &mut Out<'_, Self>) {
        self.flush_writes(out);
        self.flush_reads(out);
        // The next burst may choose others.
        (self.writes_via, self.reads_via) = (None, None);
    }

    fn invariants(&self) {
        self.lane.invariants();
    }

    const METRICS: Metrics = &[metrics::CLIENT];

    fn status(&self, status: &mut Status) {
        self.lane.report(status);
        status.add([self.lane.in_flight() as u64, self.lane.seen().0]);
    }
}
