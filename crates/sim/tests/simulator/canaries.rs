//! The tester is tested: a correct protocol passes, and each defect is caught for what it is.

use crate::toy::{Toy, scenario};
use ionian_kernel::client::ReadLevel;
use ionian_kernel::layout::{Layout, NodeId, numbered};
use ionian_sim::{
    Canary, Failure, FailureKind, Faults, Scenario, Simulated, Summary, run_seed, run_seeds,
};

fn run<const DEFECT: u8>(scenario: &Scenario, seeds: u64) -> Summary {
    run_seeds(Simulated::of::<Toy<DEFECT>>(), scenario, 0..seeds)
}

/// Runs until the defect is caught, and makes sure that it was caught for one of these reasons.
fn catches<const DEFECT: u8>(scenario: &Scenario, expected: &[FailureKind]) -> Failure {
    let summary = run::<DEFECT>(scenario, 300);
    let outcome = summary
        .failures
        .first()
        .unwrap_or_else(|| panic!("not caught:\n{}", summary.report));
    let failure = outcome.result.clone().unwrap_err();
    assert!(
        expected.contains(&failure.kind),
        "seed {} [{}]: {failure}",
        outcome.seed,
        outcome.knobs
    );
    println!("seed {} [{}]: {failure}", outcome.seed, outcome.knobs);
    failure
}

#[test]
fn a_correct_protocol_passes() {
    let summary = run::<0>(&scenario(), 300);
    let failures: Vec<_> = summary
        .failures
        .iter()
        .map(|outcome| (outcome.seed, &outcome.result))
        .collect();
    assert!(failures.is_empty(), "{failures:?}");
    let report = &summary.report;
    println!("{report}");
    // Every kind of fault has struck, and the clients were kept busy all the same.
    let struck = [
        report.crashes,
        report.restarts,
        report.pauses,
        report.partitions,
        report.slow_links,
    ];
    assert!(struck.iter().all(|count| *count > 100), "{report}");
    assert!(report.disk_errors > 10, "{report}");
    let messages = [
        report.messages_dropped,
        report.messages_duplicated,
        report.torn_records,
        report.lost_with_lane,
    ];
    assert!(messages.iter().all(|count| *count > 10), "{report}");
    assert!(report.acknowledged_under_faults > 300 * 20, "{report}");
    assert!(
        report.refused_unknown > 0 && report.refused_not_a_read > 0 && report.calm_runs > 10,
        "{report}"
    );
    assert_eq!(report.unchecked_keys, 0);
}

/// Its invariants say that they are asked after each message, also in a role loop.
#[test]
fn a_correct_protocol_passes_on_two_event_loops() {
    let mut two_loops = scenario();
    two_loops.layout.options.loops = 2;
    let summary = run::<0>(&two_loops, 100);
    assert!(
        summary.failures.is_empty(),
        "{:?}",
        summary.failures[0].result
    );
}

#[test]
fn an_invariant_that_does_not_hold() {
    catches::<12>(&scenario(), &[FailureKind::Invariant]);
}

#[test]
fn a_cluster_that_never_rests() {
    catches::<13>(&scenario(), &[FailureKind::Liveness]);
}

#[test]
fn no_deduplication() {
    catches::<1>(&scenario(), &[FailureKind::ExactlyOnce]);
}

#[test]
fn stale_reads() {
    let linearizable = Scenario {
        read_levels: vec![ReadLevel::Linearizable],
        ..scenario()
    };
    catches::<2>(&linearizable, &[FailureKind::Linearizability]);
    let sequential = Scenario {
        read_levels: vec![ReadLevel::Sequential],
        ..scenario()
    };
    catches::<2>(
        &sequential,
        &[FailureKind::Sequential, FailureKind::Linearizability],
    );
}

#[test]
fn replies_without_a_fence() {
    catches::<3>(
        &scenario(),
        &[FailureKind::LostWrite, FailureKind::Linearizability],
    );
}

