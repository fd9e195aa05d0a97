//! The replica (2.3, 3.3, 3.4): executes the log in order, answers for the slots that it was named
//! for, and answers reads.
//!
//! Stands between proxy leader and client (or unbatcher), and between readers and client. Its rules
//! are those of [`ReplicaCore`]; here are its messages.

use super::config::Config;
use super::message::{ChosenSlots, Times};
use super::{Envelope, acceptor, client, kind, leader, read_batcher, unbatcher};
use crate::parts::metrics;
use crate::parts::replica::divergence::Mark;
use crate::parts::replica::{Chunk, Gate, ReplicaCore, ReplicaPort, Resumption};
use crate::pigpaxos::settings::reads_at_executed;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use bytes::Bytes;
use ionian_kernel::id::*;
use ionian_kernel::layout::NodeId;
use ionian_kernel::machine::{Frozen, RestoreError};
use ionian_kernel::membership::Membership;
use ionian_kernel::messages;
use ionian_kernel::protocol::Birth;
use ionian_kernel::role::{Cover, Out, Picture, Role};
use ionian_kernel::status::{Metrics, Status};
use ionian_kernel::time::{Instant, Timestamp};
use ionian_kernel::wire::Never;
use ionian_replication::batch::{Answers, Batch, Value};

messages! {
    /// The messages that a replica receives.
    "replica" In {
        /// A value is chosen.
        0 for "execute" of slot value => Chosen {
            /// The slot.
            slot: Slot,
            /// The value.
            value: Value,
            /// The replica that answers the clients.
            replier: ReplicaId,
        },
        /// Reads to answer once every slot below `executed` is executed.
        1 for "read" of reads => Read {
            /// The reads.
            reads: Batch,
            /// What they must see.
            executed: Slot,
        },
        /// The leader lives, and some replica has executed every slot below `executed`.
        2 => Heartbeat {
            /// The leader's round.
            round: Round,
            /// How far the log is known to reach.
            executed: Slot,
            /// What is below this slot is to be kept through a crash as soon as it is executed.
            keep: Slot,
            /// What the leader would stamp into the log now.
            time: Timestamp,
        },
        /// A peer misses slots.
        3 => Fetch {
            /// The peer.
            from: ReplicaId,
            /// The first slot that it misses.
            start: Slot,
            /// The slot after the last that it wants.
            end: Slot,
            /// Whether it is to be answered later, if it cannot be answered now.
            waits: bool,
        },
        /// A peer's slots.
        4 => Fetched {
            /// The peer.
            from: ReplicaId,
            /// The slots and their values.
            slots: ChosenSlots,
        },
        /// A peer wants a piece of a snapshot.
        5 => FetchSnapshot {
            /// The peer.
            from: ReplicaId,
            /// Which snapshot: that of the state before this slot.
            executed: Slot,
            /// Where the piece begins.
            offset: u64,
        },
        /// A piece of a peer's snapshot.
        6 => SnapshotChunk {
            /// The peer.
            from: ReplicaId,
            /// The snapshot is of the state before this slot.
            executed: Slot,
            /// Where the piece begins.
            offset: u64,
            /// Whether the snapshot ends with the piece.
            last: bool,
            /// The piece.
            bytes: Bytes,
        },
        /// An unbatcher lives.
        7 => UnbatcherAlive {
            /// The unbatcher.
            from: UnbatcherId,
        },
        /// What a stretch of the log has led to at a peer.
        8 since 18 => Mark {
            /// The peer.
            from: ReplicaId,
            /// The first slot of the stretch.
            start: Slot,
            /// The slot after its last.
            end: Slot,
            /// The sum of the results.
            sum: u64,
        },
    }
}

impl In {
    /// What a stretch of the log has led to at the replica `from`.
    pub fn mark(from: ReplicaId, mark: Mark) -> In {
        let Mark { start, end, sum } = mark;
        In::Mark {
            from,
            start,
            end,
            sum,
        }
    }
}

/// A replica.
pub struct Replica {
    id: ReplicaId,
    config: Arc<Config>,
    core: ReplicaCore,
    /// The highest round heard of.
    round: Round,
    node: NodeId,
    /// The acceptors of its node that tell readers how far it is: none in most deployments.
    telling: AcceptorSet,
    /// What they know.
    told: Slot,
}

impl Replica {
    /// The replica of this birth.
    pub fn new(config: Arc<Config>, birth: &Birth<'_>) -> Self {
        Replica {
            id: ReplicaId(birth.address.index),
            core: ReplicaCore::new(config.clone(), birth),
            round: Round(0),
            node: birth.node,
            telling: telling(&config, birth.node),
            told: Slot::ZERO,
            config,
        }
    }

