//! What every protocol's tests do alike: its shapes pass in each durability, and its defects are
//! caught.

use ionian_deployment::{Deployment, PresetOptions};
use ionian_kernel::protocol::Protocol;
use ionian_sim::{Canary, Durability, Failure, Scenario, Watch, run_seeds};

/// Nodes that stop have forgotten, and stay away.
pub(crate) const MEMORY: Durability = Durability::Memory { returns: false };
/// Nodes that stop have forgotten, and come back.
pub(crate) const AMNESIA: Durability = Durability::Memory { returns: true };

/// The deployment that comes with Ionian under this name.
pub(crate) fn preset<P: Protocol>(name: &str) -> Scenario {
    let deployment = Deployment::preset(name, &PresetOptions::default()).expect("a preset");
    Scenario::new(name, deployment.layout(P::KINDS).expect("a layout"))
}

/// No seed below `seeds` may fail, whatever survives a crash, and clients must get work done.
pub(crate) fn passes<P: Protocol>(scenario: Scenario, seeds: u64) {
    for durability in [Durability::Disk, MEMORY, AMNESIA] {
        let scenario = Scenario {
            durability,
            ..scenario.clone()
        };
        let summary = run_seeds::<P>(&scenario, 0..seeds, true, |_| Watch::default(), |_| {});
        if let Some(failed) = summary.failures.first() {
            panic!(
                "{} {durability:?}: seed {} [{}]: {:?}",
                scenario.name, failed.seed, failed.knobs, failed.result
            );
        }
        assert!(
            summary.report.acknowledged_under_faults > seeds * 5,
            "an idle run: {}",
            summary.report
        );
    }
}

/// The defect must be found within `seeds` seeds, and the sound protocol pass the one that found
/// it.
pub(crate) fn catches<P: Protocol>(
    canary: &'static str,
    scenario: Scenario,
    durability: Durability,
    seeds: u64,
) -> Failure {
    let sound = Scenario {
        durability,
        ..scenario
    };
    let broken = Scenario {
        canary: Canary::Named(canary),
        ..sound.clone()
    };
    let found = run_seeds::<P>(&broken, 0..seeds, true, |_| Watch::default(), |_| {}).failures;
    let found = found
        .first()
        .unwrap_or_else(|| panic!("{canary} was not caught in {seeds} seeds"));
    let seed = found.seed;
    let summary = run_seeds::<P>(&sound, [seed], true, |_| Watch::default(), |_| {});
    assert!(
        summary.failures.is_empty(),
        "{canary}: the sound protocol fails seed {seed} as well"
    );
    found.result.clone().expect_err("was caught")
}
