//! `ionian upgrade`: shows and changes the level of a running cluster.
//!
//! docs/upgrade.md explains what a level is, and the steps of an upgrade.

use crate::cluster_args::{ChangeArgs, ClusterArgs};
use crate::member::{Found, WaitReporter, possible, wait_if_asked};
use crate::output::{self, say};
use crate::protocols::{self, protocol};
use crate::source::ANSWER_LIMIT;
use crate::status::{Answer, ask_all};
use crate::waiting;
use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use ionian_deployment::Configuration;
use ionian_kernel::id::Epoch;
use ionian_kernel::level::Level;
use ionian_runtime::admin::change;
use ionian_runtime::status::RoleStatus;
use std::fmt::Write;
use std::process::ExitCode;
use std::time::Duration;
use tokio::time::sleep;

/// The pause between two looks at nodes that are to become ready.
const PAUSE: Duration = Duration::from_millis(200);

/// Finish or take back an upgrade of a running cluster to another release
///
/// Exchange the program of one node after the other first. The cluster stays at its level, and the
/// former program can be put back at any time, until `ionian upgrade finalize` raises the level
/// through the cluster's log.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    after_help = "Examples:\n  ionian upgrade status\n  ionian upgrade finalize\n  ionian upgrade revert"
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
    /// Lower the level by one, so that the former release can be put back, unless the cluster has
    /// what that release does not know; and wait until every node is ready for it
    Revert {
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
            UpgradeCommand::Revert { change_args } => revert(change_args).await,
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
                let ready = match not_ready(node, known.epoch()) {
                    Some(reason) if level < most => format!(": {reason}"),
                    _ => String::new(),
                };
                format!("release {release}, supports levels {least} to {most}{ready}")
            }
            _ => node.error.clone().unwrap_or_default(),
        };
        writeln!(text, "{name:<width$}  {said}").expect("a string has room");
    }
    let fixed = protocols::fixed_level(&known.deployment.protocol);
    let fixed = fixed.ok().flatten().filter(|_| level < Level::LATEST);
    match (fixed, highest(nodes)) {
        (Some(reason), _) => text += &format!("the level stays {level}: {reason}\n"),
        (None, Ok(most)) if most > level => {
            text += &format!("`ionian upgrade finalize` raises the level to {most}\n");
        }
        (None, Ok(_)) if level < Level::LATEST => {
            let behind = nodes
                .iter()
                .filter(|node| supported(node).is_some_and(|(_, most)| most <= level));
            let names: Vec<&str> = behind.map(|node| node.name.as_str()).collect();
            text += &format!(
                "exchange the program of {} to raise the level\n",
                names.join(", ")
            );
        }
        (None, Ok(_)) => text += "this is the highest level that this program supports\n",
        (None, Err(reason)) => text += &format!("the level cannot be raised now: {reason}\n"),
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
        change_to(&found, Level(level.0 + 1), change_args).await?;
        raised = true;
    }
}

/// Why a program that supports no more than the present level must not take the place of this
/// node's yet; none if it may. The level is that of this epoch.
fn not_ready(node: &Answer, epoch: Epoch) -> Option<String> {
    match &node.status {
        Some(status) => missing(status.epoch, &status.roles, epoch),
        None => Some(node.error.clone().unwrap_or_default()),
    }
}

/// The same of a node that knows the epoch `known`: it can know it before its replica has executed
/// the change.
fn missing(known: u32, roles: &[RoleStatus], epoch: Epoch) -> Option<String> {
    if known < epoch.0 {
        return Some(format!("it does not know epoch {} yet", epoch.0));
    }
    if roles.is_empty() {
        return Some("its roles do not run yet".into());
    }
    let is_behind = |role: &RoleStatus| role.epoch.is_none_or(|known| known < epoch.0);
    let mut executors = roles.iter().filter(|it| it.level_stored.is_some());
    executors.find_map(|role| match role.level_stored {
        _ if is_behind(role) => {
            let (name, index) = (&role.role, role.index);
            Some(format!("{name} {index} has not executed the change yet"))
        }
        Some(false) => Some("no snapshot with this level is stored yet".into()),
        _ => None,
    })
}

