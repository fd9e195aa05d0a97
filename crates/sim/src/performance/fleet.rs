//! All nodes of a measured deployment, and the nodes of each instance.

use super::server::{Nanos, Server, Terms};
use super::{Costs, Service};
use crate::roles::{AnyMessage, Effects, Simulated};
use ionian_kernel::client::{Reply, Request};
use ionian_kernel::id::{ClientId, Index, MAX_INSTANCES, Members};
use ionian_kernel::layout::{Address, Layout, LayoutError, NodeId};
use ionian_kernel::status::Leads;
use std::collections::BTreeMap;
use std::rc::Rc;

/// All nodes, identified by their index in the layout.
pub(super) struct Fleet {
    protocol: Simulated,
    servers: Vec<Server>,
    /// The server of each instance, by kind and index.
    places: Vec<Vec<Option<usize>>>,
    effects: Effects,
    layout: Layout,
}

/// A message with the receiving instances.
pub(super) type Addressed = (Members, Rc<dyn AnyMessage>);

/// The messages of one burst to one node.
pub(super) type Parcel = Vec<Addressed>;

/// The result of a burst.
pub(super) struct Done {
    /// When the node finished the burst: its messages leave then.
    pub(super) at: Nanos,
    /// The messages to each other node.
    pub(super) parcels: BTreeMap<usize, Parcel>,
    /// Answers to clients.
    pub(super) replies: Vec<(ClientId, Reply)>,
}

impl Fleet {
    /// The nodes of `layout`, with disks or without; nodes with no other roles than `client_kinds`
    /// take no time.
    pub(super) fn new(
        protocol: Simulated,
        layout: &Layout,
        client_kinds: &[u8],
        service: &dyn Service,
        has_disks: bool,
    ) -> Result<Self, LayoutError> {
        protocol.protocol().configure(layout.clone())?;
        let nodes: Vec<_> = layout.nodes().into_iter().collect();
        let servers = nodes
            .iter()
            .map(|node| Server::new(protocol, *node, layout, client_kinds, service, has_disks))
            .collect();
        let place = |kind, index| {
            let node = layout.node_of(Address { kind, index })?;
            nodes.iter().position(|known| *known == node)
        };
        let indices = || 0..MAX_INSTANCES as Index;
        let places = (0..protocol.description().kinds.len() as u8)
            .map(|kind| indices().map(|index| place(kind, index)).collect())
            .collect();
        Ok(Fleet {
            protocol,
            servers,
            places,
            effects: Effects::default(),
            layout: layout.clone(),
        })
    }

    /// How many nodes there are.
    pub(super) fn len(&self) -> usize {
        self.servers.len()
    }

    /// The node of a client lane.
    pub(super) fn place_of(&self, lane: ClientId) -> usize {
        self.places[0][usize::from(lane.0)].expect("every lane lives somewhere")
    }

    /// Starts the roles of a node.
    pub(super) fn start(&mut self, server: usize) -> Done {
        self.start_at(server, 0)
    }

    /// Starts a node again, with what its disk holds.
    pub(super) fn restart(&mut self, server: usize, now: Nanos, service: &dyn Service) -> Done {
        self.servers[server].boot(self.protocol, &self.layout, service);
        self.start_at(server, now)
    }

    fn start_at(&mut self, server: usize, now: Nanos) -> Done {
        self.servers[server].start(now, &mut self.effects);
        let (parcels, replies) = self.sent();
        Done {
            at: now,
            parcels,
            replies,
        }
    }

    /// Messages of another node have arrived.
    pub(super) fn arrive(&mut self, server: usize, messages: Parcel) {
        self.servers[server].arrived.extend(messages);
    }

    /// Passes a request to a lane immediately; receiving it from the client costs its node time.
    pub(super) fn submit(&mut self, lane: ClientId, request: Request, us: f64) {
        let place = self.place_of(lane);
        self.servers[place].submit(lane, request, us);
    }

    /// When a node must look for work, if that is earlier than already planned.
    pub(super) fn plan(&mut self, server: usize, now: Nanos) -> Option<Nanos> {
        let server = &mut self.servers[server];
        let at = server.next_look(now)?;
        let sooner = server.looks_at.is_none_or(|planned| at < planned);
        sooner.then(|| *server.looks_at.insert(at))
    }

    /// Whether a node must look for work now: not if another time has been planned since.
    pub(super) fn is_due(&self, server: usize, now: Nanos) -> bool {
        self.servers[server].looks_at == Some(now)
    }

    /// Runs a node's roles.
    pub(super) fn work(
        &mut self,
        server: usize,
        now: Nanos,
        costs: &dyn Costs,
        terms: Terms,
    ) -> Done {
        self.servers[server].looks_at = None;
        let mut us = self.servers[server].burst(now, costs, terms, &mut self.effects);
        let (parcels, replies) = self.sent();
        for (_, message) in parcels.values().flatten() {
            us += costs.carrying(&**message);
        }
        us += replies.len() as f64 * costs.serving();
        Done {
            at: self.servers[server].finish(now, us),
            parcels,
            replies,
        }
    }

    /// The messages of a burst, by receiving node, and its answers to clients.
    fn sent(&mut self) -> (BTreeMap<usize, Parcel>, Vec<(ClientId, Reply)>) {
        let Effects {
            sends,
            replies,
            announced,
            ..
        } = std::mem::take(&mut self.effects);
        let changes = "no client of a measurement changes the membership";
        assert!(announced.is_none(), "{changes}");
        let mut parcels: BTreeMap<usize, Parcel> = BTreeMap::new();
        for (kind, members, message) in sends {
            // Each node receives a message once, for all its instances.
            let mut nodes: BTreeMap<usize, Members> = BTreeMap::new();
            for index in members.iter() {
                if let Some(server) = self.places[usize::from(kind)][usize::from(index)] {
                    nodes.entry(server).or_default().insert(index);
                }
            }
            for (server, members) in nodes {
                parcels
                    .entry(server)
                    .or_default()
                    .push((members, message.clone()));
            }
        }
        (parcels, replies)
    }

    /// A node does nothing until then.
    pub(super) fn stall(&mut self, server: usize, until: Nanos) {
        self.servers[server].stall(until);
    }

    /// What each leader leads.
    pub(super) fn leads(&self) -> Vec<Leads> {
        self.servers.iter().flat_map(Server::leads).collect()
    }

    /// The measurement starts: earlier time does not count.
    pub(super) fn begin(&mut self) {
        self.servers.iter_mut().for_each(|server| server.spent = 0);
    }

    /// The fraction of the time since the start, in nanoseconds, that each node was busy.
    pub(super) fn utilization(&self, elapsed: f64) -> Vec<(NodeId, f64)> {
        // A burst that starts before the end counts as a whole.
        self.servers
            .iter()
            .map(|server| (server.id, (server.spent as f64 / elapsed).min(1.0)))
            .collect()
    }
}
