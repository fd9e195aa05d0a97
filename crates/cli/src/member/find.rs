//! Asks the nodes of a cluster for the membership.

use crate::cluster_args::ClusterArgs;
use crate::contact;
use crate::output::{explain, say_on_stderr};
use crate::source::{self, ANSWER_LIMIT};
use anyhow::{Result, bail};
use ionian_deployment::Configuration;
use ionian_runtime::{ONLY_TLS, query_membership};
use std::collections::{BTreeMap, BTreeSet};
use tokio::task::JoinSet;

/// The answers of the nodes of a cluster.
#[derive(Clone)]
pub(crate) struct Found {
    /// The newest membership that any node knows.
    pub(crate) known: Configuration,
    /// The addresses of the nodes that answered, by name.
    pub(crate) answered: BTreeMap<String, String>,
    /// Why the other nodes did not answer.
    pub(super) failures: Vec<String>,
    /// The addresses to ask later, by name.
    pub(crate) contacts: BTreeMap<String, String>,
}

impl Found {
    /// Asks the nodes of the deployment that the command line names.
    pub(crate) async fn find(cluster_args: &ClusterArgs) -> Result<Found> {
        let given = source::running(cluster_args).await?;
        let found = Found::ask(contacts(&given)).await?;
        if !found.known.deployment.is_same_cluster(&given.deployment) {
            bail!(
                "the nodes at these addresses belong to cluster {}, not {}",
                found.known.target().cluster,
                given.target().cluster
            );
        }
        Ok(found)
    }

    /// Asks these nodes, and the members that they name.
    pub(super) async fn ask(contacts: BTreeMap<String, String>) -> Result<Found> {
        let (known, answered, failures) = ask_all(contacts.clone()).await;
        match known {
            None => {
                let failures = failures.join("; ");
                let hint = match failures.contains(ONLY_TLS) {
                    true => "",
                    false => ". Is it running?",
                };
                bail!("no node of the cluster answers: {failures}{hint}")
            }
            Some(known) => Ok(Found {
                contacts: self::contacts(&known),
                known,
                answered,
                failures,
            }),
        }
    }
}

/// The names and addresses of the members.
fn contacts(known: &Configuration) -> BTreeMap<String, String> {
    known
        .nodes()
        .into_values()
        .map(|node| (node.name.clone(), node.address.clone()))
        .collect()
}

/// The newest configuration that any answering node knows; `given` if no node answers.
pub(crate) async fn newest_since(given: Configuration) -> Configuration {
    let (known, answered, _) = ask_all(contacts(&given)).await;
    let is_same = |known: &Configuration| known.deployment.is_same_cluster(&given.deployment);
    let Some(known) = known.filter(is_same) else {
        return given;
    };
    let given = given.or_at_level_of(&known);
    match Some(known).filter(|known| known.epoch() > given.epoch()) {
        None => given,
        Some(known) => {
            let who = answered.keys().next().map_or("a node", String::as_str);
            // A file that was written after the change has no epoch, and nothing to be told.
            if known.target().to_toml() != given.target().to_toml() {
                say_on_stderr!(
                    "the cluster has changed since epoch {}, the latest one known here: {who} reports epoch {}, which \
                     counts. `ionian member list --toml` writes a file of today",
                    given.epoch().0,
                    known.epoch().0
                );
            }
            known
        }
    }
}

async fn ask_all(
    mut contacts: BTreeMap<String, String>,
) -> (Option<Configuration>, BTreeMap<String, String>, Vec<String>) {
    let (mut known, mut answered, mut failures): (Option<Configuration>, _, _) =
        (None, BTreeMap::new(), Vec::new());
    // With the names: another member may have had the address before.
    let mut asked = BTreeSet::new();
    while !contacts.is_empty() {
        let mut questions = JoinSet::new();
        for (name, address) in core::mem::take(&mut contacts) {
            asked.insert((name.clone(), address.clone()));
            questions.spawn(async move {
                let answer = ask(&name, &address).await;
                (name, address, answer)
            });
        }
        let mut answers = questions.join_all().await;
        answers.sort_by(|a, b| a.0.cmp(&b.0));
        for (name, address, answer) in answers {
            match answer {
                Err(error) => failures.push(format!("{name} at {address}: {}", explain(&error))),
                Ok(theirs) => {
                    answered.insert(name, address);
                    if known
                        .as_ref()
                        .is_none_or(|known| known.epoch() < theirs.epoch())
                    {
                        known = Some(theirs);
                    }
                }
            }
        }
        contacts = known.as_ref().map(self::contacts).unwrap_or_default();
        contacts.retain(|name, address| !asked.contains(&(name.clone(), address.clone())));
    }
    // The failures of nodes that are no longer members do not matter.
    if let Some(known) = &known {
        answered.retain(|name, _| known.member(name).is_some());
    }
    (known, answered, failures)
}

async fn ask(name: &str, address: &str) -> Result<Configuration> {
    let node = contact::to(Some(name), address);
    Ok(query_membership(node, ANSWER_LIMIT).await?)
}
