//! A deployment as its file describes it, and as the kernel takes it.

use crate::error::{DeploymentError, Problem};
use crate::network::Network;
use crate::options::{self, Settings};
use ionian_kernel::id::MAX_INSTANCES;
use ionian_kernel::layout::{Layout, NodeId};
use ionian_kernel::quorum_spec::QuorumSpec;
use ionian_kernel::setting::Setting;
use std::collections::BTreeMap;
use std::fmt;

/// The state machines that come with Ionian; see [`Deployment::check_machine`].
pub const MACHINES: &[&str] = &["kv", "nothing"];
/// The role that a gateway brings with it.
pub const CLIENT: &str = "client";
/// The largest f: 2f+1 acceptors must fit into a set of 64.
pub const MAX_F: usize = (MAX_INSTANCES - 1) / 2;
/// The most bytes of a deployment's text: what is larger is some other file, or no end of one.
pub const MAX_TEXT: usize = 4 << 20;
/// The most nodes a deployment has.
pub const MAX_NODES: usize = 1024;

/// A cluster: what it runs, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deployment {
    /// Its name: nodes of other clusters are refused.
    pub cluster: String,
    /// The protocol, by its [name](ionian_protocols::registry::NAMES).
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
    /// How far apart sites are, if that is to be felt.
    pub network: Option<Network>,
    /// The nodes, in the order of the file.
    pub nodes: Vec<Node>,
}

/// Where a node keeps what it must not forget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// On disk, before anybody is told. What a file that does not say gets: silence never loses
    /// anything.
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
    /// Its number; without one it gets the lowest that is free, in the order of the file. Numbers
    /// are stated where a change of the membership has left gaps.
    pub id: Option<u16>,
    /// `host:port` where other nodes find it.
    pub address: String,
    /// `host:port` where it listens for them, if that is not `address`: behind address translation,
    /// or in a container with a published port.
    pub listen: Option<String>,
    /// `host:port` where it serves Redis clients, if it does. It then has a client lane even when
    /// its roles do not name one.
    pub gateway: Option<String>,
    /// `host:port` where it listens for them, if that is not `gateway`.
    pub gateway_listen: Option<String>,
    /// Where it is; see [`Network`]. A node without a site is near every other.
    pub site: Option<String>,
    /// Its roles. One may be listed twice.
    pub roles: Vec<Placed>,
}

/// A role on a node, written `acceptor`, or `acceptor*2` for two instances, or `acceptor:3` for the
/// instance with this number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The name of the role.
    pub role: String,
    /// How many instances, from 1.
    pub count: usize,
    /// The number of the one instance; without one, each gets the lowest that is free, in the order
    /// of the file.
    pub number: Option<u8>,
}

impl Placed {
    /// So many instances of a role, with whatever numbers are free.
    pub fn some(role: &str, count: usize) -> Self {
        Placed {
            role: role.to_owned(),
            count,
            number: None,
        }
    }

    /// One instance of a role, with its number.
    pub fn one(role: &str, number: u8) -> Self {
        Placed {
            role: role.to_owned(),
            count: 1,
            number: Some(number),
        }
    }
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
        match (self.number, self.count) {
            (Some(number), _) => write!(f, "{}:{number}", self.role),
            (None, 1) => f.write_str(&self.role),
            (None, count) => write!(f, "{}*{count}", self.role),
        }
    }
}

impl Node {
    /// Where it listens for other nodes.
    pub fn listens_at(&self) -> &str {
        self.listen.as_ref().unwrap_or(&self.address)
    }

    /// Where it listens for clients, if it serves any.
    pub fn gateway_listens_at(&self) -> Option<&str> {
        self.gateway
            .as_ref()
            .map(|gateway| self.gateway_listen.as_ref().unwrap_or(gateway).as_str())
    }