    /// Every slot below this one is executed.
    pub fn executed(&self) -> Slot {
        self.core.executed()
    }

    /// What it has learned and executed.
    pub fn core(&self) -> &ReplicaCore {
        &self.core
    }

    /// What it has learned and executed, to be changed.
    pub(crate) fn core_mut(&mut self) -> &mut ReplicaCore {
        &mut self.core
    }

    /// See [`ReplicaCore::open`].
    pub(crate) fn open(&mut self, now: Instant, gate: Gate, out: &mut Out<'_, Self>) {
        let (core, mut port) = self.part(out);
        core.open(now, gate, &mut port);
    }

    /// See [`ReplicaCore::was_replaced`].
    pub(crate) fn was_replaced(
        &mut self,
        now: Instant,
        resumption: Resumption,
        out: &mut Out<'_, Self>,
    ) {
        let (core, mut port) = self.part(out);
        core.was_replaced(now, resumption, &mut port);
    }

    /// See [`ReplicaCore::offer`].
    pub(crate) fn offer(&mut self, now: Instant, to: ReplicaId, out: &mut Out<'_, Self>) {
        let (core, mut port) = self.part(out);
        core.offer(now, to, &mut port);
    }

    /// See [`ReplicaCore::offer_at_hand`].
    pub(crate) fn offer_at_hand(
        &mut self,
        now: Instant,
        to: ReplicaId,
        beyond: Slot,
        out: &mut Out<'_, Self>,
    ) -> bool {
        let (core, mut port) = self.part(out);
        core.offer_at_hand(now, to, beyond, &mut port)
    }

    /// See [`ReplicaCore::store`].
    pub(crate) fn store(&mut self, out: &mut Out<'_, Self>) {
        let (core, mut port) = self.part(out);
        core.store(&mut port);
    }

    /// Acceptors of its node are to know how far it is, for readers (PigPaxos 8.2).
    #[inline]
    fn tell_neighbours(&mut self, out: &mut Out<'_, Self>) {
        let executed = self.core.executed();
        if !self.telling.is_empty() && executed != self.told {
            self.told = executed;
            let message = acceptor::In::Executed { executed };
            out.send(Envelope::ToAcceptors(self.telling, message));
        }
    }

    /// The replica's part, and its port.
    #[inline]
    fn part<'a, 'b>(
        &'a mut self,
        out: &'a mut Out<'b, Self>,
    ) -> (&'a mut ReplicaCore, Port<'a, 'b>) {
        let port = Port {
            id: self.id,
            leaders: self.config.leaders(),
            round: self.round,
            out,
        };
        (&mut self.core, port)
    }
}

/// The acceptors that a replica on this node tells how far it is.
fn telling(config: &Config, node: NodeId) -> AcceptorSet {
    match reads_at_executed(config.options()) {
        true => config.near(kind::Acceptor, node),
        false => AcceptorSet::EMPTY,
    }
}

/// The messages of the replica's part.
struct Port<'a, 'b> {
    id: ReplicaId,
    leaders: Set<LeaderId>,
    round: Round,
    out: &'a mut Out<'b, Replica>,
}

impl ReplicaPort for Port<'_, '_> {
    #[inline]
    fn results(&mut self, to: UnbatcherId, answers: Answers) {
        let message = unbatcher::In::Results { answers };
        self.out.send(Envelope::ToUnbatchers(Set::one(to), message));
    }

    #[inline]
    fn answers(&mut self, to: ClientId, answers: Answers) {
        let message = client::In::Answers { answers };
        self.out.send(Envelope::ToClients(Set::one(to), message));
    }

    fn fetch(&mut self, to: ReplicaId, (start, end): (Slot, Slot), waits: bool) {
        let message = In::Fetch {
            from: self.id,
            start,
            end,
            waits,
        };
        self.out.send(Envelope::ToReplicas(Set::one(to), message));
    }

    fn fetched(&mut self, to: ReplicaId, slots: ChosenSlots) {
        let message = In::Fetched {
            from: self.id,
            slots,
        };
        self.out.send(Envelope::ToReplicas(Set::one(to), message));
    }

    fn fetch_snapshot(&mut self, to: ReplicaId, executed: Slot, offset: u64) {
        let message = In::FetchSnapshot {
            from: self.id,
            executed,
            offset,
        };
        self.out.send(Envelope::ToReplicas(Set::one(to), message));
    }

    fn snapshot_chunk(
        &mut self,
        to: ReplicaId,
        executed: Slot,
        offset: u64,
        last: bool,
        bytes: Bytes,
    ) {
        let message = In::SnapshotChunk {
            from: self.id,
            executed,
            offset,
            last,
            bytes,
        };
        self.out.send(Envelope::ToReplicas(Set::one(to), message));
    }

