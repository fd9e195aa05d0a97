//! `ionian bench` itself: load on servers that run, and what they make of it.
//!
//! | file | job |
//! |---|---|
//! | `arguments` | what can be typed, and what makes no sense |
//! | `side`, `own`, `target` | who is measured: servers that run, or a cluster of its own |
//! | `access` | with TLS or without, and as whom |
//! | `round` | one round: the load, and the processes at both edges of the time that counts |
//! | `workload`, `encode` | what is asked, and as which bytes |
//! | `schedule`, `ledger` | when commands are to be begun; which count, and how long they took |
//! | `lanes` | the generator inside of a node |
//! | `event_loop`, `connection`, `scan`, `alarm` | a thread of the generator |
//! | `outcome`, `show`, `progress` | what was found, and how it is shown |

pub mod arguments;

mod access;
mod alarm;
mod connection;
mod encode;
mod event_loop;
mod lanes;
mod ledger;
mod outcome;
mod own;
mod progress;
mod round;
mod scan;
mod schedule;
mod show;
mod side;
mod target;
mod workload;

use crate::report;
use access::Access;
use anyhow::{Context, Result, bail};
use arguments::{Load, Servers};
use event_loop::Shared;
use ionian_deployment::Durability;
use ionian_harness::host::Machine;
use ionian_program::version::PROFILE;
pub use lanes::{RunNode, ThisNode};
use outcome::{Asked, Measured, Outcome, Ratios};
use own::Own;
use progress::Progress;
pub(crate) use round::Round;
use side::Side;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::signal::unix::{SignalKind, signal};

/// What is shown below the flags.
pub const EXAMPLES: &str = "Examples:\n  \
    ionian bench                                    64 connections on three nodes of its own, in memory\n  \
    ionian bench --preset batched --reads 90        another deployment; nine of ten commands read\n  \
    ionian bench --rate 20000 --clients 256         20,000 commands a second, whatever the server does\n  \
    ionian bench --lanes --in-flight 1024           through the library, without a gateway\n  \
    ionian bench --target redis://127.0.0.1:7379    servers that run\n  \
    ionian bench --versus redis://127.0.0.1:6379 --versus-pid redis=4711\n                                                  \
    in turns with a server to compare with\n\n\
    docs/bench.md says what the columns mean. Exit codes: 0 done, 1 the figures are not what was asked for, 2 bad usage.";

/// Measures, and shows what it has found. With `--lanes`, `run_node` runs the node that this
/// process is.
///
/// # Errors
/// [`BadUsage`](ionian_program::BadUsage) when the flags make no sense together; otherwise when
/// nothing could be measured, or what was measured is not what was asked for.
pub fn run(load: &Load, run_node: RunNode) -> Result<ExitCode> {
    load.check()?;
    let outcome = measure(load, run_node)?;
    let text = show::text(&outcome);
    match load.course.json.as_deref() == Some(Path::new("-"))
        || load.course.csv.as_deref() == Some(Path::new("-"))
    {
        true => eprint!("{text}"),
        false => report::print(&text)?,
    }
    if let Some(path) = &load.course.csv {
        report::write(path, &show::csv(&outcome))?;
    }
    if let Some(path) = &load.course.json {
        report::write(path, &(serde_json::to_string_pretty(&outcome)? + "\n"))?;
    }
    judge(load, &outcome)?;
    Ok(ExitCode::SUCCESS)
}

/// Whether the figures are what they seem to be.
fn judge(load: &Load, outcome: &Outcome) -> Result<()> {
    for side in &outcome.sides {
        let errors: u64 = side.rounds.iter().map(Round::error_count).sum();
        if errors > 0 {
            bail!("{}: {errors} error replies", side.name);
        }
        if side.rounds.iter().any(|round| round.answered == 0) {
            bail!("{}: in some round nothing was answered", side.name);
        }
        if load.course.strict && side.rounds.iter().any(|round| round.bench_limited) {
            bail!("{}: the load generator was the limit (--strict)", side.name);
        }
    }
    Ok(())
}

