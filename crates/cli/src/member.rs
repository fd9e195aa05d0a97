//! `ionian member`: which nodes and roles a running cluster has, and changes of that.
//!
//! | file | job |
//! |---|---|
//! | `find` | asks the nodes what they know, and puts changes to them |
//! | `progress` | what a change under way waits for |
//! | `text` | the list for people |

mod find;
mod progress;
mod text;

use crate::arguments::{self, BadUsage, How, MemberCommand, Place, Shape};
use crate::family::{self, Work};
use crate::output::{self, say};
use anyhow::{Context, Result};
use find::Found;
use ionian_deployment::{Configuration, Deployment, DeploymentError, Node, Placed};
use ionian_kernel::membership::Change;
use ionian_kernel::protocol::Protocol;
use ionian_runtime::membership;
use progress::Awaited;
use std::process::ExitCode;

pub(crate) use find::newest_since;

pub(crate) fn run(arguments: &arguments::Member) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(carry_out(&arguments.command))?;
    Ok(ExitCode::SUCCESS)
}

async fn carry_out(command: &MemberCommand) -> Result<()> {
    match command {
        MemberCommand::List { toml, whereabouts } => {
            let found = Found::find(whereabouts).await?;
            match toml {
                true => output::print(format_args!("{}", found.known.target().numbered()?.to_toml())),
                false => output::print(format_args!("{}", text::show(&found.known, &progress::look(&found).await))),
            }
            Ok(())
        }
        MemberCommand::Add { name, place, roles, shape, how } => {
            let roles = roles_of(roles)?;
            change(how, |from| {
                let here = |node: &&Node| node.name == *name && node.address == place.address;
                match from.nodes.iter().find(here) {
                    Some(_) => Ok(from.clone()),
                    None => shaped(from.with_node(Node { roles: roles.clone(), ..node(name, place) })?, shape),
                }
            })
            .await
        }
        MemberCommand::Remove { name, shape, how } => change(how, |from| shaped(from.without_node(name)?, shape)).await,
        MemberCommand::Replace { old, new, place, how } => {
            change(how, |from| {
                let done = from.place(old).is_err() && from.nodes.iter().any(|node| node.name == *new);
                if done { Ok(from.clone()) } else { from.with_replaced(old, node(new, place)) }
            })
            .await
        }
        MemberCommand::Apply { file, how } => {
            let file = Deployment::load(file)?;
            change(how, |from| file.successor_of(from)).await
        }
        MemberCommand::Abandon { how } => {
            let found = Found::find(&how.whereabouts).await?;
            let change = membership::abandon(&found.known)?;
            let to = found.known.deployment.clone();
            settle(found, Some(change), &to, how).await
        }
    }
}

fn node(name: &str, place: &Place) -> Node {
    let Place { address, gateway } = place;
    Node { name: name.to_owned(), address: address.clone(), gateway: gateway.clone(), ..Node::default() }
}

/// The roles as a flag names them.
fn roles_of(texts: &[String]) -> Result<Vec<Placed>> {
    let roles = texts
        .iter()
        .filter(|text| !text.is_empty())
        .map(|text| text.parse::<Placed>().map_err(|allowed| BadUsage(format!("--roles {text}: must be {allowed}"))));
    Ok(roles.collect::<Result<_, _>>()?)
}

fn shaped(deployment: Deployment, shape: &Shape) -> Result<Deployment, DeploymentError> {
    let quorums = shape.quorums.iter().map(|quorums| format!("quorums={quorums}"));
    let overrides: Vec<String> = quorums.chain(shape.f.map(|f| format!("f={f}"))).collect();
    deployment.with_overrides(&overrides)
}

/// Changes the cluster into what `plan` makes of the deployment in force.
async fn change(how: &How, plan: impl Fn(&Deployment) -> Result<Deployment, DeploymentError>) -> Result<()> {
    let found = Found::find(&how.whereabouts).await?;
    let known = &found.known;
    let planned = |from: &Deployment| -> Result<Deployment> {
        // The deployment is that of the cluster and not of a flag: what is wrong with it is no bad usage.
        let to = plan(from).context("this cannot be done")?;
        to.numbered().context("this cannot be done")
    };
    let to = planned(&known.deployment)?;
    if known.deployment.numbered()? == to {
        say!("the cluster is so already, in epoch {}", known.epoch().0);
        return Ok(());
    }
    let is_under_way = known.next.as_ref() == Some(&to);
    let change = match is_under_way {
        true => None,
        false => Some(family::with_protocol(&to.protocol, Begin { known, to: &to })??),
    };
    settle(found, change, &to, how).await
}

/// Checks a change and makes the command for the log of it.
struct Begin<'a> {
    known: &'a Configuration,
    to: &'a Deployment,
}

impl Work for Begin<'_> {
    type Output = Result<Change>;

    fn run<P: Protocol>(self) -> Result<Change> {
        let change = membership::begin::<P>(self.known, self.to).context("this cannot be done")?;
        self.to.check_machine(family::MACHINES)?;
        Ok(change)
    }
}

/// Puts the change to the cluster, unless it is under way already, and waits until it is finished.
async fn settle(found: Found, change: Option<Change>, to: &Deployment, how: &How) -> Result<()> {
    let since = match &change {
        None => {
            let epoch = found.known.epoch();
            say!("this change is under way already, in epoch {}", epoch.0);
            epoch
        }
        Some(change) => {
            let epoch = found.request(change).await?;
            say!("epoch {} begins", epoch.0);
            epoch
        }
    };
    if how.no_wait {
        return Ok(());
    }
    let from = &found.known.deployment;
    progress::wait_until_done(found.contacts.clone(), &Awaited { since, from, to }).await
}
