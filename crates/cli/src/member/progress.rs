//! What a change in progress waits for, and waiting for its end.

use super::find::Found;
use crate::cluster_args::ChangeArgs;
use crate::contact;
use crate::output::say;
use crate::protocols;
use crate::source::ANSWER_LIMIT;
use anyhow::{Result, bail};
use ionian_deployment::{Configuration, Deployment};
use ionian_kernel::id::{Epoch, Index};
use ionian_runtime::status::RoleStatus;
use ionian_runtime::{NodeStatus, query_status};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const ASK_EVERY: Duration = Duration::from_millis(100);

/// Minimum interval between two lines of output; waits that end earlier print nothing.
const SAY_EVERY: Duration = Duration::from_secs(1);

/// Prints what the command waits for, whenever it changes.
pub(crate) struct WaitReporter {
    told: String,
    lately: Instant,
}

impl WaitReporter {
    pub(crate) fn new() -> Self {
        WaitReporter {
            told: String::new(),
            lately: Instant::now(),
        }
    }

    pub(crate) fn waits_for(&mut self, what: String) {
        if what != self.told && self.lately.elapsed() >= SAY_EVERY {
            say!("waits for {what}");
            (self.told, self.lately) = (what, Instant::now());
        }
    }
}

/// The statuses of the members that answered, by name.
pub(super) type Statuses = BTreeMap<String, NodeStatus>;

/// Queries the status of every member.
pub(super) async fn look(found: &Found) -> Statuses {
    let mut questions = JoinSet::new();
    for (name, address) in found.contacts.clone() {
        questions.spawn(async move {
            let node = contact::to(Some(&name), &address);
            let status = query_status(node, ANSWER_LIMIT).await.ok()?;
            (status.name == name).then_some((name, status))
        });
    }
    questions.join_all().await.into_iter().flatten().collect()
}

/// A change and the epoch that it started.
struct Awaited<'a> {
    /// The epoch that the change started.
    since: Epoch,
    from: &'a Deployment,
    to: &'a Deployment,
}

/// Waits until the change is finished and every new node runs. Prints what it waits for.
///
/// # Errors
/// If another operator abandons the change.
async fn wait_until_done(
    mut contacts: BTreeMap<String, String>,
    awaited: &Awaited<'_>,
) -> Result<()> {
    let mut reporter = WaitReporter::new();
    loop {
        let waits = match Found::ask(contacts.clone()).await {
            Err(error) => vec![error.to_string()],
            Ok(found) if found.known.epoch() < awaited.since => {
                vec!["a node that knows the change".to_owned()]
            }
            Ok(found) => {
                contacts.extend(found.contacts.clone());
                let waits = state(&found.known, awaited, &look(&found).await)?;
                if waits.is_empty() {
                    say!("done: the cluster is in epoch {}", found.known.epoch().0);
                    return Ok(());
                }
                waits
            }
        };
        reporter.waits_for(waits.join("; "));
        tokio::time::sleep(ASK_EVERY).await;
    }
}

/// Waits as [`wait_until_done`], if the arguments ask for it, for a change of what was `found`
/// that has started the epoch `since` and leads to this deployment.
///
/// # Errors
/// If another operator abandons the change.
pub(crate) async fn wait_if_asked(
    found: &Found,
    since: Epoch,
    to: &Deployment,
    change_args: &ChangeArgs,
) -> Result<()> {
    if change_args.no_wait {
        return Ok(());
    }
    let from = &found.known.deployment;
    wait_until_done(found.contacts.clone(), &Awaited { since, from, to }).await
}

/// What the change waits for; empty if it is finished.
fn state(known: &Configuration, awaited: &Awaited<'_>, statuses: &Statuses) -> Result<Vec<String>> {
    let Awaited { from, to, .. } = awaited;
    match &known.next {
        Some(next) if next == *to => Ok(waits(known, statuses)),
        None if known.deployment.numbered()? == **to => Ok(missing(known, from, statuses)),
        None if known.deployment.numbered()? == from.numbered()? => {
            bail!(
                "the change was abandoned: since epoch {} the cluster has its former configuration",
                known.epoch().0
            )
        }
        _ => bail!("another change has started (epoch {})", known.epoch().0),
    }
}

/// What the end of the change still needs: new nodes that run, and f+1 members that know it, so
/// that nodes that leave can be stopped.
fn missing(known: &Configuration, from: &Deployment, statuses: &Statuses) -> Vec<String> {
    let silent = silent(known, from, statuses);
    match silent.is_empty() {
        true => {
            let epoch_of = |name: &str| Some(statuses.get(name)?.epoch);
            unaware(known, epoch_of).into_iter().collect()
        }
        false => silent,
    }
}

/// That fewer than f+1 members know the epoch, if so.
fn unaware(known: &Configuration, epoch_of: impl Fn(&str) -> Option<u32>) -> Option<String> {
    let Deployment { f, nodes, .. } = &known.deployment;
    let (epoch, needed) = (known.epoch().0, (f + 1).min(nodes.len()));
    let knows = |name: &str| epoch_of(name).is_some_and(|known| known >= epoch);
    let know = nodes.iter().filter(|node| knows(&node.name)).count();
    (know < needed).then(|| format!("{needed} nodes to know epoch {epoch}: {know} do"))
}

/// The new nodes that do not answer.
fn silent(known: &Configuration, from: &Deployment, statuses: &Statuses) -> Vec<String> {
    let nodes = known.nodes().into_values();
    let new =
        nodes.filter(|node| from.place(&node.name).is_err() && !statuses.contains_key(&node.name));
    new.map(|node| to_be_started(known, &node.name, statuses))
        .collect()
}

