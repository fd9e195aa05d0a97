//! How many more nodes may fail as one node sees it, for its metrics: the rules of `ionian status`,
//! applied to what the node knows without asking the others.

use super::cluster::{Answer, ClusterStatus};
use super::needs::{Present, needs, tolerance};
use super::presumed::{placed, status_of};
use crate::protocols::ServiceNeeds;
use ionian_deployment::Configuration;
use ionian_kernel::layout::NodeId;
use ionian_runtime::status::{PeerState, PeerStatus};
use ionian_runtime::{NodeStatus, Published};

/// How many more nodes may fail, whichever they are. The node takes it that each node that is
/// connected to it works and is connected to all others, and that each other node has failed.
/// `None` if the cluster cannot serve then.
pub(crate) fn tolerance_seen_by(published: &Published) -> Option<u64> {
    let known = published.configuration.as_ref()?;
    let cluster = seen(known, &published.status)?;
    let service_needs = ServiceNeeds::of(known, known.epoch()).ok()?;
    let needs = needs(&service_needs);
    let present = Present::of(&cluster);
    let lost = |need: &super::needs::Need<'_>| need.lost(present.all(), None).is_some();
    if needs.iter().any(lost) {
        return None;
    }
    let (least, _) = tolerance(&service_needs, &present, &cluster);
    least.map(|least| least as u64)
}

/// The cluster as the node sees it.
fn seen(known: &Configuration, own: &NodeStatus) -> Option<ClusterStatus> {
    let connected = |id: NodeId| {
        let mut peers = own.peers.iter();
        id.0 == own.node
            || peers.any(|peer| peer.node == id.0 && peer.state == PeerState::Connected)
    };
    let placed = placed(known);
    let nodes = known.nodes().into_iter().map(|(id, node)| {
        let status = connected(id).then(|| match id.0 == own.node {
            true => own.clone(),
            false => status_of(&placed, (id, &node.name), own),
        });
        Answer {
            name: node.name.clone(),
            address: node.address.clone(),
            gateway: node.gateway.clone(),
            up: status.is_some(),
            error: None,
            refused: false,
            status,
        }
    });
    let mut cluster = ClusterStatus {
        cluster: own.cluster.clone(),
        protocol: own.protocol.clone(),
        f: known.deployment.f,
        durability: known.deployment.durability.name(),
        founding: own.founding.clone(),
        level: known.membership.level.0,
        epoch: known.epoch().0,
        changing: known.next.is_some(),
        nodes_up: 0,
        nodes: nodes.collect(),
    };
    connect_all(&mut cluster);
    Some(cluster)
}

/// Connects the nodes that answer with each other.
fn connect_all(cluster: &mut ClusterStatus) {
    let up: Vec<(u16, String)> = cluster
        .nodes
        .iter()
        .filter_map(|node| Some((node.status.as_ref()?.node, node.address.clone())))
        .collect();
    cluster.nodes_up = up.len();
    for status in cluster.nodes.iter_mut().filter_map(|it| it.status.as_mut()) {
        let others = up.iter().filter(|(id, _)| *id != status.node);
        status.peers = others
            .map(|(id, address)| connected_peer(*id, address))
            .collect();
    }
}

/// A node that is connected, of which nothing else is known.
pub(super) fn connected_peer(node: u16, address: &str) -> PeerStatus {
    PeerStatus {
        node,
        name: None,
        address: address.to_owned(),
        state: PeerState::Connected,
        refusal: None,
        connections: 0,
        bytes_in: 0,
        bytes_out: 0,
        frames_in: 0,
        malformed: 0,
        frames_out: 0,
        writes: 0,
        dropped: 0,
        repeated: 0,
        backlog_bytes: 0,
    }
}
