//! What a snapshot of a running cluster must contain: every write that was acknowledged before the
//! command started.
//!
//! **Voters.** A write is acknowledged after a write quorum has voted for it, and every read quorum
//! of acceptors shares a member with that write quorum. So the highest vote watermark of a read
//! quorum, queried when the command starts, is above every write acknowledged before. A replica
//! that has executed all slots below it has all of these writes.
//!
//! Without a log no watermark says that, and replicas execute commands in different orders. There
//! the replica finds out what was acknowledged when it is asked for the snapshot.
//!
//! **A chain.** No node knows for certain what the chain is. But it tells enough if all members of
//! the chain of some epoch e answer, each that it is in e, and is not sealed.
//!
//! - Nothing was acknowledged in a later chain before the command started. What is acknowledged in
//!   a chain has passed all its members, which had entered it. If one of them was a member in e it
//!   would not be in e: no node returns to an earlier chain. If none was, the members of the chain
//!   of e have been removed one after the other, and others have joined before; the first of these
//!   behind a member of that chain, which was sealed in e, and is so until it leaves e.
//! - The tail of e has received everything that was acknowledged: each member holds that.
//! - What is applied under a number is the same on every chain node. So any chain node that has
//!   applied what the tail had received has all of these writes, also if the chain is another then.
//!
//! While the chain changes, its members do not agree for a moment: they are asked again.
//!
//! **One server** that is alone acknowledges what it has executed.

use crate::protocols::{ServiceNeeds, executors, members};
use crate::source;
use crate::status::{ClusterStatus, ask_all};
use anyhow::Result;
use ionian_deployment::Configuration;
use ionian_kernel::id::{Epoch, Members};
use ionian_kernel::service::Voters;
use ionian_runtime::status::RoleStatus;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How long the members of a chain are asked again. A member that has failed leaves the chain
/// within an election timeout and a few round trips.
const SETTLES_WITHIN: Duration = Duration::from_secs(5);

const ASK_EVERY: Duration = Duration::from_millis(200);

/// What a snapshot must contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// All slots below this one.
    Below(u64),
    /// What was acknowledged before the replica is asked.
    Acknowledged,
}

/// Why it is not known what was acknowledged.
pub(super) struct Unknown {
    pub(super) why: String,
    /// Whether that may be different in a moment.
    passes: bool,
}

/// The status of the nodes, and what contains every write that was acknowledged before. If that is
/// unknown and may pass, it asks again, if it is `patient`.
pub(super) async fn ask(
    known: &Configuration,
    patient: bool,
) -> Result<(ClusterStatus, Result<Wanted, Unknown>)> {
    let needs = ServiceNeeds::of(known, known.epoch())?;
    let deadline = Instant::now() + SETTLES_WITHIN;
    loop {
        let status = ask_all(known, source::ANSWER_LIMIT).await;
        let nodes = status.nodes.iter().filter_map(|node| node.status.as_ref());
        let epochs = nodes.map(|node| (&node.name[..], node.epoch));
        let wanted = match later(epochs, known.epoch()) {
            Some(unknown) => Err(unknown),
            None => wanted(&needs, &status)?,
        };
        let passes = wanted.as_ref().is_err_and(|unknown| unknown.passes);
        if !(passes && patient && Instant::now() < deadline) {
            return Ok((status, wanted));
        }
        sleep(ASK_EVERY).await;
    }
}

/// A node, by its name, that knows a later membership: the voters of that one count, and they may
/// be others.
fn later<'a>(mut nodes: impl Iterator<Item = (&'a str, u32)>, known: Epoch) -> Option<Unknown> {
    let (name, epoch) = nodes.find(|(_, epoch)| *epoch > known.0)?;
    let why = format!(
        "the membership has changed: node {name} knows epoch {epoch}, later than {}; try again",
        known.0
    );
    Some(Unknown { why, passes: false })
}

