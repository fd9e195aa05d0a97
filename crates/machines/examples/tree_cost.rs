//! What a command on the B+-tree costs, and how much memory a key takes, beside the standard
//! library's `BTreeMap`: the trees themselves, and the state machine with its encoded commands.
//!
//! `cargo run --release -p ionian-machines --example tree_cost [KEYS]`

use ionian_kernel::machine::StateMachine;
use ionian_kernel::random::Random;
use ionian_kernel::time::Timestamp;
use ionian_machines::tree::{Command, Published, Tree, TreeStore};
use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// How many commands of each kind are measured.
const COMMANDS: usize = 1 << 20;
/// How many are prepared at a time.
const PREPARED: usize = 4096;

trait Map: Default {
    type Prepared;
    fn prepare(command: Command) -> Self::Prepared;
    fn run(&mut self, command: &Self::Prepared) -> u64;
}

impl Map for Tree {
    type Prepared = Command;
    fn prepare(command: Command) -> Command {
        command
    }
    fn run(&mut self, command: &Command) -> u64 {
        match *command {
            Command::Read { key } => self.get(key).unwrap_or(0),
            Command::Update { key, value } => self.update(key, value).into(),
            Command::Insert { key, value } => self.insert(key, value).into(),
            Command::Delete { key } => self.delete(key).into(),
            Command::Scan { .. } | Command::Count => 0,
        }
    }
}

impl Map for BTreeMap<u64, u64> {
    type Prepared = Command;
    fn prepare(command: Command) -> Command {
        command
    }
    fn run(&mut self, command: &Command) -> u64 {
        match *command {
            Command::Read { key } => self.get(&key).copied().unwrap_or(0),
            Command::Update { key, value } => self
                .get_mut(&key)
                .map_or(0, |old| std::mem::replace(old, value)),
            Command::Insert { key, value } => self.insert(key, value).is_none().into(),
            Command::Delete { key } => self.remove(&key).unwrap_or(0),
            Command::Scan { .. } | Command::Count => 0,
        }
    }
}

/// The machine, and its last reply.
#[derive(Default)]
struct Machine(TreeStore<Published>, Vec<u8>);

impl Map for Machine {
    type Prepared = Vec<u8>;
    fn prepare(command: Command) -> Vec<u8> {
        command.encode()
    }
    fn run(&mut self, command: &Vec<u8>) -> u64 {
        self.1.clear();
        self.0.apply(Timestamp(1), command, &mut self.1);
        u64::from(self.1[0])
    }
}

/// Memory of this process in bytes.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("a Linux system");
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    pages.map_or(0, |pages: u64| pages * 4096)
}

/// Nanoseconds for a command on each of some keys.
fn measure<M: Map>(map: &mut M, keys: &[u64], command: impl Fn(u64) -> Command) -> f64 {
    let mut took = Duration::ZERO;
    for some in keys.chunks(PREPARED) {
        let commands: Vec<_> = some.iter().map(|key| M::prepare(command(*key))).collect();
        let begun = Instant::now();
        let sum = commands
            .iter()
            .fold(0_u64, |sum, it| sum.wrapping_add(map.run(it)));
        took += begun.elapsed();
        black_box(sum);
    }
    took.as_nanos() as f64 / keys.len() as f64
}

fn shuffle(keys: &mut [u64], random: &mut Random) {
    for last in (1..keys.len()).rev() {
        keys.swap(last, random.below(last as u64 + 1) as usize);
    }
}

/// Fills a map with even keys, which odd ones join later.
fn run<M: Map>(name: &str, count: u64, order: &str) {
    let mut random = Random::new(7);
    let mut keys: Vec<u64> = (0..count).map(|key| 2 * key).collect();
    if order == "random" {
        shuffle(&mut keys, &mut random);
    }
    let (mut map, before) = (M::default(), resident());
    let load = measure(&mut map, &keys, |key| Command::Insert { key, value: key });
    let memory = (resident() - before) as f64 / count as f64;
    shuffle(&mut keys, &mut random);
    keys.truncate(COMMANDS);
    let read = measure(&mut map, &keys, |key| Command::Read { key });
    let update = measure(&mut map, &keys, |key| Command::Update { key, value: 7 });
    let odd = |key| key + 1;
    let insert = measure(&mut map, &keys, |key| Command::Insert {
        key: odd(key),
        value: 7,
    });
    shuffle(&mut keys, &mut random);
    let delete = measure(&mut map, &keys, |key| Command::Delete { key: odd(key) });
    println!(
        "{count:9} {order:9} {name:9} {memory:9.1} {load:6.0} {read:6.0} {update:6.0} {insert:6.0} \
         {delete:6.0}"
    );
}

/// Each case has a process of its own, so that memory is measured from the beginning.
fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |text: &String| text.parse().expect("the number of keys");
    if let [_, keys, order, name] = &arguments[..] {
        let run = match &**name {
            "BTreeMap" => run::<BTreeMap<u64, u64>>,
            "tree" => run::<Tree>,
            _ => run::<Machine>,
        };
        return run(name, number(keys), order);
    }
    println!("     keys loaded    map       bytes/key   load   read update insert delete (ns)");
    let counts = arguments
        .get(1)
        .map_or(vec![1_000_000, 10_000_000], |keys| vec![number(keys)]);
    for count in counts {
        for order in ["ascending", "random"] {
            for name in ["BTreeMap", "tree", "machine"] {
                let mut case = std::process::Command::new(&arguments[0]);
                case.args([&count.to_string(), order, name]);
                let status = case.status().expect("a process");
                assert!(status.success(), "{name} failed: {status}");
            }
        }
    }
}
