//! The statuses of all nodes of a cluster.

use crate::contact;
use crate::output::explain;
use anyhow::{Context, Result};
use ionian_deployment::Configuration;
use ionian_runtime::status::RoleStatus;
use ionian_runtime::{NodeStatus, QueryError, query_status};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::time::Duration;
use tokio::task::JoinSet;

/// What is known of a cluster.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ClusterStatus {
    pub(crate) cluster: String,
    pub(crate) protocol: String,
    pub(crate) f: usize,
    pub(crate) durability: &'static str,
    /// The digest of the deployment that the cluster was founded with, in hexadecimal.
    pub(crate) founding: String,
    /// The level of the cluster.
    pub(crate) level: u16,
    /// The number of configuration steps so far.
    pub(crate) epoch: u32,
    /// Whether a membership change is in progress.
    pub(crate) changing: bool,
    pub(crate) nodes_up: usize,
    /// Ordered by node number.
    pub(crate) nodes: Vec<Answer>,
}

/// What is known of one node.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Answer {
    pub(crate) name: String,
    pub(crate) address: String,
    pub(crate) gateway: Option<String>,
    pub(crate) up: bool,
    /// Why there is no status.
    pub(crate) error: Option<String>,
    /// Whether the node has refused to answer, so that its process runs.
    #[serde(skip)]
    pub(crate) refused: bool,
    pub(crate) status: Option<NodeStatus>,
}

impl Answer {
    /// Whether the node has not answered, and its status says what it is presumed to run.
    pub(super) fn is_presumed(&self) -> bool {
        !self.up && self.status.is_some()
    }
}

/// Every role instance that answered, with its node.
pub(super) fn instances(cluster: &ClusterStatus) -> impl Iterator<Item = (&Answer, &RoleStatus)> {
    let up = cluster
        .nodes
        .iter()
        .filter_map(|node| Some((node, node.status.as_ref()?)));
    up.flat_map(|(node, status)| status.roles.iter().map(move |role| (node, role)))
}

/// How many slots the slowest executor of a node is behind the most advanced executor of its kind
/// in the cluster.
pub(super) fn lags(cluster: &ClusterStatus) -> BTreeMap<&str, u64> {
    // Those of one kind execute one log.
    let executors = || {
        instances(cluster).filter_map(|(node, role)| {
            Some((node.name.as_str(), role.role.as_str(), role.executed?))
        })
    };
    let mut furthest: BTreeMap<&str, u64> = BTreeMap::new();
    for (_, kind, executed) in executors() {
        let known = furthest.entry(kind).or_default();
        *known = executed.max(*known);
    }
    let mut lags = BTreeMap::new();
    for (node, kind, executed) in executors() {
        let lag: &mut u64 = lags.entry(node).or_default();
        *lag = (*lag).max(furthest[kind] - executed);
    }
    lags
}

/// Queries every member, each for at most `limit`.
pub(crate) async fn ask_all(known: &Configuration, limit: Duration) -> ClusterStatus {
    let deployment = &known.deployment;
    let mut questions = JoinSet::new();
    for (place, node) in known.nodes() {
        let (name, address, gateway) = (
            node.name.clone(),
            node.address.clone(),
            node.gateway.clone(),
        );
        let (cluster, protocol) = (deployment.cluster.clone(), deployment.protocol.clone());
        questions.spawn(async move {
            let asked = ask((&name, &address), (&cluster, &protocol), limit).await;
            let refused = asked.as_ref().is_err_and(is_refusal);
            let (error, status) = match asked {
                Ok(status) => (None, Some(status)),
                Err(error) => (Some(explain(&error)), None),
            };
            (
                place,
                Answer {
                    name,
                    address,
                    gateway,
                    up: status.is_some(),
                    error,
                    refused,
                    status,
                },
            )
        });
    }
    let mut answers = questions.join_all().await;
    answers.sort_by_key(|(place, _)| *place);
    let nodes: Vec<Answer> = answers.into_iter().map(|(_, answer)| answer).collect();
    ClusterStatus {
        cluster: deployment.cluster.clone(),
        protocol: deployment.protocol.clone(),
        f: deployment.f,
        durability: deployment.durability.name(),
        founding: format!("{:016x}", known.founding),
        level: known.membership.level.0,
        epoch: known.epoch().0,
        changing: known.next.is_some(),
        nodes_up: nodes.iter().filter(|node| node.up).count(),
        nodes,
    }
}

/// Whether the node has said something: that it refuses, or a certificate that does not suffice. A
/// process that hangs says nothing. What another program at the port says does not count.
fn is_refusal(error: &anyhow::Error) -> bool {
    match error.downcast_ref() {
        Some(QueryError::Refused(_) | QueryError::Malformed(_)) => true,
        // Errors of TLS.
        Some(QueryError::Io(error)) => error.kind() == ErrorKind::InvalidData,
        Some(QueryError::TimedOut(_) | QueryError::Foreign(_)) | None => false,
    }
}

/// The status of a node, unless the node at its address is another.
async fn ask(
    (name, address): (&str, &str),
    (cluster, protocol): (&str, &str),
    limit: Duration,
) -> Result<NodeStatus> {
    let node = contact::to(Some(name), address);
    let status = query_status(node, limit)
        .await
        .with_context(|| address.to_owned())?;
    anyhow::ensure!(
        status.name == name && status.cluster == cluster && status.protocol == protocol,
        "the node at {address} is {:?} of cluster {:?} ({}), not {name:?} of cluster {cluster:?} ({protocol}): an \
         address is wrong",
        status.name,
        status.cluster,
        status.protocol
    );
    Ok(status)
}
