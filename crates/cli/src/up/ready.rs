//! When clients are served.

use crate::node::resolve;
use ionian_deployment::{CLIENT, Node};
use ionian_runtime::{NodeStatus, query_status};
use std::net::SocketAddr;
use std::time::Duration;

/// A start takes some ten of these.
const POLL_EVERY: Duration = Duration::from_millis(25);

/// How long a node may take to answer one question.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);

/// Completes when the client lanes of every gateway node have opened their sessions: the log then
/// works from end to end. Those of nodes that are `missing`, from whenever on, are not waited for.
pub(crate) async fn all_lanes_open(nodes: &[Node], missing: impl Fn(&Node) -> bool) {
    let gateways = nodes.iter().filter(|node| node.gateway.is_some());
    for node in gateways {
        while !missing(node) {
            // A name may be resolvable later; the nodes themselves insist on it.
            if let Ok(address) = resolve("address", node.listens_at())
                && lanes_open(address).await
            {
                break;
            }
            tokio::time::sleep(POLL_EVERY).await;
        }
    }
}

async fn lanes_open(address: SocketAddr) -> bool {
    query_status(address, ANSWER_LIMIT)
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
