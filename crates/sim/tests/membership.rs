//! The membership changes while clients work and everything breaks: nodes are replaced, added and
//! removed, majorities become grids, changes are abandoned and begun again.

use ionian_deployment::{Deployment, PresetOptions};
use ionian_kernel::protocol::Protocol;
use ionian_protocols::mencius::Mencius;
use ionian_protocols::multipaxos::MultiPaxos;
use ionian_protocols::spaxos::SPaxos;
use ionian_sim::{Durability, Scenario, Summary, Watch, run_seeds, variations};

/// Seeds for each shape and durability. `ionian sim --changes` runs as many as one likes.
const SEEDS: u64 = 60;

fn preset<P: Protocol>(name: &str) -> Scenario {
    let deployment = Deployment::preset(name, &PresetOptions::default()).expect("a preset");
    let layout = deployment.layout(P::KINDS).expect("a layout");
    let changes = variations::<P>(&layout);
    Scenario {
        changes,
        ..Scenario::new(name, layout)
    }
}

fn run<P: Protocol>(scenario: &Scenario, seeds: u64) -> Summary {
    run_seeds::<P>(scenario, 0..seeds, true, |_| Watch::default(), |_| {})
}

fn passes<P: Protocol>(name: &str) {
    for durability in [
        Durability::Disk,
        Durability::Memory { returns: false },
        Durability::Memory { returns: true },
    ] {
        let summary = run::<P>(
            &Scenario {
                durability,
                ..preset::<P>(name)
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
    passes::<MultiPaxos>("colocated");
}

#[test]
fn compartmentalized_passes() {
    passes::<MultiPaxos>("compartmentalized");
}

#[test]
fn batched_passes() {
    passes::<MultiPaxos>("batched");
}

#[test]
fn baseline_passes() {
    passes::<MultiPaxos>("baseline");
}

#[test]
fn spaxos_passes() {
    passes::<SPaxos>("spaxos");
}

#[test]
fn spaxos_compartmentalized_passes() {
    passes::<SPaxos>("spaxos-compartmentalized");
}

#[test]
fn spaxos_batched_passes() {
    passes::<SPaxos>("spaxos-batched");
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
                summary.report.epochs > SEEDS / 4,
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
    let summary = run::<MultiPaxos>(
        &Scenario {
            tunes: true,
            ..preset::<MultiPaxos>("colocated")
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
