//! `ionian status`: queries every node and role at once, and judges the answers.
//!
//! | file | job |
//! |---|---|
//! | `cluster` | the statuses of all nodes |
//! | `dashboard` | the same for the dashboard of a node |
//! | `health` | whether the cluster serves |
//! | `lost` | slots that no node has |
//! | `needs` | what serving requires, and how many more nodes may fail |
//! | `links` | which nodes are connected |
//! | `presumed` | nodes that do not answer this command, and run |
//! | `probe` | a command through the log |
//! | `problems` | what needs attention, in words |
//! | `seen` | how many more nodes may fail as one node sees it |
//! | `text` | the status as text |
//! | `trouble` | the kinds of what can be wrong |

mod arguments;
mod cluster;
mod dashboard;
mod health;
mod links;
mod lost;
mod needs;
mod presumed;
mod probe;
mod problems;
mod seen;
#[cfg(test)]
mod tests;
mod text;
mod trouble;

use crate::cluster_args::ClusterArgs;
use crate::contact;
use crate::data_paths::DataPaths;
use crate::member;
use crate::output::{say, say_on_stderr};
use crate::protocols;
use crate::source::{self, ANSWER_LIMIT, NoAnswer};
use crate::waiting;
use anyhow::Result;
pub(crate) use arguments::Arguments;
pub(crate) use cluster::{Answer, ClusterStatus, ask_all};
pub(crate) use dashboard::look_from_node;
use health::{Health, Verdict};
use ionian_deployment::Configuration;
pub(crate) use seen::tolerance_seen_by;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fs;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use trouble::Trouble;

/// Interval between queries with `--wait`.
const ASK_EVERY: Duration = Duration::from_millis(200);

/// A node that has started, and is connected, knows by then whether it holds what is chosen.
const SETTLED_IN: Duration = Duration::from_secs(5);

/// A cluster and its health: the document of `--json`.
#[derive(Debug, Serialize)]
struct Report {
    #[serde(flatten)]
    health: Health,
    #[serde(flatten)]
    cluster: ClusterStatus,
}

impl Report {
    fn document(&self) -> String {
        serde_json::to_string_pretty(self).expect("a report is made of numbers, strings and lists")
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let (known, report) = waiting::block_on(async {
        let deadline = Instant::now() + Duration::from_secs(arguments.timeout.into());
        let mut given = loop {
            match source::running(&arguments.cluster_args).await {
                Err(error)
                    if arguments.wait && error.is::<NoAnswer>() && Instant::now() < deadline =>
                {
                    tokio::time::sleep(ASK_EVERY).await;
                }
                given => break given?,
            }
        };
        if arguments.probe {
            contact::check_operator("--probe sends a command through the log: it")?;
        }
        loop {
            let (known, report) = look(given, arguments).await;
            // A refusal does not pass by itself.
            let ends = matches!(report.health.health, Verdict::Healthy | Verdict::Unknown);
            if !arguments.wait || ends || Instant::now() >= deadline {
                return anyhow::Ok((known, report));
            }
            given = known;
            tokio::time::sleep(ASK_EVERY).await;
        }
    })?;
    let mut shown = match arguments.json {
        true => report.document(),
        false => text::show(&known, &report.cluster, &report.health, arguments.roles),
    };
    shown.truncate(shown.trim_end().len());
    say!("{shown}");
    advise(&report, arguments.cluster_args.config.is_some());
    Ok(report.health.health.exit_code().into())
}

/// What to try if nodes have not shown their status.
fn advise(report: &Report, is_of_file: bool) {
    let answers = || report.cluster.nodes.iter();
    let refuses = answers().any(|node| node.refused);
    if report.cluster.nodes_up == 0 && is_of_file && !refuses {
        say_on_stderr!(
            "none of the nodes in that file answers. If the members have changed since, name a running node with --at \
             HOST:PORT"
        );
    }
    let secured = |node: &Answer| node.status.as_ref().is_some_and(|it| it.tls.is_some());
    let is_left_out = answers().any(|node| node.error.is_some()) && answers().any(secured);
    if (refuses || is_left_out) && !contact::has_certificate() {
        say_on_stderr!("{}", contact::NEEDS_TLS);
    }
}

/// Adds to the errors of nodes how their processes have ended, as `ionian up` has noted in the data
/// directory.
fn add_ends(cluster: &mut ClusterStatus, given: &ClusterArgs) {
    if given.at.is_some() || given.config.is_some() {
        return;
    }
    let places = DataPaths::new(&given.data);
    for node in &mut cluster.nodes {
        let error = node.error.as_mut().filter(|_| !node.refused);
        let ended = error.zip(fs::read_to_string(places.ended(&node.name)).ok());
        if let Some((error, how)) = ended {
            *error += &format!("; it {how}");
        }
    }
}

/// What a cluster that gave these answers does not serve.
pub(crate) fn not_served(known: &Configuration, cluster: &ClusterStatus) -> Vec<String> {
    let health = health::judge(known, cluster, None);
    health.not_served.into_iter().map(|it| it.text).collect()
}

/// Why nodes must not be taken away: no other node holds the state of clients, as far as nodes
/// answer. Where these do not hold it either, that is no reason. `cluster` is what the nodes have
/// answered last; those that have just started are asked again until they know whether they hold
/// the state.
pub(crate) async fn last_holders(
    known: &Configuration,
    mut cluster: ClusterStatus,
    nodes: &[&str],
) -> Result<Option<String>> {
    let until = Instant::now() + SETTLED_IN;
    loop {
        let why = last_holders_of(&cluster, nodes)?;
        if why.is_none() || Instant::now() >= until {
            return Ok(why);
        }
        tokio::time::sleep(ASK_EVERY).await;
        cluster = ask_all(known, ANSWER_LIMIT).await;
    }
}

fn last_holders_of(cluster: &ClusterStatus, nodes: &[&str]) -> Result<Option<String>> {
    let kinds: Vec<&str> = protocols::executors(&cluster.protocol)?.collect();
    let present = needs::Present::of(cluster);
    let holders: BTreeSet<&str> = kinds
        .iter()
        .flat_map(|it| present.nodes(Some(it)))
        .collect();
    let (going, left): (Vec<&str>, Vec<&str>) =
        holders.into_iter().partition(|it| nodes.contains(it));
    let is_last = !going.is_empty() && left.is_empty();
    Ok(is_last.then(|| {
        format!(
            "no node but {} holds what is chosen: the others do not answer, have no {}, or have not caught up \
             (`ionian status`)",
            going.join(", "),
            kinds.join(" or ")
        )
    }))
}

/// Queries once, and judges.
async fn look(given: Configuration, arguments: &Arguments) -> (Configuration, Report) {
    // At the same time, so that a silent node delays the command once only.
    let (known, cluster) = tokio::join!(
        member::newest_since(given.clone()),
        ask_all(&given, ANSWER_LIMIT)
    );
    let mut cluster = match known.epoch() == given.epoch() {
        true => cluster,
        false => ask_all(&known, ANSWER_LIMIT).await,
    };
    add_ends(&mut cluster, &arguments.cluster_args);
    let probes = match arguments.probe {
        true => Some(probe::all(&cluster).await),
        false => None,
    };
    let health = health::judge(&known, &cluster, probes.as_ref()).or_unknown(&cluster);
    (known, Report { health, cluster })
}
