//! What a node tells in its log while it runs.

use crate::cluster::{Cluster, eventually};
use nix::sys::signal::Signal;

#[test]
fn a_log_tells_of_elections_of_snapshots_and_of_peers() {
    let mut cluster = Cluster::start(
        "colocated",
        &["durability=disk", "options.snapshot_slots=16"],
        &[],
    );
    let paths: Vec<_> = (0..3)
        .map(|node| cluster.directory.path(&format!("data/logs/n{node}.log")))
        .collect();
    let tells_one = |nodes: &[usize], texts: &[&str]| {
        let holds = |node: &&usize| {
            let log = std::fs::read_to_string(&paths[**node]).unwrap();
            texts.iter().any(|text| log.contains(text))
        };
        eventually(texts[0], || nodes.iter().find(holds).copied())
    };
    let tells = |nodes: &[usize], text: &str| tells_one(nodes, &[text]);
    let first = tells(&[0, 1, 2], "leads, in round");
    let others: Vec<usize> = (0..3).filter(|node| *node != first).collect();
    for number in 0..40 {
        cluster.client(others[0]).set("k", &number.to_string());
    }
    for node in 0..3 {
        tells(&[node], "of this node's state ");
    }
    // It stands still, another leads, and it hears of that.
    cluster.signal(first, Signal::SIGSTOP);
    tells(&others, "leads, in round");
    cluster.signal(first, Signal::SIGCONT);
    tells(&[first], "leads no longer");
    cluster.signal(first, Signal::SIGKILL);
    // What was under way to it decides which.
    let ends = [
        format!("node {first} has closed the connection"),
        format!("the connection to node {first} broke"),
    ];
    tells_one(&others, &[&ends[0], &ends[1]]);
    cluster.stop(Signal::SIGTERM);
}
