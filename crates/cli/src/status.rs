//! `ionian status`: every node and role, asked all at once.

mod text;

use crate::arguments;
use crate::member;
use crate::node::resolve;
use crate::output::{explain, say};
use crate::source;
use anyhow::Result;
use ionian_deployment::Configuration;
use ionian_runtime::{NodeStatus, query_status};
use serde::Serialize;
use std::process::ExitCode;
use std::time::Duration;
use tokio::task::JoinSet;

/// A node that does not answer within this is down, or as good as.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);

/// What is known of a cluster.
#[derive(Debug, Serialize)]
pub(crate) struct ClusterStatus {
    pub(crate) cluster: String,
    pub(crate) protocol: String,
    pub(crate) f: usize,
    pub(crate) durability: &'static str,
    /// The digest of the deployment that the cluster was founded with, in hexadecimal.
    pub(crate) founding: String,
    /// How many steps of changes there were.
    pub(crate) epoch: u32,
    /// Whether a change of the membership is under way.
    pub(crate) changing: bool,
    pub(crate) nodes_up: usize,
    /// In the order of their numbers.
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

pub(crate) fn run(arguments: &arguments::Status) -> Result<ExitCode> {
    let given = source::running(&arguments.whereabouts)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let known = runtime.block_on(member::newest_since(given));
    let cluster = runtime.block_on(ask_all(&known));
    let mut shown = match arguments.json {
        true => serde_json::to_string_pretty(&cluster)?,
        false => text::show(&known, &cluster),
    };
    shown.truncate(shown.trim_end().len());
    say!("{shown}");
    let well = cluster.nodes_up == cluster.nodes.len() && text::losses(&known, &cluster).is_empty();
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Asks every member.
pub(crate) async fn ask_all(known: &Configuration) -> ClusterStatus {
    let deployment = &known.deployment;
    let mut questions = JoinSet::new();
    for (place, node) in known.nodes() {
        let (name, address, gateway) = (node.name.clone(), node.address.clone(), node.gateway.clone());
        questions.spawn(async move {
            let (error, status) = match ask(&name, &address).await {
                Ok(status) => (None, Some(status)),
                Err(error) => (Some(explain(&error)), None),
            };
            (place, Answer { name, address, gateway, up: status.is_some(), error, status })
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
    let status = query_status(socket, ANSWER_LIMIT).await?;
    anyhow::ensure!(
        status.name == name,
        "{address} is node {:?} of cluster {:?}: an address is wrong",
        status.name,
        status.cluster
    );
    Ok(status)
}
