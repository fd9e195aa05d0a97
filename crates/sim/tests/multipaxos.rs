//! MultiPaxos in every shape of deployment under every kind of fault, and defects of the driver
//! that take a log to show. The defects of its roles are in `crates/canaries/tests`.

mod suite;

use ionian_kernel::client::ReadLevel;
use ionian_kernel::protocol::Protocol;
use ionian_kernel::quorum_spec::QuorumSpec;
use ionian_protocols::multipaxos::MultiPaxos;
use ionian_protocols::unreplicated::Unreplicated;
use ionian_sim::{Canary, Failure, FailureKind, Scenario, Watch, run_seeds};
use suite::{apart, preset, together};

/// Seeds for each shape and durability. `ionian sim` runs as many as one likes.
const SEEDS: u64 = 100;

fn grid() -> Scenario {
    apart::<MultiPaxos>(
        "grid",
        &[2, 2, 2, 2, 2, 6, 3, 2],
        QuorumSpec::Grid {
            rows: 2,
            columns: 3,
        },
    )
}

fn passes<P: Protocol>(scenario: Scenario) {
    suite::passes::<P>(scenario, SEEDS);
}

#[test]
fn colocated_passes() {
    passes::<MultiPaxos>(preset::<MultiPaxos>("colocated"));
}

#[test]
fn logs_are_torn_and_truncated() {
    let scenario = together::<MultiPaxos>("three", 1);
    let report =
        run_seeds::<MultiPaxos>(&scenario, 0..300, true, |_| Watch::default(), |_| {}).report;
    assert!(
        report.torn_logs > 0 && report.truncated_logs > 30,
        "{report}"
    );
}

#[test]
fn baseline_passes() {
    passes::<MultiPaxos>(preset::<MultiPaxos>("baseline"));
}

#[test]
fn compartmentalized_passes() {
    passes::<MultiPaxos>(preset::<MultiPaxos>("compartmentalized"));
}

#[test]
fn batched_passes() {
    passes::<MultiPaxos>(preset::<MultiPaxos>("batched"));
}

#[test]
fn a_batched_grid_passes() {
    passes::<MultiPaxos>(grid());
}

#[test]
fn acceptor_groups_pass() {
    passes::<MultiPaxos>(apart::<MultiPaxos>(
        "groups",
        &[2, 0, 0, 2, 2, 6, 2, 0],
        QuorumSpec::Groups { groups: 2 },
    ));
}

#[test]
fn two_failures_pass() {
    passes::<MultiPaxos>(together::<MultiPaxos>("five", 2));
}

#[test]
fn one_node_passes() {
    passes::<MultiPaxos>(together::<MultiPaxos>("one", 0));
}

#[test]
fn each_read_level_passes_alone() {
    for level in [
        ReadLevel::Linearizable,
        ReadLevel::Sequential,
        ReadLevel::Eventual,
    ] {
        passes::<MultiPaxos>(Scenario {
            read_levels: vec![level],
            ..together::<MultiPaxos>("three", 1)
        });
    }
}

#[test]
fn unreplicated_servers_pass() {
    for name in ["unreplicated", "unreplicated-batched"] {
        passes::<Unreplicated>(Scenario {
            stable_log: false,
            ..preset::<Unreplicated>(name)
        });
    }
}

/// A defect that the driver builds in is found for what it is.
fn driver_catches(canary: Canary, seeds: u64, expected: FailureKind) -> Failure {
    let broken = Scenario {
        canary,
        ..together::<MultiPaxos>("three", 1)
    };
    let found =
        run_seeds::<MultiPaxos>(&broken, 0..seeds, true, |_| Watch::default(), |_| {}).failures;
    let found = found
        .first()
        .unwrap_or_else(|| panic!("{canary:?} was not caught in {seeds} seeds"));
    let failure = found.result.clone().expect_err("was caught");
    assert_eq!(failure.kind, expected, "{failure}");
    failure
}

/// A replica that lets keys expire by its own clock: its reads miss what the log still has.
#[test]
fn reads_ahead_of_the_log() {
    driver_catches(Canary::ReadsAhead, 200, FailureKind::Linearizability);
}

#[test]
fn logs_that_are_not_given_the_time() {
    let failure = driver_catches(Canary::HidesDeadlines, 50, FailureKind::Liveness);
    assert!(
        failure
            .message
            .contains("waits for the log's time to reach"),
        "{failure}"
    );
}
