//! The proxy leader (compartmentalization 6.2): as in MultiPaxos, once for each stripe, since every
//! stripe has a round of its own.
//!
//! Stands between leader and acceptors, and between acceptors and replicas.

use super::config::Config;
use super::stripe::{Stripe, StripePosition, Stripes};
use super::{Envelope, acceptor, batcher, leader, replica};
use crate::multipaxos;
use crate::parts;
use crate::parts::proxy_leader::{Ask, ProxyLeaderCore, ProxyLeaderPort};
use alloc::sync::Arc;
use alloc::vec::Vec;
use ionian_kernel::id::*;
use ionian_kernel::messages;
use ionian_kernel::protocol::Birth;
use ionian_kernel::role::{Out, Role};
use ionian_kernel::status::{Metrics, Status};
use ionian_kernel::time::Instant;
use ionian_kernel::wire::Never;
use ionian_replication::batch::Value;
use ionian_replication::suspicion::ALIVE_EVERY;

messages! {
    /// The messages that a proxy leader receives.
    "proxy_leader" In {
        /// What MultiPaxos's receives, of the slots of a stripe.
        0 in stripe => InStripe via message {
            /// The stripe.
            stripe: Stripe,
            /// The message.
            message: multipaxos::proxy_leader::In,
        },
    }
}

/// A proxy leader.
pub struct ProxyLeader {
    id: ProxyLeaderId,
    config: Arc<Config>,
    stripes: Vec<ProxyLeaderCore>,
    /// The stripes of which something came in this burst, as bits.
    touched: u64,
    alive_at: Instant,
}

impl ProxyLeader {
    /// The proxy leader of this birth.
    pub fn new(config: Arc<Config>, birth: &Birth<'_>) -> Self {
        let of = |stripe| ProxyLeaderCore::new(config.of(stripe).clone(), birth);
        ProxyLeader {
            id: ProxyLeaderId(birth.address.index),
            stripes: config.stripes.iter().map(of).collect(),
            touched: 0,
            alive_at: Instant::ZERO,
            config,
        }
    }

    /// The part that does the work of one stripe, and its port.
    #[inline]
    fn part<'a, 'b>(
        &'a mut self,
        stripe: Stripe,
        out: &'a mut Out<'b, Self>,
    ) -> (&'a mut ProxyLeaderCore, Port<'a, 'b>) {
        let port = Port {
            id: self.id,
            stripes: self.config.stripes,
            stripe,
            out,
        };
        (&mut self.stripes[usize::from(stripe.0)], port)
    }
}

/// The messages of the part that does the work of one stripe.
struct Port<'a, 'b> {
    id: ProxyLeaderId,
    stripes: Stripes,
    stripe: Stripe,
    out: &'a mut Out<'b, ProxyLeader>,
}

impl Port<'_, '_> {
    #[inline]
    fn ask_acceptors(&mut self, to: AcceptorSet, message: multipaxos::acceptor::In) {
        let stripe = self.stripe;
        let message = acceptor::In::InStripe { stripe, message };
        self.out.send(Envelope::ToAcceptors(to, message));
    }
}

impl ProxyLeaderPort for Port<'_, '_> {
    #[inline]
    fn phase2a(&mut self, ask: Ask, (slot, round): (Slot, Round), value: Value) {
        let message = multipaxos::acceptor::In::Phase2a {
            from: self.id,
            slot,
            round,
            value,
        };
        self.ask_acceptors(ask.to, message);
    }

    /// Replicas learn of slots of the log.
    #[inline]
    fn chosen(&mut self, to: Set<ReplicaId>, position: Slot, value: Value, replier: ReplicaId) {
        let message = multipaxos::replica::In::Chosen {
            slot: self
                .stripes
                .slot(self.stripe, StripePosition::of_part(position)),
            value,
            replier,
        };
        let message = replica::In::OfLog { message };
        self.out.send(Envelope::ToReplicas(to, message));
    }

    #[inline]
    fn learn(&mut self, to: AcceptorSet, slot: Slot, round: Round, replier: ReplicaId) {
        let message = multipaxos::acceptor::In::Learn {
            slot,
            round,
            replier,
        };
        self.ask_acceptors(to, message);
    }

    #[inline]
    fn batches_chosen(&mut self, to: BatcherId, numbers: Vec<u64>) {
        let message = batcher::In::BatchesChosen { numbers };
        self.out.send(Envelope::ToBatchers(Set::one(to), message));
    }

    fn nack(&mut self, to: Set<LeaderId>, promise: Round) {
        let (stripe, round) = (self.stripe, promise);
        let message = multipaxos::leader::In::Nack { round };
        let message = leader::In::InStripe { stripe, message };
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
        for (stripe, core) in config.stripes.iter().zip(&mut self.stripes) {
            core.reconfigure(config.of(stripe).clone());
        }
        self.config = config;
    }

    fn on_message(&mut self, now: Instant, message: In, out: &mut Out<'_, Self>) {
        use multipaxos::proxy_leader::In as Message;
        let In::InStripe { stripe, message } = message;
        if !self.config.knows(stripe) {
            return;
        }
        self.touched |= 1 << stripe.0;
        let (core, mut port) = self.part(stripe, out);
        let port = &mut port;
        match message {
            Message::Phase2a {
                slot,
                round,
                value,
                proposer,
                replier,
            } => core.on_phase2a(now, (slot, round), value, (proposer, replier), port),
            Message::Phase2b { from, slot, round } => {
                core.on_votes(now, Set::one(from), (slot, round), port);
            }
            Message::Nack { round } => core.on_nack(round, port),
            Message::Forgotten { below } => core.on_forgotten(below, port),
            // Mencius has no relays.
            Message::Votes { .. } => {}
        }
    }

    fn on_timer(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        if self.alive_at <= now {
            self.alive_at = now + ALIVE_EVERY;
            let message = leader::In::ProxyAlive { from: self.id };
            out.send(Envelope::ToLeaders(self.config.leaders(), message));
        }
        for stripe in self.config.stripes.iter() {
            let (core, mut port) = self.part(stripe, out);
            core.on_timer(now, &mut port);
        }
    }

    fn next_timer(&self) -> Option<Instant> {
        let votes = self.stripes.iter().filter_map(ProxyLeaderCore::next_timer);
        votes.chain([self.alive_at]).min()
    }

    fn on_burst_end(&mut self, _: Instant, out: &mut Out<'_, Self>) {
        let touched = core::mem::take(&mut self.touched);
        let stripes = self.config.stripes.iter();
        for stripe in stripes.filter(|stripe| touched & 1 << stripe.0 != 0) {
            let (core, mut port) = self.part(stripe, out);
            core.on_burst_end(&mut port);
        }
    }

    fn invariants(&self) {
        self.stripes.iter().for_each(ProxyLeaderCore::invariants);
    }

    const METRICS: Metrics = &[parts::metrics::PROXY_LEADER];

    fn status(&self, status: &mut Status) {
        let each = self.stripes.iter().map(|core| {
            let mut status = Status::default();
            core.report(&mut status);
            status
        });
        *status = Status::of_all(each, parts::metrics::PROXY_LEADER);
    }
}
