//! Whether a cluster serves, and how many more of its nodes may fail: judged by what the nodes say together, not by
//! what one says of itself.

use super::text::{self, figure, instances};
use super::{Answer, ClusterStatus};
use crate::family;
use ionian_deployment::Configuration;
use ionian_kernel::id::{AcceptorId, AcceptorSet, Id, LeaderId, Set, StabilizerId};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// The one word for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    /// It serves, everything is there, and as many nodes may fail as the deployment is meant for.
    Healthy,
    /// It serves, and something needs attention.
    Degraded,
    /// Clients are not served.
    NotServing,
}

impl Verdict {
    /// The exit code of `ionian status`.
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Verdict::Healthy => 0,
            Verdict::NotServing => 1,
            Verdict::Degraded => 3,
        }
    }
}

/// How a cluster is.
#[derive(Debug, Serialize)]
pub(crate) struct Health {
    pub(crate) health: Verdict,
    /// How many more nodes may fail, whichever they are, before something is not served any more; none where that is
    /// so already.
    pub(crate) failure_tolerance: Option<usize>,
    /// The same for each role: how many of the nodes that it is on.
    pub(crate) tolerance_by_role: BTreeMap<&'static str, usize>,
    /// What is not served, and why.
    pub(crate) not_served: Vec<String>,
    /// What needs attention.
    pub(crate) troubles: Vec<String>,
    /// How long a command took through the log, by the nodes that were asked; only with `--probe`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) probe_ms: Option<BTreeMap<String, u64>>,
}

/// What became of a command that was put through the log.
pub(crate) type Probes = BTreeMap<String, Result<u64, String>>;

/// Judges what all nodes have answered.
pub(crate) fn judge(known: &Configuration, cluster: &ClusterStatus, probes: Option<&Probes>) -> Health {
    let alive = alive(cluster);
    let needs = needs(known);
    let mut not_served: Vec<String> = match alive.is_empty() {
        true => vec!["no node answers".to_owned()],
        false => needs.iter().filter_map(|need| need.lost(&alive)).collect(),
    };
    if not_served.is_empty() {
        not_served.extend(without_leader(known, cluster));
    }
    let losses = text::losses(known, cluster);
    let mut troubles = text::troubles(known, cluster);
    if losses.contains(&text::LOST_VOTES) {
        not_served.push(text::LOST_VOTES.to_owned());
    }
    troubles.extend(losses.into_iter().filter(|loss| *loss != text::LOST_VOTES).map(str::to_owned));
    let lanes: Vec<Option<u64>> = instances(cluster).map(|(_, role)| figure(role, "session_open")).collect();
    let mut lanes = lanes.into_iter().flatten().peekable();
    if not_served.is_empty() && lanes.peek().is_some() && lanes.all(|open| open == 0) {
        not_served.push("no client has a session yet".to_owned());
    }
    let probe_ms = probes.map(|probes| {
        let failed = probes.iter().filter_map(|(node, probe)| Some((node, probe.as_ref().err()?)));
        let failed: Vec<String> =
            failed.map(|(node, why)| format!("a command of node {node} did not get through the log: {why}")).collect();
        let done: BTreeMap<String, u64> =
            probes.iter().filter_map(|(node, probe)| Some((node.clone(), *probe.as_ref().ok()?))).collect();
        if done.is_empty() && not_served.is_empty() {
            not_served.push("no command gets through the log".to_owned());
        }
        troubles.extend(failed);
        done
    });
    let (failure_tolerance, tolerance_by_role) = match not_served.is_empty() {
        false => (None, BTreeMap::new()),
        true => tolerance(&needs, &alive),
    };
    let is_less = failure_tolerance.is_some_and(|tolerance| tolerance < cluster.f);
    if is_less {
        troubles.push(match failure_tolerance {
            Some(0) | None => "no more node may fail".to_owned(),
            Some(tolerance) => format!("{tolerance} more may fail, where the deployment is meant for {}", cluster.f),
        });
    }
    let health = match (not_served.is_empty(), troubles.is_empty()) {
        (false, _) => Verdict::NotServing,
        (true, false) => Verdict::Degraded,
        (true, true) => Verdict::Healthy,
    };
    Health { health, failure_tolerance, tolerance_by_role, not_served, troubles, probe_ms }
}

