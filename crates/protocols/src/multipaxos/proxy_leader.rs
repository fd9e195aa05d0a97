//! The proxy leader (3.1): runs phase 2 for the slots that a leader assigns to it, and sends chosen
//! values to the replicas.
//!
//! Stands between leader and acceptors, and between acceptors and replicas. Its rules are those of
//! [`ProxyLeaderCore`]; here are its messages.

use super::config::Config;
use super::message::Proposer;
use super::{Envelope, acceptor, batcher, leader, replica};
use crate::parts::metrics;
use crate::parts::proxy_leader::{Ask, ProxyLeaderCore, ProxyLeaderPort};
use crate::pigpaxos;
use crate::pigpaxos::asking::Asking;
use crate::pigpaxos::message::RelayId;
use alloc::sync::Arc;
use alloc::vec::Vec;
use ionian_kernel::id::*;
use ionian_kernel::messages;
use ionian_kernel::protocol::Birth;
use ionian_kernel::role::{Out, Role};
use ionian_kernel::status::{Metrics, Status};
use ionian_kernel::time::{Instant, earliest};
use ionian_kernel::wire::Never;
use ionian_replication::batch::Value;
use ionian_replication::suspicion::ALIVE_EVERY;

messages! {
    /// The messages that a proxy leader receives.
    "proxy_leader" In {
        /// A leader wants this value chosen in this slot.
        0 for "phase2a" of slot value => Phase2a {
            /// The slot.
            slot: Slot,
            /// The leader's round.
            round: Round,
            /// The value.
            value: Value,
            /// Who waits to hear that it is chosen.
            proposer: Proposer,
            /// The replica that is to answer the clients.
            replier: ReplicaId,
        },
        /// An acceptor voted.
        1 for "chosen" of slot => Phase2b {
            /// The acceptor.
            from: AcceptorId,
            /// The slot.
            slot: Slot,
            /// The round in which it voted.
            round: Round,
        },
        /// An acceptor has promised a higher round and refuses.
        2 => Nack {
            /// The round that it promised.
            round: Round,
        },
        /// An acceptor has forgotten these slots: they are chosen, and enough replicas have
        /// executed them.
        3 => Forgotten {
            /// The slots below this one.
            below: Slot,
        },
        /// A relay has asked the acceptors of its group.
        4 for "chosen" of slot => Votes {
            /// The relay.
            from: RelayId,
            /// The slot.
            slot: Slot,
            /// The round in which they voted.
            round: Round,
            /// The acceptors that voted.
            voted: AcceptorSet,
            /// Those that did not, if the relay gave up waiting.
            missing: AcceptorSet,
        },
    }
}

/// A proxy leader.
pub struct ProxyLeader {
    id: ProxyLeaderId,
    config: Arc<Config>,
    core: ProxyLeaderCore,
    /// How it asks acceptors.
    asking: Asking,
    alive_at: Instant,
}

impl ProxyLeader {
    /// The proxy leader of this birth.
    pub fn new(config: Arc<Config>, birth: &Birth<'_>) -> Self {
        ProxyLeader {
            id: ProxyLeaderId(birth.address.index),
            core: ProxyLeaderCore::new(config.clone(), birth),
            asking: Asking::new(&config, birth),
            alive_at: Instant::ZERO,
            config,
        }
    }
}

/// The messages of the proxy leader's part.
struct Port<'a, 'b> {
    id: ProxyLeaderId,
    now: Instant,
    asking: &'a mut Asking,
    out: &'a mut Out<'b, ProxyLeader>,
}

impl ProxyLeader {
    /// The proxy leader's part, and its port.
    #[inline]
    fn part<'a, 'b>(
        &'a mut self,
        now: Instant,
        out: &'a mut Out<'b, Self>,
    ) -> (&'a mut ProxyLeaderCore, Port<'a, 'b>) {
        let port = Port {
            id: self.id,
            now,
            asking: &mut self.asking,
            out,
        };
        (&mut self.core, port)
    }
}

