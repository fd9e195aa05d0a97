//! `ionian drain`: takes clients and leadership away from a node, or returns them.

use crate::cluster_args::ClusterArgs;
use crate::contact;
use crate::member;
use crate::output::say;
use crate::source::{self, ANSWER_LIMIT};
use crate::status::{Answer, ClusterStatus, ask_all, last_holders};
use crate::waiting;
use anyhow::{Context, Result, anyhow};
use clap::Args;
use ionian_deployment::Configuration;
use ionian_program::BadUsage;
use ionian_runtime::{Addressee, Contact, DrainStatus, NodeStatus, query_status, request_drain};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Interval between two status queries.
const ASK_EVERY: Duration = Duration::from_millis(50);

/// Take clients and leadership away from a node, before it is stopped or its machine is serviced
///
/// The node accepts no new clients, answers pending commands, closes idle connections, and hands
/// leadership to another node. It remains a member, and continues to vote and to execute, until it
/// stops or --undo lets it serve and lead again. Refuses the last node that serves clients, or that
/// holds the state while others catch up. SIGTERM does the same before the node stops. Exits
/// with code 0 as soon as nothing is left, with 1 if something is left after --timeout.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ionian drain n1
  ionian drain n1 --undo")]
pub(crate) struct Arguments {
    /// The node's name
    pub(crate) node: String,
    /// Let the node serve clients and lead again
    #[arg(long)]
    pub(crate) undo: bool,
    /// Drain the node even if no other node serves clients, or holds the state
    #[arg(long, conflicts_with = "undo")]
    pub(crate) force: bool,
    /// Limit for the wait [default: options.drain_ms of the deployment]
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    pub(crate) timeout: Option<u32>,
    #[command(flatten)]
    pub(crate) cluster_args: ClusterArgs,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    waiting::block_on(async {
        let known = member::newest_since(source::running(&arguments.cluster_args).await?).await;
        let name = &arguments.node;
        let Some((_, node)) = known.member(name) else {
            let names: Vec<_> = known
                .nodes()
                .into_values()
                .map(|node| node.name.clone())
                .collect();
            return Err(BadUsage(format!(
                "there is no node {name:?}: the members are {}",
                names.join(", ")
            ))
            .into());
        };
        if !arguments.undo && !arguments.force {
            check(&known, name).await?;
        }
        let contact = contact::to(Some(name), &node.address);
        let addressee = Addressee {
            cluster: known.deployment.cluster.clone(),
            node: name.clone(),
            process: None,
        };
        request_drain(contact.clone(), &addressee, !arguments.undo, ANSWER_LIMIT)
            .await
            .with_context(|| format!("{name} at {}", contact.address))?;
        if arguments.undo {
            say!("{name} serves clients again, and may lead");
            return Ok(ExitCode::SUCCESS);
        }
        let limit = arguments
            .timeout
            .map_or(known.deployment.options.options().drain, |seconds| {
                Duration::from_secs(seconds.into())
            });
        match until_drained(&contact, limit).await? {
            None => say!("{name} has no clients and does not lead; it can be stopped"),
            Some(left) => {
                say!(
                    "{name} drains, and after {} s it still has: {left}",
                    limit.as_secs_f64()
                );
                return Ok(ExitCode::FAILURE);
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Checks that the cluster can do without a node.
async fn check(known: &Configuration, name: &str) -> Result<()> {
    let cluster = ask_all(known, ANSWER_LIMIT).await;
    if !others_serve(&cluster, name) {
        return Err(anyhow!(
            "no other node serves clients: after the drain of {name} none does; --force drains it all the same"
        ));
    }
    match last_holders(known, cluster, &[name]).await? {
        Some(why) => Err(anyhow!("{why}; --force drains it all the same")),
        None => Ok(()),
    }
}

/// Whether a node other than this one serves clients. If this one does not either, that is no
/// matter.
fn others_serve(cluster: &ClusterStatus, name: &str) -> bool {
    let serves = |node: &Answer| {
        let serves = |status: &NodeStatus| status.drains.is_none() && status.takes_part;
        node.gateway.is_some() && node.status.as_ref().is_some_and(serves)
    };
    let (own, others): (Vec<_>, Vec<_>) = cluster.nodes.iter().partition(|node| node.name == name);
    !own.into_iter().any(serves) || others.into_iter().any(serves)
}

/// Waits until a draining node has nothing left. Returns what is left if that takes longer than
/// `limit`.
///
/// # Errors
/// If the node does not answer, or does not drain.
pub(crate) async fn until_drained(
    contact: &Contact,
    limit: Duration,
) -> Result<Option<DrainStatus>> {
    let deadline = Instant::now() + limit;
    loop {
        let status = query_status(contact.clone(), ANSWER_LIMIT)
            .await
            .with_context(|| contact.address.to_string())?;
        let left = status.drains.ok_or_else(|| {
            anyhow!(
                "{} no longer drains: an operator has undone it, or the node was restarted",
                status.name
            )
        })?;
        if left.is_done() {
            return Ok(None);
        }
        if Instant::now() >= deadline {
            return Ok(Some(left));
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
}
