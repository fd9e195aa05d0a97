//! Which commands arrive: SETs and GETs of the key-value store, as a gateway hands them to its
//! client lane, or those of another service.

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

/// Which commands arrive, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// The fraction of the commands that are reads.
    pub read_fraction: f64,
    /// The level of the reads.
    pub read_level: ReadLevel,
    /// The size of a value in bytes.
    pub value_bytes: usize,
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
        Commands {
            writes: (0..load.keys).map(|key| payload(&write(key))).collect(),
            reads: (0..load.keys).map(|key| payload(&read(key))).collect(),
            filled: load.filled,
            read_fraction: load.read_fraction,
            read_level: load.read_level,
        }
    }

    /// The command with this number: keys take turns, reads and writes are mixed in an order that
    /// has nothing to do with the keys.
    pub fn get(&self, number: usize) -> (Operation, Bytes) {
        let mixed = (number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let reads = (mixed as f64) < self.read_fraction * (1_u64 << 32) as f64;
        match reads && !(self.filled && number < self.writes.len()) {
            true => (Operation::Read(self.read_level), self.read(number)),
            false => (Operation::Write, self.write(number)),
        }
    }

    /// The write of a key; numbers above that of the last key begin again at the first.
    pub fn write(&self, key: usize) -> Bytes {
        self.writes[key % self.writes.len()].clone()
    }

    /// As [`write`](Self::write), the read.
    pub fn read(&self, key: usize) -> Bytes {
        self.reads[key % self.reads.len()].clone()
    }
}

/// A lone command.
fn payload(words: &[Bytes]) -> Bytes {
    let command = kv::Command::parse(words).expect("a command of the store");
    Bytes::from(kv::Compound::Pipeline(vec![command]).encode())
}
