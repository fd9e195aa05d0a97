//! What the cluster needs in order to serve clients, which instances provide it, and how many nodes
//! may be missing.

use super::cluster::{Answer, ClusterStatus, instances};
use super::links::Links;
use crate::protocols::{ServiceNeeds, members};
use ionian_deployment::CLIENT;
use ionian_kernel::id::{Index, Members};
use ionian_kernel::random::Random;
use ionian_kernel::service::Enough;
use std::collections::{BTreeMap, BTreeSet};

/// A role instance that works.
pub(super) struct Alive<'a> {
    role: &'a str,
    index: Index,
    node: &'a str,
}

/// The role instances that work, and the connections between them.
pub(super) struct Present<'a> {
    alive: Vec<Alive<'a>>,
    links: Links<'a>,
}

impl<'a> Present<'a> {
    /// The instances on nodes that answer and take part. An instance that has lost its memory, or
    /// does not hold what is chosen, counts as failed. So do the client lanes of a draining node,
    /// because it accepts no clients.
    pub(super) fn of(cluster: &'a ClusterStatus) -> Self {
        let takes_part =
            |node: &Answer| node.status.as_ref().is_some_and(|status| status.takes_part);
        let drains = |node: &Answer| {
            node.status
                .as_ref()
                .is_some_and(|status| status.drains.is_some())
        };
        let at_work = instances(cluster)
            .filter(|(node, role)| takes_part(node) && role.remembers != Some(false))
            .filter(|(_, role)| role.current != Some(false))
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

    pub(super) fn links(&self) -> &Links<'a> {
        &self.links
    }

    /// All instances.
    pub(super) fn all(&self) -> impl Iterator<Item = &Alive<'a>> {
        self.alive.iter()
    }

    /// The instances that the node is connected to, including its own.
    pub(super) fn near<'b>(&'b self, node: &'b str) -> impl Iterator<Item = &'b Alive<'a>> {
        self.alive
            .iter()
            .filter(move |it| self.links.connect(node, it.node))
    }

    /// The nodes of the instances of `role`, or of all instances.
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

/// A requirement without which the cluster does not serve clients, or loses what it serves.
pub(super) struct Need<'a> {
    pub(super) role: &'static str,
    what: &'static str,
    by: &'a Enough,
}

impl Need<'_> {
    fn those<'b>(&self, there: impl Iterator<Item = &'b Alive<'b>>) -> Members {
        let those = there.filter(|it| it.role == self.role);
        members(those.map(|it| it.index)).and(self.by.of)
    }

    /// What is not served if only these instances exist: all that work, or all that `leader` is
    /// connected to.
    pub(super) fn lost<'b>(
        &self,
        there: impl Iterator<Item = &'b Alive<'b>>,
        leader: Option<&str>,
    ) -> Option<String> {
        let those = self.those(there);
        let count = format!(
            "{} of {} {}s",
            those.len(),
            self.by.of.len(),
            self.role.replace('_', " ")
        );
        let lost = match leader {
            None => format!("{}: {count} answer and work", self.what),
            Some(node) => format!(
                "{}: node {node}, which leads, is connected to {count}",
                self.what
            ),
        };
        (!self.by.is_met(those)).then_some(lost)
    }

    /// The instances of the role that a hub is connected to.
    fn seen_from(&self, present: &Present<'_>, hub: &str, names: &[&str]) -> View {
        let those = present.near(hub).filter(|it| it.role == self.role);
        those.map(|it| (place(names, it.node), it.index)).collect()
    }

    fn is_met(&self, view: &View, failed: &[bool]) -> bool {
        let left = view.iter().filter(|(node, _)| !failed[*node]);
        let left = members(left.map(|(_, index)| *index));
        self.by.is_met(left.and(self.by.of))
    }

    /// How many of the nodes with this role may fail, whichever they are, before no leader is
    /// connected to enough instances.
    fn tolerance(
        &self,
        present: &Present<'_>,
        hubs: &[&str],
        names: &[&str],
        meant: usize,
    ) -> usize {
        let nodes = present.nodes(Some(self.role)).into_iter();
        let nodes: Vec<usize> = nodes.map(|node| place(names, node)).collect();
        // Hubs that are connected to the same instances count once.
        let views = hubs.iter().map(|hub| self.seen_from(present, hub, names));
        let views: BTreeSet<View> = views.collect();
        let left = |failed: &[bool]| views.iter().any(|view| self.is_met(view, failed));
        bearable(&nodes, nodes.len(), meant, left)
    }
}

/// Instances, each with the place of its node among the names of nodes.
type View = Vec<(usize, Index)>;

/// The place of a node among sorted names that contain its name.
fn place(names: &[&str], node: &str) -> usize {
    names
        .binary_search(&node)
        .expect("nodes of instances are listed")
}

