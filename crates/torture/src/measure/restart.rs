//! How soon a node that was killed is back.

use super::arguments::{RestartTime, Shape};
use super::bench::Bench;
use super::figures::machine;
use super::tail::{Built, build};
use crate::settle::ANSWER_LIMIT;
use crate::statuses::executor;
use anyhow::{Context, Result, bail, ensure};
use ionian_harness::numbers::{median, thousands};
use ionian_harness::process;
use ionian_redis_client::asynchronous::Connection;
use ionian_redis_client::bulk;
use ionian_runtime::query_status;
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{sleep, timeout};

/// How often a node is asked whether it is back.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// A node that is not back after this will not come.
const PATIENCE: Duration = Duration::from_secs(120);

/// The key that is written last.
const LAST: &[u8] = b"last";

/// What is done before nodes are started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    One,
    All,
    AllCold,
}

/// Seconds since the processes were started; of several nodes, the longest.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    listens: f64,
    executed: f64,
    serves: f64,
}

/// Measures and prints.
pub(crate) fn run(arguments: &RestartTime) -> Result<bool> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(LocalSet::new().run_until(measure(arguments)))
}

async fn measure(arguments: &RestartTime) -> Result<bool> {
    let overrides: &[&str] = match arguments.shape {
        Shape::Pipelined => &[],
        Shape::Single => &["options.snapshot_slots=16777216"],
    };
    let mut bench = Bench::start(&arguments.common, "restart", overrides).await?;
    let Built {
        snapshot_bytes,
        commands,
    } = build(arguments, &bench).await?;
    let log_bytes = process::size(&bench.cluster.store(0).join("wal"))?.bytes;
    let mib = |bytes| thousands(bytes >> 20);
    eprintln!(
        "{} MiB of snapshots (two), {} MiB of log in the first node's directory",
        mib(snapshot_bytes),
        mib(log_bytes)
    );
    let mut worst: f64 = 0.0;
    println!(
        "| killed | slots after the snapshot | listens, s | has executed all, s | serves a read, s |"
    );
    println!("|---|---|---|---|---|");
    for (case, name) in [
        (Case::One, "one node"),
        (Case::All, "all at once"),
        (Case::AllCold, "all at once, cold cache"),
    ] {
        let mut rounds = Vec::new();
        let mut slots = Vec::new();
        for round in 0..usize::from(arguments.rounds) {
            let (tail, times) = kill(&mut bench, case, round).await?;
            eprintln!(
                "{name}, round {}: {tail} slots after the snapshot, {times:.3?}",
                round + 1
            );
            rounds.push(times);
            slots.push(tail);
        }
        worst = rounds.iter().fold(worst, |worst, times| {
            worst.max(times.executed).max(times.serves)
        });
        let (fewest, most) = (
            slots.iter().min().copied().unwrap_or(0),
            slots.iter().max().copied().unwrap_or(0),
        );
        let field =
            |field: fn(&Times) -> f64| spread(&rounds.iter().map(field).collect::<Vec<f64>>());
        let (listens, executed, serves) = (
            field(|times| times.listens),
            field(|times| times.executed),
            field(|times| times.serves),
        );
        println!(
            "| {name} | {} to {} | {listens} | {executed} | {serves} |",
            thousands(fewest),
            thousands(most)
        );
    }
    let RestartTime {
        keys,
        rounds,
        common,
        ..
    } = arguments;
    println!();
    println!(
        "{}, {} keys of {} bytes, {} commands after the snapshot; min / median / max of {rounds} rounds; {}",
        common.preset,
        thousands(*keys),
        common.value_bytes,
        thousands(commands),
        machine()
    );
    if worst > arguments.limit {
        println!("failed: {worst:.2} s is more than {:.2} s", arguments.limit);
    }
    Ok(worst <= arguments.limit)
}

/// The smallest, the median and the largest.
fn spread(values: &[f64]) -> String {
    let smallest = values.iter().copied().fold(f64::INFINITY, f64::min);
    let largest = values.iter().copied().fold(0.0, f64::max);
    format!("{smallest:.2} / {:.2} / {largest:.2}", median(values))
}

