//! Nodes that a change of the members removes.

use ionian_deployment::{Deployment, PresetOptions};
use ionian_kernel::layout::Layout;
use ionian_kernel::protocol::Protocol;
use ionian_protocols::multipaxos::MultiPaxos;
use ionian_sim::{Canary, FailureKind, Scenario, Simulated, run_seeds, variations};

const PROTOCOL: Simulated = Simulated::of::<MultiPaxos>();

fn three_nodes() -> Layout {
    let deployment = Deployment::preset("colocated", &PresetOptions::default()).unwrap();
    deployment.layout(MultiPaxos::KINDS).unwrap()
}

/// Operators replace machines that never return. Numbers are given to other machines, which have
/// nothing of what was stored under them before.
#[test]
fn machines_are_lost_for_good_and_numbers_given_to_others() {
    let layout = three_nodes();
    let scenario = Scenario {
        changes: variations(PROTOCOL, &layout),
        ..Scenario::new("losing", layout)
    };
    let summary = run_seeds(PROTOCOL, &scenario, 0..30);
    assert_eq!(summary.failures.len(), 0);
    let report = summary.report;
    assert!(report.lost_machines > 0, "{report}");
    assert!(report.new_machines > 0, "{report}");
}

/// The members wait for quorums of nodes that are gone.
#[test]
fn a_node_that_stops_before_members_know_that_it_left_is_found() {
    let layout = three_nodes();
    let is_new = |other: &Layout| {
        let before = layout.nodes();
        other.nodes().iter().all(|node| !before.contains(node))
    };
    let all_replaced = variations(PROTOCOL, &layout).into_iter().find(is_new);
    let scenario = Scenario {
        changes: vec![all_replaced.expect("one replaces all nodes")],
        canary: Canary::LeavesAtOnce,
        ..Scenario::new("leaving", layout)
    };
    let summary = run_seeds(PROTOCOL, &scenario, 0..4000);
    let found = summary.failures.first().expect("it was not found");
    let failure = found.result.clone().unwrap_err();
    assert_eq!(failure.kind, FailureKind::Liveness, "{failure}");
}
