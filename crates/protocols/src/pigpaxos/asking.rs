//! How a proxy leader speaks to acceptors: directly, or in a deployment with relays with the
//! messages that take the place of Phase2a and Learn.

use super::commits::Untold;
use super::fanout::Leg;
use super::message::{RelayId, Requester, Run, Terms};
use super::relay;
use super::routes::Routes;
use crate::multipaxos::config::Config;
use crate::multipaxos::{self, acceptor, kind};
use crate::parts::proxy_leader::Ask;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use ionian_kernel::id::*;
use ionian_kernel::layout::NodeId;
use ionian_kernel::protocol::Birth;
use ionian_kernel::role::{Out, Role};
use ionian_kernel::time::{Duration, Instant};
use ionian_replication::backoff::doubled;
use ionian_replication::batch::Value;

/// The envelope of a protocol with relays. Its acceptors and relays are MultiPaxos's.
pub(crate) trait Asks {
    /// A message to acceptors.
    fn to_acceptors(to: AcceptorSet, message: acceptor::In) -> Self;
    /// A message to relays.
    fn to_relays(to: Set<RelayId>, message: relay::In) -> Self;
}

impl Asks for multipaxos::Envelope {
    #[inline]
    fn to_acceptors(to: AcceptorSet, message: acceptor::In) -> Self {
        multipaxos::Envelope::ToAcceptors(to, message)
    }

    fn to_relays(to: Set<RelayId>, message: relay::In) -> Self {
        multipaxos::Envelope::ToRelays(to, message)
    }
}

/// What a proxy leader needs to ask acceptors: nothing where there are no relays.
pub(crate) struct Asking {
    node: NodeId,
    seed: u64,
    relays: Option<Box<Relays>>,
}

struct Relays {
    config: Arc<Config>,
    routes: Routes,
    /// By the number of a replica, the acceptors that hand it what is chosen.
    tellers: Vec<AcceptorSet>,
    /// What is chosen and not told to all.
    untold: Untold,
    /// The round of the last request.
    round: Round,
}

impl Asking {
    pub(crate) fn new(config: &Arc<Config>, birth: &Birth<'_>) -> Self {
        let (node, seed) = (birth.node, birth.seed);
        let mut asking = Asking {
            node,
            seed,
            relays: None,
        };
        asking.reconfigure(config);
        asking
    }

    /// The membership has changed, or an option.
    pub(crate) fn reconfigure(&mut self, config: &Arc<Config>) {
        if config.relaying().is_none() {
            self.relays = None;
            return;
        }
        let relays = self.relays.get_or_insert_with(|| {
            Box::new(Relays {
                config: config.clone(),
                routes: Routes::new(config, self.node, self.seed),
                tellers: Vec::new(),
                untold: Untold::default(),
                round: Round(0),
            })
        });
        relays.routes.reconfigure(config);
        relays.tellers = tellers(config);
        relays.config = config.clone();
    }

    /// Whether the deployment has relays.
    #[inline]
    pub(crate) fn has_relays(&self) -> bool {
        self.relays.is_some()
    }

    /// Asks acceptors for their votes.
    #[inline]
    pub(crate) fn phase2a(
        &mut self,
        (now, from): (Instant, ProxyLeaderId),
        ask: Ask,
        (slot, round): (Slot, Round),
        value: Value,
        out: &mut Out<'_, impl Role<Send: Asks>>,
    ) {
        if let Some(relays) = &mut self.relays {
            return relays.phase2a((now, from), ask, (slot, round), value, out);
        }
        phase2a_directly(from, ask.to, (slot, round), value, out);
    }

    /// A value is chosen that these acceptors are to hand to the replicas of their nodes. Returns
    /// those that learn it at once, because they have the replica that answers the clients. The
    /// others learn it with the next request.
    pub(crate) fn learn(
        &mut self,
        now: Instant,
        to: AcceptorSet,
        (slot, round): (Slot, Round),
        replier: ReplicaId,
    ) -> AcceptorSet {
        let Some(relays) = &mut self.relays else {
            return to;
        };
        let tellers = relays.tellers.get(usize::from(replier.0));
        let at_once = to.and(tellers.copied().unwrap_or_default());
        if to != at_once {
            relays.untold.add(now, round, slot, replier);
        }
        at_once
    }

    /// A relay has answered; see [`Routes::heard`].
    pub(crate) fn heard(&mut self, now: Instant, from: RelayId, told: (AcceptorSet, AcceptorSet)) {
        if let Some(relays) = &mut self.relays {
            relays.routes.heard(now, from, told);
        }
    }

    /// Tells what is chosen when nothing is under way: no request may come for long.
    pub(crate) fn on_idle(&mut self, now: Instant, out: &mut Out<'_, impl Role<Send: Asks>>) {
        if let Some(relays) = &mut self.relays
            && relays.tell_at().is_some()
        {
            relays.tell(now, out);
        }
    }

    /// Tells what is chosen if no request came that it could ride on.
    pub(crate) fn on_timer(&mut self, now: Instant, out: &mut Out<'_, impl Role<Send: Asks>>) {
        let Some(relays) = &mut self.relays else {
            return;
        };
        relays.routes.on_timer(now);
        if relays.tell_at().is_some_and(|at| at <= now) {
            relays.tell(now, out);
        }
    }

