//! The acceptor (2.2, 3.2, 3.4): promises, votes, and tells readers how far it has voted.
//!
//! Stands between leader (phase 1), proxy leader (phase 2) and readers. Its rules are those of
//! [`AcceptorCore`]; here are its messages.

use super::config::Config;
use super::message::{ReaderId, Votes};
use super::{Envelope, client, leader, proxy_leader, read_batcher, relay, replica};
pub use crate::parts::acceptor::Record;
use crate::parts::acceptor::{AcceptorCore, AcceptorPort};
use crate::parts::metrics;
use crate::pigpaxos::branch::COMMIT_EARLY;
use crate::pigpaxos::commits::{self, Early};
use crate::pigpaxos::message::{RelayId, Requester, Run, Watermarks};
use crate::pigpaxos::relay::watermarks::to_reader;
use alloc::boxed::Box;
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
        1 for "sync" of slot value => Phase2a {
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
        2 for "inquire" of inquiry => PreRead {
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
        6 for "learn" of slot => Learn {
            /// The slot.
            slot: Slot,
            /// The round in which the value was chosen.
            round: Round,
            /// The replica that is to answer the clients.
            replier: ReplicaId,
        },
        /// A relay asks for a vote, and says what is chosen; or a proxy leader itself, where there
        /// are relays.
        7 for "sync" of slot value => RelayedPhase2a {
            /// Who asks.
            from: Requester,
            /// The slot.
            slot: Slot,
            /// The leader's round.
            round: Round,
            /// The value.
            value: Value,
            /// Slots in which values of the round are chosen.
            chosen: Box<[Run]>,
        },
        /// The same as `Learn`, of several slots.
        8 => LearnSlots {
            /// The round in which the values were chosen.
            round: Round,
            /// The slots.
            chosen: Box<[Run]>,
        },
        /// A relay asks for a promise to the leader of a round, and for the votes of a stretch of
        /// slots.
        9 => RelayedPhase1a {
            /// The relay.
            from: RelayId,
            /// The round.
            round: Round,
            /// The first slot that the leader asks about.
            start: Slot,
            /// The slot after the last that it asks about.
            end: Slot,
        },
        /// A relay asks for the vote watermark.
        10 for "inquire" of inquiry => RelayedPreRead {
            /// The relay.
            from: RelayId,
            /// The reader.
            reader: ReaderId,
            /// The reader's number for the inquiry.
            inquiry: u64,
        },
        /// A replica of its node has executed every slot below this one.
        11 => Executed {
            /// The slot.
            executed: Slot,
        },
    }
}

/// Who asks for promises.
#[derive(Clone, Copy)]
enum Candidate {
    /// A leader.
    Leader(LeaderId),
    /// A relay, for the leader of the round.
    Relay(RelayId),
}

/// An acceptor.
pub struct Acceptor {
    id: AcceptorId,
    core: AcceptorCore,
    /// What it knows to be chosen and has not voted for: only where there are relays.
    early: Early,
    /// How far a replica of its node has executed, if readers are to know. Only a hint: the replica
    /// that gets a read looks itself.
    executed: Slot,
}

impl Acceptor {
    /// The acceptor of this birth.
    pub fn new(config: Arc<Config>, birth: &Birth<'_>) -> Self {
        Acceptor {
            id: AcceptorId(birth.address.index),
            core: AcceptorCore::new(config, birth),
            early: Early::default(),
            executed: Slot::ZERO,
        }
    }

    /// What it has promised and voted for.
    pub fn core(&self) -> &AcceptorCore {
        &self.core
    }

    /// A value is chosen: the replicas of this node are to have it, now or when it has voted.
    fn on_learn(
        &mut self,
        (slot, round): (Slot, Round),
        replier: ReplicaId,
        out: &mut Out<'_, Self>,
    ) {
        let port = &mut Port { id: self.id, out };
        if self.core.on_learn(slot, round, replier, port) {
            self.early.add(slot, round, replier);
        }
    }

    /// The same of several slots.
    fn on_learn_slots(&mut self, round: Round, chosen: &[Run], out: &mut Out<'_, Self>) {
        for (slot, replier) in commits::slots(chosen) {
            self.on_learn((slot, round), replier, out);
        }
    }

    /// Votes, and hands on the value if it is known to be chosen.
    fn on_phase2a(
        &mut self,
        now: Instant,
        from: Requester,
        (slot, round): (Slot, Round),
        value: Value,
        out: &mut Out<'_, Self>,
    ) {
        let port = &mut Port { id: self.id, out };
        self.core.on_phase2a(now, from, (slot, round), value, port);
        if let Some(replier) = self.early.voted(slot, round) {
            port.reached(COMMIT_EARLY);
            self.core.on_learn(slot, round, replier, port);
        }
    }

