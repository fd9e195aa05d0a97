//! The proxy leader: that of MultiPaxos, which has stabilizers tell the replicas what is chosen.
//!
//! Stands between leader and acceptors, and between acceptors and stabilizers. A replica that
//! shares a node with a stabilizer receives the payload from that one: as published, where every
//! server has both, no payload is sent a second time. The other replicas receive it from one of the
//! stabilizers that are known to store it.

use super::config::Config;
use super::id::{PayloadNumber, StabilizerId, of_batchers};
use super::message::Reference;
use super::{Envelope, disseminator, kind, replica, stabilizer};
use crate::multipaxos;
use crate::multipaxos::proxy_leader::ProxyLeader as Ordered;
use ionian_kernel::id::*;
use ionian_kernel::inner::{Inner, SameFence, Untagged};
use ionian_kernel::layout::NodeId;
use ionian_kernel::messages;
use ionian_kernel::protocol::Birth;
use ionian_kernel::random::Random;
use ionian_kernel::role::{Out, Role};
use ionian_kernel::status::{Metrics, Status};
use ionian_kernel::time::{Duration, Instant};
use ionian_kernel::wire::Never;
use ionian_replication::batch::Value;
use ionian_replication::suspicion::Presence;

messages! {
    /// The messages that a proxy leader receives.
    "proxy_leader" In {
        /// A message for the proxy leader of MultiPaxos.
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
    inner: Inner<Ordered>,
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
        let deliverers = Deliverers {
            node: birth.node,
            near: config.near(kind::Stabilizer, birth.node),
            present: Presence::new(config.stabilizers.members(), STABILIZER_PRESENCE),
            turn: Random::new(birth.seed).any() >> 1,
            config: config.clone(),
        };
        let inner = Inner::new(
            Ordered::new(config.ordering.clone(), birth),
            birth.keeps_records,
        );
        ProxyLeader {
            inner,
            deliverers,
            chosen_below: Slot::ZERO,
        }
    }

    fn call(
        &mut self,
        now: Instant,
        out: &mut Out<'_, Self>,
        act: impl FnOnce(&mut Ordered, &mut Out<'_, Ordered>),
    ) {
        use multipaxos::Envelope as Theirs;
        use multipaxos::batcher;
        let ProxyLeader {
            inner,
            deliverers,
            chosen_below,
        } = self;
        inner.call(act);
        let left = inner.pour(out, &Untagged, |envelope, same_fence| match envelope {
            Theirs::ToReplicas(
                replicas,
                replica::In::Chosen {
                    slot,
                    value,
                    replier,
                },
            ) => {
                *chosen_below = (*chosen_below).max(slot.next());
                let reference = Reference::of(&value.batch);
                let chosen = Chosen {
                    slot,
                    value,
                    replier,
                    replicas,
                };
                match reference {
                    Some(reference) => deliverers.deliver(now, &reference, &chosen, same_fence),
                    // A noop: there is nothing to look up.
                    None => same_fence.send(chosen.into_envelope()),
                }
            }
            Theirs::ToBatchers(to, batcher::In::BatchesChosen { numbers }) => {
                let message = disseminator::In::Chosen {
                    numbers: numbers.into_iter().map(PayloadNumber).collect(),
                    below: *chosen_below,
                };
                same_fence.send(Envelope::ToDisseminators(of_batchers(to), message));
            }
            envelope => same_fence.send(envelope.into()),
        });
        left.pass_on(out);
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
        same_fence: &mut SameFence<'_, '_, ProxyLeader>,
    ) {
        let present = self.present.present(now);
        let mut left = chosen.replicas;
        let beside = self.config.beside().iter();
        for (stabilizer, beside) in beside.filter(|(one, _)| present.contains(*one)) {
            let beside = beside.and(left);
            if !beside.is_empty() {
                same_fence.send(chosen.to_stabilizer(*stabilizer, beside));
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
            same_fence.send(chosen.to_stabilizer(one, left));
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

    fn on_start(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        self.deliverers.present.start(now);
        self.call(now, out, |proxy, out| proxy.on_start(now, out));
    }

    fn on_reconfigure(&mut self, now: Instant, config: Config, out: &mut Out<'_, Self>) {
        let within = config.ordering.clone();
        self.deliverers.reconfigure(config);
        self.call(now, out, |proxy, out| {
            proxy.on_reconfigure(now, within, out)
        });
    }

    fn on_message(&mut self, now: Instant, message: In, out: &mut Out<'_, Self>) {
        match message {
            In::Ordering { message } => {
                self.call(now, out, |proxy, out| proxy.on_message(now, message, out))
            }
            In::StabilizerAlive { from } => self.deliverers.present.heard(from, now),
        }
    }

    fn on_timer(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        self.call(now, out, |proxy, out| proxy.on_timer(now, out));
    }

    fn next_timer(&self) -> Option<Instant> {
        self.inner.next_timer()
    }

    fn on_burst_end(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        self.call(now, out, |proxy, out| proxy.on_burst_end(now, out));
        self.chosen_below = Slot::ZERO;
    }

    fn invariants(&self) {
        self.inner.invariants();
    }

    const METRICS: Metrics = Ordered::METRICS;

    fn status(&self, status: &mut Status) {
        self.inner.status(status);
    }
}
