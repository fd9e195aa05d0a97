//! In place of Berkeley DB, which the paper compares with: a map with locks (crate `dashmap`), that
//! threads use without any order between them, and without a replica.
//!
//! The paper's threads receive and answer requests themselves. Ours do nothing but use the map; to
//! that is added what messages cost the thread of a server. No more threads than the machine has
//! processors are measured, since locks cost what threads wait for.

use super::super::point::{Measure, Point};
use super::super::simulate::Bench;
use super::{BATCH, FEW_KEYS, System, UNDER_WAY, executing};
use anyhow::{Context, Result};
use bytes::Bytes;
use dashmap::DashMap;
use ionian_costs::Service;
use ionian_kernel::client::Operation;
use ionian_kernel::machine::StateMachine;
use ionian_machines::nothing::Nothing;
use ionian_machines::tree::Command;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Its name in figures.
const NAME: &str = "map with locks";

/// How many commands each thread executes.
const COMMANDS: u64 = 2_000_000;
const FEW_COMMANDS: u64 = 2_000;

/// Keys that exist at first: fewer than the tree has, since an entry takes more memory.
const KEYS: u64 = 1_000_000;

/// What threads do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Reads,
    /// In turn, of keys that other threads insert and delete too.
    InsertsAndDeletes,
}

/// What must be known to read it.
pub(super) fn notes() -> Vec<String> {
    vec![format!(
        "In place of Berkeley DB: the crate dashmap, measured with no more threads than there are processors, {KEYS} keys, \
         and what messages cost a server."
    )]
}

/// Its throughput with 1 thread, and with as many as there are processors, up to eight.
pub(super) fn measure(bench: &Bench, kind: Kind) -> Result<Vec<Point>> {
    let messages_us = messages(bench)?;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let keys = if bench.quick { FEW_KEYS } else { KEYS };
    let commands = if bench.quick { FEW_COMMANDS } else { COMMANDS };
    let map: DashMap<u64, u64> = (0..keys).map(|key| (key, 0)).collect();
    let threads = (0..).map(|power| 1 << power);
    let threads = threads.take_while(|threads| *threads <= processors.min(super::MOST_THREADS));
    let point = |threads| {
        let took = took(&map, keys, (threads, commands), kind);
        let each_us = took.as_secs_f64() * 1e6 / commands as f64;
        let rate = threads as f64 * 1e6 / (messages_us + each_us);
        Point {
            threads: Some(threads),
            thread_us: Some(messages_us),
            worker_us: Some(each_us),
            ..Point::new(NAME, Measure::Measured, rate)
        }
    };
    Ok(threads.map(point).collect())
}

/// How long it takes a number of threads to execute this number of commands each.
fn took(
    map: &DashMap<u64, u64>,
    keys: u64,
    (threads, commands): (usize, u64),
    kind: Kind,
) -> Duration {
    let ready = Barrier::new(threads + 1);
    let began = std::thread::scope(|scope| {
        for thread in 0..threads as u64 {
            let ready = &ready;
            scope.spawn(move || {
                ready.wait();
                execute(map, keys, thread * commands..(thread + 1) * commands, kind);
            });
        }
        ready.wait();
        Instant::now()
    });
    began.elapsed()
}

fn execute(map: &DashMap<u64, u64>, keys: u64, numbers: std::ops::Range<u64>, kind: Kind) {
    for number in numbers {
        let key = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) % keys;
        match kind {
            Kind::Reads => {
                std::hint::black_box(map.get(&key).map(|value| *value));
            }
            Kind::InsertsAndDeletes if number % 2 == 0 => {
                map.insert(keys + key, number);
            }
            Kind::InsertsAndDeletes => {
                map.remove(&(keys + key));
            }
        }
    }
}

/// What messages cost the thread of a server for each command: it executes nothing.
fn messages(bench: &Bench) -> Result<f64> {
    let deployment = System::NoRep.deployment(1, BATCH)?;
    let service = || -> Box<dyn Service> { Box::new(Ignored) };
    let found = bench.parallel(&deployment, "nothing", &service, UNDER_WAY)?;
    Ok(executing(&found).context("there is a server")?.us())
}

/// Commands that nothing is done for.
struct Ignored;

impl Service for Ignored {
    fn machine(&self) -> Box<dyn StateMachine> {
        Box::new(Nothing)
    }

    fn command(&self, number: usize) -> (Operation, Bytes) {
        let read = Command::Read { key: number as u64 };
        (Operation::Write, read.encode().into())
    }
}
