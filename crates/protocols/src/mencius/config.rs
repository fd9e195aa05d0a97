//! Which layouts are deployments of Mencius, and what every role needs to know of its own.

use super::homes::Homes;
use super::kind;
use super::settings::Settings;
use super::stripe::{Stripe, Stripes};
use crate::multipaxos;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use ionian_kernel::id::*;
use ionian_kernel::layout::{Layout, LayoutError, NodeId, Options};
use ionian_kernel::protocol::Transition;

/// A layout that was checked, with what follows from it.
#[derive(Clone, Debug)]
pub struct Config {
    layout: Layout,
    /// The settings that Mencius alone has.
    pub settings: Settings,
    /// How the log is divided.
    pub stripes: Stripes,
    /// What MultiPaxos's roles need to know in each stripe: there the leaders are its own and those
    /// that stand in.
    each: Vec<Arc<multipaxos::config::Config>>,
    homes: Homes,
    /// Those of the configuration that the cluster is being changed into.
    next_homes: Option<Homes>,
    leaders: Set<LeaderId>,
    replicas: Set<ReplicaId>,
    /// The replicas beside each leader, in the order of the leaders.
    beside: Vec<(LeaderId, Set<ReplicaId>)>,
    /// Those that propose in each stripe, in the order of the stripes.
    clients: Vec<Set<ClientId>>,
    batchers: Vec<Set<BatcherId>>,
}

impl Config {
    /// Checks a layout, and the one that it is being changed into.
    ///
    /// # Errors
    /// Says which rule of the protocol it breaks.
    pub fn new(layout: Layout) -> Result<Self, LayoutError> {
        multipaxos::config::Config::new(layout.clone())?;
        let homes = Homes::of(&layout);
        let next = layout.next.as_deref().map(|next| (next, Homes::of(next)));
        if let Some((_, next)) = &next {
            homes.check_same_count(next)?;
        }
        let stripes = Stripes::new(homes.count());
        let of_stripe = |stripe| {
            let within = |layout, homes: &Homes| homes.within(layout, stripes, stripe);
            let mut own = within(&layout, &homes)?;
            if let Some((next, homes)) = &next {
                own.next = Some(Box::new(within(next, homes)?));
            }
            let config = multipaxos::config::Config::new(own)?.telling_neighbours();
            Ok(Arc::new(config.beginning_with(homes.leader(stripe))))
        };
        let each = stripes.iter().map(of_stripe).collect::<Result<_, _>>()?;
        let beside = layout.places(kind::Leader);
        let beside = beside
            .iter()
            .map(|(leader, node)| (LeaderId(leader), layout.near(kind::Replica, node)));
        let mut config = Config {
            settings: Settings::of(&layout.options),
            stripes,
            each,
            leaders: layout.all(kind::Leader),
            replicas: layout.all(kind::Replica),
            beside: beside.collect(),
            clients: Vec::new(),
            batchers: Vec::new(),
            next_homes: next.map(|(_, homes)| homes),
            homes,
            layout,
        };
        config.clients = config.proposers(kind::Client);
        config.batchers = config.proposers(kind::Batcher);
        Ok(config)
    }

    /// How to get from one layout to another: as in MultiPaxos, with the same number of leaders.
    ///
    /// # Errors
    /// When either breaks a rule, or the number of stripes would change: which stripe a slot is in
    /// depends on it.
    pub fn transition(from: &Layout, to: &Layout) -> Result<Transition, LayoutError> {
        let (before, after) = (Config::new(from.clone())?, Config::new(to.clone())?);
        before.homes.check_same_count(&after.homes)?;
        multipaxos::config::Config::transition(from, to)
    }

    /// What MultiPaxos's roles need to know in this stripe.
    pub fn of(&self, stripe: Stripe) -> &Arc<multipaxos::config::Config> {
        &self.each[usize::from(stripe.0)]
    }

    /// The acceptors of the quorums by which a round of a stripe works; none if its epoch is over.
    pub fn acceptors_of(&self, stripe: Stripe, round: Round) -> AcceptorSet {
        let quorums = self.of(stripe).quorums_of(round);
        quorums.map_or(Set::EMPTY, |quorums| quorums.members())
    }

    /// Whether there is such a stripe.
    pub fn knows(&self, stripe: Stripe) -> bool {
        usize::from(stripe.0) < self.each.len()
    }

