//! A deployment as its file describes it, and as the kernel takes it.

use crate::error::{DeploymentError, Problem};
use crate::options::Settings;
use ionian_kernel::id::MAX_INSTANCES;
use ionian_kernel::layout::{Layout, NodeId, numbered};
use ionian_kernel::quorum::QuorumSpec;
use std::collections::BTreeMap;
use std::fmt;

/// The protocols that a file may name.
pub const PROTOCOLS: &[&str] = &["multipaxos", "unreplicated"];
/// The state machines that come with Ionian; see [`Deployment::check_machine`].
pub const MACHINES: &[&str] = &["kv"];
/// The role that a gateway brings with it.
pub const CLIENT: &str = "client";
/// The largest f: 2f+1 acceptors must fit into a set of 64.
pub const MAX_F: usize = (MAX_INSTANCES - 1) / 2;
/// The most nodes a deployment has.
pub const MAX_NODES: usize = 1024;

/// A cluster: what it runs, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deployment {
    /// Its name: nodes of other clusters are refused.
    pub cluster: String,
    /// The protocol, one of [`PROTOCOLS`].
    pub protocol: String,
    /// The state machine that is replicated.
    pub machine: String,
    /// How many nodes may fail.
    pub f: usize,
    /// How the acceptors are arranged.
    pub quorums: QuorumSpec,
    /// Where what must not be forgotten is kept.
    pub durability: Durability,
    /// What is tuned.
    pub options: Settings,
    /// The nodes; a node's [`NodeId`] is its place here.
    pub nodes: Vec<Node>,
}

/// Where a node keeps what it must not forget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// On disk, before anybody is told. What a file that does not say gets: silence never loses anything.
    #[default]
    Disk,
    /// In memory: a node that stops has forgotten it.
    Memory,
}

/// One operating system process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Its name, unique in the deployment.
    pub name: String,
    /// `host:port` where other nodes find it.
    pub address: String,
    /// `host:port` where it serves Redis clients, if it does. It then has a client lane even when
    /// its roles do not name one.
    pub gateway: Option<String>,
    /// Its roles. One may be listed twice.
    pub roles: Vec<Placed>,
}

/// A role on a node, written `acceptor`, or `acceptor*2` for two instances.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The name of the role.
    pub role: String,
    /// How many instances, from 1.
    pub count: usize,
}

impl Durability {
    /// All of them.
    pub(crate) const ALL: [Durability; 2] = [Durability::Disk, Durability::Memory];

    /// Its name in a file.
    pub fn name(self) -> &'static str {
        match self {
            Durability::Memory => "memory",
            Durability::Disk => "disk",
        }
    }
}

impl fmt::Display for Placed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.count {
            1 => f.write_str(&self.role),
            count => write!(f, "{}*{count}", self.role),
        }
    }
}

impl Node {
    /// How many instances of each role it has, the client lane of its gateway included.
    pub fn instances(&self) -> BTreeMap<&str, usize> {
        let mut instances = BTreeMap::new();
        for Placed { role, count } in &self.roles {
            *instances.entry(role.as_str()).or_default() += count;
        }
        if self.gateway.is_some() {
            instances.entry(CLIENT).or_insert(1);
        }
        instances
    }
}

impl Deployment {
    /// The deployment as a protocol with these
    /// [`KINDS`](ionian_kernel::protocol::Protocol::KINDS) of roles takes it. Instances are numbered
    /// in the order of the nodes they are on.
    ///
    /// # Errors
    /// When [`check`](Deployment::check) fails, a role is not one of `kinds`, there is no client, or
    /// there are more than 64 of a role.
    pub fn layout(&self, kinds: &[&str]) -> Result<Layout, DeploymentError> {
        self.check()?;
        let mut instances = vec![Vec::new(); kinds.len()];
        for (id, node) in (0..).map(NodeId).zip(&self.nodes) {
            let key = || format!("node.{}.roles", node.name);
            for (role, count) in node.instances() {
                let Some(kind) = kinds.iter().position(|kind| *kind == role) else {
                    let allowed = format!("roles of {}, which are {}", self.protocol, kinds.join(", "));
                    return Err(Problem::Value { key: key(), value: format!("{role:?}"), allowed }.into());
                };
                let places: &mut Vec<NodeId> = &mut instances[kind];
                let total = places.len().saturating_add(count);
                if total > MAX_INSTANCES {
                    let (role, limit) = (role.to_owned(), MAX_INSTANCES);
                    return Err(Problem::TooMany { key: key(), role, count: total, limit }.into());
                }
                places.resize(total, id);
            }
        }
        if !self.nodes.iter().any(|node| node.instances().contains_key(CLIENT)) {
            return Err(Problem::NoClient { role: CLIENT.to_owned() }.into());
        }
        let names = self.nodes.iter().map(|node| node.name.clone()).collect();
        let (instances, options) = (numbered(instances), self.options.options());
        Ok(Layout { f: self.f, quorums: self.quorums, instances, options, names, ..Layout::default() })
    }

    /// The node of this name.
    ///
    /// # Errors
    /// When there is none.
    pub fn node(&self, name: &str) -> Result<NodeId, DeploymentError> {
        let found = (0..).map(NodeId).zip(&self.nodes).find(|(_, node)| node.name == name);
        found.map(|(id, _)| id).ok_or_else(|| {
            let known = self.nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>().join(", ");
            Problem::NoSuchNode { name: name.to_owned(), known }.into()
        })
    }

    /// Whether `machine` is one of those that the caller can make. A file may name any: whoever
    /// replicates a machine of their own gives it a name of their own.
    ///
    /// # Errors
    /// When it is not.
    pub fn check_machine(&self, known: &[&str]) -> Result<(), DeploymentError> {
        if known.contains(&self.machine.as_str()) {
            return Ok(());
        }
        let (value, allowed) = (format!("{:?}", self.machine), crate::set::one_of(known));
        Err(Problem::Value { key: "machine".to_owned(), value, allowed }.into())
    }
}