#[test]
fn the_driver_without_a_fence() {
    let canary = Scenario {
        canary: Canary::NoFence,
        ..scenario()
    };
    catches::<0>(
        &canary,
        &[FailureKind::LostWrite, FailureKind::Linearizability],
    );
}

#[test]
fn a_disk_that_forgets() {
    let canary = Scenario {
        canary: Canary::ForgetDisk,
        ..scenario()
    };
    catches::<0>(
        &canary,
        &[
            FailureKind::LostWrite,
            FailureKind::Linearizability,
            FailureKind::ExactlyOnce,
        ],
    );
}

#[test]
fn a_node_that_ignores_what_its_disk_says() {
    let canary = Scenario {
        canary: Canary::IgnoresDiskErrors,
        ..scenario()
    };
    catches::<0>(
        &canary,
        &[
            FailureKind::LostWrite,
            FailureKind::Linearizability,
            FailureKind::ExactlyOnce,
        ],
    );
}

#[test]
fn an_effect_denied() {
    catches::<4>(&scenario(), &[FailureKind::Refused]);
}

#[test]
fn two_answers() {
    catches::<5>(&scenario(), &[FailureKind::Reply]);
}

#[test]
fn a_lane_that_never_asks_again() {
    catches::<6>(&scenario(), &[FailureKind::Liveness]);
}

#[test]
fn a_panic() {
    catches::<7>(&scenario(), &[FailureKind::Panic]);
}

#[test]
fn copies_that_differ() {
    catches::<8>(&scenario(), &[FailureKind::Divergence]);
}

#[test]
fn a_write_executed_as_a_read() {
    let failure = catches::<9>(&scenario(), &[FailureKind::Refused]);
    // Which of the two is seen first is the seed's choice.
    let seen = [
        "was not refused",
        "was sent as a read and executed as a write",
    ];
    assert!(
        seen.iter().any(|words| failure.message.contains(words)),
        "{failure}"
    );
}

#[test]
fn answers_made_up() {
    let eventual = Scenario {
        read_levels: vec![ReadLevel::Eventual],
        ..scenario()
    };
    catches::<10>(
        &eventual,
        &[
            FailureKind::Eventual,
            FailureKind::Linearizability,
            FailureKind::Refused,
        ],
    );
}

#[test]
fn answers_for_an_earlier_life() {
    let wrong = [
        FailureKind::Eventual,
        FailureKind::Sequential,
        FailureKind::Linearizability,
        FailureKind::Reply,
    ];
    catches::<11>(
        &scenario(),
        &[&wrong[..], &[FailureKind::LostWrite, FailureKind::Refused]].concat(),
    );
}

#[test]
fn a_layout_that_is_none() {
    let layout = Layout {
        instances: numbered(vec![vec![NodeId(0)], vec![]]),
        ..Layout::default()
    };
    let failure = run_seed(Simulated::of::<Toy<0>>(), &Scenario::new("none", layout), 1)
        .result
        .unwrap_err();
    assert_eq!(
        (failure.kind, failure.message.as_str()),
        (FailureKind::Layout, "there must be 1 server, there are 0")
    );
}

#[test]
fn an_idle_run() {
    let layout = Layout {
        instances: numbered(vec![vec![], vec![NodeId(0)]]),
        ..Layout::default()
    };
    let failure = run_seed(Simulated::of::<Toy<0>>(), &Scenario::new("idle", layout), 1)
        .result
        .unwrap_err();
    assert_eq!(failure.kind, FailureKind::Idle);
}

#[test]
fn calm_scenarios_are_calm() {
    let calm = Scenario {
        faults: Faults::NONE,
        vary_options: false,
        ..scenario()
    };
    let summary = run::<0>(&calm, 50);
    assert!(summary.failures.is_empty());
    let report = &summary.report;
    assert_eq!(
        (
            report.crashes,
            report.pauses,
            report.partitions,
            report.messages_dropped
        ),
        (0, 0, 0, 0)
    );
    assert_eq!((report.refused_unknown, report.refused_unavailable), (0, 0));
}
