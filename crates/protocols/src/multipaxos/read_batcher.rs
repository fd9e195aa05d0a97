//! The read batcher (4.1, "Discussion"): gathers reads, asks a read quorum of acceptors once for
//! all of them, and hands them to one replica.
//!
//! Stands between client and acceptors, and between acceptors and replicas, on the read path.

use super::config::Config;
use super::message::ReaderId;
use super::metrics;
use super::quorum_reader::{Found, QuorumReader};
use super::{Envelope, kind, replica};
use crate::pigpaxos::message::Watermarks;
use alloc::boxed::Box;
use alloc::sync::Arc;
use ionian_kernel::id::*;
use ionian_kernel::layout::NodeId;
use ionian_kernel::messages;
use ionian_kernel::protocol::Birth;
use ionian_kernel::random::Random;
use ionian_kernel::role::{Out, Role};
use ionian_kernel::status::{Metrics, Status};
use ionian_kernel::time::Instant;
use ionian_kernel::wire::Never;
use ionian_replication::batch::Batch;
use ionian_replication::suspicion::{PRESENT_FOR, Presence};

messages! {
    /// The messages that a read batcher receives.
    "read_batcher" In {
        /// Linearizable reads of a client.
        0 for "batch.wait" of reads => Reads {
            /// The reads.
            reads: Batch,
        },
        /// An acceptor's vote watermark.
        1 for "inquired" of inquiry => PreReadAck {
            /// The acceptor.
            from: AcceptorId,
            /// The inquiry that it answers.
            inquiry: u64,
            /// The slot after the highest it has voted in.
            watermark: Slot,
            /// The epoch of the highest round that it has promised.
            epoch: Epoch,
        },
        /// A replica lives.
        2 => ReplicaAlive {
            /// The replica.
            from: ReplicaId,
        },
        /// The watermarks of several acceptors.
        3 for "inquired" of watermarks => Watermarks {
            /// The highest of them, and whose they are.
            watermarks: Box<Watermarks>,
        },
    }
}

/// A read batcher.
pub struct ReadBatcher {
    reader: QuorumReader,
    node: NodeId,
    /// Replicas on the own node: the way to them is the shortest.
    near: Set<ReplicaId>,
    present: Presence<ReplicaId>,
    turn: u64,
    batches: u64,
}

impl ReadBatcher {
    /// The read batcher of this birth.
    pub fn new(config: Arc<Config>, birth: &Birth<'_>) -> Self {
        let mut random = Random::new(birth.seed);
        let id = ReadBatcherId(birth.address.index);
        ReadBatcher {
            node: birth.node,
            near: config.near(kind::Replica, birth.node),
            present: Presence::new(config.serving(), PRESENT_FOR),
            turn: random.any() >> 1,
            batches: 0,
            reader: QuorumReader::new(
                config,
                ReaderId::ReadBatcher { id },
                birth.node,
                &mut random,
            ),
        }
    }

    fn pick_replica(&mut self, now: Instant) -> ReplicaId {
        self.turn += 1;
        self.present
            .pick(self.near, now, self.turn)
            .expect("a deployment has replicas")
    }

    /// An inquiry has ended: hands the reads to a replica.
    fn read(&mut self, now: Instant, found: Found, out: &mut Out<'_, Self>) {
        self.batches += 1;
        let present = self.present.present(now);
        let ready = found.ready.and(present).preferring(self.near);
        let replica = match ready.pick(self.turn) {
            Some(replica) => replica,
            None => self.pick_replica(now),
        };
        let message = replica::In::Read {
            reads: found.reads,
            executed: found.watermark,
        };
        out.send(Envelope::ToReplicas(Set::one(replica), message));
    }
}

impl Role for ReadBatcher {
    type In = In;
    type Send = Envelope;
    type Config = Arc<Config>;
    type Record = Never;

    fn recover(&mut self, record: Never) {
        match record {}
    }

    fn on_start(&mut self, now: Instant, _: &mut Out<'_, Self>) {
        self.present.start(now);
    }

    fn on_reconfigure(&mut self, now: Instant, config: Arc<Config>, _: &mut Out<'_, Self>) {
        self.near = config.near(kind::Replica, self.node);
        self.present.reconfigure(config.serving());
        self.reader.reconfigure(now, config);
    }

    fn on_message(&mut self, now: Instant, message: In, out: &mut Out<'_, Self>) {
        match message {
            In::Reads { reads } => self.reader.add(now, &reads),
            In::PreReadAck {
                from,
                inquiry,
                watermark,
                epoch,
            } => {
                let told = (watermark, epoch);
                if let Some(found) = self.reader.on_ack(from, inquiry, told) {
                    self.read(now, found, out);
                }
            }
            In::Watermarks { watermarks } => {
                if let Some(found) = self.reader.on_watermarks(now, &watermarks) {
                    self.read(now, found, out);
                }
            }
            In::ReplicaAlive { from } => self.present.heard(from, now),
        }
    }

    fn on_timer(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        // l7: one lost answer must not stall what waits for it.
        for ask in self.reader.overdue(now) {
            self.reader.ask(now, ask, out);
        }
    }

    fn next_timer(&self) -> Option<Instant> {
        self.reader.next_timer()
    }

    fn on_burst_end(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        while let Some(ask) = self.reader.begin(now) {
            self.reader.ask(now, ask, out);
        }
    }

    fn invariants(&self) {
        self.reader.invariants();
    }

    const METRICS: Metrics = &[metrics::READ_BATCHER];

    fn status(&self, status: &mut Status) {
        status.add([
            self.batches,
            self.reader.under_way() as u64,
            self.reader.dropped(),
        ]);
    }
}