impl ProxyLeaderPort for Port<'_, '_> {
    #[inline]
    fn phase2a(&mut self, ask: Ask, slot: (Slot, Round), value: Value) {
        let Port {
            id,
            now,
            asking,
            out,
        } = self;
        asking.phase2a((*now, *id), ask, slot, value, out);
    }

    #[inline]
    fn chosen(&mut self, to: Set<ReplicaId>, slot: Slot, value: Value, replier: ReplicaId) {
        let message = replica::In::Chosen {
            slot,
            value,
            replier,
        };
        self.out.send(Envelope::ToReplicas(to, message));
    }

    #[inline]
    fn learn(&mut self, to: AcceptorSet, slot: Slot, round: Round, replier: ReplicaId) {
        let to = match self.asking.has_relays() {
            true => self.asking.learn(self.now, to, (slot, round), replier),
            false => to,
        };
        let message = acceptor::In::Learn {
            slot,
            round,
            replier,
        };
        self.out.send(Envelope::ToAcceptors(to, message));
    }

    #[inline]
    fn batches_chosen(&mut self, to: BatcherId, numbers: Vec<u64>) {
        let message = batcher::In::BatchesChosen { numbers };
        self.out.send(Envelope::ToBatchers(Set::one(to), message));
    }

    fn nack(&mut self, to: Set<LeaderId>, promise: Round) {
        let message = leader::In::Nack { round: promise };
        self.out.send(Envelope::ToLeaders(to, message));
    }

    fn reached(&mut self, branch: &'static str) {
        self.out.reached(branch);
    }
}

impl Role for ProxyLeader {
    type In = In;
    type Send = Envelope;
    type Config = Arc<Config>;
    type Record = Never;

    fn recover(&mut self, record: Never) {
        match record {}
    }

    fn on_reconfigure(&mut self, _: Instant, config: Arc<Config>, _: &mut Out<'_, Self>) {
        self.core.reconfigure(config.clone());
        self.asking.reconfigure(&config);
        self.config = config;
    }

    fn on_message(&mut self, now: Instant, message: In, out: &mut Out<'_, Self>) {
        let (core, mut port) = self.part(now, out);
        let port = &mut port;
        match message {
            In::Phase2a {
                slot,
                round,
                value,
                proposer,
                replier,
            } => core.on_phase2a(now, (slot, round), value, (proposer, replier), port),
            In::Phase2b { from, slot, round } => {
                core.on_votes(now, Set::one(from), (slot, round), port)
            }
            In::Nack { round } => core.on_nack(round, port),
            In::Forgotten { below } => core.on_forgotten(below, port),
            In::Votes {
                from,
                slot,
                round,
                voted,
                missing,
            } => {
                port.asking.heard(now, from, (voted, missing));
                core.on_votes(now, voted, (slot, round), port);
            }
        }
    }

    fn on_timer(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        if self.alive_at <= now {
            self.alive_at = now + ALIVE_EVERY;
            let message = leader::In::ProxyAlive { from: self.id };
            out.send(Envelope::ToLeaders(self.config.leaders(), message));
        }
        let (core, mut port) = self.part(now, out);
        core.on_timer(now, &mut port);
        self.asking.on_timer(now, out);
    }

    fn next_timer(&self) -> Option<Instant> {
        let next = earliest(self.core.next_timer(), self.asking.next_timer());
        earliest(next, Some(self.alive_at))
    }

    fn on_burst_end(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let (core, mut port) = self.part(now, out);
        core.on_burst_end(&mut port);
        if self.core.is_idle() {
            self.asking.on_idle(now, out);
        }
    }

    fn invariants(&self) {
        self.core.invariants();
    }

    const METRICS: Metrics = &[metrics::PROXY_LEADER, pigpaxos::metrics::FANOUT];

    fn status(&self, status: &mut Status) {
        self.core.report(status);
        status.add([self.asking.suspects() as u64]);
    }
}
