//! Which layouts are deployments of EPaxos.

use crate::epaxos::{UNCHANGEABLE, kind};
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use ionian_kernel::layout::{Layout, NodeId};
use ionian_kernel::quorum_spec::QuorumSpec;

/// Whether dependency nodes and acceptors are apart.
pub(super) fn is_apart(layout: &Layout) -> bool {
    layout.count(kind::DependencyNode) + layout.count(kind::ProxyLeader) > 0
}

/// Says which rule a layout breaks.
pub(super) fn check(layout: &Layout) -> Result<(), String> {
    if layout.next.is_some() {
        return Err(UNCHANGEABLE.into());
    }
    if layout.count(kind::Client) == 0 {
        return Err(
            "there is no client: give at least one node a gateway or the role \"client\"".into(),
        );
    }
    match is_apart(layout) {
        true => check_apart(layout)?,
        false => check_pairs(layout)?,
    }
    check_nodes(layout, kind::Acceptor, "acceptor")?;
    check_nodes(layout, kind::Replica, "replica")
}

/// Where leaders and acceptors are paired.
fn check_pairs(layout: &Layout) -> Result<(), String> {
    if layout.quorums != QuorumSpec::Majority {
        return Err(
            "acceptors of epaxos have no grid and no groups: a fast quorum is any floor(n/2)+f of \
             them. Leave \"quorums\" out"
                .into(),
        );
    }
    check_count(layout, kind::Acceptor, ("acceptors", ""), 1)?;
    if layout.places(kind::Leader) != layout.places(kind::Acceptor) {
        return Err(
            "leaders and acceptors of epaxos come in pairs: give each node with a leader an \
             acceptor, and each node with an acceptor a leader; or deploy dependency nodes and \
             proxy leaders, then all roles are apart"
                .into(),
        );
    }
    Ok(())
}

/// Where dependency nodes and acceptors are apart.
fn check_apart(layout: &Layout) -> Result<(), String> {
    let groups = match layout.quorums {
        QuorumSpec::Majority => 1,
        QuorumSpec::Groups { groups } => groups,
        QuorumSpec::Grid { .. } | QuorumSpec::Counts { .. } => {
            return Err(
                "acceptors of epaxos vote by majorities, in groups if there are many: \"quorums\" \
                 can be \"majority\" or groups"
                    .into(),
            );
        }
    };
    let acceptors = layout.count(kind::Acceptor);
    if groups == 0 || !acceptors.is_multiple_of(groups) {
        return Err(format!(
            "{acceptors} acceptors cannot be divided into {groups} groups of equal size"
        ));
    }
    let dependency_nodes = (
        "dependency nodes",
        "; epaxos has them if it has proxy leaders",
    );
    check_count(layout, kind::DependencyNode, dependency_nodes, 1)?;
    let of_group = if groups == 1 { "" } else { " in each group" };
    check_count(layout, kind::Acceptor, ("acceptors", of_group), groups)?;
    check_nodes(layout, kind::DependencyNode, "dependency node")?;
    check_nodes(layout, kind::Leader, "leader")?;
    check_nodes(layout, kind::ProxyLeader, "proxy leader")
}

/// Majorities of f + 1 are left when f fail.
fn check_count(
    layout: &Layout,
    kind: u8,
    (name, rest): (&str, &str),
    groups: usize,
) -> Result<(), String> {
    let (f, count) = (layout.f, layout.count(kind));
    if count < groups * (2 * f + 1) {
        let least = 2 * f + 1;
        return Err(format!(
            "{count} {name}: to tolerate f={f} there must be at least 2f+1 = {least}{rest}"
        ));
    }
    Ok(())
}

/// A node with two instances takes both with it when it fails.
fn check_nodes(layout: &Layout, kind: u8, name: &str) -> Result<(), String> {
    let places = layout.places(kind);
    let nodes: BTreeSet<NodeId> = places.iter().map(|(_, node)| node).collect();
    if nodes.len() < layout.f + 1 {
        return Err(format!(
            "{name}s on {} nodes: to tolerate f={} they must be on at least f+1 = {}",
            nodes.len(),
            layout.f,
            layout.f + 1
        ));
    }
    let keeps_instances = kind == kind::Acceptor || kind == kind::DependencyNode;
    if keeps_instances && nodes.len() < layout.count(kind) {
        return Err(format!(
            "two {name}s are on one node: each must be on a node of its own"
        ));
    }
    Ok(())
}
