//! `ionian status`: queries every node and role at once, and judges the answers.
//!
//! | file | job |
//! |---|---|
//! | `health` | whether the cluster serves |
//! | `needs` | what serving requires, and how many more nodes may fail |
//! | `links` | which nodes are connected |
//! | `probe` | a command through the log |
//! | `text` | the status as text |

mod health;
mod links;
mod needs;
mod probe;
#[cfg(test)]
mod tests;
mod text;

use crate::arguments;
use crate::member;
use crate::node::resolve;
use crate::output::{explain, say};
use crate::source::{self, ANSWER_LIMIT, NoAnswer};
use crate::waiting;
use anyhow::{Context, Result};
use health::{Health, Verdict};
use ionian_deployment::Configuration;
use ionian_runtime::{NodeStatus, query_status};
use serde::Serialize;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Interval between queries with `--wait`.
const ASK_EVERY: Duration = Duration::from_millis(200);

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

/// A cluster and its health: the document of `--json`.
#[derive(Debug, Serialize)]
struct Report {
    #[serde(flatten)]
    health: Health,
    #[serde(flatten)]
    cluster: ClusterStatus,
}

pub(crate) fn run(arguments: &arguments::Status) -> Result<ExitCode> {
    let (known, report) = waiting::block_on(async {
        let deadline = Instant::now() + Duration::from_secs(arguments.timeout);
        let mut given = loop {
            match source::running(&arguments.whereabouts).await {
                Err(error)
                    if arguments.wait && error.is::<NoAnswer>() && Instant::now() < deadline =>
                {
                    tokio::time::sleep(ASK_EVERY).await;
                }
                given => break given?,
            }
        };
        loop {
            let (known, report) = look(given, arguments.probe).await;
            if !arguments.wait
                || report.health.health == Verdict::Healthy
                || Instant::now() >= deadline
            {
                return anyhow::Ok((known, report));
            }
            given = known;
            tokio::time::sleep(ASK_EVERY).await;
        }
    })?;
    let mut shown = match arguments.json {
        true => serde_json::to_string_pretty(&report)?,
        false => text::show(&known, &report.cluster, &report.health),
    };
    shown.truncate(shown.trim_end().len());
    say!("{shown}");
    if report.cluster.nodes_up == 0 && arguments.whereabouts.config.is_some() {
        eprintln!(
            "none of the nodes in that file answers. If the members have changed since, name a running node with --at \
             HOST:PORT"
        );
    }
    Ok(report.health.health.exit_code().into())
}

/// Queries once, and judges.
async fn look(given: Configuration, probes: bool) -> (Configuration, Report) {
    // At the same time, so that a silent node delays the command once only.
    let (known, cluster) = tokio::join!(member::newest_since(given.clone()), ask_all(&given));
    let cluster = match known.epoch() == given.epoch() {
        true => cluster,
        false => ask_all(&known).await,
    };
    let probes = match probes {
        true => Some(probe::all(&cluster).await),
        false => None,
    };
    let health = health::judge(&known, &cluster, probes.as_ref());
    (known, Report { health, cluster })
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
        questions.spawn(async move {
            let (error, status) = match ask(&name, &address).await {
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

async fn ask(name: &str, address: &str) -> Result<NodeStatus> {
    let socket = resolve(&format!("node.{name}.address"), address)?;
    let status = query_status(socket, ANSWER_LIMIT)
        .await
        .with_context(|| address.to_owned())?;
    anyhow::ensure!(
        status.name == name,
        "the node at {address} is {:?} of cluster {:?}: an address is wrong",
        status.name,
        status.cluster
    );
    Ok(status)
}
