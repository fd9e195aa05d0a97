//! A deployment as a protocol sees it: how many instances of each role there are and on which node
//! each one lives. Addresses, files and presets belong to the deployment file, not here.

use crate::client::{ClientLimits, LaneLimits};
use crate::id::{ClientId, Epoch, Id, Index, Set, Slot};
use crate::level::Level;
use crate::quorum_spec::QuorumSpec;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

/// A node's place in the deployment, from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u16);

/// One role instance, untyped: for the drivers, which serve every protocol alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// The place of the role in the protocol's [`KINDS`](crate::protocol::Protocol::KINDS).
    pub kind: u8,
    /// The instance among its kind.
    pub index: Index,
}

/// Where the instances of one kind live, by their numbers. A change of the membership gives new
/// instances numbers of their own and leaves gaps where others were.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places(BTreeMap<Index, NodeId>);

impl Places {
    /// The instances with their nodes, in order.
    pub fn iter(&self) -> impl Iterator<Item = (Index, NodeId)> {
        self.0.iter().map(|(index, node)| (*index, *node))
    }

    /// Where instance `index` lives, if there is one.
    pub fn node_of(&self, index: Index) -> Option<NodeId> {
        self.0.get(&index).copied()
    }
}

impl From<Vec<NodeId>> for Places {
    /// Instances numbered from 0 without gaps.
    fn from(nodes: Vec<NodeId>) -> Self {
        (0..).zip(nodes).collect()
    }
}

impl FromIterator<(Index, NodeId)> for Places {
    fn from_iter<T: IntoIterator<Item = (Index, NodeId)>>(places: T) -> Self {
        Places(places.into_iter().collect())
    }
}

/// Instances of every kind numbered from 0 without gaps: for a new cluster.
pub fn numbered(instances: Vec<Vec<NodeId>>) -> Vec<Places> {
    instances.into_iter().map(Places::from).collect()
}

/// Which instances exist and where, with the options of the deployment: one configuration of a
/// cluster, or, with `next`, the time between two of them.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    /// How many changes of the membership came before this layout.
    pub epoch: Epoch,
    /// Rounds of this epoch and later ones use the quorums of this layout.
    pub since: Epoch,
    /// Below this slot nothing is asked of acceptors, and nothing proposed; see
    /// [`Membership::frontier`](crate::membership::Membership::frontier).
    pub frontier: Slot,
    /// How many nodes may fail.
    pub f: usize,
    /// How the acceptors are arranged.
    pub quorums: QuorumSpec,
    /// For each kind of the protocol, the node of each of its instances.
    pub instances: Vec<Places>,
    /// Tunables, with defaults that suit a local network.
    pub options: Options,
    /// How long sessions lived when the cluster was founded, if that was changed since.
    pub founding_expiry: Option<Duration>,
    /// The level that the cluster was founded with.
    pub founding_level: Level,
    /// What people call the nodes; may be left out.
    pub names: Vec<String>,
    /// The layout that this one is being changed into. Until the change is finished the instances
    /// of both exist, and quorums of both are needed.
    pub next: Option<Box<Layout>>,
}

impl Layout {
    /// The layout that a change leads to; this one when none is under way.
    pub fn target(&self) -> &Layout {
        self.next.as_deref().unwrap_or(self)
    }

    /// How long sessions live in the first slot of the log.
    pub fn founding_expiry(&self) -> Duration {
        self.founding_expiry.unwrap_or(self.options.session_expiry)
    }

    /// The instances of `kind` with their nodes, in order.
    pub fn places(&self, kind: u8) -> Places {
        let layouts = [Some(self), self.next.as_deref()];
        layouts
            .into_iter()
            .flatten()
            .filter_map(|layout| layout.instances.get(kind as usize))
            .flat_map(Places::iter)
            .collect()
    }

    /// Where an instance lives, if there is one.
    pub fn node_of(&self, address: Address) -> Option<NodeId> {
        let find = |layout: &Layout| {
            layout
                .instances
                .get(address.kind as usize)?
                .node_of(address.index)
        };
        find(self).or_else(|| find(self.next.as_deref()?))
    }

    /// How many instances of `kind` there are.
    pub fn count(&self, kind: u8) -> usize {
        self.places(kind).0.len()
    }

    /// What people call a node.
    pub fn name(&self, node: NodeId) -> String {
        let name = self
            .names
            .get(node.0 as usize)
            .filter(|name| !name.is_empty())
            .cloned();
        name.unwrap_or_else(|| format!("{} (counted from 0)", node.0))
    }

    /// All instances of `kind`.
    pub fn all<I: Id>(&self, kind: u8) -> Set<I> {
        self.places(kind)
            .iter()
            .map(|(index, _)| I::at(index))
            .collect()
    }

    /// The instances of `kind` that live on `node`.
    pub fn near<I: Id>(&self, kind: u8, node: NodeId) -> Set<I> {
        let places = self.places(kind);
        places
            .iter()
            .filter(|(_, place)| *place == node)
            .map(|(index, _)| I::at(index))
            .collect()
    }

