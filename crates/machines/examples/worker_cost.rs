//! What parallel execution costs and gains (sP-SMR): the time of a command on the scheduler's
//! thread, and on a worker's. For the key-value store, or for the B+-tree with one of its tables of
//! dependencies.
//!
//! `cargo run --release -p ionian-machines --example worker_cost [KEYS [kv|published|partitioned]]`

use bytes::Bytes;
use ionian_kernel::id::{ClientId, SessionId, Slot};
use ionian_kernel::layout::{Address, Layout, NodeId};
use ionian_kernel::machine::StateMachine;
use ionian_kernel::protocol::Birth;
use ionian_kernel::time::Timestamp;
use ionian_kernel::work::{Task, Workers};
use ionian_machines::kv::{Command, Compound, Kv};
use ionian_machines::tree::{self, Partitioned, Published, TreeStore};
use ionian_replication::batch::{AnswersByClient, BatchBuilder, Command as Logged, Purpose, Value};
use ionian_replication::executor::Executor;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

const COMMANDS: u64 = 1 << 20;

/// Nanoseconds that tasks took.
static WORKED: AtomicU64 = AtomicU64::new(0);

/// Workers that work when they are waited for, and measure how long they do.
struct Measured(Vec<Option<Box<dyn Task>>>);

impl Workers for Measured {
    fn count(&self) -> usize {
        self.0.len()
    }
    fn worth(&mut self) -> usize {
        64
    }
    fn start(&mut self, worker: usize, _: usize, task: Box<dyn Task>) {
        self.0[worker] = Some(task);
    }
    fn poll(&mut self, worker: usize) -> Option<Box<dyn Task>> {
        self.0[worker].is_some().then(|| self.wait(worker))
    }
    fn wait(&mut self, worker: usize) -> Box<dyn Task> {
        let mut task = self.0[worker].take().expect("a task");
        let begun = Instant::now();
        task.run();
        WORKED.fetch_add(begun.elapsed().as_nanos() as u64, Ordering::Relaxed);
        task
    }
}

fn set(key: u64) -> Vec<u8> {
    let words = ["set".into(), format!("key:{key:016}"), format!("{key:08}")];
    let words: Vec<Bytes> = words.into_iter().map(Bytes::from).collect();
    let command = Command::parse(&words).expect("a command");
    Compound::Pipeline(vec![command]).encode()
}

/// A machine, and its commands that create a key and give it another value.
struct Service {
    machine: fn() -> Box<dyn StateMachine>,
    create: fn(u64) -> Vec<u8>,
    update: fn(u64) -> Vec<u8>,
}

fn service(name: &str) -> Service {
    let tree = |machine| Service {
        machine,
        create: |key| tree::Command::Insert { key, value: 0 }.encode(),
        update: |key| tree::Command::Update { key, value: 1 }.encode(),
    };
    match name {
        "kv" => Service {
            machine: || Box::new(Kv::default()),
            create: set,
            update: set,
        },
        "published" => tree(|| Box::new(TreeStore::<Published>::default())),
        "partitioned" => tree(|| Box::new(TreeStore::<Partitioned>::default())),
        _ => panic!("unknown machine {name:?}; available: kv, published, partitioned"),
    }
}

/// Batches of a log, of this many commands each.
fn log(command: fn(u64) -> Vec<u8>, keys: u64, per_batch: u64, from: u64) -> Vec<Value> {
    let mut number = from;
    let mut random = 7_u64;
    let batches = (0..COMMANDS / per_batch).map(|_| {
        let mut batch = BatchBuilder::default();
        for _ in 0..per_batch {
            random = random
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            batch.push(&Logged {
                client: ClientId(0),
                purpose: Purpose::Execute(SessionId(1)),
                number,
                floor: number.saturating_sub(1000),
                payload: command((random >> 20) % keys),
            });
            number += 1;
        }
        Value {
            stamp: Timestamp(1),
            batch: batch.take(),
        }
    });
    batches.collect()
}

fn main() {
    let keys = std::env::args()
        .nth(1)
        .map_or(1 << 20, |keys| keys.parse().expect("a number"));
    let service = service(std::env::args().nth(2).as_deref().unwrap_or("kv"));
    for per_batch in [256, 1] {
        for workers in [1, 2, 4, 8] {
            let birth = Birth {
                address: Address { kind: 0, index: 0 },
                node: NodeId(0),
                seed: 1,
                amnesiac: false,
                predecessors: 0,
                keeps_records: true,
                machine: &service.machine,
                guard: None,
                workers: Some(&|count| Box::new(Measured((0..count).map(|_| None).collect()))),
            };
            let mut executor = Executor::with_workers(&birth, &Layout::default(), workers);
            let mut answers = AnswersByClient::default();
            let mut open = BatchBuilder::default();
            open.push(&Logged {
                client: ClientId(0),
                purpose: Purpose::Open,
                number: 0,
                floor: 0,
                payload: Vec::new(),
            });
            let open = Value {
                stamp: Timestamp(1),
                batch: open.take(),
            };
            executor.execute(Slot(0), &open, None);
            let mut run = |values: &[Value]| {
                WORKED.store(0, Ordering::Relaxed);
                let begun = Instant::now();
                let give = &mut |answers: &mut AnswersByClient| drop(answers.take_some(0, Slot(0)));
                for (slot, value) in (1..).zip(values) {
                    executor.execute(Slot(slot), value, Some(&mut answers));
                    if slot % (1 + 4096 / per_batch) == 0 {
                        executor.finish(give);
                        give(&mut answers);
                    }
                }
                executor.finish(give);
                begun.elapsed().as_nanos() as u64
            };
            run(&log(service.create, keys, 256, 0));
            let values = log(service.update, keys, per_batch, COMMANDS);
            let all = run(&values);
            let worked = WORKED.load(Ordering::Relaxed);
            println!(
                "{per_batch:4} commands a batch, {workers} workers: {:4} ns a command, of which {:4} ns on workers",
                all / COMMANDS,
                worked / COMMANDS
            );
        }
    }
}