fn wanted(needs: &ServiceNeeds, status: &ClusterStatus) -> Result<Result<Wanted, Unknown>> {
    if let Some(voters) = &needs.service.voters {
        return Ok(by_votes(voters, needs.name(voters.read.kind), status));
    }
    if is_alone(needs) {
        let executed = executed(status)?.into_iter().map(|(executed, _)| executed);
        return Ok(executed.max().map(Wanted::Below).ok_or_else(|| Unknown {
            why: format!("the {} does not answer{}", needs.hub(), silent(status)),
            passes: false,
        }));
    }
    let hubs = roles(status).filter(|(_, role)| role.role == needs.hub());
    let chain = Chains::of(hubs.map(|(_, role)| role));
    Ok(chain.received().map(Wanted::Below).ok_or_else(|| Unknown {
        why: format!("{}{}", chain.lacks(), silent(status)),
        passes: true,
    }))
}

/// Whether there is one instance of the hub, and no more.
fn is_alone(needs: &ServiceNeeds) -> bool {
    let service = &needs.service;
    let hubs = service
        .needs
        .iter()
        .filter(|need| need.by.kind == service.hub);
    let all = hubs.fold(Members::EMPTY, |all, need| all.or(need.by.of));
    all.len() == 1
}

fn by_votes(voters: &Voters, name: &str, status: &ClusterStatus) -> Result<Wanted, Unknown> {
    // An acceptor that has lost its memory does not know its votes.
    let knowing = || {
        let voters = roles(status).filter(|(_, role)| role.role == name);
        voters.filter(|(_, role)| role.remembers == Some(true))
    };
    let present = members(knowing().map(|(_, role)| role.index));
    if !voters.read.is_met(present) {
        let silent = match silent(status) {
            silent if silent.is_empty() => ": some have lost their memory".to_owned(),
            silent => silent,
        };
        return Err(Unknown {
            why: format!("too few {name}s answer to know what was acknowledged{silent}"),
            passes: false,
        });
    }
    if !voters.is_log {
        return Ok(Wanted::Acknowledged);
    }
    let highest = knowing().filter_map(|(_, role)| role.voted).max();
    Ok(Wanted::Below(highest.unwrap_or(0)))
}

/// A member of a chain, as it says, that is not sealed.
struct Member {
    /// How many there are.
    members: u64,
    /// It has received every entry below this one.
    received: u64,
}

/// The chains that nodes are in, and in each the members that are not sealed, by their place.
struct Chains(BTreeMap<u64, BTreeMap<u64, Member>>);

impl Chains {
    /// Those of these chain nodes.
    fn of<'a>(roles: impl Iterator<Item = &'a RoleStatus>) -> Self {
        let mut chains = Chains(BTreeMap::new());
        for role in roles.filter(|role| role.remembers == Some(true)) {
            let metric = |name| role.metrics.get(name).copied();
            let says = (metric("chain"), metric("members"), metric("place"));
            if let (Some(chain), Some(members), Some(place)) = says
                && let Some(received) = role.log_end
                && (1..=members).contains(&place)
                && metric("sealed") == Some(0)
            {
                let member = Member { members, received };
                chains.0.entry(chain).or_default().insert(place, member);
            }
        }
        chains
    }

    /// What the tail of the latest chain has received of which all members are here.
    fn received(&self) -> Option<u64> {
        let mut latest = self.0.values().rev();
        let here = latest.find(|here| here.values().all(|it| it.members == here.len() as u64))?;
        here.last_key_value().map(|(_, tail)| tail.received)
    }

    /// Which members are not here, in words.
    fn lacks(&self) -> String {
        let known = self.0.last_key_value().and_then(|(chain, here)| {
            let (_, one) = here.first_key_value()?;
            Some((chain, here.len(), one.members))
        });
        let who = match known {
            Some((chain, here, members)) => {
                format!("only {here} of the {members} members of chain {chain} answer")
            }
            None => "no member of a chain answers".to_owned(),
        };
        format!("{who}, sealed ones not counted: it takes all to know what was acknowledged")
    }
}

/// The executed slot of each node with an executor of clients' commands, with the index of its
/// answer.
pub(super) fn executed(status: &ClusterStatus) -> Result<Vec<(u64, usize)>> {
    let kinds: Vec<_> = executors(&status.protocol)?.collect();
    let here = roles(status).filter(|(_, role)| kinds.contains(&role.role.as_str()));
    Ok(here
        .filter_map(|(place, role)| Some((role.executed?, place)))
        .collect())
}

