//! S-Paxos in every shape of deployment under every kind of fault, and the proof that the tests would notice.

use ionian_deployment::{Deployment, PresetOptions};
use ionian_kernel::client::ReadLevel;
use ionian_kernel::layout::{Layout, NodeId, numbered};
use ionian_kernel::protocol::Protocol;
use ionian_kernel::quorum::QuorumSpec;
use ionian_protocols::spaxos::SPaxos;
use ionian_sim::{Canary, Durability, Failure, Scenario, Watch, run_seeds};

/// Seeds for each shape and durability. `ionian sim` runs as many as one likes.
const SEEDS: u64 = 100;

const MEMORY: Durability = Durability::Memory { returns: false };
const AMNESIA: Durability = Durability::Memory { returns: true };

fn preset(name: &str) -> Scenario {
    let deployment = Deployment::preset(name, &PresetOptions::default()).expect("a preset");
    Scenario::new(name, deployment.layout(SPaxos::KINDS).expect("a layout"))
}

/// Each instance on a node of its own.
fn apart(name: &str, f: usize, counts: [u16; 10], quorums: QuorumSpec) -> Scenario {
    let mut next = (0..).map(NodeId);
    let instances = counts.iter().map(|count| next.by_ref().take(usize::from(*count)).collect()).collect();
    Scenario::new(name, Layout { f, quorums, instances: numbered(instances), ..Layout::default() })
}

/// 2f+1 nodes with every role on each, batchers too.
fn together(name: &str, f: usize) -> Scenario {
    let nodes: Vec<NodeId> = (0..2 * f as u16 + 1).map(NodeId).collect();
    Scenario::new(name, Layout { f, instances: numbered(vec![nodes; 10]), ..Layout::default() })
}

fn passes(scenario: Scenario) {
    for durability in [Durability::Disk, MEMORY, AMNESIA] {
        let scenario = Scenario { durability, ..scenario.clone() };
        let summary = run_seeds::<SPaxos>(&scenario, 0..SEEDS, true, |_| Watch::default(), |_| {});
        if let Some(failed) = summary.failures.first() {
            panic!("{} {durability:?}: seed {} [{}]: {:?}", scenario.name, failed.seed, failed.knobs, failed.result);
        }
        assert!(summary.report.acknowledged_under_faults > SEEDS * 5, "an idle run: {}", summary.report);
    }
}

#[test]
fn as_published_passes() {
    passes(preset("spaxos"));
}

#[test]
fn compartmentalized_passes() {
    passes(preset("spaxos-compartmentalized"));
}

#[test]
fn batched_passes() {
    passes(preset("spaxos-batched"));
}

#[test]
fn a_batched_grid_passes() {
    passes(apart("grid", 1, [2, 2, 2, 2, 2, 2, 6, 6, 3, 2], QuorumSpec::Grid { rows: 2, columns: 3 }));
}

#[test]
fn two_failures_pass() {
    passes(together("five", 2));
}

#[test]
fn one_node_passes() {
    passes(together("one", 0));
}

#[test]
fn each_read_level_passes_alone() {
    for level in [ReadLevel::Linearizable, ReadLevel::Sequential, ReadLevel::Eventual] {
        passes(Scenario { read_levels: vec![level], ..preset("spaxos") });
    }
}
