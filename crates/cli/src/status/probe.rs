//! Sends a command without effect through the log from every node that has a client lane. It shows
//! whether commands pass, whatever the nodes report about themselves.

use super::cluster::ClusterStatus;
use crate::contact;
use crate::output::explain;
use anyhow::{Context, Result};
use ionian_deployment::CLIENT;
use ionian_runtime::admin::change::{self, Response, request_change};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// The outcome of the probes, by node: milliseconds or the reason of the failure.
pub(crate) type Probes = BTreeMap<String, Result<u64, String>>;

/// Longer than the patience of a client lane, whose error says more about the cause.
const LIMIT: Duration = Duration::from_secs(8);

/// Probes all nodes that answer and serve clients, at the same time; returns the latency of each in
/// milliseconds.
pub(super) async fn all(cluster: &ClusterStatus) -> Probes {
    let mut questions = JoinSet::new();
    for node in &cluster.nodes {
        let Some(status) = &node.status else { continue };
        if status.roles.iter().any(|role| role.role == CLIENT) {
            let (name, address) = (node.name.clone(), node.address.clone());
            questions.spawn(async move {
                let begun = Instant::now();
                let done = one(&name, &address).await;
                (
                    name,
                    done.map(|()| begun.elapsed().as_millis() as u64)
                        .map_err(|error| explain(&error)),
                )
            });
        }
    }
    questions.join_all().await.into_iter().collect()
}

async fn one(name: &str, address: &str) -> Result<()> {
    let contact = contact::to(Some(name), address);
    let response = request_change(contact, &change::probe(), LIMIT)
        .await
        .with_context(|| address.to_owned())?;
    match response {
        Response::Decided(_) => Ok(()),
        Response::Refused(reason) | Response::Undecided(reason) => anyhow::bail!("{reason}"),
    }
}
