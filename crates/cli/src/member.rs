//! `ionian member`: shows and changes the nodes and roles of a running cluster.
//!
//! | file | job |
//! |---|---|
//! | `find` | asks the nodes for the membership |
//! | `progress` | what a change in progress waits for |
//! | `request` | submits a change to the log, through any node that can |
//! | `text` | the list as text |

mod arguments;
mod find;
mod progress;
mod request;
mod text;

use crate::cluster_args::ChangeArgs;
use crate::data_paths::DataPaths;
use crate::output::{self, say};
use crate::protocols::protocol;
use crate::source::ANSWER_LIMIT;
use crate::status::{ask_all, last_holders};
use crate::waiting;
use anyhow::{Context, Result, bail};
pub(crate) use arguments::Arguments;
use arguments::{AddressArgs, MemberCommand, QuorumArgs};
use ionian_deployment::{Deployment, Node};
use ionian_kernel::level::Level;
use ionian_kernel::membership::Change;
use ionian_runtime::admin::change;
use ionian_runtime::storage::offline::EmptyDirectory;
use std::path::Path;
use std::process::ExitCode;

pub(crate) use find::{Found, newest_since};
pub(crate) use progress::{WaitReporter, wait_if_asked};

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    waiting::block_on(carry_out(&arguments.command))?;
    Ok(ExitCode::SUCCESS)
}

async fn carry_out(command: &MemberCommand) -> Result<()> {
    match command {
        MemberCommand::List { toml, cluster_args } => {
            let found = Found::find(cluster_args).await?;
            match toml {
                true => output::print(format_args!(
                    "{}",
                    found.known.target().numbered()?.to_toml()
                )),
                false => output::print(format_args!(
                    "{}",
                    text::show(&found.known, &progress::look(&found).await)
                )),
            }
            Ok(())
        }
        MemberCommand::Add {
            name,
            address_args,
            roles,
            quorum_args,
            change_args,
        } => {
            let node = described(name, address_args, roles)?;
            change(change_args, |from| {
                // The same command again, during or after the change: nothing is left to do.
                let is_done = from.nodes.iter().any(|other| is_the_same(other, &node));
                if is_done {
                    with_quorums(from.clone(), quorum_args)
                } else {
                    with_quorums(possible(from.with_node(node.clone()))?, quorum_args)
                }
            })
            .await
        }
        MemberCommand::Remove {
            name,
            quorum_args,
            change_args,
        } => {
            change(change_args, |from| {
                with_quorums(possible(from.without_node(name))?, quorum_args)
            })
            .await
        }
        MemberCommand::Replace {
            old,
            new,
            address_args,
            change_args,
        } => {
            let node = described(new, address_args, "")?;
            change(change_args, |from| {
                if is_replaced(from, old, &node) {
                    let names = from.nodes.iter().map(|node| node.name.as_str());
                    let names: Vec<_> = names.collect();
                    say!(
                        "node {old} is no member, and {new} is one, at these addresses; the members are {}",
                        names.join(", ")
                    );
                }
                replaced(from, old, &node)
            })
            .await
        }
        MemberCommand::Apply { file, change_args } => {
            let load = |level| waiting::for_file(file, || Deployment::load_or(file, level));
            // Before the cluster is asked.
            load(Level::LATEST)?;
            change(change_args, |from| {
                possible(load(from.level)?.successor_of(from))
            })
            .await
        }
        MemberCommand::Readmit { name, lost, data } => readmit(name, lost, data),
        MemberCommand::Abandon { change_args } => {
            let found = Found::find(&change_args.cluster_args).await?;
            let change = change::abandon(&found.known)?;
            let to = found.known.deployment.clone();
            settle(found, Some(change), &to, change_args).await
        }
    }
}

/// Has the empty directory of the stopped node `name` take the place of its directory `lost`.
fn readmit(name: &str, lost: &str, data: &Path) -> Result<()> {
    let paths = DataPaths::for_nodes(data)?;
    let data = paths.node(name);
    if !data.exists() {
        let there = paths.node_directories()?;
        let mut names: Vec<_> = there
            .iter()
            .filter_map(|path| Some(path.file_name()?.to_string_lossy()))
            .collect();
        names.sort_unstable();
        bail!(
            "{} has no directory of a node {name:?}; there are: {}",
            paths.root().display(),
            names.join(", ")
        );
    }
    let mut directory = EmptyDirectory::open(&data)?;
    let protocol = protocol(directory.protocol())?.description();
    if !protocol.readmits {
        bail!(
            "a node of a cluster with protocol {} that has lost its data cannot take part again: replace {name} by a node of another name (ionian member replace), or restore a snapshot into a new cluster where members \
             cannot change",
            protocol.name
        );
    }
    directory.take_place_of(lost)?;
    say!(
        "{} takes the place of the lost directory {lost}: start node {name}, and watch `ionian status`",
        data.display()
    );
    Ok(())
}

/// The deployment with a new node in the place of `old`. The same command again, during or after
/// the change, changes nothing.
fn replaced(from: &Deployment, old: &str, new: &Node) -> Result<Deployment> {
    if is_replaced(from, old, new) {
        return Ok(from.clone());
    }
    // Before the new name: what is to be replaced may be mistyped.
    possible(from.place(old))?;
    let to = possible(from.with_replaced(old, new.clone()))?;
    let mut nodes = from.nodes.iter();
    let serves_clients = nodes.any(|node| node.name == *old && node.gateway.is_some());
    if serves_clients && new.gateway.is_none() {
        let new = &new.name;
        bail!("node {old} has a gateway: set the one of {new} with --gateway HOST:PORT");
    }
    Ok(to)
}

