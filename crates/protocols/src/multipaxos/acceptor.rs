//! The acceptor (2.2, 3.2, 3.4): promises, votes, and tells readers how far it has voted.
//!
//! Stands between leader (phase 1), proxy leader (phase 2) and readers. Its rules are those of
//! [`AcceptorCore`]; here are its messages.

use super::config::Config;
use super::message::{ReaderId, Votes};
use super::{Envelope, client, leader, proxy_leader, read_batcher, replica};
pub use crate::parts::acceptor::Record;
use crate::parts::acceptor::{AcceptorCore, AcceptorPort};
use crate::parts::metrics;
use alloc::sync::Arc;
use ionian_kernel::id::*;
use ionian_kernel::messages;
use ionian_kernel::protocol::Birth;
use ionian_kernel::role::{Out, Role};
use ionian_kernel::status::{Metrics, Status};
use ionian_kernel::time::{Instant, Timestamp};
use ionian_replication::batch::Value;

messages! {
    /// The messages that an acceptor receives.
    "acceptor" In {
        /// A leader asks for a promise and for the votes of a stretch of slots.
        0 => Phase1a {
            /// The leader.
            from: LeaderId,
            /// Its round.
            round: Round,
            /// The first slot that it asks about.
            start: Slot,
            /// The slot after the last that it asks about.
            end: Slot,
        },
        /// A proxy leader asks for a vote.
        1 => Phase2a {
            /// The proxy leader.
            from: ProxyLeaderId,
            /// The slot.
            slot: Slot,
            /// The leader's round.
            round: Round,
            /// The value.
            value: Value,
        },
        /// A reader asks for the vote watermark.
        2 => PreRead {
            /// The reader.
            from: ReaderId,
            /// Its number for the inquiry.
            inquiry: u64,
        },
        /// The leader lives, and f+1 replicas keep every slot below `kept`.
        3 => Heartbeat {
            /// The leader's round.
            round: Round,
            /// What can be forgotten.
            kept: Slot,
        },
        /// A leader asks whether the present one is gone.
        4 => PreVote {
            /// Who asks.
            from: LeaderId,
        },
        /// An acceptor that lost its memory may take part again.
        5 => Admit {
            /// The nonce of its request: a grant to an earlier process is void.
            nonce: u64,
            /// The round of the leader, higher than any that the acceptor has promised.
            round: Round,
            /// Every slot below this one is chosen and kept by f+1 replicas; no slot from it on
            /// has been voted for in a lower round by a quorum.
            frontier: Slot,
        },
        /// The value that it voted for in this slot and round is chosen: the replicas on its node
        /// are to have it.
        6 => Learn {
            /// The slot.
            slot: Slot,
            /// The round in which the value was chosen.
            round: Round,
            /// The replica that is to answer the clients.
            replier: ReplicaId,
        },
    }
}

/// An acceptor.
pub struct Acceptor {
    id: AcceptorId,
    core: AcceptorCore,
}

impl Acceptor {
    /// The acceptor of this birth.
    pub fn new(config: Arc<Config>, birth: &Birth<'_>) -> Self {
        Acceptor {
            id: AcceptorId(birth.address.index),
            core: AcceptorCore::new(config, birth),
        }
    }

    /// What it has promised and voted for.
    pub fn core(&self) -> &AcceptorCore {
        &self.core
    }

    fn on_pre_read(&self, from: ReaderId, inquiry: u64, out: &mut Out<'_, Self>) {
        let Some((watermark, promise)) = self.core.watermark() else {
            return;
        };
        let (acceptor, epoch) = (self.id, promise.epoch());
        out.send(match from {
            ReaderId::Client { id } => Envelope::ToClients(
                Set::one(id),
                client::In::PreReadAck {
                    from: acceptor,
                    inquiry,
                    watermark,
                    epoch,
                },
            ),
            ReaderId::ReadBatcher { id } => {
                let message = read_batcher::In::PreReadAck {
                    from: acceptor,
                    inquiry,
                    watermark,
                    epoch,
                };
                Envelope::ToReadBatchers(Set::one(id), message)
            }
        });
    }
}

/// The messages of the acceptor's part.
struct Port<'a, 'b> {
    id: AcceptorId,
    out: &'a mut Out<'b, Acceptor>,
}

impl AcceptorPort for Port<'_, '_> {
    type Envelope = Envelope;

    #[inline]
    fn send(&mut self, envelope: Envelope) {
        self.out.send(envelope);
    }

    // Those who send without a fence say why.
    #[inline]
    fn send_unfenced(&mut self, envelope: Envelope) {
        self.out.send_unfenced(envelope);
    }

    #[inline]
    fn persist(&mut self, record: Record) {
        self.out.persist(record);
    }