    fn recover(&mut self, slots: Vec<Slot>) {
        let message = leader::In::Recover { slots };
        self.out.send(Envelope::ToLeaders(self.leaders, message));
    }

    #[inline]
    fn report_executed(&mut self, executed: Slot, kept: Slot, times: Times) {
        let message = leader::In::Executed {
            from: self.id,
            executed,
            kept,
            round: self.round,
            times,
        };
        self.out.send(Envelope::ToLeaders(self.leaders, message));
    }

    fn advance_clock(&mut self, deadline: Timestamp) {
        let message = leader::In::AdvanceClock { deadline };
        self.out.send(Envelope::ToLeaders(self.leaders, message));
    }

    fn alive(&mut self, to: Set<ReadBatcherId>) {
        let message = read_batcher::In::ReplicaAlive { from: self.id };
        self.out.send(Envelope::ToReadBatchers(to, message));
    }

    fn mark(&mut self, to: Set<ReplicaId>, mark: Mark) {
        let message = In::mark(self.id, mark);
        self.out.send(Envelope::ToReplicas(to, message));
    }

    fn announce(&mut self, membership: Membership) {
        self.out.announce(membership);
    }

    fn store_snapshot(&mut self, stamp: u64, frozen: Box<dyn Frozen>) {
        self.out.store_snapshot(stamp, frozen);
    }

    fn reached(&mut self, branch: &'static str) {
        self.out.reached(branch);
    }
}

impl Role for Replica {
    type In = In;
    type Send = Envelope;
    type Config = Arc<Config>;
    type Record = Never;

    fn recover(&mut self, record: Never) {
        match record {}
    }

    fn restore(&mut self, stamp: u64, snapshot: &Bytes) -> Result<(), RestoreError> {
        self.core.restore(stamp, snapshot)
    }

    fn on_snapshot(&mut self, stamp: u64, stored: bool, _: &mut Out<'_, Self>) {
        self.core.on_snapshot(stamp, stored);
    }

    fn freeze(&mut self, now: Instant, cover: Cover) -> Picture {
        self.core.freeze(now, cover)
    }

    fn on_start(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let (core, mut port) = self.part(out);
        core.start(now, &mut port);
    }

    fn on_reconfigure(&mut self, _: Instant, config: Arc<Config>, _: &mut Out<'_, Self>) {
        self.core.reconfigure(config.clone());
        self.telling = telling(&config, self.node);
        self.config = config;
    }

    fn on_message(&mut self, now: Instant, message: In, out: &mut Out<'_, Self>) {
        if self.core.is_out() {
            return;
        }
        if let In::Heartbeat { round, .. } = message {
            self.round = round.max(self.round);
        }
        let (core, mut port) = self.part(out);
        let port = &mut port;
        match message {
            In::Chosen {
                slot,
                value,
                replier,
            } => core.on_chosen(now, slot, value, Some(replier), port),
            In::Read { reads, executed } => core.on_read(now, reads, executed),
            In::Heartbeat {
                round: _,
                executed,
                keep,
                time,
            } => core.on_heartbeat(now, executed, keep, time),
            In::Fetch {
                from,
                start,
                end,
                waits,
            } => core.on_fetch(now, from, (start, end), waits, port),
            In::Fetched { from, slots } => core.on_fetched(now, from, slots, port),
            In::FetchSnapshot {
                from,
                executed,
                offset,
            } => core.on_fetch_snapshot(now, from, executed, offset, port),
            In::SnapshotChunk {
                from,
                executed,
                offset,
                last,
                bytes,
            } => {
                let chunk = Chunk {
                    from,
                    executed,
                    offset,
                    last,
                    bytes,
                };
                core.on_chunk(now, chunk, port);
            }
            In::UnbatcherAlive { from } => core.on_unbatcher_alive(now, from),
            In::Mark {
                from,
                start,
                end,
                sum,
            } => core.on_mark(from, Mark { start, end, sum }),
        }
    }

    fn on_timer(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let (core, mut port) = self.part(out);
        core.on_timer(now, &mut port);
    }

    fn next_timer(&self) -> Option<Instant> {
        self.core.next_timer()
    }

    fn on_burst_end(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        if self.core.is_out() {
            return;
        }
        let (core, mut port) = self.part(out);
        core.on_burst_end(now, &mut port);
        self.tell_neighbours(out);
    }

    fn invariants(&self) {
        self.core.invariants();
    }

    const METRICS: Metrics = &[metrics::REPLICA, metrics::WORKERS];

    fn status(&self, status: &mut Status) {
        self.core.report_status(status);
    }
}
