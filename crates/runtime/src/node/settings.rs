//! The settings that a node starts with.

use super::audit::AuditCheck;
use super::feed::StatusFeed;
use super::startup::StartupWatch;
use crate::error::NodeError;
use crate::storage::disk_log::DiskOptions;
use crate::storage::log::Durability;
use crate::storage::membership_file;
use crate::transport::handshake::Identity;
use crate::transport::names::resolve;
use crate::transport::security::NodeTls;
use ionian_deployment::{Configuration, Deployment};
use ionian_kernel::id::Epoch;
use ionian_kernel::layout::{Layout, NodeId};
use ionian_kernel::level::Level;
use ionian_kernel::protocol::AnyProtocol;
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

/// The settings of a node.
#[derive(Debug)]
pub struct NodeSettings {
    /// The cluster.
    pub identity: Identity,
    /// The number of this node.
    pub node: NodeId,
    /// The name of this node in the deployment.
    pub name: String,
    /// The address on which it listens, for peers and for operators.
    pub address: SocketAddr,
    /// A socket that listens already, in place of `address`: for programs that must know the port
    /// before the node runs.
    pub listener: Option<TcpListener>,
    /// `host:port` of all nodes, including this one.
    pub peers: BTreeMap<NodeId, String>,
    /// The node of each role instance.
    pub layout: Layout,
    /// The configuration of `peers` and `layout`. Without it the membership of the cluster cannot
    /// change.
    pub configuration: Option<Configuration>,
    /// What survives the end of the process.
    pub durability: Durability,
    /// How the disk is used with [`Durability::Disk`].
    pub disk: DiskOptions,
    /// The data directory. Without it nothing is stored, and a node that starts again does not know
    /// that it ran before. [`Durability::Disk`] needs it.
    pub data: Option<PathBuf>,
    /// How connections to other nodes and from operators are secured; `None` if they are not.
    pub tls: Option<NodeTls>,
    /// A number of milliseconds that is added to the wall clock when the node starts: zero, except
    /// in tests of wrong clocks.
    pub clock_ahead_ms: i64,
    /// Receives how far the start is.
    pub startup: StartupWatch,
    /// Where the node publishes its status once a second.
    pub feed: Option<StatusFeed>,
    /// Whether the audit log takes lines.
    pub audit: AuditCheck,
}

impl NodeSettings {
    /// The settings of the node `name`, from the membership in its data directory if that is later
    /// than `given`. Options that concern one node alone always come from `given`.
    ///
    /// # Errors
    /// If there is no such node, or the stored membership cannot be read.
    pub fn new(
        protocol: &dyn AnyProtocol,
        given: Configuration,
        name: &str,
        data: Option<&Path>,
    ) -> Result<Self, NodeError> {
        let configuration = newest(given, data)?;
        let Some((node, member)) = configuration.member(name) else {
            return Err(not_a_member(&configuration, name));
        };
        let address = member.listens_at();
        let address = resolve(address).map_err(|source| NodeError::Address {
            address: address.to_owned(),
            source,
        })?;
        let deployment = &configuration.deployment;
        Ok(NodeSettings {
            identity: Identity {
                cluster: deployment.cluster.clone(),
                founding: configuration.founding,
                protocol: deployment.protocol.clone(),
                at_levels: at_levels(&configuration),
            },
            node,
            name: name.to_owned(),
            address,
            listener: None,
            peers: addresses(&configuration),
            layout: configuration
                .layout(protocol.description().kinds)
                .map_err(NodeError::Deployment)?,
            durability: match deployment.durability {
                ionian_deployment::Durability::Memory => Durability::Memory,
                ionian_deployment::Durability::Disk => Durability::Disk,
            },
            disk: DiskOptions::default(),
            data: data.map(Path::to_owned),
            tls: None,
            clock_ahead_ms: 0,
            startup: StartupWatch::default(),
            feed: None,
            audit: AuditCheck::default(),
            configuration: Some(configuration),
        })
    }
}

/// The digests of the founding deployment at each level; none if it has changed since.
fn at_levels(configuration: &Configuration) -> Vec<(Level, u64)> {
    let founded = &configuration.deployment;
    if founded.digest() != configuration.founding {
        return Vec::new();
    }
    let at = |level| Deployment {
        level,
        ..founded.clone()
    };
    let levels = (Level::OLDEST.0..=Level::LATEST.0).map(Level);
    levels.map(|level| (level, at(level).digest())).collect()
}

/// Why the node `name` is not a member. If the founding deployment lacks it, the name is wrong; if
/// a later one does, the node was removed.
fn not_a_member(configuration: &Configuration, name: &str) -> NodeError {
    match (configuration.target().place(name), configuration.epoch().0) {
        (Ok(_), _) => unreachable!("a node of the deployment is a member"),
        (Err(error), 0) => NodeError::Deployment(error),
        (Err(_), epoch) => NodeError::Removed {
            name: name.to_owned(),
            epoch,
        },
    }
}

/// The stored configuration if it is later; `given` decides what concerns this node alone.
fn newest(given: Configuration, data: Option<&Path>) -> Result<Configuration, NodeError> {
    let stored = data.map(membership_file::stored).transpose()?.flatten();
    // Later checks refuse a directory of another cluster or durability, with their own reasons.
    let is_same = |stored: &Configuration| stored.deployment.is_same_cluster(&given.deployment);
    let Some(mut stored) = stored.filter(is_same) else {
        return Ok(given);
    };
    let given = given.or_at_level_of(&stored);
    let (epoch, is_founding) = (stored.epoch(), stored.founding == given.founding);
    let is_unchanged = epoch == Epoch::default() && is_founding;
    if epoch < given.epoch() || is_unchanged {
        return Ok(given);
    }
    if !is_founding {
        tracing::warn!(
            id = "E0105",
            "the deployment that this node is started with is not the one that its cluster was founded with. What the \
             node knows of the membership counts; `ionian member apply FILE` changes a running cluster"
        );
    }
    tracing::info!(
        "starts with the membership of epoch {}, as this node knew it when it stopped",
        epoch.0
    );
    stored.deployment.take_local(&given.deployment);
    for key in stored.deployment.options.tuned() {
        let (counts, own) = (
            stored.deployment.options.stated(key),
            given.deployment.options.stated(key),
        );
        if let (Some(counts), Some(own)) = (counts, own.filter(|own| Some(*own) != counts)) {
            tracing::info!(
                "options.{key} = {counts}, as `ionian options` has set it for all nodes, and not {own} as given here"
            );
        }
    }
    Ok(stored)
}

/// The addresses of the members.
pub(crate) fn addresses(configuration: &Configuration) -> BTreeMap<NodeId, String> {
    configuration
        .nodes()
        .into_iter()
        .map(|(id, node)| (id, node.address.clone()))
        .collect()
}
