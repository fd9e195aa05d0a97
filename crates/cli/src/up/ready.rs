//! Waits until the cluster serves clients.

use crate::contact;
use ionian_deployment::{CLIENT, Node};
use ionian_runtime::{NodeStatus, query_status};
use std::time::Duration;

/// A start takes about ten of these.
const POLL_EVERY: Duration = Duration::from_millis(25);

/// How many times each node is asked at most whether its replicas know what they hold. They know
/// after two heartbeats; a replica that other replicas contradict never does.
const POLLS: usize = 40;

/// Time limit for one answer of a node.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);

/// Completes when the client lanes of every gateway node have opened their sessions, which shows
/// that the log works from end to end, and every replica knows whether it holds what is chosen:
/// `ionian status` counts a replica that does not know as failed. Does not wait for replicas that
/// are known to be behind, nor for nodes for which `missing` returns true, now or later.
pub(crate) async fn all_serve(nodes: &[Node], missing: impl Fn(&Node) -> bool) {
    for node in nodes.iter().filter(|node| node.gateway.is_some()) {
        // A name may become resolvable later. The nodes themselves report an error if it does not.
        while !missing(node) && !status(node).await.is_some_and(|it| has_open_lanes(&it)) {
            tokio::time::sleep(POLL_EVERY).await;
        }
    }
    for node in nodes {
        for _ in 0..POLLS {
            if missing(node) || status(node).await.is_none_or(|it| knows_what_it_holds(&it)) {
                break;
            }
            tokio::time::sleep(POLL_EVERY).await;
        }
    }
}

async fn status(node: &Node) -> Option<NodeStatus> {
    let contact = contact::to(Some(&node.name), node.listens_at());
    query_status(contact, ANSWER_LIMIT).await.ok()
}

fn has_open_lanes(status: &NodeStatus) -> bool {
    let mut lanes = status
        .roles
        .iter()
        .filter(|role| role.role == CLIENT)
        .peekable();
    lanes.peek().is_some() && lanes.all(|lane| lane.has_session == Some(true))
}

fn knows_what_it_holds(status: &NodeStatus) -> bool {
    status.roles.iter().all(|role| {
        let is_behind = role
            .executed
            .zip(role.log_end)
            .is_some_and(|(executed, end)| executed < end);
        role.current != Some(false) || is_behind
    })
}
