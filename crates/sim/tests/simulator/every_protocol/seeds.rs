//! Seeded runs. Each shape gets as many seeds as make a number of events, so that all shapes take
//! about the same time; `ionian sim` runs more.

use super::shapes;
use ionian_kernel::layout::{Layout, LayoutError};
use ionian_sim::{
    Durability, Report, Scenario, Simulated, Watch, run_seed, run_seed_watched, run_seeds,
    variations,
};
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

/// Events of the runs of one shape with one durability.
const EVENTS: u64 = 10_000;
/// A shape gets at least this number of seeds, and runs in batches of it.
const LEAST_SEEDS: u64 = 6;
/// A shape whose runs are short gets at most this number of seeds with one durability.
const MOST_SEEDS: u64 = 100;

/// Runs a seed again for its trace, which no command of the tools would give: some shapes are made
/// here.
fn write_trace(protocol: Simulated, scenario: &Scenario, seed: u64) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let path = directory.join(format!("{}-{seed}.trace", protocol.description().name));
    let file = File::create(&path).expect("tests may write there");
    let watch = Watch {
        trace: Some(Box::new(BufWriter::new(file))),
        ..Watch::default()
    };
    let _ = run_seed_watched(protocol, scenario, seed, watch);
    path
}

/// None of these seeds may fail.
fn pass_range(protocol: Simulated, scenario: &Scenario, seeds: core::ops::Range<u64>) -> Report {
    let summary = run_seeds(protocol, scenario, seeds);
    if let Some(failed) = summary.failures.first() {
        panic!(
            "{} {:?}: seed {} [{}]: {:?}; its trace: {}",
            scenario.name,
            scenario.durability,
            failed.seed,
            failed.knobs,
            failed.result,
            write_trace(protocol, scenario, failed.seed).display()
        );
    }
    summary.report
}

/// No seed may fail until there were this number of events, or the most seeds.
fn pass_events(protocol: Simulated, scenario: &Scenario, events: u64) -> Report {
    let mut report = Report::default();
    while report.events < events && report.runs < MOST_SEEDS {
        let seeds = report.runs..report.runs + LEAST_SEEDS;
        report.merge(&pass_range(protocol, scenario, seeds));
    }
    report
}

/// The same with each durability. Clients must get work done.
fn pass_in_each_durability(protocol: Simulated, scenario: &Scenario, events: u64) -> Report {
    let mut report = Report::default();
    for durability in shapes::durabilities(scenario) {
        let scenario = Scenario {
            durability: *durability,
            ..scenario.clone()
        };
        report.merge(&pass_events(protocol, &scenario, events));
    }
    assert!(
        report.acknowledged_under_faults > 5 * report.runs,
        "{}: clients got little work done: {report}",
        scenario.name
    );
    report
}

pub(crate) fn pass(protocol: Simulated) {
    for shape in shapes::all(protocol) {
        let report = pass_in_each_durability(protocol, &shape, EVENTS);
        println!(
            "{}: {} seeds, {} events",
            shape.name, report.runs, report.events
        );
    }
}

/// How many drawn deployments are tried, each with one seed in each durability.
const DRAWN: u64 = 40;

pub(crate) fn pass_on_drawn_deployments(protocol: Simulated) {
    for (seed, shape) in (0..).zip(shapes::drawn(protocol, 0..DRAWN)) {
        let mut changes = variations(protocol, &shape.layout);
        if seed % 2 == 1 || why_fixed(protocol, &shape.layout, &changes).is_some() {
            changes.clear();
        }
        for durability in shapes::durabilities(&shape) {
            let scenario = Scenario {
                durability: *durability,
                changes: changes.clone(),
                ..shape.clone()
            };
            pass_range(protocol, &scenario, seed..seed + 1);
        }
    }
}

pub(crate) fn give_the_same_run_again(protocol: Simulated) {
    for shape in shapes::usual(protocol) {
        let hash = |seed| run_seed(protocol, &shape, seed).trace_hash;
        assert_eq!(hash(7), hash(7), "{}", shape.name);
        assert_ne!(hash(7), hash(8), "{}", shape.name);
    }
}

/// Commands that every replica leaves out, as after `ionian log skip`: none has an effect, in
/// whatever order replicas learn of them, from snapshots too, and though their clients ask again;
/// and none is taken for one that was executed.
pub(crate) fn pass_while_commands_are_given_up(protocol: Simulated) {
    for shape in shapes::usual(protocol) {
        let scenario = Scenario {
            gives_up: true,
            ..shape
        };
        let report = pass_in_each_durability(protocol, &scenario, EVENTS / 4);
        let given_up = report.refused_failed;
        assert!(given_up > report.runs / 4, "{}: {report}", scenario.name);
    }
}

