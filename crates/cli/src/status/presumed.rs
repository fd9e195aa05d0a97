//! Nodes that refuse to answer this command, and to which nodes that answer are connected. A
//! certificate that has expired, or a command without one, must not make a cluster that serves look
//! as if it did not. A node that says nothing may hang, though its connections stand for a while.
//!
//! Such a node is presumed to do what its roles are for. Nothing of their state is known, so a
//! cluster with such a node is never called healthy.

use super::cluster::{Answer, ClusterStatus};
use super::seen::connected_peer;
use ionian_deployment::{Configuration, Node};
use ionian_kernel::layout::NodeId;
use ionian_runtime::NodeStatus;
use ionian_runtime::status::{PeerState, RoleStatus};

/// The cluster with a status for each node that is presumed to run.
pub(super) fn presume(known: &Configuration, cluster: &ClusterStatus) -> ClusterStatus {
    let mut presumed = cluster.clone();
    let Some(template) = cluster.nodes.iter().find_map(|node| node.status.as_ref()) else {
        return presumed;
    };
    let placed = placed(known);
    for (id, member) in known.nodes() {
        let silent = presumed
            .nodes
            .iter_mut()
            .find(|node| node.name == member.name && node.refused);
        let Some(silent) = silent else { continue };
        let near = connected_to(cluster, id);
        if near.is_empty() {
            continue;
        }
        let mut status = status_of(&placed, (id, &member.name), template);
        let near = near.iter().filter_map(|node| node.status.as_ref());
        status.peers = near.map(|it| connected_peer(it.node, "")).collect();
        silent.status = Some(status);
    }
    connect(&mut presumed);
    presumed
}

/// The nodes that answer and are connected to this one.
pub(super) fn connected_to(cluster: &ClusterStatus, id: NodeId) -> Vec<&Answer> {
    let is_connected = |status: &NodeStatus| {
        let mut peers = status.peers.iter();
        peers.any(|peer| peer.node == id.0 && peer.state == PeerState::Connected)
    };
    let nodes = cluster.nodes.iter();
    nodes
        .filter(|node| node.status.as_ref().is_some_and(is_connected))
        .collect()
}

/// Every node with its roles, while the membership changes of both configurations.
pub(super) fn placed(known: &Configuration) -> Vec<Node> {
    let deployments = known.next.iter().chain([&known.deployment]);
    let numbered = deployments.filter_map(|deployment| deployment.numbered().ok());
    numbered.flat_map(|numbered| numbered.nodes).collect()
}

/// The status of a node of which only its roles are known. What concerns the whole cluster is as in
/// `template`.
pub(super) fn status_of(
    placed: &[Node],
    (id, name): (NodeId, &str),
    template: &NodeStatus,
) -> NodeStatus {
    let roles = placed.iter().filter(|it| it.id == Some(id.0));
    let roles = roles.flat_map(|it| &it.roles).filter_map(|placed| {
        Some(RoleStatus {
            role: placed.role.clone(),
            index: placed.number?,
            ..RoleStatus::default()
        })
    });
    NodeStatus {
        node: id.0,
        name: name.to_owned(),
        roles: roles.collect(),
        takes_part: true,
        drains: None,
        peers: Vec::new(),
        ..template.clone()
    }
}

/// Connects the presumed nodes with each other: whether they are is not known.
fn connect(cluster: &mut ClusterStatus) {
    let presumed = cluster.nodes.iter().filter(|node| node.is_presumed());
    let ids: Vec<u16> = presumed
        .filter_map(|node| Some(node.status.as_ref()?.node))
        .collect();
    let nodes = cluster.nodes.iter_mut().filter(|node| node.is_presumed());
    for status in nodes.filter_map(|node| node.status.as_mut()) {
        let others = ids.iter().filter(|id| **id != status.node);
        status
            .peers
            .extend(others.map(|id| connected_peer(*id, "")));
    }
}
