//! `ionian upgrade`: shows and changes the level of a running cluster.
//!
//! docs/upgrade.md explains what a level is, and the steps of an upgrade.

use crate::cluster_args::{ChangeArgs, ClusterArgs};
use crate::member::{Found, possible, wait_if_asked};
use crate::output::{self, say};
use crate::protocols::{self, Work};
use crate::source::ANSWER_LIMIT;
use crate::status::{Answer, ask_all};
use crate::waiting;
use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use ionian_deployment::Configuration;
use ionian_kernel::level::Level;
use ionian_kernel::membership::Change;
use ionian_kernel::protocol::Protocol;
use ionian_runtime::admin::change;
use std::fmt::Write;
use std::process::ExitCode;

/// Finish or take back an upgrade of a running cluster to another release
///
/// Exchange the program of one node after the other first. The cluster stays at its level, and the
/// former program can be put back at any time, until `ionian upgrade finalize` raises the level
/// through the cluster's log.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    after_help = "Examples:\n  ionian upgrade status\n  ionian upgrade finalize"
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: UpgradeCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum UpgradeCommand {
    /// Show the level of the cluster, the release of each node, and what can be done
    Status {
        #[command(flatten)]
        cluster_args: ClusterArgs,
    },
    /// Raise the level to the highest that every node supports: new features become available, and
    /// the former release cannot be put back any more
    Finalize {
        #[command(flatten)]
        change_args: ChangeArgs,
    },
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    waiting::block_on(async {
        match &arguments.command {
            UpgradeCommand::Status { cluster_args } => {
                let found = Found::find(cluster_args).await?;
                let nodes = ask_all(&found.known, ANSWER_LIMIT).await.nodes;
                output::print(format_args!("{}", shown(&found.known, &nodes)));
                Ok(())
            }
            UpgradeCommand::Finalize { change_args } => finalize(change_args).await,
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

/// The lowest and the highest level that the program of a node supports. Programs that know no
/// levels support the first one.
fn supported(node: &Answer) -> Option<(Level, Level)> {
    let first = (Level::FIRST.0, Level::FIRST.0);
    let (least, most) = node.status.as_ref()?.supports.unwrap_or(first);
    Some((Level(least), Level(most)))
}

/// The highest level that every node supports, or why it is not known.
fn highest(nodes: &[Answer]) -> Result<Level, String> {
    let mut most = Level::LATEST;
    for node in nodes {
        match supported(node) {
            Some((_, of_node)) => most = most.min(of_node),
            None => {
                let error = node.error.as_deref().unwrap_or("it does not answer");
                return Err(format!("node {}: {error}", node.name));
            }
        }
    }
    Ok(most)
}

fn shown(known: &Configuration, nodes: &[Answer]) -> String {
    let level = known.membership.level;
    let mut text = format!(
        "cluster {}: level {level}, epoch {}\n",
        known.deployment.cluster,
        known.epoch().0
    );
    let width = nodes.iter().map(|node| node.name.len()).max().unwrap_or(0);
    for node in nodes {
        let name = &node.name;
        let said = match (supported(node), &node.status) {
            (Some((least, most)), Some(status)) => {
                let release = status.release.as_deref().unwrap_or("an earlier one");
                format!("release {release}, supports levels {least} to {most}")
            }
            _ => node.error.clone().unwrap_or_default(),
        };
        writeln!(text, "{name:<width$}  {said}").expect("a string has room");
    }
    match highest(nodes) {
        Ok(most) if most > level => {
            text += &format!("`ionian upgrade finalize` raises the level to {most}\n");
        }
        Ok(_) if level < Level::LATEST => {
            let behind = nodes
                .iter()
                .filter(|node| supported(node).is_some_and(|(_, most)| most <= level));
            let names: Vec<&str> = behind.map(|node| node.name.as_str()).collect();
            text += &format!(
                "exchange the program of {} to raise the level\n",
                names.join(", ")
            );
        }
        Ok(_) => text += "this is the highest level that this program supports\n",
        Err(reason) => text += &format!("the level cannot be raised now: {reason}\n"),
    }
    text
}

/// Raises the level, one by one, to the highest that every node supports.
async fn finalize(change_args: &ChangeArgs) -> Result<()> {
    let mut raised = false;
    loop {
        let found = Found::find(&change_args.cluster_args).await?;
        let level = found.known.membership.level;
        let nodes = ask_all(&found.known, ANSWER_LIMIT).await.nodes;
        let most = match highest(&nodes) {
            Ok(most) => most,
            Err(reason) => bail!(
                "the level stays {level}: every node must be seen to support the next one, {reason}"
            ),
        };
        if most <= level {
            if !raised {
                say!(
                    "nothing to do: the cluster is at level {level}, the highest that every node supports"
                );
            }
            return Ok(());
        }
        raise(&found, Level(level.0 + 1), change_args).await?;
        raised = true;
    }
}

async fn raise(found: &Found, to: Level, change_args: &ChangeArgs) -> Result<()> {
    let deployment = &found.known.deployment;
    let change = protocols::with_protocol(
        &deployment.protocol,
        Raise {
            known: &found.known,
            to,
        },
    )??;
    let since = found.request(&change).await?;
    say!("epoch {} begins: level {to}", since.0);
    let to = deployment.numbered()?;
    wait_if_asked(found, since, &to, change_args).await
}

/// Checks a change of the level and makes the log command for it.
struct Raise<'a> {
    known: &'a Configuration,
    to: Level,
}

impl Work for Raise<'_> {
    type Output = Result<Change>;

    fn run<P: Protocol>(self) -> Result<Change> {
        possible(change::level::<P>(self.known, self.to))
    }
}