    /// A node with several instances of `kind`, if there is one.
    pub fn shared(&self, kind: u8) -> Option<NodeId> {
        let mut seen = BTreeSet::new();
        let places = self.places(kind);
        let mut nodes = places.iter().map(|(_, node)| node);
        nodes.find(|node| !seen.insert(*node))
    }

    /// The client lanes on `node`. They are the first kind of every
    /// [`Protocol`](crate::protocol::Protocol).
    pub fn client_lanes(&self, node: NodeId) -> Set<ClientId> {
        self.near(0, node)
    }

    /// The instances of `kind` to prefer on `node`: its own if it has some, since a hop on one node
    /// is a function call, else all.
    pub fn preferred<I: Id>(&self, kind: u8, node: NodeId) -> Set<I> {
        self.all(kind).preferring(self.near(kind, node))
    }

    /// All nodes that have an instance of anything, in order.
    pub fn nodes(&self) -> BTreeSet<NodeId> {
        self.addresses().map(|(_, node)| node).collect()
    }

    /// The addresses of all instances on `node`, kind by kind.
    pub fn on_node(&self, node: NodeId) -> Vec<Address> {
        self.addresses()
            .filter(|(_, place)| *place == node)
            .map(|(address, _)| address)
            .collect()
    }

    /// The addresses of all instances with their nodes, kind by kind.
    pub fn addresses(&self) -> impl Iterator<Item = (Address, NodeId)> {
        let kinds = self.instances.len().max(self.target().instances.len()) as u8;
        (0..kinds).flat_map(|kind| {
            let places: Vec<_> = self.places(kind).iter().collect();
            places
                .into_iter()
                .map(move |(index, node)| (Address { kind, index }, node))
        })
    }
}

/// What can be tuned, with one meaning for every protocol, and what the protocol adds to that. Each
/// has a key of the same name in the deployment file, times in the unit that the key ends with.
#[derive(Clone, Debug)]
pub struct Options {
    /// A batcher closes a batch that holds this many commands.
    pub batch_commands: usize,
    /// A batcher closes a batch that holds this many bytes.
    pub batch_bytes: usize,
    /// A batcher closes a batch this old, full or not.
    pub batch_delay: Duration,
    /// How many batches a batcher may have under way before an unfull one waits.
    pub batches_in_flight: usize,
    /// How many slots a leader may have proposed beyond what a replica is known to have executed.
    pub window_slots: usize,
    /// How many bytes of small values, and of large ones, a leader may have proposed beyond that;
    /// and how many a client lane or a batcher may have in flight to it, unless it is one value
    /// alone.
    pub window_bytes: usize,
    /// How many executed slots a replica keeps for peers that missed them.
    pub retained_slots: usize,
    /// The number of slots after which a replica of a deployment with disks stores a snapshot.
    pub snapshot_slots: usize,
    /// How many bytes of a peer's snapshot a replica takes in each second, at most.
    pub snapshot_bytes_per_second: usize,
    /// The interval between two heartbeats of a leader.
    pub heartbeat: Duration,
    /// A leader not heard of for this long, up to twice as long (or longer, of more than five
    /// leaders), is suspected.
    pub election_timeout: Duration,
    /// A request unanswered for this long is sent again, to another instance if there is one.
    pub resend_after: Duration,
    /// Whether a proxy leader asks one write quorum of acceptors first, and not all at once.
    pub thrifty: bool,
    /// A session unused for this long, by the log's time, is forgotten.
    pub session_expiry: Duration,
    /// How long a node that is stopping goes on at most, for clients that wait for an answer.
    pub drain: Duration,
    /// On how many event loops a node runs its roles, each with a thread.
    pub loops: usize,
    /// One in this number of commands is noted for traces; 0 stands for none.
    pub trace_one_in: usize,
    /// Limits of every client lane.
    pub lane: LaneLimits,
    /// Limits of the clients of a node.
    pub clients: ClientLimits,
    /// The stated values of settings that a protocol declares, by key: read with
    /// [`Setting::value`](crate::setting::Setting::value).
    pub own: BTreeMap<&'static str, u64>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            batch_commands: 256,
            batch_bytes: 256 << 10,
            batch_delay: Duration::from_millis(1),
            batches_in_flight: 4,
            window_slots: 8192,
            // Two round trips of 20 ms at 100 MB/s; and what a busy machine replicates in a second.
            window_bytes: 1 << 20,
            retained_slots: 8192,
            snapshot_slots: 1 << 16,
            snapshot_bytes_per_second: 64 << 20,
            heartbeat: Duration::from_millis(100),
            election_timeout: Duration::from_millis(400),
            resend_after: Duration::from_millis(40),
            thrifty: true,
            session_expiry: Duration::from_secs(600),
            drain: Duration::from_secs(5),
            loops: 1,
            trace_one_in: 0,
            lane: LaneLimits::default(),
            clients: ClientLimits::default(),
            own: BTreeMap::new(),
        }
    }
}

/// Why a layout is not a deployment of the protocol, in terms of the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayoutError(pub String);

impl core::fmt::Display for LayoutError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for LayoutError {}
