//! The tester is tested: a correct protocol passes, and each defect is caught for what it is.

use crate::toy::{Defect, TOY, scenario, with};
use ionian_kernel::client::ReadLevel;
use ionian_kernel::layout::{Layout, NodeId, numbered};
use ionian_sim::{Canary, Failure, FailureKind, Faults, Scenario, run_seed, run_seeds};

/// Runs until the defect is caught, and makes sure that it was caught for one of these reasons.
fn catches(scenario: &Scenario, expected: &[FailureKind]) -> Failure {
    let summary = run_seeds(TOY, scenario, 0..300);
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
    let summary = run_seeds(TOY, &scenario(), 0..300);
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
    let summary = run_seeds(TOY, &two_loops, 0..100);
    assert!(
        summary.failures.is_empty(),
        "{:?}",
        summary.failures[0].result
    );
}

#[test]
fn an_invariant_that_does_not_hold() {
    catches(&with(Defect::BreaksInvariant), &[FailureKind::Invariant]);
}

#[test]
fn a_cluster_that_never_rests() {
    catches(&with(Defect::NeverRests), &[FailureKind::Liveness]);
}

#[test]
fn no_deduplication() {
    catches(&with(Defect::NoDeduplication), &[FailureKind::ExactlyOnce]);
}

#[test]
fn stale_reads() {
    let linearizable = Scenario {
        read_levels: vec![ReadLevel::Linearizable],
        ..with(Defect::StaleReads)
    };
    catches(&linearizable, &[FailureKind::Linearizability]);
    let sequential = Scenario {
        read_levels: vec![ReadLevel::Sequential],
        ..with(Defect::StaleReads)
    };
    catches(
        &sequential,
        &[FailureKind::Sequential, FailureKind::Linearizability],
    );
}

#[test]
fn replies_without_a_fence() {
    catches(
        &with(Defect::Unfenced),
        &[FailureKind::LostWrite, FailureKind::Linearizability],
    );
}

#[test]
fn the_driver_without_a_fence() {
    let canary = Scenario {
        canary: Canary::NoFence,
        ..scenario()
    };
    catches(
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
    catches(
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
    catches(
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
    catches(&with(Defect::DeniesEffect), &[FailureKind::Refused]);
}

#[test]
fn two_answers() {
    catches(&with(Defect::AnswersTwice), &[FailureKind::Reply]);
}

#[test]
fn a_lane_that_never_asks_again() {
    catches(&with(Defect::NeverAsksAgain), &[FailureKind::Liveness]);
}

#[test]
fn a_panic() {
    catches(&with(Defect::Panics), &[FailureKind::Panic]);
}

#[test]
fn copies_that_differ() {
    catches(&with(Defect::Swaps), &[FailureKind::Divergence]);
}

#[test]
fn a_write_executed_as_a_read() {
    let failure = catches(&with(Defect::ReadsWrite), &[FailureKind::Refused]);
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
        ..with(Defect::MakesUpAnswers)
    };
    catches(
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
    catches(
        &with(Defect::MistakesLives),
        &[&wrong[..], &[FailureKind::LostWrite, FailureKind::Refused]].concat(),
    );
}

#[test]
fn a_layout_that_is_none() {
    let layout = Layout {
        instances: numbered(vec![vec![NodeId(0)], vec![]]),
        ..Layout::default()
    };
    let failure = run_seed(TOY, &Scenario::new("none", layout), 1)
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
    let failure = run_seed(TOY, &Scenario::new("idle", layout), 1)
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
    let summary = run_seeds(TOY, &calm, 0..50);
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
