//! How a leader speaks to acceptors, and to the leaders and replicas beside them, in a deployment
//! with relays: heartbeats and phase 1 (PigPaxos 3.2).
//!
//! A candidate asks without relays whether a leader is gone, and so does a leader whether it still
//! reaches a write quorum: what they want to know is whom they reach themselves. One that reaches
//! acceptors through a single relay would lead, and get little chosen, where another could lead
//! better (the play `hub`).
//!
//! A relay that fails takes with it what it was to pass on. So it answers a heartbeat at once, and
//! one that does not is passed over, as by proxy leaders; and what acceptors have not answered
//! through a relay they are asked without one. A leader loses no more with a relay than the time
//! after which it asks again.

use super::asking::Asks;
use super::fanout::Leg;
use super::message::{Beat, Promises, RelayId};
use super::relay;
use super::routes::Routes;
use crate::multipaxos::config::Config;
use crate::multipaxos::{acceptor, kind};
use crate::parts::leader::{Heartbeat, LeaderCore, LeaderPort};
use crate::parts::proxy_leader::Ask;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use ionian_kernel::id::*;
use ionian_kernel::layout::NodeId;
use ionian_kernel::protocol::Birth;
use ionian_kernel::role::{Out, Role};
use ionian_kernel::time::Instant;

/// What a leader needs to speak through relays: nothing where there are none.
pub(crate) struct Leading {
    node: NodeId,
    seed: u64,
    routes: Option<Box<Routes>>,
    config: Arc<Config>,
    /// By the number of an acceptor, the leaders and replicas of its node.
    beside: Vec<(Set<LeaderId>, Set<ReplicaId>)>,
}

impl Leading {
    pub(crate) fn new(config: &Arc<Config>, birth: &Birth<'_>) -> Self {
        let mut leading = Leading {
            node: birth.node,
            seed: birth.seed,
            routes: None,
            config: config.clone(),
            beside: Vec::new(),
        };
        leading.reconfigure(config);
        leading
    }

    /// The membership has changed, or an option.
    pub(crate) fn reconfigure(&mut self, config: &Arc<Config>) {
        Routes::follow(&mut self.routes, config, (self.node, self.seed));
        self.config = config.clone();
        self.beside.clear();
        if self.routes.is_none() {
            return;
        }
        for (acceptor, node) in config.layout().places(kind::Acceptor).iter() {
            let place = usize::from(acceptor);
            let length = self.beside.len().max(place + 1);
            self.beside.resize(length, (Set::EMPTY, Set::EMPTY));
            self.beside[place] = (
                config.near(kind::Leader, node),
                config.near(kind::Replica, node),
            );
        }
    }

    /// The leaders and replicas on the nodes of these acceptors.
    fn neighbours(&self, acceptors: AcceptorSet) -> (Set<LeaderId>, Set<ReplicaId>) {
        let nothing = (Set::EMPTY, Set::EMPTY);
        acceptors.iter().fold(nothing, |(leaders, replicas), one| {
            let here = self.beside.get(usize::from(one.0)).unwrap_or(&nothing);
            (leaders.or(here.0), replicas.or(here.1))
        })
    }

    /// Hands a heartbeat to relays; what is to be sent without them.
    pub(crate) fn heartbeat(
        &mut self,
        now: Instant,
        from: LeaderId,
        heartbeat: Heartbeat,
        out: &mut Out<'_, impl Role<Send: Asks>>,
    ) -> Heartbeat {
        let Some(mut routes) = self.routes.take() else {
            return heartbeat;
        };
        let mut left = heartbeat;
        let mut direct = AcceptorSet::EMPTY;
        let legs = routes.divide(now, Ask::first(left.acceptors), |branch| {
            out.reached(branch)
        });
        for leg in &legs {
            let (relay, acceptors) = match *leg {
                Leg::Direct(acceptors) => {
                    direct = direct.or(acceptors);
                    continue;
                }
                Leg::Relayed { relay, members, .. } => (relay, members),
            };
            routes.asked(relay, now);
            let (leaders, replicas) = self.neighbours(acceptors);
            let (leaders, replicas) = (leaders.and(left.leaders), replicas.and(left.replicas));
            left.leaders = left.leaders.without(leaders);
            left.replicas = left.replicas.without(replicas);
            let beat = Box::new(Beat {
                leaders,
                acceptors,
                replicas,
                round: left.round,
                executed: left.executed,
                kept: left.kept,
                keep: left.keep,
                time: left.time,
            });
            let message = relay::In::Heartbeat { from, beat };
            out.send(Asks::to_relays(Set::one(relay), message));
        }
        left.acceptors = direct;
        routes.put_back(legs);
        self.routes = Some(routes);
        left
    }

    /// Asks for promises: through relays, and directly those that have not answered through one,
    /// whatever is wrong.
    pub(crate) fn phase1a(
        &mut self,
        (now, from): (Instant, LeaderId),
        (to, again): (AcceptorSet, bool),
        (round, start, end): (Round, Slot, Slot),
        out: &mut Out<'_, impl Role<Send: Asks>>,
    ) {
        let to = match again {
            true => to,
            false => self.relayed_phase1a(now, to, (round, start, end), out),
        };
        if !to.is_empty() {
            let message = acceptor::In::Phase1a {
                from,
                round,
                start,
                end,
            };
            out.send(Asks::to_acceptors(to, message));
        }
    }

    /// Hands phase 1 to relays; the acceptors that are to be asked without them.
    fn relayed_phase1a(
        &mut self,
        now: Instant,
        to: AcceptorSet,
        (round, start, end): (Round, Slot, Slot),
        out: &mut Out<'_, impl Role<Send: Asks>>,
    ) -> AcceptorSet {
        let Some(routes) = &mut self.routes else {
            return to;
        };
        let patience = self.config.options().resend_after.as_micros() as u64;
        let mut direct = AcceptorSet::EMPTY;
        let legs = routes.divide(now, Ask::first(to), |branch| out.reached(branch));
        for leg in &legs {
            match *leg {
                Leg::Direct(acceptors) => direct = direct.or(acceptors),
                Leg::Relayed { relay, members, .. } => {
                    routes.asked(relay, now);
                    let message = relay::In::Phase1a {
                        members,
                        patience,
                        round,
                        start,
                        end,
                    };
                    out.send(Asks::to_relays(Set::one(relay), message));
                }
            }
        }
        routes.put_back(legs);
        direct
    }

    /// A relay has answered, and these acceptors of its group have not.
    pub(crate) fn heard(&mut self, now: Instant, from: RelayId, missing: AcceptorSet) {
        if let Some(routes) = &mut self.routes {
            routes.heard(now, from, (AcceptorSet::EMPTY, missing));
        }
    }
}

/// Takes in what a relay has gathered of acceptors that promised `round`.
pub(crate) fn on_promises(
    core: &mut LeaderCore<()>,
    now: Instant,
    round: Round,
    promises: Promises,
    port: &mut impl LeaderPort,
) {
    let Promises {
        promised, votes, ..
    } = promises;
    for (acceptor, clock) in &promised {
        core.on_acceptor_time(now, *acceptor, *clock);
    }
    let acceptors = promised.iter().map(|(acceptor, _)| *acceptor).collect();
    // A slot without votes says nothing where acceptors note votes alone.
    let noops = core.on_promises(now, (acceptors, round), (votes, ()), port);
    debug_assert!(noops.is_empty());
}