/// Why the members cannot change, if no change of them is possible.
fn why_fixed(protocol: Simulated, layout: &Layout, changes: &[Layout]) -> Option<LayoutError> {
    let other = |to: &&Layout| to.instances != layout.instances;
    let mut possible = changes
        .iter()
        .filter(other)
        .map(|to| protocol.protocol().transition(layout, to));
    let first = possible.next()?.err()?;
    possible.all(|to| to.is_err()).then_some(first)
}

/// A reason is a sentence for the operator who asked.
fn assert_is_a_reason(protocol: Simulated, reason: &str) {
    assert!(
        reason.split(' ').count() > 3,
        "{}: {reason:?}",
        protocol.description().name
    );
}

pub(crate) fn pass_while_members_change(protocol: Simulated) {
    let shapes = shapes::usual(protocol);
    for shape in shapes.chain(shapes::fewest(protocol)) {
        let changes = variations(protocol, &shape.layout);
        if let Some(reason) = why_fixed(protocol, &shape.layout, &changes) {
            assert_is_a_reason(protocol, &reason.0);
            continue;
        }
        let scenario = Scenario { changes, ..shape };
        let report = pass_in_each_durability(protocol, &scenario, EVENTS);
        assert!(report.epochs >= report.runs, "{}: {report}", scenario.name);
    }
}

pub(crate) fn pass_while_options_change(protocol: Simulated) {
    for shape in shapes::usual(protocol) {
        if let Err(reason) = protocol.protocol().check_tunable() {
            assert_is_a_reason(protocol, &reason.0);
            continue;
        }
        let scenario = Scenario {
            tunes: true,
            ..shape
        };
        let report = pass_in_each_durability(protocol, &scenario, EVENTS / 2);
        assert!(
            report.epochs > report.runs / 4,
            "{}: {report}",
            scenario.name
        );
    }
}

pub(crate) fn pass_while_members_and_options_change(protocol: Simulated) {
    let shape = shapes::smallest(protocol);
    let layout = &shape.layout;
    let changes = variations(protocol, layout);
    if protocol.protocol().check_tunable().is_err()
        || why_fixed(protocol, layout, &changes).is_some()
    {
        return;
    }
    let scenario = Scenario {
        changes,
        tunes: true,
        ..shape
    };
    let report = pass_in_each_durability(protocol, &scenario, EVENTS);
    assert!(report.epochs > report.runs, "{report}");
}

/// Runs are only worth something if crashes hit logs while they are written and after they were
/// cut, and disks have room for some snapshots only.
pub(crate) fn tear_and_truncate_logs(protocol: Simulated) {
    let scenario = Scenario {
        durability: Durability::Disk,
        ..shapes::smallest(protocol)
    };
    let mut report = Report::default();
    let is_enough = |it: &Report| {
        it.torn_logs > 0
            && it.truncated_logs > 0
            && it.snapshots > it.refused_snapshots
            && it.refused_snapshots > 0
    };
    while !is_enough(&report) {
        assert!(report.runs < 2000, "no crash hit a log so: {report}");
        let seeds = report.runs..report.runs + LEAST_SEEDS;
        report.merge(&pass_range(protocol, &scenario, seeds));
    }
}

/// How many commands long runs have, and how many times those of short ones.
const LONG: u64 = 1600;
const TIMES: u64 = 8;

/// No record stays in the log because nothing releases it: one alone, that of a rare event at the
/// beginning, would keep all that come after it.
pub(crate) fn keep_logs_short(protocol: Simulated) {
    for shape in shapes::usual(protocol) {
        let kept = |operations, seeds| {
            let mut scenario = Scenario {
                durability: Durability::Disk,
                operations,
                keys: 60,
                check_limit: 20_000,
                ..shape.clone()
            };
            scenario.layout.options.snapshot_slots = 16;
            let report = pass_range(protocol, &scenario, seeds);
            (report.kept_records, report.records)
        };
        let of =
            |seeds: core::ops::Range<u64>| (kept(LONG / TIMES, seeds.clone()), kept(LONG, seeds));
        let (mut short, mut long) = of(0..4);
        if long.0 >= 3 * short.0 {
            // How long ago the last checkpoint of each node was decides among few seeds.
            (short, long) = of(0..24);
        }
        println!("{}: {short:?} {long:?}", shape.name);
        assert!(
            long.0 < 3 * short.0,
            "{}: the logs have {} of {} records after {LONG} commands, {} of {} after {}",
            shape.name,
            long.0,
            long.1,
            short.0,
            short.1,
            LONG / TIMES
        );
    }
}