/// Lowers the level by one, and waits until every node is ready for a program of that level. At the
/// lowest one it only waits: it may have been lowered before.
async fn revert(change_args: &ChangeArgs) -> Result<()> {
    let found = Found::find(&change_args.cluster_args).await?;
    let level = found.known.membership.level;
    let to = match level.0.checked_sub(1).map(Level) {
        Some(to) if to.is_supported() => to,
        _ => {
            say!("the cluster is at level {level}, the lowest that this program supports");
            let since = found.known.epoch();
            return wait_until_ready(found, (since, level), change_args).await;
        }
    };
    for node in &ask_all(&found.known, ANSWER_LIMIT).await.nodes {
        match (supported(node), &node.error) {
            (Some((least, _)), _) if least <= to => {}
            (Some((least, _)), _) => bail!(
                "the level stays {level}: the program of node {} supports none below {least}",
                node.name
            ),
            (None, error) => bail!(
                "the level stays {level}: every node must be seen to be ready, node {}: {}",
                node.name,
                error.as_deref().unwrap_or("it does not answer")
            ),
        }
    }
    let since = change_to(&found, to, change_args).await?;
    wait_until_ready(found, (since, to), change_args).await
}

/// Waits until every node is ready for a program of this level, which the cluster has since this
/// epoch.
async fn wait_until_ready(
    mut found: Found,
    (since, level): (Epoch, Level),
    change_args: &ChangeArgs,
) -> Result<()> {
    if change_args.no_wait {
        say!("exchange programs when `ionian upgrade status` reports no node as not ready");
        return Ok(());
    }
    let mut reporter = WaitReporter::new();
    loop {
        // Who answers may be behind: what was known stays known.
        if let Ok(now) = Found::find(&change_args.cluster_args).await
            && now.known.epoch() >= found.known.epoch()
        {
            found = now;
        }
        let known = &found.known;
        let mut waits = Vec::new();
        if known.epoch() < since {
            waits.push("a node that knows the change".to_owned());
        } else if known.membership.level != level {
            bail!(
                "the level was changed to {} meanwhile",
                known.membership.level
            );
        }
        for node in ask_all(known, ANSWER_LIMIT).await.nodes {
            if let Some(reason) = not_ready(&node, known.epoch()) {
                waits.push(format!("node {}: {reason}", node.name));
            }
        }
        if waits.is_empty() {
            say!("every node is ready: put the former release back, one node after the other");
            return Ok(());
        }
        reporter.waits_for(waits.join("; "));
        sleep(PAUSE).await;
    }
}

async fn change_to(found: &Found, to: Level, change_args: &ChangeArgs) -> Result<Epoch> {
    let deployment = &found.known.deployment;
    let change = change::level(protocol(&deployment.protocol)?, &found.known, to);
    let change = possible(change)?;
    let since = found.request(&change).await?;
    say!("epoch {} begins: level {to}", since.0);
    let to = deployment.numbered()?;
    wait_if_asked(found, since, &to, change_args).await?;
    Ok(since)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A replica that has executed this epoch, and says this of its snapshot.
    fn replica(epoch: u32, level_stored: Option<bool>) -> Vec<RoleStatus> {
        let replica = RoleStatus {
            role: "replica".into(),
            epoch: Some(epoch),
            level_stored,
            ..RoleStatus::default()
        };
        vec![replica]
    }

    #[test]
    fn a_node_is_ready_when_its_replica_has_executed_and_stored_the_change() {
        let reason = |known, roles: &[RoleStatus]| missing(known, roles, Epoch(5));
        assert_eq!(reason(5, &replica(5, Some(true))), None);
        let behind = Some("replica 0 has not executed the change yet".to_owned());
        assert_eq!(reason(5, &replica(4, Some(true))), behind);
        let unstored = Some("no snapshot with this level is stored yet".to_owned());
        assert_eq!(reason(5, &replica(5, Some(false))), unstored);
        let unaware = Some("it does not know epoch 5 yet".to_owned());
        assert_eq!(reason(4, &replica(5, Some(true))), unaware);
        // It stores nothing that depends on the level.
        assert_eq!(reason(5, &replica(0, None)), None);
        let idle = Some("its roles do not run yet".to_owned());
        assert_eq!(reason(5, &[]), idle);
    }
}
