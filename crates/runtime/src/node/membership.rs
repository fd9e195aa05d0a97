//! The membership that a node knows, and how it advances to a later one.

use super::settings::NodeSettings;
use crate::error::NodeError;
use crate::storage::membership_file;
use crate::transport::frame::encode_frame;
use ionian_deployment::{Configuration, Deployment};
use ionian_kernel::id::Members;
use ionian_kernel::layout::{Layout, NodeId};
use ionian_kernel::membership::Membership;
use ionian_kernel::protocol::AnyProtocol;
use std::path::PathBuf;

/// The newest membership that a node knows.
pub(crate) struct KnownMembership {
    /// `None` where the membership cannot change.
    configuration: Option<Configuration>,
    node: NodeId,
    name: String,
    /// The deployment that the node was started with. It decides the options that concern this node
    /// alone, whatever a later deployment says.
    started_with: Option<Deployment>,
    data: Option<PathBuf>,
}

impl KnownMembership {
    pub(crate) fn new(settings: &NodeSettings) -> Self {
        let configuration = settings.configuration.clone();
        let started_with = configuration.as_ref().map(|known| known.deployment.clone());
        KnownMembership {
            configuration,
            node: settings.node,
            name: settings.name.clone(),
            started_with,
            data: settings.data.clone(),
        }
    }

    pub(crate) fn configuration(&self) -> Option<&Configuration> {
        self.configuration.as_ref()
    }

    /// This node's number.
    pub(crate) fn node(&self) -> NodeId {
        self.node
    }

    /// The configuration of a membership; `None` if it is not later than the one that is known.
    pub(crate) fn advanced(
        &self,
        membership: Membership,
    ) -> Result<Option<Configuration>, NodeError> {
        let epoch = membership.epoch;
        let unusable = |text: String| NodeError::Membership {
            epoch: epoch.0,
            text,
        };
        let Some(known) = &self.configuration else {
            return Err(unusable(
                "this node was started without the deployment that it belongs to".into(),
            ));
        };
        if epoch <= known.epoch() {
            return Ok(None);
        }
        let mut configuration = known
            .advanced(membership)
            .map_err(|error| unusable(error.to_string()))?;
        if let Some(started_with) = &self.started_with {
            configuration.deployment.take_local(started_with);
        }
        let (target, own) = (configuration.target(), known.target());
        if (&target.cluster, &target.protocol) != (&own.cluster, &own.protocol) {
            let text = format!("it belongs to cluster '{}'", target.cluster);
            return Err(unusable(text));
        }
        Ok(Some(configuration))
    }

    /// Stores a configuration in the data directory. On return it is on disk.
    pub(crate) fn store(&self, configuration: &Configuration) -> Result<(), NodeError> {
        if let Some(data) = &self.data {
            membership_file::store(data, configuration)?;
        }
        Ok(())
    }

    /// Replaces the known configuration; returns the names of the nodes that have left.
    pub(crate) fn replace(&mut self, configuration: Configuration) -> Vec<String> {
        let left = self.configuration.as_ref().map_or(Vec::new(), |before| {
            log_change(before, &configuration);
            names_that_left(before, &configuration)
        });
        self.configuration = Some(configuration);
        left
    }

    /// Whether this node belongs to a membership.
    pub(crate) fn is_member_of(&self, configuration: &Configuration) -> bool {
        let member = configuration.member(&self.name);
        member.is_some_and(|(id, _)| id == self.node)
    }
}

/// The layout of a configuration, which is a deployment of the protocol.
pub(crate) fn layout_of(
    protocol: &dyn AnyProtocol,
    configuration: &Configuration,
) -> Result<Layout, NodeError> {
    let layout = configuration
        .layout(protocol.description().kinds)
        .map_err(|error| unusable(configuration, error.to_string()))?;
    protocol
        .configure(layout.clone())
        .map_err(|error| unusable(configuration, error.to_string()))?;
    Ok(layout)
}

/// The frame that announces a membership to peers.
pub(crate) fn announcement(configuration: &Configuration) -> Result<Vec<u8>, NodeError> {
    let mut frame = Vec::new();
    encode_frame(&mut frame, Members::EMPTY, &configuration.membership)
        .map_err(|error| unusable(configuration, error.to_string()))?;
    Ok(frame)
}

fn unusable(configuration: &Configuration, text: String) -> NodeError {
    NodeError::Membership {
        epoch: configuration.epoch().0,
        text,
    }
}

fn names_that_left(before: &Configuration, after: &Configuration) -> Vec<String> {
    let names = before.nodes().into_values().map(|node| node.name.clone());
    names.filter(|name| after.member(name).is_none()).collect()
}

/// Logs the settings and the nodes that a new configuration changes.
fn log_change(before: &Configuration, after: &Configuration) {
    let names = |nodes: &[ionian_deployment::Node]| {
        nodes
            .iter()
            .map(|node| node.name.as_str())
            .collect::<Vec<_>>()
            .join(", ")
    };
    let (epoch, now) = (after.epoch().0, names(&after.deployment.nodes));
    let value = |of: &Configuration, setting| of.deployment.options.value(setting);
    for setting in before
        .deployment
        .settings()
        .filter(|setting| value(before, setting) != value(after, setting))
    {
        tracing::info!(
            "epoch {epoch}: options.{} = {}",
            setting.key,
            value(after, setting)
        );
    }
    match &after.next {
        None => tracing::info!("epoch {epoch}: the nodes are {now}"),
        Some(next) => tracing::info!(
            "epoch {epoch}: changing from nodes {now} to {}",
            names(&next.nodes)
        ),
    }
}