    /// How many instances of each role it has, the client lane of its gateway included.
    pub fn instances(&self) -> BTreeMap<&str, usize> {
        let mut instances = BTreeMap::new();
        for Placed { role, count, .. } in &self.roles {
            *instances.entry(role.as_str()).or_default() += count;
        }
        if self.gateway.is_some() {
            instances.entry(CLIENT).or_insert(1);
        }
        instances
    }
}

impl Deployment {
    /// The keys of its `[options]` table.
    pub fn settings(&self) -> impl Iterator<Item = &'static Setting> {
        options::settings(&self.protocol)
    }
}

impl Deployment {
    /// The deployment as a protocol with these
    /// [`KINDS`](ionian_kernel::protocol::Protocol::KINDS) of roles takes it.
    ///
    /// # Errors
    /// When [`check`](Deployment::check) fails, a role is not one of `kinds`, there is no client,
    /// or there are more than 64 of a role.
    pub fn layout(&self, kinds: &[&str]) -> Result<Layout, DeploymentError> {
        let Deployment { nodes, .. } = self.numbered()?;
        let mut instances: Vec<BTreeMap<u8, NodeId>> = vec![BTreeMap::new(); kinds.len()];
        let mut names = Vec::new();
        for node in &nodes {
            let id = node.id.expect("it is numbered");
            names.resize(names.len().max(usize::from(id) + 1), String::new());
            names[usize::from(id)].clone_from(&node.name);
            for Placed { role, number, .. } in &node.roles {
                let Some(kind) = kinds.iter().position(|kind| kind == role) else {
                    let (key, value) = (format!("node.{}.roles", node.name), format!("{role:?}"));
                    let allowed =
                        format!("roles of {}, which are {}", self.protocol, kinds.join(", "));
                    return Err(Problem::Value {
                        key,
                        value,
                        allowed,
                    }
                    .into());
                };
                instances[kind].insert(number.expect("it is numbered"), NodeId(id));
            }
        }
        if !self
            .nodes
            .iter()
            .any(|node| node.instances().contains_key(CLIENT))
        {
            return Err(Problem::NoClient {
                role: CLIENT.to_owned(),
            }
            .into());
        }
        let instances = instances
            .into_iter()
            .map(|places| places.into_iter().collect())
            .collect();
        let options = self.options.options();
        Ok(Layout {
            f: self.f,
            quorums: self.quorums,
            instances,
            options,
            names,
            ..Layout::default()
        })
    }

    /// Takes what concerns one node alone from the deployment that it is started with: the options
    /// that nodes need not agree on, unless they make no sense beside what the cluster was tuned to
    /// since, where nodes listen, and how far apart sites are.
    pub fn take_local(&mut self, given: &Deployment) {
        let mut own = self.options.clone();
        own.take_local(&given.options);
        if own.check(&self.protocol).is_ok() {
            self.options = own;
        }
        self.network.clone_from(&given.network);
        for node in &mut self.nodes {
            if let Some(as_given) = given.nodes.iter().find(|known| known.name == node.name) {
                node.site.clone_from(&as_given.site);
                node.listen.clone_from(&as_given.listen);
                node.gateway_listen.clone_from(&as_given.gateway_listen);
            }
        }
    }

    /// The node of this name, by its place among [`nodes`](Deployment::nodes).
    ///
    /// # Errors
    /// When there is none.
    pub fn place(&self, name: &str) -> Result<usize, DeploymentError> {
        self.nodes
            .iter()
            .position(|node| node.name == name)
            .ok_or_else(|| {
                let known = self
                    .nodes
                    .iter()
                    .map(|node| node.name.as_str())
                    .collect::<Vec<_>>()
                    .join(", ");
                Problem::NoSuchNode {
                    name: name.to_owned(),
                    known,
                }
                .into()
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
        let (value, allowed) = (format!("{:?}", self.machine), crate::words::one_of(known));
        Err(Problem::Value {
            key: "machine".to_owned(),
            value,
            allowed,
        }
        .into())
    }
}
