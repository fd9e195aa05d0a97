//! Every canary that it takes a whole cluster to show is found by the simulator: from seeds, or in
//! a play. Without a canary the mutated protocols do as the plays say and pass the seeds.

mod craq;
mod epaxos;
mod mencius;
mod multipaxos;
mod psmr;
mod scalog;
mod spaxos;
mod suite;

use ionian_canaries::canary::Canary;
use ionian_deployment::Settings;
use ionian_kernel::protocol::Protocol;
use ionian_sim::machine::Lists;
use ionian_sim::play::{Play, PlayError};
use ionian_sim::{Durability, Failure, Outcome, Scenario, Simulated, run_seed};

fn simulated<P: Protocol>() -> Simulated {
    ionian_canaries::simulated::named(P::NAME).expect("a protocol")
}

fn canary<P: Protocol>(name: &str) -> &'static Canary {
    let known = Canary::named(P::NAME, name);
    known.unwrap_or_else(|| panic!("{} has no canary {name}", P::NAME))
}

/// Runs the seeds until one fails.
fn first_failure<P: Protocol>(
    scenario: &Scenario,
    seeds: impl IntoIterator<Item = u64>,
) -> Option<Outcome> {
    let run = |seed| run_seed(simulated::<P>(), scenario, seed);
    seeds
        .into_iter()
        .map(run)
        .find(|outcome| outcome.result.is_err())
}

/// The defect must be found within `seeds` seeds, and the protocol without it pass the seed that
/// found it.
fn catches<P: Protocol>(
    name: &str,
    scenario: Scenario,
    durability: Durability,
    seeds: u64,
) -> Failure {
    let scenario = Scenario {
        durability,
        ..scenario
    };
    let active = canary::<P>(name).activate();
    let found = first_failure::<P>(&scenario, 0..seeds)
        .unwrap_or_else(|| panic!("{name} was not caught in {seeds} seeds"));
    drop(active);
    let without = first_failure::<P>(&scenario, [found.seed]);
    if let Some(Err(failure)) = without.map(|it| it.result) {
        let seed = found.seed;
        panic!("{name}: seed {seed} fails without it as well: {failure}");
    }
    println!("{} {name}: seed {}", P::NAME, found.seed);
    found.result.expect_err("was caught")
}

/// The cluster that the play names.
fn cluster<P: Protocol>(text: &str) -> Scenario {
    let play = Play::parse(text).expect("a play");
    let setup = play.setup().expect("the play names its cluster");
    let mut settings = Settings::default();
    for (key, value) in &setup.settings {
        settings.set(key, *value).expect("a setting");
    }
    setup
        .scenario(simulated::<P>(), settings.options())
        .expect("roles of the protocol")
}

/// What the play says happens, and with the canary it does not: how it fails then.
fn play<P: Protocol>(text: &str, scenario: &Scenario, name: &str) -> PlayError {
    let play = Play::parse(text).expect("a play");
    play.run(simulated::<P>(), scenario, Lists::new(3))
        .expect("without the canary the protocol does as the play says");
    let _active = canary::<P>(name).activate();
    play.run(simulated::<P>(), scenario, Lists::new(3))
        .expect_err("the play catches the canary")
}
