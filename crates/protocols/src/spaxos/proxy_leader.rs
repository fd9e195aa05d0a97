//! The proxy leader: as in MultiPaxos, but that stabilizers tell the replicas what is chosen.
//!
//! Stands between leader and acceptors, and between acceptors and stabilizers. A replica that
//! shares a node with a stabilizer receives the payload from that one: as published, where every
//! server has both, no payload is sent a second time. The other replicas receive it from one of the
//! stabilizers that are known to store it.

use super::config::Config;
use super::id::{PayloadNumber, StabilizerId, of_batcher};
use super::message::Reference;
use super::{Envelope, disseminator, kind, leader, replica, stabilizer};
use crate::multipaxos;
use crate::parts::metrics;
use crate::parts::proxy_leader::{Ask, ProxyLeaderCore, ProxyLeaderPort};
use crate::pigpaxos;
use crate::pigpaxos::asking::Asking;
use alloc::vec::Vec;
use ionian_kernel::id::*;
use ionian_kernel::layout::NodeId;
use ionian_kernel::messages;
use ionian_kernel::protocol::Birth;
use ionian_kernel::random::Random;
use ionian_kernel::role::{Out, Role};
use ionian_kernel::status::{Metrics, Status};
use ionian_kernel::time::{Duration, Instant, earliest};
use ionian_kernel::wire::Never;
use ionian_replication::batch::Value;
use ionian_replication::suspicion::{ALIVE_EVERY, Presence};

messages! {
    /// The messages that a proxy leader receives.
    "proxy_leader" In {
        /// A message that MultiPaxos's proxy leader receives too.
        0 => Ordering via message {
            /// The message.
            message: multipaxos::proxy_leader::In,
        },
        /// A stabilizer lives.
        1 => StabilizerAlive {
            /// The stabilizer.
            from: StabilizerId,
        },
    }
}

/// A stabilizer not heard of for this long is not asked to tell replicas.
pub const STABILIZER_PRESENCE: Duration = Duration::from_millis(800);

/// A proxy leader.
pub struct ProxyLeader {
    id: ProxyLeaderId,
    core: ProxyLeaderCore,
    /// How it asks acceptors.
    asking: Asking,
    alive_at: Instant,
    deliverers: Deliverers,
    /// The slot after the highest that was chosen in this burst.
    chosen_below: Slot,
}

/// Which stabilizers tell replicas.
struct Deliverers {
    config: Config,
    node: NodeId,
    near: Set<StabilizerId>,
    present: Presence<StabilizerId>,
    turn: u64,
}