/// A role instance that does its work.
struct Alive<'a> {
    role: &'a str,
    index: u8,
    node: &'a str,
}

/// Those on nodes that answer and take part. One that has forgotten what only it was to know counts as failed.
fn alive(cluster: &ClusterStatus) -> Vec<Alive<'_>> {
    let takes_part = |node: &Answer| node.status.as_ref().is_some_and(|status| status.takes_part);
    let at_work = instances(cluster).filter(|(node, role)| takes_part(node) && figure(role, "amnesiac") != Some(1));
    at_work.map(|(node, role)| Alive { role: &role.role, index: role.index, node: &node.name }).collect()
}

/// Something without which clients are not served.
struct Need {
    role: &'static str,
    what: String,
    /// How many instances there should be.
    of: usize,
    met: Box<dyn Fn(u64) -> bool>,
}

impl Need {
    fn new(role: &'static str, what: impl Into<String>, of: usize, met: impl Fn(u64) -> bool + 'static) -> Need {
        Need { role, what: what.into(), of, met: Box::new(met) }
    }

    fn is_met(&self, alive: &[Alive<'_>], without: &BTreeSet<&str>) -> bool {
        let there = alive.iter().filter(|it| it.role == self.role && !without.contains(it.node));
        (self.met)(there.map(|it| 1 << it.index).fold(0, |set: u64, bit: u64| set | bit))
    }

    /// What is not served, if it is not met.
    fn lost(&self, alive: &[Alive<'_>]) -> Option<String> {
        let there = alive.iter().filter(|it| it.role == self.role).count();
        let what = &self.what;
        let lost = || format!("{what}: {there} of {} {}s answer and remember", self.of, self.role.replace('_', " "));
        (!self.is_met(alive, &BTreeSet::new())).then(lost)
    }

    /// How many of the nodes can fail, whichever they are, before it is not met.
    fn tolerance(&self, alive: &[Alive<'_>]) -> usize {
        let nodes: BTreeSet<&str> = alive.iter().filter(|it| it.role == self.role).map(|it| it.node).collect();
        let nodes: Vec<&str> = nodes.into_iter().collect();
        let mut budget = COMBINATIONS;
        let survives = |count: usize, budget: &mut usize| {
            subsets(&nodes, count, budget, &mut BTreeSet::new(), &mut |failed| self.is_met(alive, failed))
        };
        // Beyond the budget it is what is known for sure.
        (1..=nodes.len()).find(|count| !survives(*count, &mut budget)).map_or(nodes.len(), |count| count - 1)
    }
}

/// How many sets of failed nodes are tried for one need: enough for any four of thirty.
const COMBINATIONS: usize = 50_000;

/// Whether `holds` for all sets of `count` more of the nodes; false also when there are more than can be tried.
fn subsets<'a>(
    nodes: &[&'a str],
    count: usize,
    budget: &mut usize,
    chosen: &mut BTreeSet<&'a str>,
    holds: &mut impl FnMut(&BTreeSet<&'a str>) -> bool,
) -> bool {
    if count == 0 {
        *budget = budget.saturating_sub(1);
        return *budget > 0 && holds(chosen);
    }
    nodes.iter().enumerate().all(|(place, node)| {
        chosen.insert(node);
        let all = nodes.len() - place < count || subsets(&nodes[place + 1..], count - 1, budget, chosen, holds);
        chosen.remove(node);
        all
    })
}

/// Everything that clients need, by the configuration in force, and the next one where a change is under way.
fn needs(known: &Configuration) -> Vec<Need> {
    let count = |role: &str| count(known, role);
    let mut needs = Vec::new();
    if let Ok(Some(quorums)) = family::quorums(known) {
        let (of, read) = (count("acceptor"), quorums.clone());
        let write = move |set| quorums.is_write_quorum(AcceptorSet::from_bits(set));
        needs.push(Need::new("acceptor", "writes, for want of a write quorum", of, write));
        let read = move |set| read.is_read_quorum(AcceptorSet::from_bits(set));
        needs.push(Need::new("acceptor", "linearizable reads and elections, for want of a read quorum", of, read));
    }
    if let Ok(Some(stabilizers)) = family::stabilizers(known) {
        let of = count("stabilizer");
        let write = move |set| stabilizers.is_write_quorum(Set::<StabilizerId>::from_bits(set));
        needs.push(Need::new("stabilizer", "writes, for want of a write quorum", of, write));
    }
    for leaders in family::leaders(known).unwrap_or_default() {
        let met = move |set| !leaders.and(Set::<LeaderId>::from_bits(set)).is_empty();
        needs.push(Need::new("leader", "writes, for want of a leader", leaders.len(), met));
    }
    for (role, what) in [
        ("client", "anything, for want of a node that serves clients"),
        ("batcher", "writes, for want of a batcher"),
        ("disseminator", "writes, for want of a disseminator"),
        ("proxy_leader", "writes, for want of a proxy leader"),
        ("replica", "anything, for want of a replica"),
        ("server", "anything, for want of the server"),
        ("read_batcher", "linearizable reads, for want of a read batcher"),
        ("unbatcher", "replies, for want of an unbatcher"),
    ] {
        let of = count(role);
        if of > 0 {
            needs.push(Need::new(role, what, of, |set| set != 0));
        }
    }
    needs
}

/// How many instances of a role there are.
fn count(known: &Configuration, role: &str) -> usize {
    let deployments = [Some(&known.deployment), known.next.as_ref()].into_iter().flatten();
    let nodes = deployments.filter_map(|deployment| deployment.numbered().ok()).flat_map(|numbered| numbered.nodes);
    let placed = nodes.flat_map(|node| node.roles).filter(|placed| placed.role == role);
    placed.map(|placed| placed.number).collect::<BTreeSet<_>>().len()
}

/// Over all needs, and by role.
fn tolerance(needs: &[Need], alive: &[Alive<'_>]) -> (Option<usize>, BTreeMap<&'static str, usize>) {
    let mut by_role: BTreeMap<&'static str, usize> = BTreeMap::new();
    for need in needs {
        let tolerance = need.tolerance(alive);
        by_role.entry(need.role).and_modify(|least| *least = (*least).min(tolerance)).or_insert(tolerance);
    }
    (by_role.values().min().copied(), by_role)
}

/// What is not served because nobody leads, or because those who say so are not followed: what counts is what a write
/// quorum of acceptors has promised, and not what a leader believes of itself.
fn without_leader(known: &Configuration, cluster: &ClusterStatus) -> Option<String> {
    let led: Vec<_> = instances(cluster).filter(|(_, role)| role.role == "leader").collect();
    let parts = family::leaders(known).ok()?.len() as u64;
    if parts == 0 {
        return None;
    }
    if parts > 1 {
        let led: u64 = led.iter().filter_map(|(_, role)| figure(role, text::STRIPES_LED)).sum();
        return (led < parts)
            .then(|| format!("writes: {} of {parts} parts of the log have no leader now", parts - led));
    }
    let quorums = family::quorums(known).ok()??;
    let mut leading = led.iter().filter(|(_, role)| figure(role, "leading") == Some(1)).peekable();
    if leading.peek().is_none() {
        return Some("writes: there is no leader now".to_owned());
    }
    let is_followed = |round: u64| {
        let acceptors = instances(cluster).filter(|(_, role)| role.role == "acceptor");
        let follow = acceptors
            .filter(|(_, role)| figure(role, "amnesiac") != Some(1))
            .filter(|(_, role)| figure(role, "promise").is_some_and(|promise| promise <= round));
        quorums.is_write_quorum(follow.map(|(_, role)| AcceptorId::at(role.index)).collect())
    };
    let followed = leading.any(|(_, role)| figure(role, "round").is_some_and(is_followed));
    (!followed).then(|| "writes: no write quorum of acceptors follows who says that it leads".to_owned())
}
