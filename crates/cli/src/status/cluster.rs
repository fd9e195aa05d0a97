//! The statuses of all nodes of a cluster.

use crate::contact;
use crate::output::explain;
use crate::source::ANSWER_LIMIT;
use anyhow::{Context, Result};
use ionian_deployment::Configuration;
use ionian_runtime::status::RoleStatus;
use ionian_runtime::{NodeStatus, query_status};
use serde::Serialize;
use tokio::task::JoinSet;

/// What is known of a cluster.
#[derive(Debug, Serialize)]
pub(crate) struct ClusterStatus {
    pub(crate) cluster: String,
    pub(crate) protocol: String,
    pub(crate) f: usize,
    pub(crate) durability: &'static str,
    /// The digest of the deployment that the cluster was founded with, in hexadecimal.
    pub(crate) founding: String,
    /// The number of configuration steps so far.
    pub(crate) epoch: u32,
    /// Whether a membership change is in progress.
    pub(crate) changing: bool,
    pub(crate) nodes_up: usize,
    /// Ordered by node number.
    pub(crate) nodes: Vec<Answer>,
}

/// What is known of one node.
#[derive(Debug, Serialize)]
pub(crate) struct Answer {
    pub(crate) name: String,
    pub(crate) address: String,
    pub(crate) gateway: Option<String>,
    pub(crate) up: bool,
    /// Why there is no status.
    pub(crate) error: Option<String>,
    pub(crate) status: Option<NodeStatus>,
}

/// Every role instance that answered, with its node.
pub(super) fn instances(cluster: &ClusterStatus) -> impl Iterator<Item = (&Answer, &RoleStatus)> {
    let up = cluster
        .nodes
        .iter()
        .filter_map(|node| Some((node, node.status.as_ref()?)));
    up.flat_map(|(node, status)| status.roles.iter().map(move |role| (node, role)))
}

/// Queries every member.
pub(crate) async fn ask_all(known: &Configuration) -> ClusterStatus {
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
            let (error, status) = match ask(&name, &address, (&cluster, &protocol)).await {
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
        epoch: known.epoch().0,
        changing: known.next.is_some(),
        nodes_up: nodes.iter().filter(|node| node.up).count(),
        nodes,
    }
}

/// The status of a node, unless the node at its address is another.
async fn ask(name: &str, address: &str, (cluster, protocol): (&str, &str)) -> Result<NodeStatus> {
    let node = contact::to(Some(name), &format!("node.{name}.address"), address)?;
    let status = query_status(node, ANSWER_LIMIT)
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