/// The instances that answered, each with the index of its node.
fn roles(status: &ClusterStatus) -> impl Iterator<Item = (usize, &RoleStatus)> {
    let nodes = status.nodes.iter().enumerate();
    let answered = nodes.filter_map(|(place, node)| Some((place, node.status.as_ref()?)));
    answered.flat_map(|(place, status)| status.roles.iter().map(move |instance| (place, instance)))
}

/// Behind a colon, the nodes that do not answer and why; nothing if all do.
fn silent(status: &ClusterStatus) -> String {
    let silent = status.nodes.iter().filter(|node| !node.up);
    let silent: Vec<_> = silent
        .map(|node| format!("{}: {}", node.name, node.error.as_deref().unwrap_or("down")))
        .collect();
    match silent.is_empty() {
        true => String::new(),
        false => format!(": {}", silent.join("; ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocols;
    use ionian_deployment::{Deployment, PresetOptions};

    /// A chain node: its chain, how many members that has, its place, what it has received, and
    /// whether it is a member.
    fn node((chain, members, place): (u64, u64, u64), received: u64, whole: bool) -> RoleStatus {
        let metrics = [
            ("chain", chain),
            ("members", members),
            ("place", place),
            ("sealed", 0),
        ];
        RoleStatus {
            role: "chain_node".into(),
            log_end: Some(received),
            remembers: Some(whole),
            metrics: metrics.map(|(name, value)| (name.into(), value)).into(),
            ..RoleStatus::default()
        }
    }

    fn received(nodes: &[RoleStatus]) -> Option<u64> {
        Chains::of(nodes.iter()).received()
    }

    #[test]
    fn the_tail_of_a_whole_chain_tells_what_was_acknowledged() {
        let (head, middle) = (node((4, 3, 1), 60, true), node((4, 3, 2), 58, true));
        let all = |tail: RoleStatus| [head.clone(), middle.clone(), tail];
        assert_eq!(received(&all(node((4, 3, 3), 57, true))), Some(57));
        for tail in [
            node((4, 3, 3), 57, false),
            // Removed, or not there yet.
            node((4, 3, 0), 57, true),
            node((3, 3, 3), 57, true),
            node((5, 3, 3), 57, true),
            // The same place again.
            node((4, 3, 2), 57, true),
        ] {
            assert_eq!(received(&all(tail.clone())), None, "{tail:?}");
        }
        assert_eq!(received(&[head.clone(), middle.clone()]), None);
        // A node that joins may have all that it holds, and go on without it.
        let mut sealed = node((4, 3, 3), 57, true);
        sealed.metrics.insert("sealed".into(), 1);
        assert_eq!(received(&[head, middle, sealed]), None);
        assert_eq!(received(&[]), None);
    }

    #[test]
    fn the_latest_whole_chain_counts() {
        let behind = node((4, 3, 3), 90, true);
        let now = [node((5, 2, 1), 60, true), node((5, 2, 2), 59, true)];
        assert_eq!(received(&[&now[..], &[behind]].concat()), Some(59));
        let lone = [node((4, 1, 1), 7, true), node((6, 1, 1), 9, true)];
        assert_eq!(received(&lone), Some(9));
        let without = RoleStatus {
            metrics: BTreeMap::new(),
            ..node((4, 1, 1), 7, true)
        };
        assert_eq!(received(&[without]), None, "it does not say enough");
    }

    #[test]
    fn voters_of_an_earlier_membership_do_not_count() {
        let later = |epochs: &[(&'static str, u32)]| later(epochs.iter().copied(), Epoch(4));
        assert!(later(&[("n0", 4), ("n1", 3)]).is_none());
        let unknown = later(&[("n0", 4), ("n1", 5)]).expect("it is another one");
        let why = "the membership has changed: node n1 knows epoch 5, later than 4; try again";
        assert_eq!((&unknown.why[..], unknown.passes), (why, false));
    }

    #[test]
    fn only_a_server_without_others_is_believed_by_itself() {
        let is_alone = |preset| {
            let deployment = Deployment::preset(preset, &PresetOptions::default()).unwrap();
            let known = Configuration::founded(deployment);
            is_alone(&protocols::ServiceNeeds::of(&known, Epoch::default()).unwrap())
        };
        assert!(is_alone("unreplicated"));
        assert!(!is_alone("craq"));
    }
}
