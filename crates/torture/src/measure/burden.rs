//! Whether a small command is answered while other clients are a burden, and what they cost.

use super::arguments::Burden;
use super::bench::Bench;
use super::crowd::{ASKED, Crowd};
use super::figures::{machine, percentile};
use crate::settle::ANSWER_LIMIT;
use anyhow::{Context, Result};
use ionian_harness::numbers::{rounded, thousands};
use ionian_harness::process::{peak_resident_bytes, size};
use ionian_redis_client::Reply;
use ionian_redis_client::asynchronous::Connection;
use std::fmt;
use std::io::Read;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{sleep, timeout};

/// How long small commands are looked at without the burden, before and after it.
const CALM: Duration = Duration::from_secs(5);

/// From one small command of a client to its next.
const PAUSE: Duration = Duration::from_millis(20);

/// From one look at the directories to the next.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// What a node's directory may hold in any case: 64 MiB of log until a snapshot is stored, the file
/// of the log that is written, three spare ones of 16 MiB, and two snapshots.
const DISK_OF_A_NODE: u64 = 160 << 20;

/// A command that got no answer, or an error.
const UNANSWERED: u32 = u32::MAX;

/// How long small commands took, in microseconds.
struct Latencies(Vec<u32>);

impl Latencies {
    /// In milliseconds; none when it was not answered, or nothing was measured.
    fn percentile(&mut self, percent: f64) -> Option<f64> {
        let us = percentile(&mut self.0, percent);
        (us != UNANSWERED && !self.0.is_empty()).then(|| f64::from(us) / 1e3)
    }

    /// Whether 99 in 100 took no longer than this, if it is a limit.
    fn within(&mut self, ms: u32) -> bool {
        ms == 0
            || self
                .percentile(99.0)
                .is_some_and(|p99| p99 <= f64::from(ms))
    }

    fn row(&mut self) -> String {
        let mut ms = |percent| self.percentile(percent).map_or_else(|| "-".into(), rounded);
        let (p50, p99, max) = (ms(50.0), ms(99.0), ms(100.0));
        let unanswered = self.0.iter().filter(|us| **us == UNANSWERED).count();
        format!(
            "{p50} | {p99} | {max} | {} | {unanswered}",
            thousands(self.0.len() as u64)
        )
    }
}

/// Processes that keep the processors busy until they are dropped.
struct Burners(Vec<Child>);

impl Burners {
    fn start(count: u16) -> Result<Self> {
        let program = std::env::current_exe()?;
        // They end when this program does, however that happens.
        let start = |_| {
            Command::new(&program)
                .arg("burn")
                .stdin(Stdio::piped())
                .spawn()
        };
        Ok(Burners(
            (0..count)
                .map(start)
                .collect::<Result<_, _>>()
                .context("cannot start a process")?,
        ))
    }
}

impl Drop for Burners {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // Of one that is gone already nothing is left to do.
            let _ = child.kill().and_then(|()| child.wait());
        }
    }
}

/// Keeps a processor busy until the standard input ends.
pub(crate) fn burn() -> Result<bool> {
    static OVER: AtomicBool = AtomicBool::new(false);
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        OVER.store(true, Relaxed);
    });
    while !OVER.load(Relaxed) {
        std::hint::spin_loop();
    }
    Ok(true)
}

/// Measures and prints; whether all limits hold.
pub(crate) fn run(arguments: &Burden) -> Result<bool> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let failures = runtime.block_on(LocalSet::new().run_until(measure(arguments)))?;
    failures
        .iter()
        .for_each(|failure| println!("failed: {failure}"));
    Ok(failures.is_empty())
}

async fn measure(arguments: &Burden) -> Result<Vec<String>> {
    let mut bench = Bench::start(&arguments.common, "burden", &["durability=disk"]).await?;
    let gateways = bench.cluster.gateways()?;
    let mut setter = Connection::open(gateways[0]).await?;
    setter
        .call_ok(&[b"SET", ASKED.0, &vec![b'a'; ASKED.1]])
        .await
        .context("the first write failed")?;
    let _burners = Burners::start(arguments.burners)?;
    let (mut before, _) = look(arguments, &mut bench, CALM).await?;
    let crowd = Crowd::gather(arguments, &gateways)?;
    let (mut during, disk) = look(
        arguments,
        &mut bench,
        Duration::from_secs(arguments.seconds),
    )
    .await?;
    let counts = crowd.leave()?;
    let (_, disk_afterwards) = look(arguments, &mut bench, CALM).await?;
    let (mut after, _) = look(arguments, &mut bench, CALM).await?;

    println!("| small commands | p50, ms | p99, ms | longest, ms | how many | not answered |");
    println!("|---|---|---|---|---|---|");
    println!("| before | {} |", before.row());
    println!("| during the burden | {} |", during.row());
    println!("| from 5 s after it | {} |", after.row());
    println!();
    let memory = nodes(&bench).await?;
    let (sent, disk) = (counts.sent.load(Relaxed), disk.max(disk_afterwards));
    println!();
    println!(
        "{} MiB were sent, all directories held {} MiB at most: {} times as much; {} of {} large values were written, {} \
         connections broke",
        mib(sent),
        mib(disk),
        rounded(disk as f64 / sent as f64),
        counts.large_written.load(Relaxed),
        counts.large_tried.load(Relaxed),
        counts.broken.load(Relaxed),
    );
    let Burden {
        seconds,
        burners,
        large,
        large_bytes,
        deaf,
        askers,
        common,
        ..
    } = arguments;
    println!(
        "{}, {seconds} s, {large} clients with values of {large_bytes} bytes, {deaf} that pipeline and do not read, {askers} \
         that ask for 1 MiB and do not read, {burners} processes that keep processors busy; {}",
        common.preset,
        machine()
    );
    let disk_limit =
        ((arguments.disk * sent as f64) as u64).max(DISK_OF_A_NODE * bench.cluster.len() as u64);
    Ok([
        (!during.within(arguments.during))
            .then(|| format!("during the burden p99 is above {} ms", arguments.during)),
        (!after.within(arguments.after))
            .then(|| format!("after the burden p99 is above {} ms", arguments.after)),
        (memory > arguments.memory << 20)
            .then(|| format!("a node held more than {} MiB", arguments.memory)),
        (disk > disk_limit)
            .then(|| format!("the directories held more than {} MiB", mib(disk_limit))),
    ]
    .into_iter()
    .flatten()
    .collect())
}