/// Whether the new node is there, and the old one is not.
fn is_replaced(from: &Deployment, old: &str, new: &Node) -> bool {
    let place = |node: &Node| (node.address.clone(), node.gateway.clone());
    let mut nodes = from.nodes.iter();
    from.place(old).is_err() && nodes.any(|it| it.name == new.name && place(it) == place(new))
}

/// Whether an existing node equals the described one: same name, addresses and roles.
fn is_the_same(there: &Node, described: &Node) -> bool {
    (&there.name, &there.address, &there.gateway)
        == (&described.name, &described.address, &described.gateway)
        && there.instances() == described.instances()
}

fn described(name: &str, address_args: &AddressArgs, roles: &str) -> Result<Node> {
    Ok(Node::described(
        name,
        &address_args.address,
        address_args.gateway.as_deref(),
        roles,
    )?)
}

/// Marks an error of a well-formed command that the cluster cannot carry out in its present state.
pub(crate) fn possible<T, E: std::error::Error + Send + Sync + 'static>(
    planned: Result<T, E>,
) -> Result<T> {
    planned.context("this cannot be done")
}

fn with_quorums(deployment: Deployment, quorum_args: &QuorumArgs) -> Result<Deployment> {
    let quorums = quorum_args
        .quorums
        .iter()
        .map(|quorums| format!("quorums={quorums}"));
    let overrides: Vec<String> = quorums
        .chain(quorum_args.f.map(|f| format!("f={f}")))
        .collect();
    Ok(deployment.with_overrides(&overrides)?)
}

/// Changes the cluster to the deployment that `plan` derives from the one in force.
async fn change(
    change_args: &ChangeArgs,
    plan: impl Fn(&Deployment) -> Result<Deployment>,
) -> Result<()> {
    let found = Found::find(&change_args.cluster_args).await?;
    let known = &found.known;
    // Before checking the plan: if the protocol cannot change members, no plan is valid.
    let present = protocol(&known.deployment.protocol)?;
    possible(change::check_protocol(present, known))?;
    let to = possible(plan(&known.deployment)?.numbered())?;
    if known.next.is_none() && known.deployment.numbered()? == to {
        say!(
            "no change: the cluster has this configuration already (epoch {})",
            known.epoch().0
        );
        return Ok(());
    }
    let is_under_way = known.next.as_ref() == Some(&to);
    let change = match is_under_way {
        true => None,
        false => {
            let change = possible(change::begin(protocol(&to.protocol)?, known, &to))?;
            check_successions(&found, &to)?;
            check_holders(&found, &to).await?;
            Some(change)
        }
    };
    settle(found, change, &to, change_args).await
}

/// A change waits for its new nodes, so none may wait for a port that a running node has.
fn check_successions(found: &Found, to: &Deployment) -> Result<()> {
    for (new, old) in found.known.deployment.successions(to) {
        if found.answered.contains_key(&old) {
            bail!(
                "this cannot be done: node {old} runs, and {new} is to have its address. Stop {old} first, and \
                 do not start it again, or choose other addresses"
            );
        }
    }
    Ok(())
}

/// What leaves may not be all that holds the state: those that stay must catch up before.
async fn check_holders(found: &Found, to: &Deployment) -> Result<()> {
    let nodes = found
        .known
        .deployment
        .nodes
        .iter()
        .map(|node| node.name.as_str());
    let leaving: Vec<&str> = nodes.filter(|name| to.place(name).is_err()).collect();
    let stay = found.known.deployment.nodes.len() > leaving.len();
    if leaving.is_empty() || !stay {
        return Ok(());
    }
    let cluster = ask_all(&found.known, ANSWER_LIMIT).await;
    match last_holders(&found.known, cluster, &leaving).await? {
        Some(why) => bail!("this cannot be done now: {why}"),
        None => Ok(()),
    }
}

/// Submits the change to the cluster, unless it is in progress already, and waits until it is
/// finished.
async fn settle(
    found: Found,
    change: Option<Change>,
    to: &Deployment,
    change_args: &ChangeArgs,
) -> Result<()> {
    let since = match &change {
        None => {
            let epoch = found.known.epoch();
            say!("this change is in progress already (epoch {})", epoch.0);
            epoch
        }
        Some(change) => {
            let epoch = found.request(change).await?;
            say!("epoch {} begins", epoch.0);
            epoch
        }
    };
    wait_if_asked(&found, since, to, change_args).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Args, Command, FromArgMatches};
    use ionian_deployment::PresetOptions;

    /// What the examples of the help say, of a cluster of the default preset.
    #[test]
    fn the_changes_in_the_help_are_possible_in_the_default_preset() {
        let command = Arguments::augment_args(Command::new("member"));
        let help = command.get_after_help().unwrap().to_string();
        let examples = help
            .lines()
            .filter_map(|line| line.trim().strip_prefix("ionian "));
        let preset = Deployment::preset("colocated", &PresetOptions::default()).unwrap();
        let mut planned = 0;
        for example in examples {
            let words = example.split("  ").next().unwrap().split_whitespace();
            let words = words.take_while(|word| *word != ">");
            let matches = command.clone().try_get_matches_from(words).unwrap();
            let to = match Arguments::from_arg_matches(&matches).unwrap().command {
                MemberCommand::Replace {
                    old,
                    new,
                    address_args,
                    ..
                } => replaced(&preset, &old, &described(&new, &address_args, "").unwrap()),
                MemberCommand::Add {
                    name,
                    address_args,
                    roles,
                    ..
                } => possible(preset.with_node(described(&name, &address_args, &roles).unwrap())),
                _ => continue,
            };
            crate::protocols::check(&to.unwrap()).unwrap();
            planned += 1;
        }
        assert_eq!(planned, 2, "{help}");
    }
}