    /// The stripe that is a leader's own: while the membership is changing, that of the
    /// configuration before. A leader that the change adds has none yet.
    pub fn home_of(&self, leader: LeaderId) -> Option<Stripe> {
        self.stripes
            .iter()
            .find(|stripe| self.homes.leader(*stripe) == leader)
    }

    /// The stripes that a leader serves: its own first, then those in which it stands in for
    /// others.
    pub fn served_by(&self, leader: LeaderId) -> Vec<Stripe> {
        let serves = |stripe: &Stripe| self.of(*stripe).leaders().contains(leader);
        let mut served: Vec<Stripe> = self.stripes.iter().filter(serves).collect();
        served.sort_by_key(|stripe| Some(*stripe) != self.home_of(leader));
        served
    }

    /// The stripe that an instance on `node` proposes in: that of a leader beside it; where there
    /// is none, the stripe (index mod n).
    pub fn stripe_near(&self, index: Index, node: NodeId) -> Stripe {
        let homes = [Some(&self.homes), self.next_homes.as_ref()];
        let mut near = homes.into_iter().flatten().map(|homes| homes.on(node));
        match near.find(|near| !near.is_empty()) {
            None => Stripe(index % self.stripes.count() as Index),
            Some(near) => near[usize::from(index) % near.len()],
        }
    }

    /// The instances of a kind that propose in each stripe, in the order of the stripes.
    fn proposers<I: Id>(&self, kind: u8) -> Vec<Set<I>> {
        let places = self.layout.places(kind);
        let propose_in = |stripe| {
            let there = places
                .iter()
                .filter(|(index, node)| self.stripe_near(*index, *node) == stripe);
            there.map(|(index, _)| I::at(index)).collect()
        };
        self.stripes.iter().map(propose_in).collect()
    }

    /// The client lanes that propose in a stripe.
    pub fn clients(&self, stripe: Stripe) -> Set<ClientId> {
        self.clients[usize::from(stripe.0)]
    }

    /// The batchers that propose in a stripe.
    pub fn batchers(&self, stripe: Stripe) -> Set<BatcherId> {
        self.batchers[usize::from(stripe.0)]
    }

    /// The replicas on the node of a leader; all of them where there is none.
    pub fn replicas_of(&self, leader: LeaderId) -> Set<ReplicaId> {
        let beside = self.beside.iter().find(|(known, _)| *known == leader);
        beside
            .map(|(_, replicas)| *replicas)
            .filter(|replicas| !replicas.is_empty())
            .unwrap_or(self.replicas)
    }

    /// All leaders.
    pub fn leaders(&self) -> Set<LeaderId> {
        self.leaders
    }

    /// All replicas.
    pub fn replicas(&self) -> Set<ReplicaId> {
        self.replicas
    }

    /// The layout as it was checked.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Tunables.
    pub fn options(&self) -> &Options {
        &self.layout.options
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ionian_kernel::layout::numbered;

    fn everything_on(nodes: u16) -> Layout {
        let all = || (0..nodes).map(NodeId).collect::<Vec<_>>();
        let instances = numbered(Vec::from([
            all(),
            Vec::new(),
            Vec::new(),
            all(),
            all(),
            all(),
            all(),
            Vec::new(),
        ]));
        Layout {
            f: usize::from(nodes / 2),
            instances,
            ..Layout::default()
        }
    }

    #[test]
    fn every_leader_has_its_stripe_and_f_others_stand_in() {
        let config = Config::new(everything_on(5)).unwrap();
        assert_eq!(config.stripes.count(), 5);
        assert_eq!(
            config.served_by(LeaderId(1)),
            [Stripe(1), Stripe(0), Stripe(4)]
        );
        assert_eq!(config.of(Stripe(4)).leader(Round(0), 0), LeaderId(4));
        assert_eq!(config.stripe_near(3, NodeId(3)), Stripe(3));
        assert_eq!(config.clients(Stripe(2)), Set::one(ClientId(2)));
    }

    #[test]
    fn leaders_on_one_node_cannot_stand_in_for_each_other() {
        let mut layout = everything_on(3);
        layout.instances[usize::from(kind::Leader)] = Vec::from([NodeId(0), NodeId(0)]).into();
        let refusal = Config::new(layout).unwrap_err().0;
        assert!(refusal.contains("no leader is left"), "{refusal}");
    }
}
