//! One round: the load runs, and at both edges of the time that counts the processes are looked at.

use super::arguments::Load;
use super::event_loop::Shared;
use super::ledger::{Tally, Window};
use super::progress::Progress;
use super::side::{Running, Side};
use anyhow::{Result, anyhow, bail};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

/// How often the line of progress is drawn.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How long threads may take to end after the window, more than they wait for replies.
const END_PATIENCE: Duration = Duration::from_secs(30);

/// A process that dies closes its connections a little before its end can be seen.
const DEATH_PATIENCE: Duration = Duration::from_millis(500);

/// From here on the generator's own processor time counts as the limit.
const BUSY_LIMIT: f64 = 0.9;

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Round {
    /// The how manyth it is, from 1.
    pub(crate) round: u16,
    /// Replies that are no errors, a second.
    pub(crate) per_second: f64,
    /// In milliseconds.
    pub(crate) latency_ms: Latency,
    /// Replies that are no errors.
    pub(crate) answered: u64,
    /// Of these, reads of a key that was not there.
    pub(crate) nothing: u64,
    /// Error replies, by their first word.
    pub(crate) errors: BTreeMap<String, u64>,
    /// Commands that were to be begun, and were not answered two seconds after the end.
    pub(crate) unfinished: u64,
    /// Microseconds of processor time for each command, by process.
    pub(crate) processor_us: Vec<f64>,
    /// The sum of these; none when no process is known.
    pub(crate) servers_us: Option<f64>,
    /// Microseconds of processor time of the load generator for each command; none when it is part
    /// of a server.
    pub(crate) bench_us: Option<f64>,
    /// Which part of the time the generator's threads were on a processor.
    pub(crate) bench_busy: Option<f64>,
    /// Which part of the time they were ready to run and had none.
    pub(crate) bench_starved: Option<f64>,
    /// Whether the generator's own processor time was the limit: the server could have done more.
    pub(crate) bench_limited: bool,
}

/// How long commands took, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Latency {
    /// The median.
    pub(crate) p50: f64,
    /// Of ten, one took longer.
    pub(crate) p90: f64,
    /// Of a hundred, one took longer.
    pub(crate) p99: f64,
    /// Of a thousand, one took longer.
    pub(crate) p999: f64,
    /// The longest.
    pub(crate) max: f64,
}

impl Round {
    /// How many error replies there were.
    pub(crate) fn error_count(&self) -> u64 {
        self.errors.values().sum()
    }
}

/// Processor times and replies at one moment.
struct Look {
    times: Vec<Duration>,
    answered: u64,
}

fn look(side: &Side, shared: &Shared) -> Result<Look> {
    let answered = shared.answered.load(Ordering::Relaxed);
    Ok(Look {
        times: side.processor_times()?,
        answered,
    })
}

/// Runs the load and measures.
///
/// # Errors
/// When a connection breaks, a process ends, or it is to stop.
pub(crate) fn measure(
    side: &mut Side,
    load: &Load,
    round: u16,
    shared: &Arc<Shared>,
    progress: &Progress,
) -> Result<Round> {
    let nanoseconds = |seconds: f64| (seconds * 1e9) as u64;
    let begin = nanoseconds(load.course.warm_up);
    let window = Window {
        begin,
        end: begin + nanoseconds(load.course.seconds),
    };
    // Both sides are asked the same.
    let seed = load.asks.seed.wrapping_add(u64::from(round) << 32);
    let running = side.begin(load, window, seed, shared)?;
    let until = |time| running.origin + Duration::from_nanos(time);
    let looks = wait(&running, until(window.begin), progress)
        .then(|| look(side, shared))
        .map(|before| {
            (
                before,
                wait(&running, until(window.end), progress).then(|| look(side, shared)),
            )
        });
    let tally = collect(&running, side)?;
    shared.check()?;
    let Some((before, Some(after))) = looks else {
        bail!("the load ended before its time")
    };
    Ok(figures(round, load, &tally, &before?, &after?))
}

/// Waits; returns whether the load still runs.
fn wait(running: &Running, until: Instant, progress: &Progress) -> bool {
    loop {
        if running.shared.stop.load(Ordering::Relaxed) {
            return false;
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        progress.show(&running.shared);
        std::thread::sleep(left.min(LOOK_EVERY));
    }
}

/// Waits for all threads.
fn collect(running: &Running, side: &mut Side) -> Result<Tally> {
    let mut all = Tally::new();
    let mut failed = None;
    for _ in 0..running.threads {
        match running.tallies.recv_timeout(END_PATIENCE) {
            Ok(Ok(tally)) => all.add(&tally),
            Ok(Err(error)) => failed = failed.or(Some(error)),
            Err(RecvTimeoutError::Timeout) => bail!("a thread of the load generator does not end"),
            Err(RecvTimeoutError::Disconnected) => {
                failed = failed.or(Some(anyhow!("a thread of the load generator has panicked")));
                break;
            }
        }
    }
    let Some(error) = failed else { return Ok(all) };
    // The thread that ended knows better what is wrong.
    let deadline = Instant::now() + DEATH_PATIENCE;
    while Instant::now() < deadline {
        side.check()?;
        std::thread::sleep(DEATH_PATIENCE / 20);
    }
    Err(error)
}

fn figures(round: u16, load: &Load, tally: &Tally, before: &Look, after: &Look) -> Round {
    // By the same looks as the processor times: whatever delays a look delays both.
    let commands = (after.answered - before.answered) as f64;
    let spent = before
        .times
        .iter()
        .zip(&after.times)
        .map(|(before, after)| after.saturating_sub(*before));
    let processor_us: Vec<f64> = spent
        .map(|time| time.as_secs_f64() * 1e6 / commands)
        .collect();
    let ms = |nanoseconds: u64| nanoseconds as f64 / 1e6;
    let quantile = |quantile| ms(tally.latency.value_at_quantile(quantile));
    let effort = (!tally.effort.elapsed.is_zero()).then_some(tally.effort);
    let busy = effort.map(|effort| effort.busy_fraction());
    Round {
        round,
        per_second: tally.answered as f64 / load.course.seconds,
        latency_ms: Latency {
            p50: quantile(0.5),
            p90: quantile(0.9),
            p99: quantile(0.99),
            p999: quantile(0.999),
            max: ms(tally.latency.max()),
        },
        answered: tally.answered,
        nothing: tally.nothing,
        errors: tally.errors.clone(),
        unfinished: tally.unfinished,
        servers_us: (!processor_us.is_empty()).then(|| processor_us.iter().sum()),
        processor_us,
        bench_us: effort.map(|effort| effort.busy.as_secs_f64() * 1e6 / tally.answered as f64),
        bench_busy: busy,
        bench_starved: effort.map(|effort| effort.starved_fraction()),
        bench_limited: busy.is_some_and(|busy| busy > BUSY_LIMIT),
    }
}