impl ProxyLeader {
    /// The proxy leader of this birth.
    pub fn new(config: Config, birth: &Birth<'_>) -> Self {
        ProxyLeader {
            id: ProxyLeaderId(birth.address.index),
            core: ProxyLeaderCore::new(config.ordering.clone(), birth),
            asking: Asking::new(&config.ordering, birth),
            alive_at: Instant::ZERO,
            deliverers: Deliverers {
                node: birth.node,
                near: config.near(kind::Stabilizer, birth.node),
                present: Presence::new(config.stabilizers.members(), STABILIZER_PRESENCE),
                turn: Random::new(birth.seed).any() >> 1,
                config,
            },
            chosen_below: Slot::ZERO,
        }
    }

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
            deliverers: &mut self.deliverers,
            chosen_below: &mut self.chosen_below,
            out,
        };
        (&mut self.core, port)
    }

    /// A message of those that MultiPaxos has too.
    #[inline]
    fn on_ordering(
        &mut self,
        now: Instant,
        message: multipaxos::proxy_leader::In,
        out: &mut Out<'_, Self>,
    ) {
        use multipaxos::proxy_leader::In as Message;
        let (core, mut port) = self.part(now, out);
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
            Message::Votes {
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
}

/// The messages of the proxy leader's part.
struct Port<'a, 'b> {
    id: ProxyLeaderId,
    now: Instant,
    asking: &'a mut Asking,
    deliverers: &'a mut Deliverers,
    chosen_below: &'a mut Slot,
    out: &'a mut Out<'b, ProxyLeader>,
}

impl ProxyLeaderPort for Port<'_, '_> {
    #[inline]
    fn phase2a(&mut self, ask: Ask, slot: (Slot, Round), value: Value) {
        let (now, from) = (self.now, self.id);
        self.asking.phase2a((now, from), ask, slot, value, self.out);
    }

    fn chosen(&mut self, replicas: Set<ReplicaId>, slot: Slot, value: Value, replier: ReplicaId) {
        *self.chosen_below = (*self.chosen_below).max(slot.next());
        let reference = Reference::of(&value.batch);
        let chosen = Chosen {
            slot,
            value,
            replier,
            replicas,
        };
        match reference {
            Some(reference) => self
                .deliverers
                .deliver(self.now, &reference, &chosen, self.out),
            // A noop: there is nothing to look up.
            None => self.out.send(chosen.into_envelope()),
        }
    }

    /// What acceptors vote for are references: they have nothing that replicas could execute.
    fn learn(&mut self, _: AcceptorSet, _: Slot, _: Round, _: ReplicaId) {
        unreachable!("the configuration of the ordering has no replicas beside acceptors");
    }

    #[inline]
    fn batches_chosen(&mut self, to: BatcherId, numbers: Vec<u64>) {
        let message = disseminator::In::Chosen {
            numbers: numbers.into_iter().map(PayloadNumber).collect(),
            below: *self.chosen_below,
        };
        let to = Set::one(of_batcher(to));
        self.out.send(Envelope::ToDisseminators(to, message));
    }

    fn nack(&mut self, to: Set<LeaderId>, promise: Round) {
        let message = multipaxos::leader::In::Nack { round: promise };
        let message = leader::In::Ordering { message };
        self.out.send(Envelope::ToLeaders(to, message));
    }

    fn reached(&mut self, branch: &'static str) {
        self.out.reached(branch);
    }
}

/// What replicas are to learn.
struct Chosen {
    slot: Slot,
    value: Value,
    replier: ReplicaId,
    replicas: Set<ReplicaId>,
}

impl Chosen {
    fn into_envelope(self) -> Envelope {
        let message = replica::In::Chosen {
            slot: self.slot,
            value: self.value,
            replier: self.replier,
        };
        Envelope::ToReplicas(self.replicas, message)
    }

    /// A stabilizer sends the payload to these replicas.
    fn to_stabilizer(&self, stabilizer: StabilizerId, replicas: Set<ReplicaId>) -> Envelope {
        let message = stabilizer::In::Chosen {
            slot: self.slot,
            value: self.value.clone(),
            replier: self.replier,
            replicas,
        };
        Envelope::ToStabilizers(Set::one(stabilizer), message)
    }
}

impl Deliverers {
    /// The membership has changed.
    fn reconfigure(&mut self, config: Config) {
        self.near = config.near(kind::Stabilizer, self.node);
        self.present.reconfigure(config.stabilizers.members());
        self.config = config;
    }

    /// Has stabilizers send replicas the payload that this reference is of.
    fn deliver(
        &mut self,
        now: Instant,
        reference: &Reference,
        chosen: &Chosen,
        out: &mut Out<'_, ProxyLeader>,
    ) {
        let present = self.present.present(now);
        let mut left = chosen.replicas;
        let beside = self.config.beside().iter();
        for (stabilizer, beside) in beside.filter(|(one, _)| present.contains(*one)) {
            let beside = beside.and(left);
            if !beside.is_empty() {
                out.send(chosen.to_stabilizer(*stabilizer, beside));
                left = left.without(beside);
            }
        }
        if !left.is_empty() {
            self.turn += 1;
            let one = present
                .preferring(reference.stored)
                .preferring(self.near)
                .pick(self.turn);
            let one = one.expect("a deployment has stabilizers");
            out.send(chosen.to_stabilizer(one, left));
        }
    }
}

impl Role for ProxyLeader {
    type In = In;
    type Send = Envelope;
    type Config = Config;
    type Record = Never;

    fn recover(&mut self, record: Never) {
        match record {}
    }

    fn on_start(&mut self, now: Instant, _: &mut Out<'_, Self>) {
        self.deliverers.present.start(now);
    }

    fn on_reconfigure(&mut self, _: Instant, config: Config, _: &mut Out<'_, Self>) {
        self.core.reconfigure(config.ordering.clone());
        self.asking.reconfigure(&config.ordering);
        self.deliverers.reconfigure(config);
    }

    fn on_message(&mut self, now: Instant, message: In, out: &mut Out<'_, Self>) {
        match message {
            In::Ordering { message } => self.on_ordering(now, message, out),
            In::StabilizerAlive { from } => self.deliverers.present.heard(from, now),
        }
    }

    fn on_timer(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        if self.alive_at <= now {
            self.alive_at = now + ALIVE_EVERY;
            let message = multipaxos::leader::In::ProxyAlive { from: self.id };
            let message = leader::In::Ordering { message };
            let leaders = self.deliverers.config.ordering.leaders();
            out.send(Envelope::ToLeaders(leaders, message));
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
        self.chosen_below = Slot::ZERO;
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