/// Looks at small commands for so long; returns how long those took that began in this time, and
/// the most that all directories held.
async fn look(arguments: &Burden, bench: &mut Bench, during: Duration) -> Result<(Latencies, u64)> {
    let end = Instant::now() + during;
    let mut clients = JoinSet::new();
    for (number, gateway) in bench.cluster.gateways()?.into_iter().enumerate() {
        clients.spawn_local(set_small(
            gateway,
            number,
            arguments.common.value_bytes,
            end,
        ));
    }
    let mut disk = 0;
    while Instant::now() < end {
        tokio::select! {
            () = sleep(LOOK_EVERY) => {}
            _ = tokio::signal::ctrl_c() => anyhow::bail!("interrupted"),
        }
        bench.cluster.check_all()?;
        disk = disk.max(size(&bench.cluster.stores())?.allocated);
    }
    let mut latencies = Vec::new();
    while let Some(one) = clients.join_next().await {
        latencies.append(&mut one?);
    }
    Ok((Latencies(latencies), disk))
}

/// One command at a time until `end`; how long each took, in microseconds.
async fn set_small(gateway: SocketAddr, number: usize, value_bytes: u32, end: Instant) -> Vec<u32> {
    let (key, value) = (format!("small:{number}"), vec![b's'; value_bytes as usize]);
    let mut latencies = Vec::new();
    let mut connection = None;
    while Instant::now() < end {
        let begun = Instant::now();
        latencies.push(
            match timeout(ANSWER_LIMIT, set(&mut connection, gateway, &key, &value)).await {
                Ok(Ok(true)) => u32::try_from(begun.elapsed().as_micros()).unwrap_or(UNANSWERED),
                Ok(Ok(false)) => UNANSWERED,
                Ok(Err(_)) | Err(_) => {
                    connection = None;
                    UNANSWERED
                }
            },
        );
        sleep(PAUSE).await;
    }
    latencies
}

/// Whether the value was set.
async fn set(
    connection: &mut Option<Connection>,
    gateway: SocketAddr,
    key: &str,
    value: &[u8],
) -> Result<bool> {
    if connection.is_none() {
        *connection = Some(Connection::open(gateway).await?);
    }
    let connection = connection.as_mut().expect("just made");
    Ok(matches!(
        connection.call(&[b"SET", key.as_bytes(), value]).await?,
        Reply::SimpleString(_)
    ))
}

/// Prints what each node held and did; returns the most memory.
async fn nodes(bench: &Bench) -> Result<u64> {
    println!("| node | memory at most, MiB | elections | messages to peers dropped |");
    println!("|---|---|---|---|");
    let mut most = 0;
    for (node, status) in bench.statuses().await?.iter().enumerate() {
        let memory = peak_resident_bytes(bench.cluster.process(node)?)?;
        let elections: u64 = status
            .roles
            .iter()
            .filter_map(|role| Some(role.leads?.elections))
            .sum();
        let dropped: u64 = status.peers.iter().map(|peer| peer.dropped).sum();
        println!(
            "| {} | {} | {elections} | {dropped} |",
            bench.cluster.name(node),
            mib(memory)
        );
        most = most.max(memory);
    }
    Ok(most)
}

/// In MiB.
fn mib(bytes: u64) -> impl fmt::Display {
    thousands(bytes >> 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_answered_takes_for_ever() {
        let mut latencies = Latencies((1..=99).map(|ms| ms * 1000).chain([UNANSWERED]).collect());
        assert!(latencies.within(99) && !latencies.within(97));
        assert_eq!(latencies.row(), "51.0 | 99.0 | - | 100 | 1");
        latencies.0.push(UNANSWERED);
        assert!(!latencies.within(u32::MAX));
        assert!(latencies.within(0), "no limit");
        assert!(!Latencies(Vec::new()).within(1), "nothing was measured");
    }
}
