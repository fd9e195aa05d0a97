//! Which layouts are deployments of EPaxos.

use crate::epaxos::{UNCHANGEABLE, kind};
use crate::places::check_replicas;
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
    let f = layout.f;
    check_nodes(layout, kind::Acceptor, "acceptor", ("f+1", f + 1))?;
    check_nodes(layout, kind::Replica, "replica", ("f+1", f + 1))?;
    check_replicas(layout, kind::Replica).map_err(|error| error.0)
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
    let few = ("f+1", layout.f + 1);
    // A leader stamps commands when it knows the clocks of f leaders on other nodes, for one of
    // f + 1 clocks is right. When f leaders have failed, f others must be left beside it.
    let most = ("2f+1", 2 * layout.f + 1);
    check_nodes(layout, kind::DependencyNode, "dependency node", few)?;
    check_nodes(layout, kind::Leader, "leader", most)?;
    check_nodes(layout, kind::ProxyLeader, "proxy leader", few)
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
fn check_nodes(
    layout: &Layout,
    kind: u8,
    name: &str,
    (rule, least): (&str, usize),
) -> Result<(), String> {
    let places = layout.places(kind);
    let nodes: BTreeSet<NodeId> = places.iter().map(|(_, node)| node).collect();
    if nodes.len() < least {
        return Err(format!(
            "{name}s on {} nodes: to tolerate f={} they must be on at least {rule} = {least}",
            nodes.len(),
            layout.f,
        ));
    }
    let keeps_instances = kind == kind::Acceptor || kind == kind::DependencyNode;
    if keeps_instances && layout.shared(kind).is_some() {
        return Err(format!(
            "two {name}s are on one node: each must be on a node of its own"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;
    use ionian_kernel::layout::numbered;

    /// All roles apart, f = 1, each on a node of its own, with leaders and replicas on these.
    fn refusal(leaders: &[u16], replicas: &[u16]) -> Result<(), String> {
        let mut instances = vec![Vec::new(); crate::epaxos::KINDS.len()];
        let own = |from: u16, count: u16| (from..from + count).map(NodeId).collect();
        let at = |nodes: &[u16]| nodes.iter().copied().map(NodeId).collect();
        instances[kind::Client as usize] = own(0, 1);
        instances[kind::Leader as usize] = at(leaders);
        instances[kind::DependencyNode as usize] = own(20, 3);
        instances[kind::ProxyLeader as usize] = own(30, 2);
        instances[kind::Acceptor as usize] = own(40, 3);
        instances[kind::Replica as usize] = at(replicas);
        check(&Layout {
            f: 1,
            instances: numbered(instances),
            ..Layout::default()
        })
    }

    #[test]
    fn a_leader_that_is_left_hears_the_clock_of_another() {
        assert_eq!(refusal(&[1, 2, 3], &[5, 6]), Ok(()));
        let two = "leaders on 2 nodes: to tolerate f=1 they must be on at least 2f+1 = 3";
        assert_eq!(refusal(&[1, 2], &[5, 6]), Err(two.into()));
        assert_eq!(refusal(&[1, 2, 2], &[5, 6]), Err(two.into()));
    }

    #[test]
    fn what_two_replicas_keep_one_node_does_not_take_along() {
        let shared = refusal(&[1, 2, 3], &[5, 6, 5]).unwrap_err();
        assert!(
            shared.starts_with("two replicas are on node 5 (counted from 0): each must be"),
            "{shared}"
        );
    }
}