    /// When it next wants to be called though nothing arrives.
    pub(crate) fn next_timer(&self) -> Option<Instant> {
        self.relays.as_ref().and_then(|relays| relays.tell_at())
    }

    /// How many relays are on the gray list.
    pub(crate) fn suspects(&self) -> usize {
        let relays = self.relays.as_ref();
        relays.map_or(0, |relays| relays.routes.suspects())
    }
}

/// By the number of a replica, the acceptors that hand it what is chosen.
fn tellers(config: &Config) -> Vec<AcceptorSet> {
    let mut tellers = Vec::new();
    for acceptor in config.all::<AcceptorId>(kind::Acceptor).iter() {
        for replica in config.replicas_beside(acceptor).iter() {
            let place = usize::from(replica.0);
            tellers.resize(tellers.len().max(place + 1), AcceptorSet::EMPTY);
            tellers[place].insert(acceptor);
        }
    }
    tellers
}

impl Relays {
    fn tell_at(&self) -> Option<Instant> {
        let delay = self.config.relaying().map(|it| it.settings.commit_delay);
        self.untold.due(delay.unwrap_or(Duration::ZERO))
    }

    fn phase2a(
        &mut self,
        (now, from): (Instant, ProxyLeaderId),
        ask: Ask,
        (slot, round): (Slot, Round),
        value: Value,
        out: &mut Out<'_, impl Role<Send: Asks>>,
    ) {
        if round != self.round {
            self.round = round;
            self.routes.clear();
        }
        // Only the first attempt goes to all.
        let chosen = match ask.attempt {
            0 => self.untold.take(round),
            _ => Box::default(),
        };
        let patience = doubled(self.config.options().resend_after, ask.attempt, 5);
        let reached = |branch| out.reached(branch);
        let legs = self.routes.divide(now, ask, reached);
        for leg in &legs {
            let (value, chosen) = (value.clone(), chosen.clone());
            match *leg {
                Leg::Direct(acceptors) => {
                    let near = match chosen.is_empty() {
                        true => acceptors,
                        // Its replicas know what is chosen.
                        false => acceptors.and(self.routes.near()),
                    };
                    let to = (near, acceptors.without(near));
                    ask_directly(from, to, (slot, round), (value, chosen), out);
                }
                Leg::Relayed {
                    relay,
                    members,
                    slack,
                } => {
                    self.routes.asked(relay, now);
                    let terms = Terms {
                        members,
                        slack,
                        patience: patience.as_micros() as u64,
                        chosen,
                    };
                    let message = relay::In::Phase2a {
                        from: Requester::ProxyLeader { id: from },
                        slot,
                        round,
                        value,
                        terms: Box::new(terms),
                    };
                    out.send(Asks::to_relays(Set::one(relay), message));
                }
            }
        }
        self.routes.put_back(legs);
    }

    /// Tells all acceptors of other nodes what is chosen.
    fn tell(&mut self, now: Instant, out: &mut Out<'_, impl Role<Send: Asks>>) {
        let round = self.untold.round();
        let chosen = self.untold.take(round);
        let to = self.config.all(kind::Acceptor).without(self.routes.near());
        let reached = |branch| out.reached(branch);
        let legs = self.routes.divide(now, Ask::first(to), reached);
        out.reached(super::branch::COMMITS_ALONE);
        for leg in &legs {
            match *leg {
                Leg::Direct(acceptors) => tell_directly(acceptors, round, &chosen, out),
                Leg::Relayed { relay, members, .. } => {
                    let chosen = chosen.clone();
                    let message = relay::In::Learn {
                        members,
                        round,
                        chosen,
                    };
                    out.send(Asks::to_relays(Set::one(relay), message));
                }
            }
        }
        self.routes.put_back(legs);
    }
}

/// Asks acceptors without a relay, and with the same message tells those in `far` what is chosen.
fn ask_directly(
    from: ProxyLeaderId,
    (near, far): (AcceptorSet, AcceptorSet),
    (slot, round): (Slot, Round),
    (value, chosen): (Value, Box<[Run]>),
    out: &mut Out<'_, impl Role<Send: Asks>>,
) {
    if !near.is_empty() {
        phase2a_directly(from, near, (slot, round), value.clone(), out);
    }
    if !far.is_empty() {
        let message = acceptor::In::RelayedPhase2a {
            from: Requester::ProxyLeader { id: from },
            slot,
            round,
            value,
            chosen,
        };
        out.send(Asks::to_acceptors(far, message));
    }
}

#[inline]
fn phase2a_directly(
    from: ProxyLeaderId,
    to: AcceptorSet,
    (slot, round): (Slot, Round),
    value: Value,
    out: &mut Out<'_, impl Role<Send: Asks>>,
) {
    let message = acceptor::In::Phase2a {
        from,
        slot,
        round,
        value,
    };
    out.send(Asks::to_acceptors(to, message));
}

fn tell_directly(
    acceptors: AcceptorSet,
    round: Round,
    chosen: &[Run],
    out: &mut Out<'_, impl Role<Send: Asks>>,
) {
    if !acceptors.is_empty() && !chosen.is_empty() {
        let message = acceptor::In::LearnSlots {
            round,
            chosen: chosen.into(),
        };
        out.send(Asks::to_acceptors(acceptors, message));
    }
}