    /// A relay asks for a promise. If a higher round is promised, it need not wait for others.
    fn on_relayed_phase1a(
        &mut self,
        now: Instant,
        (relay, round): (RelayId, Round),
        slots: (Slot, Slot),
        out: &mut Out<'_, Self>,
    ) {
        let port = &mut Port { id: self.id, out };
        if let Some(promise) =
            self.core
                .on_phase1a(now, Candidate::Relay(relay), round, slots, port)
        {
            let message = relay::In::Nack { round: promise };
            out.send(Envelope::ToRelays(Set::one(relay), message));
        }
    }

    fn on_relayed_pre_read(
        &self,
        relay: RelayId,
        (reader, inquiry): (ReaderId, u64),
        out: &mut Out<'_, Self>,
    ) {
        let Some((watermark, promise)) = self.core.watermark() else {
            return;
        };
        let message = relay::In::PreReadAck {
            from: self.id,
            reader,
            inquiry,
            watermark,
            epoch: promise.epoch(),
            executed: self.executed,
        };
        out.send(Envelope::ToRelays(Set::one(relay), message));
    }

    fn on_pre_read(&self, from: ReaderId, inquiry: u64, out: &mut Out<'_, Self>) {
        let Some((watermark, promise)) = self.core.watermark() else {
            return;
        };
        let (acceptor, epoch) = (self.id, promise.epoch());
        if self.executed > Slot::ZERO {
            let watermarks = Watermarks {
                relay: None,
                inquiry,
                answered: Set::one(acceptor),
                watermark,
                epoch,
                ahead: acceptor,
                executed: self.executed,
                missing: AcceptorSet::EMPTY,
            };
            return out.send(to_reader(from, Box::new(watermarks)));
        }
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
    type Requester = Requester;
    type Candidate = Candidate;

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

    fn phase1b(&self, to: Candidate, round: Round, votes: Votes, clock: Timestamp) -> Envelope {
        let from = self.id;
        match to {
            Candidate::Leader(leader) => {
                let message = leader::In::Phase1b {
                    from,
                    round,
                    votes,
                    clock,
                };
                Envelope::ToLeaders(Set::one(leader), message)
            }
            Candidate::Relay(relay) => {
                let message = relay::In::Phase1b {
                    from,
                    round,
                    votes: Box::new(votes),
                    clock,
                };
                Envelope::ToRelays(Set::one(relay), message)
            }
        }
    }

    #[inline]
    fn phase2b(&self, to: Requester, slot: Slot, round: Round) -> Envelope {
        let from = self.id;
        match to {
            Requester::ProxyLeader { id } => {
                let message = proxy_leader::In::Phase2b { from, slot, round };
                Envelope::ToProxyLeaders(Set::one(id), message)
            }
            Requester::Relay { id } => {
                let message = relay::In::Phase2b { from, slot, round };
                Envelope::ToRelays(Set::one(id), message)
            }
        }
    }

    fn nack_leaders(&self, to: Set<LeaderId>, promise: Round) -> Envelope {
        Envelope::ToLeaders(to, leader::In::Nack { round: promise })
    }

    fn nack_requester(&self, to: Requester, promise: Round) -> Envelope {
        let round = promise;
        match to {
            Requester::ProxyLeader { id } => {
                Envelope::ToProxyLeaders(Set::one(id), proxy_leader::In::Nack { round })
            }
            Requester::Relay { id } => Envelope::ToRelays(Set::one(id), relay::In::Nack { round }),
        }
    }

    fn forgotten(&self, to: Requester, below: Slot) -> Envelope {
        match to {
            Requester::ProxyLeader { id } => {
                Envelope::ToProxyLeaders(Set::one(id), proxy_leader::In::Forgotten { below })
            }
            Requester::Relay { id } => {
                Envelope::ToRelays(Set::one(id), relay::In::Forgotten { below })
            }
        }
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
        let Acceptor { id, core, .. } = self;
        let port = &mut Port { id: *id, out };
        match message {
            In::Phase1a {
                from,
                round,
                start,
                end,
            } => {
                let from = Candidate::Leader(from);
                core.on_phase1a(now, from, round, (start, end), port);
            }
            In::Phase2a {
                from,
                slot,
                round,
                value,
            } => {
                let from = Requester::ProxyLeader { id: from };
                self.on_phase2a(now, from, (slot, round), value, out);
            }
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
            } => self.on_learn((slot, round), replier, out),
            In::RelayedPhase2a {
                from,
                slot,
                round,
                value,
                chosen,
            } => {
                self.on_learn_slots(round, &chosen, out);
                self.on_phase2a(now, from, (slot, round), value, out);
            }
            In::LearnSlots { round, chosen } => self.on_learn_slots(round, &chosen, out),
            In::RelayedPhase1a {
                from,
                round,
                start,
                end,
            } => self.on_relayed_phase1a(now, (from, round), (start, end), out),
            In::RelayedPreRead {
                from,
                reader,
                inquiry,
            } => self.on_relayed_pre_read(from, (reader, inquiry), out),
            In::Executed { executed } => self.executed = executed,
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
