//! The proxy leader (3.1): runs phase 2 for the slots that a leader assigns to it, and sends chosen
//! values to the replicas.
//!
//! Stands between leader and acceptors, and between acceptors and replicas. Its rules are those of
//! [`ProxyLeaderCore`]; here are its messages.

use super::config::Config;
use super::message::Proposer;
use super::{Envelope, acceptor, batcher, leader, replica};
use crate::parts::metrics;
use crate::parts::proxy_leader::{ProxyLeaderCore, ProxyLeaderPort};
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
        0 => Phase2a {
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
        1 => Phase2b {
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
    }
}

/// A proxy leader.
pub struct ProxyLeader {
    id: ProxyLeaderId,
    config: Arc<Config>,
    core: ProxyLeaderCore,
    alive_at: Instant,
}

impl ProxyLeader {
    /// The proxy leader of this birth.
    pub fn new(config: Arc<Config>, birth: &Birth<'_>) -> Self {
        ProxyLeader {
            id: ProxyLeaderId(birth.address.index),
            core: ProxyLeaderCore::new(config.clone(), birth),
            alive_at: Instant::ZERO,
            config,
        }
    }
}

/// The messages of the proxy leader's part.
struct Port<'a, 'b> {
    id: ProxyLeaderId,
    out: &'a mut Out<'b, ProxyLeader>,
}

impl ProxyLeaderPort for Port<'_, '_> {
    #[inline]
    fn phase2a(&mut self, to: AcceptorSet, slot: Slot, round: Round, value: Value) {
        let message = acceptor::In::Phase2a {
            from: self.id,
            slot,
            round,
            value,
        };
        self.out.send(Envelope::ToAcceptors(to, message));
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
        self.config = config;
    }

    fn on_message(&mut self, now: Instant, message: In, out: &mut Out<'_, Self>) {
        let ProxyLeader { id, core, .. } = self;
        let port = &mut Port { id: *id, out };
        match message {
            In::Phase2a {
                slot,
                round,
                value,
                proposer,
                replier,
            } => core.on_phase2a(now, (slot, round), value, (proposer, replier), port),
            In::Phase2b { from, slot, round } => core.on_phase2b(now, from, (slot, round), port),
            In::Nack { round } => core.on_nack(round, port),
            In::Forgotten { below } => core.on_forgotten(below, port),
        }
    }

    fn on_timer(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        if self.alive_at <= now {
            self.alive_at = now + ALIVE_EVERY;
            let message = leader::In::ProxyAlive { from: self.id };
            out.send(Envelope::ToLeaders(self.config.leaders(), message));
        }
        self.core.on_timer(now, &mut Port { id: self.id, out });
    }

    fn next_timer(&self) -> Option<Instant> {
        earliest(self.core.next_timer(), Some(self.alive_at))
    }

    fn on_burst_end(&mut self, _: Instant, out: &mut Out<'_, Self>) {
        self.core.on_burst_end(&mut Port { id: self.id, out });
    }

    fn invariants(&self) {
        self.core.invariants();
    }

    const METRICS: Metrics = &[metrics::PROXY_LEADER];

    fn status(&self, status: &mut Status) {
        self.core.report(status);
    }
}