/// Kills and starts again; returns how many slots were after the snapshot, at most, and how long it
/// took.
async fn kill(bench: &mut Bench, case: Case, round: usize) -> Result<(u64, Times)> {
    let all: Vec<usize> = (0..bench.cluster.len()).collect();
    let victims = if case == Case::One {
        vec![round % all.len()]
    } else {
        all
    };
    let word = format!("{case:?} {round}");
    let mut writer = Connection::open(bench.cluster.gateways()?[0]).await?;
    writer
        .call_ok(&[b"SET", LAST, word.as_bytes()])
        .await
        .context("the last write failed")?;
    let statuses = bench.statuses().await?;
    let executed = statuses
        .iter()
        .filter_map(|status| executor(status)?.executed)
        .max()
        .context("no replica")?;
    let kept = victims
        .iter()
        .filter_map(|node| executor(&statuses[*node])?.stored)
        .min()
        .unwrap_or(executed);
    bench.cluster.kill(&victims)?;
    if case == Case::AllCold {
        forget_cached(&bench.cluster.stores())?;
    }
    let times = back(bench, &victims, executed, &word).await?;
    bench.cluster.check_all()?;
    Ok((executed - kept, times))
}

/// Has the system forget what it caches of all files below `path`, as if the machine had just been
/// started.
fn forget_cached(path: &Path) -> Result<()> {
    process::walk(path, &mut |file| {
        let file = File::open(file)?;
        // Only what is on disk can be forgotten.
        file.sync_all()?;
        Ok(posix_fadvise(
            &file,
            0,
            0,
            PosixFadviseAdvice::POSIX_FADV_DONTNEED,
        )?)
    })
}

/// Starts the nodes, and waits until they are as they were.
async fn back(bench: &mut Bench, nodes: &[usize], executed: u64, word: &str) -> Result<Times> {
    let begun = Instant::now();
    for node in nodes {
        bench.cluster.start(*node)?;
    }
    let mut all = JoinSet::new();
    for node in nodes {
        let place = &bench.cluster.deployment().nodes[*node];
        let address: SocketAddr = place.address.parse()?;
        let gateway = place
            .gateway
            .as_ref()
            .map(|gateway| gateway.parse())
            .transpose()?;
        all.spawn_local(node_is_back(
            begun,
            address,
            gateway,
            executed,
            word.to_owned(),
        ));
    }
    let mut longest = Times::default();
    while let Some(times) = all.join_next().await {
        let Times {
            listens,
            executed,
            serves,
        } = times??;
        longest.listens = longest.listens.max(listens);
        longest.executed = longest.executed.max(executed);
        longest.serves = longest.serves.max(serves);
    }
    Ok(longest)
}

/// Tries until it succeeds; the seconds from `begun` to then.
async fn when<F: Future<Output = Result<()>>>(
    begun: Instant,
    what: &str,
    mut attempt: impl FnMut() -> F,
) -> Result<f64> {
    loop {
        let error = match timeout(ANSWER_LIMIT, attempt()).await {
            Ok(Ok(())) => return Ok(begun.elapsed().as_secs_f64()),
            Ok(Err(error)) => error,
            Err(late) => late.into(),
        };
        if begun.elapsed() > PATIENCE {
            return Err(error.context(format!("not within {} s: {what}", PATIENCE.as_secs())));
        }
        sleep(LOOK_EVERY).await;
    }
}

async fn node_is_back(
    begun: Instant,
    address: SocketAddr,
    gateway: Option<SocketAddr>,
    executed: u64,
    word: String,
) -> Result<Times> {
    let listens = when(begun, "it listens", || async {
        TcpStream::connect(address).await?;
        Ok(())
    });
    let executes = when(begun, "its replica has executed everything", || async {
        let status = query_status(address, ANSWER_LIMIT)
            .await
            .with_context(|| address.to_string())?;
        // A node without a replica has nothing to execute.
        let reached = executor(&status)
            .and_then(|role| role.executed)
            .unwrap_or(executed);
        ensure!(reached >= executed, "{reached} slots of {executed}");
        Ok(())
    });
    let serves = when(begun, "its gateway serves a read", || async {
        let Some(gateway) = gateway else {
            return Ok(());
        };
        let mut connection = Connection::open(gateway).await?;
        connection
            .call(&[b"IONIAN", b"CONSISTENCY", b"linearizable"])
            .await?;
        match bulk(connection.call(&[b"GET", LAST]).await?)? {
            Some(bytes) if bytes == word => Ok(()),
            other => bail!("not the last write but {other:?}"),
        }
    });
    let (listens, executed, serves) = tokio::try_join!(listens, executes, serves)?;
    Ok(Times {
        listens,
        executed,
        serves,
    })
}