/// Everything that clients need.
pub(super) fn needs(service_needs: &ServiceNeeds) -> Vec<Need<'_>> {
    let named = service_needs.service.needs.iter().map(|need| Need {
        role: service_needs.name(need.by.kind),
        what: need.what,
        by: &need.by,
    });
    named.collect()
}

/// Those that must remember: what too few of them remember is lost.
fn memories(service_needs: &ServiceNeeds) -> impl Iterator<Item = Need<'_>> {
    let memories = service_needs.service.memories.iter();
    memories.map(|memory| Need {
        role: service_needs.name(memory.by.kind),
        what: memory.lost,
        by: &memory.by,
    })
}

/// How many nodes may fail, over all needs, and by role. A leader must be connected to everything
/// that is needed.
pub(super) fn tolerance(
    service_needs: &ServiceNeeds,
    present: &Present<'_>,
    cluster: &ClusterStatus,
) -> (Option<usize>, BTreeMap<&'static str, usize>) {
    let mut needs = needs(service_needs);
    // New members have nothing to remember yet.
    if !cluster.changing {
        needs.extend(memories(service_needs));
    }
    let hubs = present.nodes(Some(service_needs.hub()));
    let names = present.nodes(None);
    let mut by_role: BTreeMap<&'static str, usize> = BTreeMap::new();
    for need in &needs {
        let tolerance = need.tolerance(present, &hubs, &names, cluster.f);
        by_role
            .entry(need.role)
            .and_modify(|least| *least = (*least).min(tolerance))
            .or_insert(tolerance);
    }
    let least = by_role.values().min().copied();
    if present.links().are_whole() {
        return (least, by_role);
    }
    // If connections are missing, one leader may be connected to what one need requires, and
    // another leader to what the other needs require.
    let views = |hub: &&str| -> Vec<View> {
        let views = needs
            .iter()
            .map(|need| need.seen_from(present, hub, &names));
        views.collect()
    };
    let hubs: Vec<(usize, Vec<View>)> = hubs
        .iter()
        .map(|hub| (place(&names, hub), views(hub)))
        .collect();
    let serves = |failed: &[bool]| {
        let mut left = hubs.iter().filter(|(hub, _)| !failed[*hub]);
        left.any(|(_, views)| {
            let mut each = needs.iter().zip(views);
            each.all(|(need, view)| need.is_met(view, failed))
        })
    };
    let nodes: Vec<usize> = (0..names.len()).collect();
    (
        least.map(|least| bearable(&nodes, least, cluster.f, serves)),
        by_role,
    )
}

/// The number of sets of failed nodes to try: enough for any four of thirty.
const COMBINATIONS: usize = 50_000;

/// The number of sets of each size that are drawn where there are too many to try.
const DRAWN: usize = 500;

/// The largest number of nodes, at most `limit`, such that `holds` is true whichever of them are
/// missing: it gets whether a node is missing, by place.
///
/// Where there are too many sets to try, some are drawn; a larger number than `meant`, which the
/// deployment was checked to tolerate, is then never claimed.
fn bearable(
    nodes: &[usize],
    limit: usize,
    meant: usize,
    mut holds: impl FnMut(&[bool]) -> bool,
) -> usize {
    let places = nodes.iter().max().map_or(0, |last| last + 1);
    let mut missing = vec![false; places];
    let mut budget = COMBINATIONS;
    let mut survives = |count| subsets(nodes, count, &mut budget, &mut missing, &mut holds);
    let tried = (1..=limit)
        .find(|count| !survives(*count))
        .map_or(limit, |count| count - 1);
    if budget > 0 {
        return tried;
    }
    let mut random = Random::new(0);
    let mut stands = |count| (0..DRAWN).all(|_| holds(&drawn(nodes, count, places, &mut random)));
    let broken = (tried + 1..=limit.min(meant)).find(|count| !stands(*count));
    broken.map_or(limit.min(meant).max(tried), |count| count - 1)
}

/// Some set of `count` nodes.
fn drawn(nodes: &[usize], count: usize, places: usize, random: &mut Random) -> Vec<bool> {
    let mut left = nodes.to_vec();
    let mut missing = vec![false; places];
    for _ in 0..count.min(nodes.len()) {
        let node = left.swap_remove(random.below(left.len() as u64) as usize);
        missing[node] = true;
    }
    missing
}

/// Whether `holds` is true for all sets of `count` more nodes; also false if there are too many
/// sets to try.
fn subsets(
    nodes: &[usize],
    count: usize,
    budget: &mut usize,
    missing: &mut [bool],
    holds: &mut impl FnMut(&[bool]) -> bool,
) -> bool {
    if count == 0 {
        *budget = budget.saturating_sub(1);
        return *budget > 0 && holds(missing);
    }
    nodes.iter().enumerate().all(|(at, node)| {
        missing[*node] = true;
        let all = nodes.len() - at < count
            || subsets(&nodes[at + 1..], count - 1, budget, missing, holds);
        missing[*node] = false;
        all
    })
}
