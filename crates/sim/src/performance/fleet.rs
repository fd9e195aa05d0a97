//! All nodes of a deployment that is measured, and who lives where.

use super::server::{Nanos, Outcome, Server, Terms};
use super::{Costs, Service};
use ionian_kernel::client::{Reply, Request};
use ionian_kernel::id::{ClientId, MAX_INSTANCES};
use ionian_kernel::layout::{Address, Layout, LayoutError, NodeId};
use ionian_kernel::protocol::Protocol;
use std::collections::BTreeMap;

/// See the top of this file. Nodes are named by their place among the nodes of the layout.
pub(super) struct Fleet<P: Protocol> {
    servers: Vec<Server<P>>,
    /// The server of each instance, by kind and number.
    places: Vec<Vec<Option<usize>>>,
    outcome: Outcome<P::Message>,
}

/// What a node sends to another in one go: the messages, each with the instances that are meant.
pub(super) type Parcel<M> = Vec<(u64, M)>;

/// What came of a burst.
pub(super) struct Done<M> {
    /// When the node was done with it: what it sent leaves then.
    pub(super) at: Nanos,
    /// What goes to which other node.
    pub(super) parcels: BTreeMap<usize, Parcel<M>>,
    /// Answers to clients.
    pub(super) replies: Vec<(ClientId, Reply)>,
}

impl<P: Protocol> Fleet<P> {
    /// The nodes of `layout`; those with no other roles than `client_kinds` take no time.
    pub(super) fn new(
        layout: &Layout,
        client_kinds: &[u8],
        service: &impl Service,
    ) -> Result<Self, LayoutError> {
        let config = P::configure(layout.clone())?;
        let nodes: Vec<_> = layout.nodes().into_iter().collect();
        let servers = nodes
            .iter()
            .map(|node| Server::new(*node, layout, client_kinds, &config, service))
            .collect();
        let place = |kind, index| {
            let node = layout.node_of(Address { kind, index })?;
            nodes.iter().position(|known| *known == node)
        };
        let indices = || 0..MAX_INSTANCES as u8;
        let places = (0..P::KINDS.len() as u8)
            .map(|kind| indices().map(|index| place(kind, index)).collect())
            .collect();
        Ok(Fleet {
            servers,
            places,
            outcome: Outcome::new(),
        })
    }

    /// How many nodes there are.
    pub(super) fn len(&self) -> usize {
        self.servers.len()
    }

    /// Where a client lane lives.
    pub(super) fn place_of(&self, lane: ClientId) -> usize {
        self.places[0][usize::from(lane.0)].expect("every lane lives somewhere")
    }

    /// Has a node start its roles.
    pub(super) fn start(&mut self, server: usize) -> Done<P::Message> {
        self.servers[server].start(&mut self.outcome);
        let (parcels, replies) = (self.parcels(), std::mem::take(&mut self.outcome.replies));
        Done {
            at: 0,
            parcels,
            replies,
        }
    }

    /// What another node has sent has arrived.
    pub(super) fn arrive(&mut self, server: usize, messages: Parcel<P::Message>) {
        self.servers[server].arrived.extend(messages);
    }

    /// Hands a request to a lane at once; taking it from the client costs its node so much.
    pub(super) fn submit(&mut self, lane: ClientId, request: Request, us: f64) {
        let place = self.place_of(lane);
        self.servers[place].submit(lane, request, us);
    }

    /// When a node is to look for work, if that is sooner than it was to already.
    pub(super) fn plan(&mut self, server: usize, now: Nanos) -> Option<Nanos> {
        let server = &mut self.servers[server];
        let at = server.next_look(now)?;
        let sooner = server.looks_at.is_none_or(|planned| at < planned);
        sooner.then(|| *server.looks_at.insert(at))
    }

    /// Whether a node is to look for work now: not when it has been planned anew since.
    pub(super) fn is_due(&self, server: usize, now: Nanos) -> bool {
        self.servers[server].looks_at == Some(now)
    }

    /// Has a node do what there is to do.
    pub(super) fn work(
        &mut self,
        server: usize,
        now: Nanos,
        costs: &impl Costs<P>,
        terms: Terms,
    ) -> Done<P::Message> {
        self.servers[server].looks_at = None;
        let mut us = self.servers[server].burst(now, costs, terms, &mut self.outcome);
        let (parcels, replies) = (self.parcels(), std::mem::take(&mut self.outcome.replies));
        for (_, message) in parcels.values().flatten() {
            us += costs.carrying(message);
        }
        us += replies.len() as f64 * costs.serving();
        Done {
            at: self.servers[server].finish(now, us),
            parcels,
            replies,
        }
    }

    /// Divides up what was sent: all to one node goes together.
    fn parcels(&mut self) -> BTreeMap<usize, Parcel<P::Message>> {
        let mut parcels: BTreeMap<usize, Parcel<P::Message>> = BTreeMap::new();
        for (kind, mut members, message) in self.outcome.sends.drain(..) {
            // Each node receives it once, for all members there.
            let mut nodes: BTreeMap<usize, u64> = BTreeMap::new();
            while members != 0 {
                let index = members.trailing_zeros() as usize;
                members &= members - 1;
                if let Some(server) = self.places[usize::from(kind)][index] {
                    *nodes.entry(server).or_default() |= 1 << index;
                }
            }
            for (server, members) in nodes {
                parcels
                    .entry(server)
                    .or_default()
                    .push((members, message.clone()));
            }
        }
        parcels
    }

    /// The measurement begins: what was spent before does not count.
    pub(super) fn begin(&mut self) {
        self.servers.iter_mut().for_each(|server| server.spent = 0);
    }

    /// The part of the time since the beginning, in nanoseconds, that each node was busy.
    pub(super) fn utilization(&self, elapsed: f64) -> Vec<(NodeId, f64)> {
        // A burst that begins before the end is counted whole.
        self.servers
            .iter()
            .map(|server| (server.id, (server.spent as f64 / elapsed).min(1.0)))
            .collect()
    }
}
