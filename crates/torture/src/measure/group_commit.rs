//! How many commands share a sync of the disk, and what that costs.

use super::arguments::GroupCommit;
use super::bench::Bench;
use super::figures::{machine, percentile};
use super::load::{Keys, Load, ended};
use crate::statuses::leader;
use anyhow::{Context, Result, ensure};
use ionian_harness::numbers::{median, rounded, thousands};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::task::LocalSet;

const WARM_UP: Duration = Duration::from_secs(1);

/// How often the bare disk is tried.
const SYNCS: usize = 100;

/// One measurement of one number of commands in flight.
#[derive(Clone, Copy, Debug)]
struct Sample {
    per_second: f64,
    p50_ms: f64,
    p99_ms: f64,
    /// Commands for each sync of the leader's node.
    leader: f64,
    /// The same, of the other nodes.
    others: f64,
    /// How long the bare disk took for a sync just before.
    sync_ms: f64,
}

/// What a field is in the median.
fn middle(samples: &[Sample], field: impl Fn(&Sample) -> f64) -> f64 {
    median(&samples.iter().map(field).collect::<Vec<f64>>())
}

/// Measures and prints.
pub(crate) fn run(arguments: &GroupCommit) -> Result<bool> {
    fs::create_dir_all(&arguments.common.data)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    // Of each number of commands in flight, for each durability.
    let mut samples = vec![[Vec::new(), Vec::new()]; arguments.in_flight.len()];
    for round in 1..=arguments.rounds {
        for (place, durability) in ["disk", "memory"].into_iter().enumerate() {
            let measured =
                runtime.block_on(LocalSet::new().run_until(measure(arguments, durability)))?;
            for (level, sample) in measured.into_iter().enumerate() {
                let in_flight = arguments.in_flight[level];
                let (speed, shared) = (speed(&[sample]), shared(&[sample]));
                eprintln!(
                    "round {round}, {durability}, {in_flight} in flight | {speed} | {shared}"
                );
                samples[level][place].push(sample);
            }
        }
    }
    println!(
        "| in flight | memory, commands/s | p50 / p99, ms | disk, commands/s | p50 / p99, ms | commands a sync, leader's \
         node | others | a bare sync, ms |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for (in_flight, [disk, memory]) in arguments.in_flight.iter().zip(&samples) {
        println!(
            "| {} | {} | {} | {} |",
            thousands((*in_flight).into()),
            speed(memory),
            speed(disk),
            shared(disk)
        );
    }
    let GroupCommit {
        rounds,
        seconds,
        common,
        ..
    } = arguments;
    println!();
    println!(
        "{}, medians of {rounds} rounds of {seconds} s, SET of {} bytes; {}",
        common.preset,
        common.value_bytes,
        machine()
    );
    Ok(true)
}

fn speed(samples: &[Sample]) -> String {
    let field = |field: fn(&Sample) -> f64| rounded(middle(samples, field));
    format!(
        "{} | {} / {}",
        field(|one| one.per_second),
        field(|one| one.p50_ms),
        field(|one| one.p99_ms)
    )
}

fn shared(samples: &[Sample]) -> String {
    let field = |field: fn(&Sample) -> f64| rounded(middle(samples, field));
    format!(
        "{} | {} | {}",
        field(|one| one.leader),
        field(|one| one.others),
        field(|one| one.sync_ms)
    )
}

/// All numbers of commands in flight, one after the other on one cluster.
async fn measure(arguments: &GroupCommit, durability: &str) -> Result<Vec<Sample>> {
    let setting = format!("durability={durability}");
    let bench = Bench::start(&arguments.common, durability, &[&setting]).await?;
    let mut samples = Vec::new();
    for in_flight in &arguments.in_flight {
        samples.push(level(arguments, &bench, *in_flight).await?);
    }
    Ok(samples)
}

async fn level(arguments: &GroupCommit, bench: &Bench, in_flight: u16) -> Result<Sample> {
    let sync_ms = time_of_a_sync(&arguments.common.data)?;
    let load = Load::new(
        Keys::AtRandom(arguments.keys),
        0,
        arguments.common.value_bytes,
        u64::MAX,
    );
    let leading = leader(&bench.statuses().await?)?;
    let connections = load
        .spread(&bench.gateways_from(leading)?, in_flight, 1)
        .await?;
    tokio::time::sleep(WARM_UP).await;
    let before = bench.statuses().await?;
    let begun = Instant::now();
    let mut window = load.window(Duration::from_secs(arguments.seconds)).await;
    let elapsed = begun.elapsed().as_secs_f64();
    let after = bench.statuses().await?;
    load.stop();
    ended(connections).await?;
    ensure!(
        load.refused() == 0,
        "{} commands were refused: the machine is too busy to measure",
        load.refused()
    );
    ensure!(
        leader(&after)? == leading,
        "the leader has changed: the machine is too busy to measure"
    );
    let commands = window.acknowledged as f64;
    let syncs: Vec<f64> = before
        .iter()
        .zip(&after)
        .map(|(one, two)| (two.log.syncs - one.log.syncs) as f64)
        .collect();
    let others = (syncs.iter().sum::<f64>() - syncs[leading]) / (syncs.len() - 1) as f64;
    let mut ms = |percent| f64::from(percentile(&mut window.latencies, percent)) / 1e3;
    Ok(Sample {
        per_second: commands / elapsed,
        p50_ms: ms(50.0),
        p99_ms: ms(99.0),
        leader: commands / syncs[leading],
        others: commands / others,
        sync_ms,
    })
}

/// How long the disk takes, in milliseconds and in the median, to sync 4 KiB written into a file
/// that has its length.
fn time_of_a_sync(directory: &Path) -> Result<f64> {
    let path = directory.join("sync");
    let block = [1; 4096];
    let write = || -> std::io::Result<Vec<f64>> {
        fs::write(&path, vec![0; SYNCS * block.len()])?;
        let mut file = File::options().write(true).open(&path)?;
        file.sync_all()?;
        let mut times = Vec::new();
        for _ in 0..SYNCS {
            let begun = Instant::now();
            file.write_all(&block)?;
            file.sync_data()?;
            times.push(begun.elapsed().as_secs_f64() * 1e3);
        }
        fs::remove_file(&path)?;
        Ok(times)
    };
    let times = write().with_context(|| format!("cannot sync {}", path.display()))?;
    Ok(median(&times))
}
