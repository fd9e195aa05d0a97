//! Which commands arrive: SETs and GETs of the key-value store, as a gateway hands them to its
//! client lane, or those of another service.

use anyhow::{Context, Result};
use bytes::Bytes;
use ionian_kernel::client::{Operation, ReadLevel};
use ionian_kernel::machine::StateMachine;
use ionian_machines::kv;

/// What is replicated, and what its clients ask for.
pub trait Service {
    /// A state machine, with the state that every replica begins with.
    fn machine(&self) -> Box<dyn StateMachine>;

    /// The command with this number.
    fn command(&self, number: usize) -> (Operation, Bytes);
}

/// A machine with commands of the key-value store.
pub struct KeyValue {
    machine: fn() -> Box<dyn StateMachine>,
    commands: Commands,
}

impl KeyValue {
    /// The machine with this name, under this load.
    ///
    /// # Errors
    /// If there is none.
    pub fn new(machine: &str, load: &Load) -> Result<Self> {
        let machine = ionian_machines::named(machine)
            .with_context(|| format!("machine = {machine:?}: does not exist"))?;
        let commands = Commands::new(load);
        Ok(KeyValue { machine, commands })
    }
}

impl Service for KeyValue {
    fn machine(&self) -> Box<dyn StateMachine> {
        (self.machine)()
    }

    fn command(&self, number: usize) -> (Operation, Bytes) {
        self.commands.get(number)
    }
}

/// Which commands arrive, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// The fraction of the commands that are reads.
    pub read_fraction: f64,
    /// The fraction of the commands that are about the first key; the others take turns at all.
    pub skew: f64,
    /// The level of the reads.
    pub read_level: ReadLevel,
    /// The size of a value in bytes.
    pub value_bytes: usize,
    /// Commands in each request, as a connection of a gateway pipelines them.
    pub pipeline: usize,
    /// How many keys are written and read.
    pub keys: usize,
    /// Commands of a burst, of all lanes together.
    pub burst: usize,
    /// Whether the first commands write every key.
    pub filled: bool,
    /// Whether a node that has client lanes only stands for many machines with one client each:
    /// then it puts nothing of two commands into one message.
    pub separate_clients: bool,
}

/// The commands of a load, made beforehand.
#[derive(Debug)]
pub struct Commands {
    writes: Vec<Bytes>,
    reads: Vec<Bytes>,
    /// The first ones write every key.
    filled: bool,
    read_fraction: f64,
    skew: f64,
    read_level: ReadLevel,
}

impl Commands {
    /// Those of this load.
    pub fn new(load: &Load) -> Self {
        let value: Vec<u8> = (b"a 16-byte value!".iter().copied().cycle())
            .take(load.value_bytes)
            .collect();
        let value = Bytes::from(value);
        let key = |key: usize| Bytes::from(format!("key:{key:012}"));
        let write = |number| vec![Bytes::from_static(b"SET"), key(number), value.clone()];
        let read = |number| vec![Bytes::from_static(b"GET"), key(number)];
        // A request is about its key and those after it.
        let request = |of: &dyn Fn(usize) -> Vec<Bytes>, first: usize| {
            let keys = (first..first + load.pipeline).map(|key| key % load.keys);
            payload(keys.map(of))
        };
        Commands {
            writes: (0..load.keys).map(|key| request(&write, key)).collect(),
            reads: (0..load.keys).map(|key| request(&read, key)).collect(),
            filled: load.filled,
            read_fraction: load.read_fraction,
            skew: load.skew,
            read_level: load.read_level,
        }
    }

    /// The command with this number: keys take turns, reads and writes are mixed in an order that
    /// has nothing to do with the keys.
    pub fn get(&self, number: usize) -> (Operation, Bytes) {
        if self.filled && number < self.writes.len() {
            return (Operation::Write, self.writes[number].clone());
        }
        match part(number, 0x9E37_79B9_7F4A_7C15) < self.read_fraction {
            true => (Operation::Read(self.read_level), self.read(number)),
            false => (Operation::Write, self.write(number)),
        }
    }

    /// The write with this number: of the first key for as many as the load says; else of the key
    /// with this number, where numbers above that of the last key begin again at the first.
    pub fn write(&self, number: usize) -> Bytes {
        self.writes[self.key(number)].clone()
    }

    /// As [`write`](Self::write), the read.
    pub fn read(&self, number: usize) -> Bytes {
        self.reads[self.key(number)].clone()
    }

    fn key(&self, number: usize) -> usize {
        match part(number, 0xD1B5_4A32_D192_ED03) < self.skew {
            true => 0,
            false => number % self.writes.len(),
        }
    }
}

/// A number from 0 to 1 that looks random.
fn part(number: usize, odd: u64) -> f64 {
    let mixed = (number as u64).wrapping_mul(odd) >> 32;
    mixed as f64 / (1_u64 << 32) as f64
}

/// A request with these commands.
fn payload(commands: impl Iterator<Item = Vec<Bytes>>) -> Bytes {
    let parsed = |words: Vec<Bytes>| kv::Command::parse(&words).expect("a command of the store");
    Bytes::from(kv::Compound::Pipeline(commands.map(parsed).collect()).encode())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_commands_are_about_the_first_key_as_the_load_says() {
        let load = Load {
            read_fraction: 0.95,
            skew: 0.25,
            read_level: ReadLevel::Linearizable,
            value_bytes: 16,
            pipeline: 1,
            keys: 1000,
            burst: 1000,
            filled: true,
            separate_clients: true,
        };
        let commands = Commands::new(&load);
        let (mut reads, mut hot, mut hot_reads) = (0, 0, 0);
        for number in load.keys..load.keys + 100_000 {
            let (operation, command) = commands.get(number);
            let read = operation != Operation::Write;
            let about_the_first = command == commands.reads[0] || command == commands.writes[0];
            reads += usize::from(read);
            hot += usize::from(about_the_first);
            hot_reads += usize::from(about_the_first && read);
        }
        let near = |found: usize, expected: usize| found.abs_diff(expected) < 500;
        assert!(near(reads, 95_000), "{reads}");
        assert!(near(hot, 25_075), "{hot}");
        assert!(near(hot_reads, 23_821), "{hot_reads}");
    }

    #[test]
    fn the_first_commands_write_every_key() {
        let load = Load {
            read_fraction: 1.0,
            skew: 1.0,
            read_level: ReadLevel::Linearizable,
            value_bytes: 16,
            pipeline: 1,
            keys: 10,
            burst: 10,
            filled: true,
            separate_clients: true,
        };
        let commands = Commands::new(&load);
        for number in 0..load.keys {
            let expected = (Operation::Write, commands.writes[number].clone());
            assert_eq!(commands.get(number), expected);
        }
        let expected = (
            Operation::Read(ReadLevel::Linearizable),
            commands.reads[0].clone(),
        );
        assert_eq!(commands.get(load.keys), expected);
    }
}
