//! The deployments of the figures: presets of Ionian, edited.

use anyhow::{Context, Result};
use ionian_deployment::{CLIENT, Deployment, Node, Placed, PresetOptions};
use ionian_kernel::quorum_spec::QuorumSpec;
use std::collections::BTreeMap;

/// A preset with its clients on `lanes` machines of their own, as in the paper.
pub(crate) fn preset(name: &str, lanes: usize) -> Result<Deployment> {
    clients_apart(Deployment::preset(name, &PresetOptions::default())?, lanes)
}

/// A deployment with its clients on `lanes` machines of their own.
pub(crate) fn clients_apart(mut deployment: Deployment, lanes: usize) -> Result<Deployment> {
    for node in &mut deployment.nodes {
        node.gateway = None;
        node.roles.retain(|placed| placed.role != CLIENT);
    }
    deployment.nodes.retain(|node| !node.roles.is_empty());
    let client = |index| Node {
        name: format!("client-{index}"),
        address: format!("client-{index}:1"),
        roles: vec![Placed::some(CLIENT, 1)],
        ..Node::default()
    };
    deployment.nodes.extend((0..lanes).map(client));
    // In a measurement without faults no client waits without end, and none is refused. The papers
    // write to no disk.
    let generous = [
        "durability=memory",
        "options.in_flight=16384",
        "options.patience_ms=300000",
        "options.retry_after_ms=60000",
    ];
    Ok(deployment.with_overrides(&generous)?)
}

/// With `count` copies of the node that `role` lives on.
pub(crate) fn scaled(deployment: Deployment, role: &str, count: usize) -> Result<Deployment> {
    let hosts = |node: &Node| node.roles.iter().any(|placed| placed.role == role);
    let place = deployment
        .nodes
        .iter()
        .position(hosts)
        .with_context(|| format!("no node has the role {role}"))?;
    let template = deployment.nodes[place].clone();
    let copy = |index: usize| Node {
        name: format!("{}-{index}", role.replace('_', "-")),
        // No node listens in a simulation; addresses must only differ.
        address: format!("{}-{index}:1", role.replace('_', "-")),
        ..template.clone()
    };
    let mut nodes = deployment.nodes.clone();
    nodes.retain(|node| !hosts(node));
    nodes.splice(place..place, (0..count).map(copy));
    Ok(Deployment {
        nodes,
        ..deployment
    })
}

/// With one more role on each node that has this one.
pub(crate) fn beside(mut deployment: Deployment, host: &str, role: &str) -> Deployment {
    for node in deployment
        .nodes
        .iter_mut()
        .filter(|node| node.instances().contains_key(host))
    {
        node.roles.push(Placed::some(role, 1));
    }
    deployment
}

/// With acceptors in a grid.
pub(crate) fn grid(deployment: Deployment, rows: usize, columns: usize) -> Result<Deployment> {
    let deployment = scaled(deployment, "acceptor", rows * columns)?;
    Ok(Deployment {
        quorums: QuorumSpec::Grid { rows, columns },
        ..deployment
    })
}

/// With three acceptors in majorities.
pub(crate) fn majority(deployment: Deployment) -> Result<Deployment> {
    let deployment = scaled(deployment, "acceptor", 3)?;
    Ok(Deployment {
        quorums: QuorumSpec::Majority,
        ..deployment
    })
}

/// With batches of this size.
pub(crate) fn batches(deployment: Deployment, commands: usize) -> Result<Deployment> {
    Ok(deployment.with_overrides(&[format!("options.batch_commands={commands}")])?)
}

/// How many there are of each role, in words; clients left out.
pub(crate) fn in_words(deployment: &Deployment) -> String {
    const ORDER: &[&str] = &[
        "batcher",
        "read_batcher",
        "disseminator",
        "leader",
        "proxy_leader",
        "relay",
        "acceptor",
        "stabilizer",
        "replica",
        "server",
        "unbatcher",
    ];
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for node in &deployment.nodes {
        for (role, count) in node.instances() {
            *counts.entry(role).or_default() += count;
        }
    }
    let quorums = |role: &str| match deployment.quorums {
        QuorumSpec::Grid { rows, columns } if role == "acceptor" => format!(" ({rows}x{columns})"),
        _ => String::new(),
    };
    let plural = |role: &str, count| {
        format!(
            "{}{}",
            role.replace('_', " "),
            if count == 1 { "" } else { "s" }
        )
    };
    let words = ORDER.iter().filter_map(|role| {
        let count = *counts.get(role)?;
        Some(format!("{count} {}{}", plural(role, count), quorums(role)))
    });
    let servers = deployment
        .nodes
        .iter()
        .filter(|node| node.roles.iter().any(|placed| placed.role != CLIENT))
        .count();
    let words: Vec<String> = words.collect();
    match ORDER
        .iter()
        .filter_map(|role| counts.get(role))
        .sum::<usize>()
        > servers
    {
        true => format!("{} on {servers} nodes", words.join("; ")),
        false => words.join("; "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ionian_kernel::protocol::Protocol;
    use ionian_protocols::multipaxos::MultiPaxos;

    #[test]
    fn every_edit_is_a_deployment() {
        let base = preset("compartmentalized", 3).unwrap();
        let edited = grid(
            scaled(scaled(base, "proxy_leader", 7).unwrap(), "replica", 3).unwrap(),
            3,
            2,
        )
        .unwrap();
        MultiPaxos::configure(edited.layout(MultiPaxos::KINDS).unwrap())
            .map(drop)
            .unwrap();
        assert_eq!(
            in_words(&edited),
            "2 leaders; 7 proxy leaders; 6 acceptors (3x2); 3 replicas"
        );
        let back = majority(edited).unwrap();
        assert_eq!(
            in_words(&back),
            "2 leaders; 7 proxy leaders; 3 acceptors; 3 replicas"
        );
        let baseline = preset("baseline", 2).unwrap();
        assert_eq!(baseline.nodes.len(), 5, "three nodes and two of clients");
        assert!(baseline.nodes.iter().all(|node| node.gateway.is_none()));
        let words = "3 leaders; 3 proxy leaders; 3 acceptors; 3 replicas on 3 nodes";
        assert_eq!(in_words(&baseline), words);
    }
}
