//! What clients need in order to be served, who is there for it, and how many nodes may be missing.

use super::links::Links;
use super::text::{figure, instances};
use super::{Answer, ClusterStatus};
use crate::family;
use ionian_deployment::{CLIENT, Configuration};
use ionian_kernel::id::{AcceptorSet, Epoch, LeaderId, Set, StabilizerId};
use std::collections::{BTreeMap, BTreeSet};

/// A role instance that does its work.
pub(super) struct Alive<'a> {
    role: &'a str,
    index: u8,
    node: &'a str,
}

/// The role instances that do their work, and the connections between them.
pub(super) struct Present<'a> {
    alive: Vec<Alive<'a>>,
    links: Links<'a>,
}

impl<'a> Present<'a> {
    /// Those on nodes that answer and take part. One that has forgotten what only it was to know
    /// counts as failed; so do the clients' lanes of a node that drains, as it takes no clients.
    pub(super) fn of(cluster: &'a ClusterStatus) -> Self {
        let takes_part =
            |node: &Answer| node.status.as_ref().is_some_and(|status| status.takes_part);
        let drains = |node: &Answer| {
            node.status
                .as_ref()
                .is_some_and(|status| status.drains.is_some())
        };
        let at_work = instances(cluster)
            .filter(|(node, role)| takes_part(node) && figure(role, "amnesiac") != Some(1))
            .filter(|(node, role)| role.role != CLIENT || !drains(node));
        let alive = at_work
            .map(|(node, role)| Alive {
                role: &role.role,
                index: role.index,
                node: &node.name,
            })
            .collect();
        Present {
            alive,
            links: Links::of(cluster),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.alive.is_empty()
    }

    pub(super) fn links(&self) -> &Links<'a> {
        &self.links
    }

    /// All instances.
    pub(super) fn all(&self) -> impl Iterator<Item = &Alive<'a>> {
        self.alive.iter()
    }

    /// The instances that the node is connected to, its own included.
    pub(super) fn near<'b>(&'b self, node: &'b str) -> impl Iterator<Item = &'b Alive<'a>> {
        self.alive
            .iter()
            .filter(move |it| self.links.connect(node, it.node))
    }

    /// The nodes of these instances, or of all.
    pub(super) fn nodes(&self, role: Option<&str>) -> Vec<&'a str> {
        let those = self
            .alive
            .iter()
            .filter(|it| role.is_none_or(|role| it.role == role));
        those
            .map(|it| it.node)
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect()
    }
}

/// Something without which clients are not served.
pub(super) struct Need {
    pub(super) role: &'static str,
    what: String,
    /// The instances that there should be.
    of: u64,
    met: Box<dyn Fn(u64) -> bool>,
}

impl Need {
    fn new(
        role: &'static str,
        what: impl Into<String>,
        of: u64,
        met: impl Fn(u64) -> bool + 'static,
    ) -> Need {
        Need {
            role,
            what: what.into(),
            of,
            met: Box::new(met),
        }
    }

    fn those<'b>(&self, there: impl Iterator<Item = &'b Alive<'b>>) -> u64 {
        let bits = there
            .filter(|it| it.role == self.role)
            .map(|it| bit(it.index));
        bits.fold(0, |set, bit| set | bit) & self.of
    }

    fn is_met<'b>(&self, there: impl Iterator<Item = &'b Alive<'b>>) -> bool {
        (self.met)(self.those(there))
    }

    /// What is not served if these are all there are: all that do their work, or all that `leader`
    /// is connected to.
    pub(super) fn lost<'b>(
        &self,
        there: impl Iterator<Item = &'b Alive<'b>>,
        leader: Option<&str>,
    ) -> Option<String> {
        let those = self.those(there);
        let count = format!(
            "{} of {} {}s",
            those.count_ones(),
            self.of.count_ones(),
            self.role.replace('_', " ")
        );
        let lost = match leader {
            None => format!("{}: {count} answer and do their work", self.what),
            Some(node) => format!(
                "{}: node {node}, which leads, is connected to {count}",
                self.what
            ),
        };
        (!(self.met)(those)).then_some(lost)
    }

    /// How many of its nodes can fail in their role, whichever they are, before no leader is
    /// connected to enough of them.
    fn tolerance(&self, present: &Present<'_>, hubs: &[&str]) -> usize {
        let nodes = present.nodes(Some(self.role));
        let left = |failed: &BTreeSet<&str>| {
            hubs.iter()
                .any(|hub| self.is_met(present.near(hub).filter(|it| !failed.contains(it.node))))
        };
        bearable(&nodes, nodes.len(), left)
    }
}

