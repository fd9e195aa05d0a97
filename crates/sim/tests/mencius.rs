//! Mencius in every shape of deployment under every kind of fault. Its defects are in
//! `crates/canaries/tests`.

mod suite;

use ionian_kernel::quorum_spec::QuorumSpec;
use ionian_protocols::mencius::Mencius;
use ionian_sim::Scenario;
use suite::{apart, together};

/// Seeds for each shape and durability. `ionian sim` runs as many as one likes.
const SEEDS: u64 = 20;

fn preset(name: &str) -> Scenario {
    suite::preset::<Mencius>(name)
}

/// Two leaders, and a grid of acceptors longer than it is wide, each instance on a node of its own.
fn grid() -> Scenario {
    let quorums = QuorumSpec::Grid {
        rows: 2,
        columns: 3,
    };
    apart::<Mencius>("grid", &[2, 2, 2, 2, 2, 6, 3, 2], quorums)
}

fn passes(scenario: Scenario) {
    suite::passes::<Mencius>(scenario, SEEDS);
}

#[test]
fn as_published_passes() {
    passes(preset("mencius"));
}

#[test]
fn compartmentalized_passes() {
    passes(preset("mencius-compartmentalized"));
}

#[test]
fn batched_passes() {
    passes(preset("mencius-batched"));
}

#[test]
fn a_batched_grid_passes() {
    passes(grid());
}

#[test]
fn five_servers_pass() {
    passes(together::<Mencius>("five", 2));
}

#[test]
fn one_server_passes() {
    passes(together::<Mencius>("one", 0));
}
