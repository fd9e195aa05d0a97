//! The membership changes while clients work and everything breaks: nodes are replaced, added and
//! removed, majorities become grids, changes are abandoned and begun again.

use ionian_deployment::{Deployment, PresetOptions};
use ionian_kernel::protocol::Protocol;
use ionian_protocols::mencius::Mencius;
use ionian_protocols::multipaxos::{MultiPaxos, kind};
use ionian_protocols::spaxos::SPaxos;
use ionian_sim::{Durability, Scenario, Summary, Watch, run_seeds, variations};

/// Seeds for each shape and durability. `ionian sim --changes` runs as many as one likes.
const SEEDS: u64 = 60;

fn preset(name: &str) -> Scenario {
    let deployment = Deployment::preset(name, &PresetOptions::default()).expect("a preset");
    let layout = deployment.layout(MultiPaxos::KINDS).expect("a layout");
    let changes = variations(&layout, kind::Acceptor, kind::Replica);
    Scenario {
        changes,
        ..Scenario::new(name, layout)
    }
}

fn run(scenario: &Scenario, seeds: u64) -> Summary {
    run_seeds::<MultiPaxos>(scenario, 0..seeds, true, |_| Watch::default(), |_| {})
}

fn passes(name: &str) {
    for durability in [
        Durability::Disk,
        Durability::Memory { returns: false },
        Durability::Memory { returns: true },
    ] {
        let summary = run(
            &Scenario {
                durability,
                ..preset(name)
            },
            SEEDS,
        );
        if let Some(failed) = summary.failures.first() {
            panic!(
                "{name} {durability:?}: seed {} [{}]: {:?}",
                failed.seed, failed.knobs, failed.result
            );
        }
        assert!(
            summary.report.epochs > SEEDS,
            "nothing changed: {}",
            summary.report
        );
        assert!(
            summary.report.acknowledged_under_faults > SEEDS * 5,
            "an idle run: {}",
            summary.report
        );
    }
}

#[test]
fn colocated_passes() {
    passes("colocated");
}

#[test]
fn compartmentalized_passes() {
    passes("compartmentalized");
}

#[test]
fn batched_passes() {
    passes("batched");
}

#[test]
fn baseline_passes() {
    passes("baseline");
}

#[test]
fn options_change_while_clients_work_in_every_protocol_that_has_a_log() {
    fn passes<P: Protocol>(name: &str) {
        let deployment = Deployment::preset(name, &PresetOptions::default()).expect("a preset");
        let layout = deployment.layout(P::KINDS).expect("a layout");
        for durability in [Durability::Disk, Durability::Memory { returns: true }] {
            let scenario = Scenario {
                tunes: true,
                durability,
                ..Scenario::new(name, layout.clone())
            };
            let summary =
                run_seeds::<P>(&scenario, 0..SEEDS / 2, true, |_| Watch::default(), |_| {});
            if let Some(failed) = summary.failures.first() {
                panic!(
                    "{name} {durability:?}: seed {} [{}]: {:?}",
                    failed.seed, failed.knobs, failed.result
                );
            }
            assert!(
                summary.report.epochs > SEEDS / 2,
                "nothing changed: {}",
                summary.report
            );
            assert!(
                summary.report.acknowledged_under_faults > SEEDS * 2,
                "an idle run: {}",
                summary.report
            );
        }
    }
    passes::<MultiPaxos>("batched");
    passes::<Mencius>("mencius");
    passes::<Mencius>("mencius-batched");
    passes::<SPaxos>("spaxos");
    passes::<SPaxos>("spaxos-batched");
}

#[test]
fn members_and_options_change_in_turn() {
    let summary = run(
        &Scenario {
            tunes: true,
            ..preset("colocated")
        },
        SEEDS,
    );
    if let Some(failed) = summary.failures.first() {
        panic!(
            "seed {} [{}]: {:?}",
            failed.seed, failed.knobs, failed.result
        );
    }
    assert!(
        summary.report.epochs > SEEDS,
        "nothing changed: {}",
        summary.report
    );
}