/// Everything that clients need, by the configuration in force, and the next one where a change is
/// under way. The acceptors are those by whose quorums the rounds of `epoch` choose: until one of
/// the next configuration leads, those of the one before.
pub(super) fn needs(known: &Configuration, epoch: Epoch) -> Vec<Need> {
    let of = |role: &str| places(known, role);
    let mut needs = Vec::new();
    if let Ok(Some(quorums)) = family::quorums_of(known, epoch) {
        let (of, read) = (quorums.members().bits(), quorums.clone());
        let write = move |set| quorums.is_write_quorum(AcceptorSet::from_bits(set));
        needs.push(Need::new(
            "acceptor",
            "writes, for want of a write quorum",
            of,
            write,
        ));
        let read = move |set| read.is_read_quorum(AcceptorSet::from_bits(set));
        needs.push(Need::new(
            "acceptor",
            "linearizable reads and elections, for want of a read quorum",
            of,
            read,
        ));
    }
    if let Ok(Some(stabilizers)) = family::stabilizers(known) {
        let of = of("stabilizer");
        let write = move |set| stabilizers.is_write_quorum(Set::<StabilizerId>::from_bits(set));
        needs.push(Need::new(
            "stabilizer",
            "writes, for want of a write quorum",
            of,
            write,
        ));
    }
    for leaders in family::leaders(known).unwrap_or_default() {
        let met = move |set| !leaders.and(Set::<LeaderId>::from_bits(set)).is_empty();
        needs.push(Need::new(
            "leader",
            "writes, for want of a leader",
            leaders.bits(),
            met,
        ));
    }
    for (role, what) in [
        (
            CLIENT,
            "anything, for want of a node that serves clients and is not drained",
        ),
        ("batcher", "writes, for want of a batcher"),
        ("disseminator", "writes, for want of a disseminator"),
        ("proxy_leader", "writes, for want of a proxy leader"),
        ("replica", "anything, for want of a replica"),
        ("server", "anything, for want of the server"),
        (
            "read_batcher",
            "linearizable reads, for want of a read batcher",
        ),
        ("unbatcher", "replies, for want of an unbatcher"),
    ] {
        let of = of(role);
        if of != 0 {
            needs.push(Need::new(role, what, of, |set| set != 0));
        }
    }
    needs
}

/// The set of one instance; empty for a number that no instance has.
fn bit(index: u8) -> u64 {
    1_u64.checked_shl(index.into()).unwrap_or(0)
}

/// All instances of a role.
fn places(known: &Configuration, role: &str) -> u64 {
    let deployments = [Some(&known.deployment), known.next.as_ref()]
        .into_iter()
        .flatten();
    let nodes = deployments
        .filter_map(|deployment| deployment.numbered().ok())
        .flat_map(|numbered| numbered.nodes);
    let placed = nodes
        .flat_map(|node| node.roles)
        .filter(|placed| placed.role == role);
    placed
        .filter_map(|placed| placed.number)
        .map(bit)
        .fold(0, |set, bit| set | bit)
}

/// How many nodes may fail, over all needs, and by role. Whatever leads must be connected to all
/// that is needed; `hub` is the role that leads.
pub(super) fn tolerance(
    needs: &[Need],
    present: &Present<'_>,
    hub: &str,
) -> (Option<usize>, BTreeMap<&'static str, usize>) {
    let hubs = present.nodes(Some(hub));
    let mut by_role: BTreeMap<&'static str, usize> = BTreeMap::new();
    for need in needs {
        let tolerance = need.tolerance(present, &hubs);
        by_role
            .entry(need.role)
            .and_modify(|least| *least = (*least).min(tolerance))
            .or_insert(tolerance);
    }
    let least = by_role.values().min().copied();
    if present.links().are_whole() {
        return (least, by_role);
    }
    // Where connections are missing, one leader may be near to what one need asks for, and another
    // to the rest.
    let serves = |failed: &BTreeSet<&str>| {
        let near = |hub| present.near(hub).filter(|it| !failed.contains(it.node));
        let mut left = hubs.iter().filter(|hub| !failed.contains(**hub));
        left.any(|hub| needs.iter().all(|need| need.is_met(near(hub))))
    };
    (
        least.map(|least| bearable(&present.nodes(None), least, serves)),
        by_role,
    )
}

/// How many sets of failed nodes are tried: enough for any four of thirty.
const COMBINATIONS: usize = 50_000;

/// How many of the nodes can be missing, whichever they are, so that `holds` without them; `limit`
/// at the most.
fn bearable<'a>(
    nodes: &[&'a str],
    limit: usize,
    mut holds: impl FnMut(&BTreeSet<&'a str>) -> bool,
) -> usize {
    let mut budget = COMBINATIONS;
    let mut survives = |count| subsets(nodes, count, &mut budget, &mut BTreeSet::new(), &mut holds);
    // Beyond the budget it is what is known for sure.
    (1..=limit)
        .find(|count| !survives(*count))
        .map_or(limit, |count| count - 1)
}

/// Whether `holds` for all sets of `count` more of the nodes; false also when there are more than
/// can be tried.
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
        let all = nodes.len() - place < count
            || subsets(&nodes[place + 1..], count - 1, budget, chosen, holds);
        chosen.remove(node);
        all
    })
}