fn to_be_started(known: &Configuration, name: &str, statuses: &Statuses) -> String {
    let nodes = known.nodes();
    let contact = nodes
        .values()
        .find(|node| statuses.contains_key(&node.name));
    let contact = contact.map_or("HOST:PORT", |node| node.address.as_str());
    let next = known.next.as_ref().unwrap_or(&known.deployment);
    let successions = known.deployment.successions(next);
    let mut successions = successions.iter();
    let in_the_way = successions.find(|(new, old)| new == name && statuses.contains_key(old));
    let first = in_the_way.map_or(String::new(), |(_, old)| {
        format!("stop node {old}, which has its address, then ")
    });
    let how = how_to_join(&known.deployment, name, contact);
    format!("node {name}, which does not answer: {first}{how}")
}

/// What starts a node that joins. The nodes of a machine that is not of this program are run by the
/// program of the user.
fn how_to_join(deployment: &Deployment, name: &str, contact: &str) -> String {
    let tls = if contact::has_certificate() {
        " --tls DIR"
    } else {
        ""
    };
    match protocols::machine(deployment) {
        Ok(_) => format!("`ionian node {name} --join {contact} --data DIR{tls}` starts it"),
        Err(_) => format!(
            "start your program of the machine {:?} as node {name}, joining {contact} (docs/library.md)",
            deployment.machine
        ),
    }
}

/// What a change in progress waits for.
pub(super) fn waits(known: &Configuration, statuses: &Statuses) -> Vec<String> {
    let Some(next) = &known.next else {
        return Vec::new();
    };
    let new = |name: &str| known.deployment.place(name).is_err();
    let silent = known
        .nodes()
        .into_values()
        .filter(|node| !statuses.contains_key(&node.name));
    let mut waits: Vec<String> = silent
        .filter(|node| new(&node.name) || next.place(&node.name).is_ok())
        .map(|node| match new(&node.name) {
            true => to_be_started(known, &node.name, statuses),
            false => format!("node {}, which does not answer", node.name),
        })
        .collect();
    let roles: Vec<&RoleStatus> = statuses.values().flat_map(|status| &status.roles).collect();
    let leading = roles
        .iter()
        .filter(|role| role.leads.is_some_and(|leads| leads.own));
    match leading.filter_map(|role| role.epoch).max() {
        None => waits.push("a leader".to_owned()),
        Some(epoch) if epoch < known.epoch().0 => {
            waits.push(format!(
                "the leader to start a round of epoch {}, with acceptors of both configurations",
                known.epoch().0
            ));
        }
        Some(_) => {}
    }
    let instances = |deployment: &Deployment| -> BTreeSet<(String, Index)> {
        let nodes = deployment
            .numbered()
            .map(|numbered| numbered.nodes)
            .unwrap_or_default();
        let placed = nodes.into_iter().flat_map(|node| node.roles);
        placed
            .filter_map(|placed| Some((placed.role, placed.number?)))
            .collect()
    };
    let (before, after) = (instances(&known.deployment), instances(next));
    let executors = || {
        roles
            .iter()
            .filter_map(|role| Some((role, role.executed?, role.stored?)))
    };
    for (role, _, stored) in executors() {
        let instance = (role.role.clone(), role.index);
        let is_new = after.contains(&instance) && !before.contains(&instance);
        // A protocol may have several logs, each with executors of its own.
        let same = executors().filter(|(other, ..)| other.role == role.role);
        let end = same.map(|(_, executed, _)| executed).max();
        if is_new && role.remembers == Some(false) {
            let (role, index) = (&role.role, role.index);
            waits.push(format!("{role} {index} to have all that was acknowledged"));
        } else if is_new && role.remembers.is_none() && Some(stored) < end {
            waits.push(format!(
                "{} {} to store the executed slots: {stored} of {}",
                role.role,
                role.index,
                end.unwrap_or(0)
            ));
        }
    }
    if waits.is_empty() {
        waits.push("the leader to finish the change".to_owned());
    }
    waits
}

#[cfg(test)]
mod tests {
    use super::*;
    use ionian_deployment::PresetOptions;
    use ionian_kernel::membership::Membership;

    #[test]
    fn a_node_of_a_users_machine_is_started_by_the_users_program() {
        let mut deployment = Deployment::preset("baseline", &PresetOptions::default()).unwrap();
        let how = |deployment: &Deployment| how_to_join(deployment, "n3", "10.0.0.1:17400");
        let ours = "`ionian node n3 --join 10.0.0.1:17400 --data DIR` starts it";
        assert_eq!(how(&deployment), ours);
        deployment.machine = "tally".to_owned();
        assert_eq!(
            how(&deployment),
            "start your program of the machine \"tally\" as node n3, joining 10.0.0.1:17400 (docs/library.md)"
        );
    }

    #[test]
    fn a_change_is_done_when_f_plus_one_members_know() {
        let deployment = Deployment::preset("baseline", &PresetOptions::default()).unwrap();
        let membership = Membership {
            epoch: Epoch(2),
            ..Membership::default()
        };
        let known = Configuration::founded(deployment)
            .advanced(membership)
            .unwrap();
        let with = |epochs: [(&'static str, u32); 3]| {
            let epochs = BTreeMap::from(epochs);
            unaware(&known, |name| epochs.get(name).copied())
        };
        // n9 leaves.
        let waits = with([("n0", 1), ("n1", 2), ("n9", 2)]);
        assert_eq!(waits.as_deref(), Some("2 nodes to know epoch 2: 1 do"));
        assert_eq!(with([("n0", 3), ("n1", 2), ("n9", 2)]), None);
    }
}