/// Measures what was typed.
///
/// # Errors
/// As [`run`].
pub(crate) fn measure(load: &Load, run_node: RunNode) -> Result<Outcome> {
    let machine = Machine::look();
    ionian_harness::process::raise_file_limit()?;
    let shared = Arc::new(Shared::default());
    stop_when_interrupted(shared.clone())?;
    let progress = Progress::new();
    let mut sides = sides(load, &shared, &progress, run_node)?;
    let mut rounds = vec![Vec::new(); sides.len()];
    for round in 1..=load.course.rounds {
        // Each is first in turn: what drifts in the machine is on no side.
        let mut order: Vec<usize> = (0..sides.len()).collect();
        order.rotate_left(usize::from(round - 1) % sides.len());
        for place in order {
            let side = &mut sides[place];
            progress.on(
                format!("{}, round {round} of {}", side.name, load.course.rounds),
                &shared,
            );
            let measured = round::measure(side, load, round, &shared, &progress);
            rounds[place].push(measured.with_context(|| format!("{}, round {round}", side.name))?);
        }
    }
    let measured = sides.iter().zip(rounds).map(|(side, rounds)| Measured {
        name: side.name.clone(),
        processes: side
            .accounts
            .iter()
            .map(|account| account.name.clone())
            .collect(),
        rounds,
    });
    let sides: Vec<Measured> = measured.collect();
    Ok(Outcome {
        version: env!("CARGO_PKG_VERSION"),
        optimized: !cfg!(debug_assertions),
        profile: PROFILE,
        command: command(),
        machine,
        asked: Asked::new(load),
        ratios: Ratios::of(&sides),
        sides,
    })
}

/// Who is measured, ready for it.
fn sides(
    load: &Load,
    shared: &Arc<Shared>,
    progress: &Progress,
    run_node: RunNode,
) -> Result<Vec<Side>> {
    let Servers {
        target,
        pid,
        versus,
        versus_pid,
        yes,
        ..
    } = &load.servers;
    let mut sides = Vec::new();
    sides.push(match target.as_slice() {
        [] => {
            progress.on("starting the cluster".to_owned(), shared);
            let own = Own::start(load)?;
            let deployment = own.cluster.deployment();
            let from = match (&load.servers.file, &load.servers.preset) {
                (Some(file), _) => file.display().to_string(),
                (None, preset) => preset
                    .as_deref()
                    .unwrap_or(ionian_deployment::DEFAULT_PRESET)
                    .to_owned(),
            };
            let way = if own.this.is_some() {
                ", client lane"
            } else {
                ""
            };
            let durability = match (deployment.durability, own.is_in_memory()) {
                (Durability::Disk, true) => "disk (but in a directory in memory: see --data)",
                (durability, _) => durability.name(),
            };
            let name = format!("{from}, durability {durability}{way}");
            Side::of_own(name, own, load, shared, run_node)?
        }
        targets => Side::of_targets(targets, pid, (Access::of(&load.servers)?, load.asks.level))?,
    });
    if !versus.is_empty() {
        sides.push(Side::of_targets(
            versus,
            versus_pid,
            (Access::default(), None),
        )?);
    }
    for side in &sides {
        side.processor_times()?;
        if !yes {
            side.leave_keys_alone()?;
        }
        if load.asks.mix().reads > 0 {
            progress.on(format!("{}: writing all keys", side.name), shared);
            side.fill(load, shared)?;
        }
    }
    shared.check()?;
    Ok(sides)
}

/// Ctrl-C and SIGTERM end the run in order: what was started is stopped and removed.
fn stop_when_interrupted(shared: Arc<Shared>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let entered = runtime.enter();
    // Here and not on the thread: from the return on, no signal kills this process.
    let (mut interrupt, mut terminate) = (
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
    );
    drop(entered);
    let body = move || {
        runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        });
        shared.stop.store(true, Ordering::Relaxed);
    };
    std::thread::Builder::new()
        .name("interrupt".to_owned())
        .spawn(body)?;
    Ok(())
}

/// What was typed, as a shell takes it.
fn command() -> String {
    let plain = |text: &str| {
        !text.is_empty()
            && text
                .chars()
                .all(|c| c.is_alphanumeric() || "-_=.,:/+%@".contains(c))
    };
    let words = std::env::args().map(|word| {
        if plain(&word) {
            word
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    });
    words.collect::<Vec<_>>().join(" ")
}