    fn persist_vital(&mut self, record: Record) {
        self.out.persist_vital(record);
    }

    fn release_below(&mut self, slot: Slot) {
        self.out.release_below(slot.0);
    }

    fn reached(&mut self, branch: &'static str) {
        self.out.reached(branch);
    }

    fn phase1b(&self, to: LeaderId, round: Round, votes: Votes, clock: Timestamp) -> Envelope {
        let message = leader::In::Phase1b {
            from: self.id,
            round,
            votes,
            clock,
        };
        Envelope::ToLeaders(Set::one(to), message)
    }

    #[inline]
    fn phase2b(&self, to: ProxyLeaderId, slot: Slot, round: Round) -> Envelope {
        let message = proxy_leader::In::Phase2b {
            from: self.id,
            slot,
            round,
        };
        Envelope::ToProxyLeaders(Set::one(to), message)
    }

    fn nack_leaders(&self, to: Set<LeaderId>, promise: Round) -> Envelope {
        Envelope::ToLeaders(to, leader::In::Nack { round: promise })
    }

    fn nack_proxy_leader(&self, to: ProxyLeaderId, promise: Round) -> Envelope {
        Envelope::ToProxyLeaders(Set::one(to), proxy_leader::In::Nack { round: promise })
    }

    fn forgotten(&self, to: ProxyLeaderId, below: Slot) -> Envelope {
        Envelope::ToProxyLeaders(Set::one(to), proxy_leader::In::Forgotten { below })
    }

    #[inline]
    fn chosen(&self, to: Set<ReplicaId>, slot: Slot, value: Value, replier: ReplicaId) -> Envelope {
        let message = replica::In::Chosen {
            slot,
            value,
            replier,
        };
        Envelope::ToReplicas(to, message)
    }

    fn pre_vote_reply(&self, to: LeaderId, gone: bool, promise: Round) -> Envelope {
        let message = leader::In::PreVoteReply {
            from: self.id,
            gone,
            promise,
        };
        Envelope::ToLeaders(Set::one(to), message)
    }

    fn rejoin(&self, to: Set<LeaderId>, nonce: u64, promise: Round) -> Envelope {
        let message = leader::In::Rejoin {
            from: self.id,
            nonce,
            promise,
        };
        Envelope::ToLeaders(to, message)
    }
}

impl Role for Acceptor {
    type In = In;
    type Send = Envelope;
    type Config = Arc<Config>;
    type Record = Record;

    fn recover(&mut self, record: Record) {
        self.core.recover(record);
    }

    fn key(record: &Record) -> Option<u64> {
        record.slot().map(|slot| slot.0)
    }

    fn on_start(&mut self, _: Instant, out: &mut Out<'_, Self>) {
        self.core.start(&mut Port { id: self.id, out });
    }

    fn checkpoint(&self, out: &mut Out<'_, Self>) {
        let (vital, others) = self.core.checkpoint();
        out.persist_vital(vital);
        others.for_each(|record| out.persist(record));
    }

    fn on_reconfigure(&mut self, _: Instant, config: Arc<Config>, _: &mut Out<'_, Self>) {
        self.core.reconfigure(config);
    }

    fn on_message(&mut self, now: Instant, message: In, out: &mut Out<'_, Self>) {
        let Acceptor { id, core } = self;
        let port = &mut Port { id: *id, out };
        match message {
            In::Phase1a {
                from,
                round,
                start,
                end,
            } => core.on_phase1a(now, from, round, (start, end), port),
            In::Phase2a {
                from,
                slot,
                round,
                value,
            } => core.on_phase2a(now, from, (slot, round), value, port),
            In::PreRead { from, inquiry } => self.on_pre_read(from, inquiry, out),
            In::Heartbeat { round, kept } => {
                core.on_heartbeat(now, round, kept, port);
            }
            In::PreVote { from } => core.on_pre_vote(now, from, port),
            In::Admit {
                nonce,
                round,
                frontier,
            } => core.on_admit(nonce, round, frontier, port),
            In::Learn {
                slot,
                round,
                replier,
            } => core.on_learn(slot, round, replier, port),
        }
    }

    fn on_timer(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        self.core.on_timer(now, &mut Port { id: self.id, out });
    }

    fn next_timer(&self) -> Option<Instant> {
        self.core.next_timer()
    }

    fn invariants(&self) {
        self.core.invariants();
    }

    const METRICS: Metrics = &[metrics::ACCEPTOR_POSITIONS, metrics::ACCEPTOR];

    fn status(&self, status: &mut Status) {
        status.voted = Some(self.core.voted());
        status.add([self.core.forgotten().0]);
        self.core.report_work(status);
    }
}
