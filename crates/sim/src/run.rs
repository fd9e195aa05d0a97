//! Runs: one seed, or many.

use crate::journal::{self, Journal};
use crate::levels;
use crate::linearizability::{self, Verdict};
use crate::machine::Lists;
use crate::model::Model;
use crate::oracle::Oracle;
use crate::report::{Failure, FailureKind, Report};
use crate::roles::Simulated;
use crate::scenario::Scenario;
use crate::swarm::Knobs;
use crate::trace::Sink;
use crate::workload::Workload;
use crate::world::{Simulation, Step};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// The kinds of fault that the seed switched on, and the options that it changed.
    pub knobs: String,
    /// Whether everything held.
    pub result: Result<(), Failure>,
    /// What happened.
    pub report: Report,
    /// Of the whole trace: two runs of one seed have the same.
    pub trace_hash: u64,
}

/// What watches a run.
#[derive(Default)]
pub struct Watch {
    /// Watchers of all nodes; new ones for each run.
    pub oracles: Vec<Box<dyn Oracle>>,
    /// Where the trace goes, a line an event.
    pub trace: Option<Sink>,
}

/// Runs one seed with the simulator's own machine and no oracle but the general ones.
pub fn run_seed(protocol: Simulated, scenario: &Scenario, seed: u64) -> Outcome {
    run_seed_watched(protocol, scenario, seed, Watch::default())
}

/// Runs one seed with the simulator's own machine.
pub fn run_seed_watched(
    protocol: Simulated,
    scenario: &Scenario,
    seed: u64,
    watch: Watch,
) -> Outcome {
    // What clients ask is the swarm's to choose: drawn here once more, for the model comes first.
    let description = protocol.description();
    let knobs = Knobs::draw(seed, scenario, description.settings, description.readmits);
    run_seed_with(
        protocol,
        scenario,
        seed,
        Lists::new(knobs.keys)
            .with_large(knobs.large)
            .with_time(knobs.timed)
            .with_pairs(knobs.pairs)
            .with_spans(knobs.spans),
        watch,
    )
}

/// Runs one seed with any model.
pub fn run_seed_with(
    protocol: Simulated,
    scenario: &Scenario,
    seed: u64,
    model: impl Model,
    watch: Watch,
) -> Outcome {
    let description = protocol.description();
    let settings = description.settings;
    let knobs =
        Knobs::draw(seed, scenario, settings, description.readmits).summary(scenario, settings);
    let failed = |failure| {
        let report = Report {
            runs: 1,
            failed_runs: 1,
            ..Report::default()
        };
        Outcome {
            seed,
            knobs: knobs.clone(),
            result: Err(failure),
            report,
            trace_hash: 0,
        }
    };
    let created = catching(|| Simulation::new(protocol, scenario, seed, model, watch));
    let mut simulation = match created {
        Ok(Ok(simulation)) => simulation,
        Ok(Err(failure)) => return failed(failure),
        Err(message) => {
            return failed(Failure {
                kind: FailureKind::Panic,
                message,
                at: 0,
            });
        }
    };
    let driven = catching(|| simulation.drive());
    let panicked = |message| Err(simulation.fail(FailureKind::Panic, message));
    let driven = driven.unwrap_or_else(panicked);
    let result = conclude(&mut simulation, driven);
    for node in 0..simulation.nodes.len() {
        // A role that panicked may be in a state in which even this panics.
        let _ = catching(|| simulation.collect_figures(node));
    }
    let kept = simulation.nodes.iter().map(|node| node.disk.kept());
    simulation.report.kept_records = kept.sum();
    simulation.trace.finish();
    simulation.report.simulated_us = simulation.now();
    simulation.report.failed_runs = u64::from(result.is_err());
    Outcome {
        seed,
        knobs,
        result,
        trace_hash: simulation.trace.hash(),
        report: simulation.report.clone(),
    }
}

/// Judges the run as a whole. A cluster that got stuck is judged as well: what it answered before
/// may be wrong, which is worse.
fn conclude<M: Model>(simulation: &mut Simulation<M>, driven: Step) -> Step {
    match &driven {
        Err(failure) if failure.kind != FailureKind::Liveness => return driven,
        _ => {}
    }
    let Simulation {
        workload,
        journal,
        scenario,
        ..
    } = &*simulation;
    let journal = journal::open(journal);
    let (streams, ordered): (Vec<_>, Vec<_>) = (
        journal.streams().collect(),
        journal.ordered_streams().collect(),
    );
    let mut unchecked = 0;
    let found = levels::audit(&workload.history, &streams)
        .and_then(|()| linearizable(workload, &journal, scenario.check_limit, &mut unchecked))
        .and_then(|()| levels::check(&workload.history, &ordered, scenario.order));
    let idle = is_idle(&simulation.report);
    drop(journal);
    simulation.report.unchecked_keys += unchecked;
    found.map_err(|(kind, what)| simulation.fail(kind, what))?;
    driven?;
    if idle {
        return Err(simulation.fail(
            FailureKind::Idle,
            "nothing was acknowledged in the whole run".into(),
        ));
    }
    Ok(())
}

/// Whether clients asked for something and got nothing. Where all requests were refused because of
/// their number, or lost with the clients' own nodes, there was nothing to get.
fn is_idle(report: &Report) -> bool {
    let lost = report.refused_busy + report.lost_with_lane;
    report.acknowledged == 0 && (report.requests == 0 || report.requests > lost)
}

fn linearizable<M: Model>(
    workload: &Workload<M>,
    journal: &Journal,
    limit: u64,
    unchecked: &mut u64,
) -> Result<(), (FailureKind, String)> {
    for intervals in workload
        .history
        .linearizable_parts(|command| journal.executed_at(command))
        .values()
    {
        match linearizability::check(intervals, limit) {
            Verdict::Linearizable => {}
            Verdict::Violation(table) => return Err((FailureKind::Linearizability, table)),
            Verdict::Unknown(_) => *unchecked += 1,
        }
    }
    Ok(())
}

/// Many runs.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// All runs together.
    pub report: Report,
    /// Those that failed.
    pub failures: Vec<Outcome>,
}

/// Runs the seeds until one fails.
pub fn run_seeds(
    protocol: Simulated,
    scenario: &Scenario,
    seeds: impl IntoIterator<Item = u64>,
) -> Summary {
    let mut summary = Summary::default();
    for seed in seeds {
        let outcome = run_seed(protocol, scenario, seed);
        summary.report.merge(&outcome.report);
        if outcome.result.is_err() {
            summary.failures.push(outcome);
            break;
        }
    }
    summary
}

thread_local! {
    static CATCHING: Cell<bool> = const { Cell::new(false) };
    static PANICKED_AT: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Runs `work`; a panic in it becomes an error with its message and place. Nothing is printed: a
/// tester's canaries panic by the dozen.
pub(crate) fn catching<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = take_hook();
        set_hook(Box::new(move |info| {
            if CATCHING.get() {
                let place = info
                    .location()
                    .map(|place| format!(" ({}:{})", place.file(), place.line()));
                PANICKED_AT.set(place.unwrap_or_default());
            } else {
                usual(info);
            }
        }));
    });
    CATCHING.set(true);
    let done = catch_unwind(AssertUnwindSafe(work));
    CATCHING.set(false);
    done.map_err(|payload| {
        let text = payload
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned());
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
        format!(
            "{}{}",
            text.unwrap_or_else(|| "a panic without words".into()),
            PANICKED_AT.take()
        )
    })
}
