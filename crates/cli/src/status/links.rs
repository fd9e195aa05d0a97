//! Which nodes are connected, as reported by both ends of each connection.

use super::cluster::ClusterStatus;
use ionian_runtime::NodeStatus;
use ionian_runtime::status::PeerState;
use std::collections::{BTreeMap, BTreeSet};

/// The missing connections among the nodes that answer.
#[derive(Debug, Default)]
pub(super) struct Links<'a>(BTreeMap<&'a str, BTreeSet<&'a str>>);

impl<'a> Links<'a> {
    /// A connection exists if both ends report it: the end that receives nothing closes it first.
    pub(super) fn of(cluster: &'a ClusterStatus) -> Self {
        let nodes: Vec<&NodeStatus> = cluster
            .nodes
            .iter()
            .filter_map(|node| node.status.as_ref())
            .collect();
        let mut missing = Links::default();
        for (place, one) in nodes.iter().enumerate() {
            for other in nodes[..place]
                .iter()
                .filter(|other| !(has(one, other) && has(other, one)))
            {
                missing.0.entry(&one.name).or_default().insert(&other.name);
                missing.0.entry(&other.name).or_default().insert(&one.name);
            }
        }
        missing
    }

    /// Whether no connection is missing.
    pub(super) fn are_whole(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether messages of one node reach the other.
    pub(super) fn connect(&self, one: &str, other: &str) -> bool {
        !self
            .0
            .get(one)
            .is_some_and(|missing| missing.contains(other))
    }

    /// Describes each missing connection once, the node that lacks most of them first.
    pub(super) fn troubles(&self) -> Vec<String> {
        let mut left = self.0.clone();
        let mut found = Vec::new();
        while let Some(worst) = most(&left) {
            let others = left.remove(worst).unwrap_or_default();
            for other in &others {
                left.get_mut(other)
                    .expect("a missing connection is entered for both ends")
                    .remove(worst);
            }
            let others: Vec<&str> = others.into_iter().collect();
            found.push(format!(
                "node {worst} answers, and has no connection to {}",
                others.join(", ")
            ));
        }
        found
    }
}

/// Whether `one` has a connection to `other`.
fn has(one: &NodeStatus, other: &NodeStatus) -> bool {
    one.peers
        .iter()
        .any(|peer| peer.node == other.node && peer.state == PeerState::Connected)
}

/// The first of the nodes that lack most connections.
fn most<'a>(missing: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> Option<&'a str> {
    let most = missing
        .values()
        .map(BTreeSet::len)
        .max()
        .filter(|most| *most > 0)?;
    missing
        .iter()
        .find(|(_, others)| others.len() == most)
        .map(|(node, _)| *node)
}
