//! Whether memory and disk stay flat under load.

use super::arguments::{Sabotage, Soak};
use super::bench::Bench;
use super::curve::{self, Curve, Held, Sample};
use super::figures::machine;
use super::load::{Keys, Load, ended};
use anyhow::{Context, Result, bail};
use ionian_harness::numbers::thousands;
use ionian_harness::process::{resident_bytes, size};
use std::fs;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::sleep_until;

/// Connections, and commands that each sends at once, while all keys are set.
const FILL: (u16, u64) = (16, 64);

/// How often there is a line of the table.
const LINE_EVERY: f64 = 60.0;

/// Measures and prints; whether it is flat.
pub(crate) fn run(arguments: &Soak) -> Result<bool> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let curve = runtime.block_on(LocalSet::new().run_until(measure(arguments)))?;
    let data = &arguments.common.data;
    let title = format!(
        "{}, {} keys of {} bytes, {} clients",
        arguments.common.preset,
        thousands(arguments.keys),
        arguments.common.value_bytes,
        arguments.clients
    );
    fs::write(data.join("soak.csv"), curve.csv()).context("cannot write soak.csv")?;
    curve::draw(&curve, &title, &data.join("soak.svg"))?;
    let growth = curve.growth(arguments.tolerance);
    println!();
    println!(
        "{title}; {}; {}/soak.csv, {}/soak.svg",
        machine(),
        data.display(),
        data.display()
    );
    for (what, flat) in &growth {
        println!("{}: {what}", if *flat { "flat" } else { "GROWS" });
    }
    Ok(growth.iter().all(|(_, flat)| *flat))
}

async fn measure(arguments: &Soak) -> Result<Curve> {
    let mut bench = Bench::start(&arguments.common, "soak", &[]).await?;
    let gateways = bench.cluster.gateways()?;
    let value_bytes = arguments.common.value_bytes;
    let fill = Load::new(Keys::InTurn, 0, value_bytes, arguments.keys);
    ended(fill.spread(&gateways, FILL.0, FILL.1).await?).await?;
    let keys = match arguments.sabotage {
        None => Keys::AtRandom(arguments.keys),
        Some(Sabotage::Keys) => Keys::InTurn,
    };
    let load = Load::new(keys, arguments.reads, value_bytes, u64::MAX);
    let mut clients = load.spread(&gateways, arguments.clients, 1).await?;
    let curve = watch(arguments, &mut bench, &load, &mut clients).await?;
    load.stop();
    ended(clients).await?;
    if load.refused() > 0 {
        println!("{} commands were refused", thousands(load.refused()));
    }
    Ok(curve)
}

/// Takes samples until the time is over.
async fn watch(
    arguments: &Soak,
    bench: &mut Bench,
    load: &Rc<Load>,
    clients: &mut JoinSet<Result<()>>,
) -> Result<Curve> {
    let names = bench
        .cluster
        .deployment()
        .nodes
        .iter()
        .map(|node| node.name.clone())
        .collect();
    let mut curve = Curve::new(names);
    println!("{}", curve.header());
    let begun = Instant::now();
    let mut next_line = LINE_EVERY;
    for number in 1.. {
        let due = f64::from(number) * arguments.every;
        if due > arguments.minutes * 60.0 {
            break;
        }
        tokio::select! {
            () = sleep_until((begun + Duration::from_secs_f64(due)).into()) => {}
            Some(one) = clients.join_next() => {
                one??;
                bail!("a client has ended by itself");
            }
            _ = tokio::signal::ctrl_c() => bail!("interrupted"),
        }
        bench.cluster.check_all()?;
        curve
            .samples
            .push(sample(bench, begun, load.acknowledged()).await?);
        if due >= next_line {
            println!("{}", curve.line(LINE_EVERY));
            next_line += LINE_EVERY;
        }
    }
    Ok(curve)
}

async fn sample(bench: &Bench, begun: Instant, acknowledged: u64) -> Result<Sample> {
    let seconds = begun.elapsed().as_secs_f64();
    let mut nodes = Vec::new();
    for (node, status) in bench.statuses().await?.iter().enumerate() {
        let memory = resident_bytes(bench.cluster.process(node)?)?;
        let disk = size(&bench.cluster.store(node))?;
        let (log, snapshots) = (status.log.bytes, status.log.snapshots);
        nodes.push(Held {
            memory,
            disk: disk.allocated,
            length: disk.bytes,
            log,
            snapshots,
        });
    }
    Ok(Sample {
        seconds,
        acknowledged,
        nodes,
    })
}
