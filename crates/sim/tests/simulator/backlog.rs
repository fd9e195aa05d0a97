//! Much more work at once than the windows admit: queues that fill, proposers that ask again, and
//! what must come of it all the same. The seeds of the other tests never have a queue, for their
//! clients ask a few things at a time.

use ionian_kernel::layout::{Layout, NodeId, numbered};
use ionian_protocols::multipaxos::MultiPaxos;
use ionian_sim::{Durability, Scenario, Simulated, run_seeds};

const PROTOCOL: Simulated = Simulated::of::<MultiPaxos>();

/// Three nodes with every role but batchers on each, a window of a few slots, and hundreds of
/// requests at a time.
fn burst(batchers: bool) -> Scenario {
    let nodes: Vec<NodeId> = (0..3).map(NodeId).collect();
    let mut instances = vec![nodes; 8];
    if !batchers {
        // Batchers, read batchers and unbatchers.
        [1, 2, 7]
            .into_iter()
            .for_each(|kind: usize| instances[kind].clear());
    }
    let mut layout = Layout {
        f: 1,
        instances: numbered(instances),
        ..Layout::default()
    };
    layout.options.window_slots = 4;
    layout.options.window_bytes = 400;
    layout.options.batch_commands = 4;
    Scenario {
        operations: 1500,
        threads_per_lane: 250,
        keys: 60,
        check_limit: 20_000,
        ..Scenario::new("burst", layout)
    }
}

fn passes(scenario: &Scenario, seeds: std::ops::Range<u64>) {
    let summary = run_seeds(PROTOCOL, scenario, seeds);
    if let Some(failed) = summary.failures.first() {
        panic!(
            "seed {} [{}]: {:?}",
            failed.seed, failed.knobs, failed.result
        );
    }
    assert!(
        summary.report.acknowledged_under_faults > 100,
        "an idle run: {}",
        summary.report
    );
}

#[test]
fn a_burst_that_the_leaders_window_does_not_admit_is_worked_off() {
    for durability in [Durability::Disk, Durability::Memory { returns: true }] {
        passes(
            &Scenario {
                durability,
                ..burst(false)
            },
            0..12,
        );
        passes(
            &Scenario {
                durability,
                ..burst(true)
            },
            0..12,
        );
    }
}
