//! `ionian sim`: a protocol under the deterministic simulator.
//!
//! | file | job |
//! |---|---|
//! | `canaries` | protocols with known defects |
//! | `choice` | from flags to a scenario, and back to the flags that repeat it |
//! | `parallel` | many seeds on several threads, told in order |
//! | `play` | one scripted scenario from a file |

mod canaries;
mod choice;
mod parallel;
mod play;

use crate::arguments;
use crate::family;
use crate::output::{self, say};
use anyhow::{Context, Result, bail};
use canaries::Canary;
use choice::Choice;
pub(crate) use choice::{canary_names, driver_canary_names};
use indicatif::{ProgressBar, ProgressStyle};
use ionian_program::INTERRUPTED;
use ionian_sim::{
    Failure, Outcome, Scenario, Simulated, Sink, Summary, Watch, layouts, run_seed_watched,
};
use parallel::Plan;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

pub(crate) fn run(arguments: &arguments::Sim) -> Result<ExitCode> {
    if let Some(file) = &arguments.play {
        return play::run(file, arguments.rewrite);
    }
    let choice = Choice::of(arguments)?;
    let protocol = choice.deployment.protocol.as_str();
    let canary = choice.canary();
    let protocol = match canary {
        // The same protocol, from the copy that has the defects.
        Some(_) => canaries::named(protocol).expect("the copy has every protocol"),
        None => named(protocol)?,
    };
    simulate_all(arguments, &choice, protocol)
}

/// The protocol of the registry with this name.
fn named(protocol: &str) -> Result<Simulated> {
    Simulated::named(protocol).with_context(|| family::unknown(protocol))
}

/// Runs the seeds, and prints what came of them.
fn simulate_all(
    arguments: &arguments::Sim,
    choice: &Choice,
    protocol: Simulated,
) -> Result<ExitCode> {
    let scenario = choice.scenario(protocol, arguments, choice.seeds.start)?;
    // A file that cannot be written is to be told now, not after the work.
    let trace = arguments
        .trace
        .as_deref()
        .map(|path| Ok::<_, anyhow::Error>((path, open(path)?)))
        .transpose()?;
    let begun = Instant::now();
    let stop = until_interrupted()?;
    let summary = simulate(arguments, choice, protocol, &stop);
    let seconds = begun.elapsed().as_secs_f64();
    output::print(format_args!("{}", summary.report));
    let runs = summary.report.runs;
    say!(
        "{}: {runs} {} in {seconds:.1} s ({:.0} a second), {} failed",
        scenario.name,
        if runs == 1 { "run" } else { "runs" },
        runs as f64 / seconds.max(1e-9),
        summary.failures.len()
    );
    let first = summary.failures.first();
    if let Some((path, file)) = trace {
        let seed = first.map(|outcome| outcome.seed).or(arguments.seed);
        let _active = choice.canary().map(Canary::activate);
        let scenario = match seed {
            Some(seed) => choice.scenario(protocol, arguments, seed)?,
            None => scenario,
        };
        write_trace(protocol, &scenario, seed, path, file)?;
    }
    for outcome in &summary.failures {
        tell(outcome, arguments, choice);
        if arguments.layouts {
            let layout = choice.scenario(protocol, arguments, outcome.seed)?.layout;
            say!("  the deployment: {}", layouts::in_words(protocol, &layout));
        }
    }
    if stop.load(Ordering::Relaxed) && first.is_none() {
        say!("stopped by Ctrl-C: the seeds after these were not run");
        return Ok(ExitCode::from(INTERRUPTED));
    }
    judge(first, choice)
}

/// Set by Ctrl-C: what was found so far is printed. A second one ends the program at once.
fn until_interrupted() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let pressed = stop.clone();
    std::thread::spawn(move || {
        runtime.block_on(async {
            // Where it cannot be waited for, Ctrl-C does what it always does.
            if tokio::signal::ctrl_c().await.is_ok() {
                pressed.store(true, Ordering::Relaxed);
            }
            if tokio::signal::ctrl_c().await.is_ok() {
                std::process::exit(INTERRUPTED.into());
            }
        });
    });
    Ok(stop)
}

/// The exit code; for a canary, failing is what is asked for.
fn judge(first: Option<&Outcome>, choice: &Choice) -> Result<ExitCode> {
    match (choice.defect, first) {
        (Some(defect), Some(outcome)) => {
            say!(
                "canary {} was caught by seed {}",
                defect.name(),
                outcome.seed
            );
            Ok(ExitCode::SUCCESS)
        }
        (Some(defect), None) => bail!(
            "canary {} was NOT caught: try more --seeds, or another deployment; some canaries take \
             an order of events so rare that only a play or the test of a role finds them \
             (docs/defects.md)",
            defect.name()
        ),
        (None, Some(_)) => Ok(ExitCode::FAILURE),
        (None, None) => Ok(ExitCode::SUCCESS),
    }
}

/// Runs the seeds with a bar that shows how far they are.
fn simulate(
    arguments: &arguments::Sim,
    choice: &Choice,
    protocol: Simulated,
    stop: &AtomicBool,
) -> Summary {
    let seeds = choice.seeds.clone();
    let bar = ProgressBar::new(seeds.end - seeds.start);
    let style =
        ProgressStyle::with_template("{bar:40} {pos}/{len} seeds, {per_sec}, {eta} left {msg}");
    bar.set_style(style.expect("the template is well formed"));
    let mut failed = 0;
    let plan = Plan {
        canary: choice.canary(),
        seeds,
        stop_at_first: !arguments.keep_going,
    };
    let scenario = |seed| {
        let scenario = choice.scenario(protocol, arguments, seed);
        scenario.expect("that of the first seed was made the same way")
    };
    let summary = parallel::run_seeds(protocol, scenario, plan, stop, |outcome| {
        bar.inc(1);
        if outcome.result.is_err() {
            failed += 1;
            bar.set_message(format!("({failed} failed)"));
        }
    });
    bar.finish_and_clear();
    summary
}

/// Which seed failed, how, and the command that shows it again.
fn tell(outcome: &Outcome, arguments: &arguments::Sim, choice: &Choice) {
    let Err(failure) = &outcome.result else {
        return;
    };
    let Failure { kind, message, at } = failure;
    say!(
        "seed {} failed after {:.3} simulated seconds: {kind:?}",
        outcome.seed,
        *at as f64 / 1e6
    );
    for line in message.lines() {
        say!("    {line}");
    }
    say!("  what the seed switched on: {}", outcome.knobs);
    say!("  replay: {}", choice.replay(outcome.seed, arguments));
}

fn open(path: &Path) -> Result<File> {
    File::create(path).with_context(|| format!("cannot write {}", path.display()))
}

/// Runs a seed once more, every event of it into `file`: the same seed is the same run.
fn write_trace(
    protocol: Simulated,
    scenario: &Scenario,
    seed: Option<u64>,
    path: &Path,
    file: File,
) -> Result<()> {
    let Some(seed) = seed else {
        say!(
            "{} stays empty: no seed failed (a trace of one that passes: --seed N)",
            path.display()
        );
        return Ok(());
    };
    let sink: Sink = Box::new(BufWriter::new(file));
    run_seed_watched(
        protocol,
        scenario,
        seed,
        Watch {
            trace: Some(sink),
            ..Watch::default()
        },
    );
    say!("the trace of seed {seed} is in {}", path.display());
    Ok(())
}
