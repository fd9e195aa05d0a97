//! Waits until the cluster serves clients.

use crate::contact;
use ionian_deployment::{CLIENT, Node};
use ionian_runtime::{Contact, NodeStatus, query_status};
use std::time::Duration;

/// A start takes about ten of these.
const POLL_EVERY: Duration = Duration::from_millis(25);

/// Time limit for one answer of a node.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);

/// Completes when the client lanes of every gateway node have opened their sessions, which shows
/// that the log works from end to end. Does not wait for nodes for which `missing` returns true,
/// now or later.
pub(crate) async fn all_lanes_open(nodes: &[Node], missing: impl Fn(&Node) -> bool) {
    let gateways = nodes.iter().filter(|node| node.gateway.is_some());
    for node in gateways {
        while !missing(node) {
            // A name may become resolvable later. The nodes themselves report an error if it does
            // not.
            if lanes_open(contact::to(Some(&node.name), node.listens_at())).await {
                break;
            }
            tokio::time::sleep(POLL_EVERY).await;
        }
    }
}

async fn lanes_open(contact: Contact) -> bool {
    query_status(contact, ANSWER_LIMIT)
        .await
        .is_ok_and(|status| has_open_lanes(&status))
}

fn has_open_lanes(status: &NodeStatus) -> bool {
    let mut lanes = status
        .roles
        .iter()
        .filter(|role| role.role == CLIENT)
        .peekable();
    lanes.peek().is_some() && lanes.all(|lane| lane.has_session == Some(true))
}
