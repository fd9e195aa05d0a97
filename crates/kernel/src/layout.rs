//! A deployment as a protocol sees it: how many instances of each role there are and on which node
//! each one lives. Addresses, files and presets belong to the deployment file, not here.

use crate::client::LaneLimits;
use crate::id::{Id, Set};
use crate::quorum::QuorumSpec;
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
    pub index: u8,
}

/// Which instances exist and where, with the options of the deployment.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    /// How many nodes may fail.
    pub f: usize,
    /// How the acceptors are arranged.
    pub quorums: QuorumSpec,
    /// For each kind of the protocol, the node of each of its instances.
    pub instances: Vec<Vec<NodeId>>,
    /// Tunables, with defaults that suit a local network.
    pub options: Options,
    /// What people call the nodes; may be left out.
    pub names: Vec<String>,
    /// The name of a defect to build in, by which the simulator is tested. No deployment file can set it.
    pub canary: Option<&'static str>,
}

impl Layout {
    /// How many instances of `kind` there are.
    pub fn count(&self, kind: u8) -> usize {
        self.instances.get(kind as usize).map_or(0, Vec::len)
    }

    /// What people call a node.
    pub fn name(&self, node: NodeId) -> String {
        self.names.get(node.0 as usize).cloned().unwrap_or_else(|| format!("{} (counted from 0)", node.0))
    }

    /// All instances of `kind`.
    pub fn all<I: Id>(&self, kind: u8) -> Set<I> {
        Set::first(self.count(kind))
    }

    /// The instances of `kind` to prefer on `node`: its own if it has some, since a hop on one node is a
    /// function call, else all.
    pub fn preferred<I: Id>(&self, kind: u8, node: NodeId) -> Set<I> {
        let near = self.near(kind, node);
        if near.is_empty() { self.all(kind) } else { near }
    }

    /// The instances of `kind` that live on `node`.
    pub fn near<I: Id>(&self, kind: u8, node: NodeId) -> Set<I> {
        let instances = self.instances.get(kind as usize).map_or(&[][..], |nodes| &nodes[..]);
        (0..).zip(instances).filter(|(_, place)| **place == node).map(|(index, _)| I::at(index)).collect()
    }

    /// The addresses of all instances on `node`, kind by kind.
    pub fn on_node(&self, node: NodeId) -> Vec<Address> {
        let kinds = (0..).zip(&self.instances);
        kinds
            .flat_map(|(kind, nodes)| (0..).zip(nodes).map(move |(index, place)| (Address { kind, index }, *place)))
            .filter_map(|(address, place)| (place == node).then_some(address))
            .collect()
    }
}

/// What can be tuned, one meaning for every protocol. Each has a key of the same name in the
/// deployment file, times in the unit that the key ends with.
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
    /// How many executed slots a replica keeps for peers that missed them.
    pub retained_slots: usize,
    /// A replica of a deployment with disks stores a snapshot after so many slots.
    pub snapshot_slots: usize,
    /// How many bytes of a peer's snapshot a replica takes in each second, at most.
    pub snapshot_bytes_per_second: usize,
    /// How often a leader says that it lives.
    pub heartbeat: Duration,
    /// A leader not heard of for this long, up to twice as long, is suspected.
    pub election_timeout: Duration,
    /// A message unanswered this long is asked again, of somebody else.
    pub resend_after: Duration,
    /// A session unused for this long, by the log's time, is forgotten.
    pub session_expiry: Duration,
    /// Limits of every client lane.
    pub lane: LaneLimits,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            batch_commands: 256,
            batch_bytes: 256 << 10,
            batch_delay: Duration::from_millis(1),
            batches_in_flight: 4,
            window_slots: 8192,
            retained_slots: 8192,
            snapshot_slots: 1 << 16,
            snapshot_bytes_per_second: 64 << 20,
            heartbeat: Duration::from_millis(100),
            election_timeout: Duration::from_millis(400),
            resend_after: Duration::from_millis(40),
            session_expiry: Duration::from_secs(600),
            lane: LaneLimits::default(),
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
