//! A deployment, as in its file and as the kernel's layout.

use crate::error::{DeploymentError, Problem};
use crate::network::Network;
use crate::options::{self, Settings};
use crate::words::shortened;
use ionian_kernel::id::{Index, MAX_INSTANCES};
use ionian_kernel::layout::{Layout, NodeId};
use ionian_kernel::level::Level;
use ionian_kernel::quorum_spec::QuorumSpec;
use ionian_kernel::setting::Setting;
use std::collections::BTreeMap;
use std::fmt;

/// The state machines that come with Ionian; see [`Deployment::check_machine`].
pub const MACHINES: &[&str] = &["kv", "nothing"];
/// The role that every node with a gateway has.
pub const CLIENT: &str = "client";
/// The largest f: 2f+1 acceptors must fit into a set of 64.
pub const MAX_F: usize = (MAX_INSTANCES - 1) / 2;
/// The largest size of a deployment file in bytes.
pub const MAX_TEXT: usize = 4 << 20;
/// The largest number of nodes of a deployment.
pub const MAX_NODES: usize = 1024;

/// A cluster: what it runs, and on which nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deployment {
    /// The cluster's name. Nodes of different clusters refuse each other.
    pub cluster: String,
    /// The protocol, by its [name](ionian_protocols::registry::NAMES).
    pub protocol: String,
    /// The replicated state machine.
    pub machine: String,
    /// The number of nodes that may fail.
    pub f: usize,
    /// The arrangement of the acceptors.
    pub quorums: QuorumSpec,
    /// Where nodes store state that must survive a crash.
    pub durability: Durability,
    /// The level that the cluster is founded with. The log can raise it.
    pub level: Level,
    /// The options.
    pub options: Settings,
    /// Simulated distances between sites, if any.
    pub network: Option<Network>,
    /// The nodes, in the order of the file.
    pub nodes: Vec<Node>,
}

/// Where a node stores what it must not lose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// On disk, before the node sends any message that depends on it. The default, so that a file
    /// without this key never loses data.
    #[default]
    Disk,
    /// In memory: a node loses it when it stops.
    Memory,
}

/// A node: one operating system process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// The name, unique in the deployment.
    pub name: String,
    /// The number. Without one the node gets the lowest free number, in the order of the file.
    /// Files state numbers where a membership change has left gaps.
    pub id: Option<u16>,
    /// `host:port` where other nodes connect.
    pub address: String,
    /// `host:port` where the node listens for other nodes, if it differs from `address`: behind
    /// address translation, or in a container with a published port.
    pub listen: Option<String>,
    /// `host:port` where the node serves Redis clients, if it does. The node then has a client lane
    /// even if its roles do not name one.
    pub gateway: Option<String>,
    /// `host:port` where the node listens for clients, if it differs from `gateway`.
    pub gateway_listen: Option<String>,
    /// The site; see [`Network`]. A node without a site is close to every other node.
    pub site: Option<String>,
    /// The roles. A role may be listed twice.
    pub roles: Vec<Placed>,
}

/// A role on a node, written `acceptor`, `acceptor*2` for two instances, or `acceptor:3` for the
/// instance with number 3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The name of the role.
    pub role: String,
    /// The number of instances, at least 1.
    pub count: usize,
    /// The number of the only instance. Without one each instance gets the lowest free number, in
    /// the order of the file.
    pub number: Option<Index>,
}

impl Placed {
    /// `count` instances of a role, with free numbers.
    pub fn some(role: &str, count: usize) -> Self {
        Placed {
            role: role.to_owned(),
            count,
            number: None,
        }
    }

    /// One instance of a role, with its number.
    pub fn one(role: &str, number: Index) -> Self {
        Placed {
            role: role.to_owned(),
            count: 1,
            number: Some(number),
        }
    }
}

impl Durability {
    /// All values.
    pub(crate) const ALL: [Durability; 2] = [Durability::Disk, Durability::Memory];

    /// The name in a file.
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
    /// Where the node listens for other nodes.
    pub fn listens_at(&self) -> &str {
        self.listen.as_ref().unwrap_or(&self.address)
    }

    /// Where the node listens for clients, if it serves any.
    pub fn gateway_listens_at(&self) -> Option<&str> {
        self.gateway
            .as_ref()
            .map(|gateway| self.gateway_listen.as_ref().unwrap_or(gateway).as_str())
    }

    /// The number of instances of each role, including the client lane of the gateway.
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
    /// The deployment as the layout for a protocol with these
    /// [`KINDS`](ionian_kernel::protocol::Protocol::KINDS) of roles.
    ///
    /// # Errors
    /// If [`check`](Deployment::check) fails, a role is not in `kinds`, no client exists, or a role
    /// has more than 64 instances.
    pub fn layout(&self, kinds: &[&str]) -> Result<Layout, DeploymentError> {
        let Deployment { nodes, .. } = self.numbered()?;
        let mut instances: Vec<BTreeMap<Index, NodeId>> = vec![BTreeMap::new(); kinds.len()];
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
            founding_level: self.level,
            names,
            ..Layout::default()
        })
    }

    /// Takes the settings that are local to one node from the deployment that the node is started
    /// with: options on which nodes may differ (unless they contradict options that the cluster has
    /// changed since), listening addresses, and distances between sites.
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

    /// The index in [`nodes`](Deployment::nodes) of the node with this name.
    ///
    /// # Errors
    /// If no node has this name.
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
                    name: shortened(name),
                    known,
                }
                .into()
            })
    }

    /// Checks that `machine` is one of those that the caller contains. Deployment files may name
    /// any state machine, because users of the library give their own machines their own names.
    ///
    /// # Errors
    /// If it is not.
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
