//! S-Paxos in every shape of deployment under every kind of fault. Its defects are in
//! `crates/canaries/tests`.

mod suite;

use ionian_kernel::client::ReadLevel;
use ionian_kernel::quorum_spec::QuorumSpec;
use ionian_protocols::spaxos::SPaxos;
use ionian_sim::Scenario;
use suite::{apart, together};

/// Seeds for each shape and durability. `ionian sim` runs as many as one likes.
const SEEDS: u64 = 100;

fn preset(name: &str) -> Scenario {
    suite::preset::<SPaxos>(name)
}

fn passes(scenario: Scenario) {
    suite::passes::<SPaxos>(scenario, SEEDS);
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
    passes(apart::<SPaxos>(
        "grid",
        &[2, 2, 2, 2, 2, 2, 6, 6, 3, 2],
        QuorumSpec::Grid {
            rows: 2,
            columns: 3,
        },
    ));
}

#[test]
fn two_failures_pass() {
    passes(together::<SPaxos>("five", 2));
}

#[test]
fn one_node_passes() {
    passes(together::<SPaxos>("one", 0));
}

#[test]
fn each_read_level_passes_alone() {
    for level in [
        ReadLevel::Linearizable,
        ReadLevel::Sequential,
        ReadLevel::Eventual,
    ] {
        passes(Scenario {
            read_levels: vec![level],
            ..preset("spaxos")
        });
    }
}

/// The limits of a payload's life are reached all the time where the leader's window is one slot.
fn short_lived() -> Scenario {
    let mut scenario = preset("spaxos");
    scenario.layout.options.window_slots = 1;
    scenario
}

#[test]
fn short_lived_payloads_pass() {
    passes(short_lived());
}
