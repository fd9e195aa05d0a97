//! What random commands answer, and which state they lead to: the digests of replies and snapshots
//! of the key-value store. Programs of two releases print the same at a level that both support
//! (`docs/upgrade.md`).
//!
//! `cargo run --release -p ionian-machines --example digest [SEED [COMMANDS [LEVEL]]]`

use bytes::Bytes;
use ionian_kernel::guard::LogCommand;
use ionian_kernel::id::{SessionId, Slot};
use ionian_kernel::level::Level;
use ionian_kernel::machine::{Footprint, StateMachine};
use ionian_kernel::random::Random;
use ionian_kernel::time::Timestamp;
use ionian_machines::kv::{Command, Compound, Kv};

/// The commands that every level has. K is a key, S the key of a stream in most cases, V a value, N
/// a number, L the length of a stream, I the ID of an entry.
const FORMS: &[&str] = &[
    "get K",
    "mget K K",
    "exists K K",
    "touch K",
    "strlen K",
    "getrange K N N",
    "substr K N N",
    "ttl K",
    "pttl K",
    "expiretime K",
    "pexpiretime K",
    "type K",
    "dbsize",
    "keys k1*",
    "scan 0 count N",
    "scan N match k* type stream",
    "randomkey",
    "set K V",
    "set K V",
    "set K V nx get",
    "set K V xx keepttl",
    "set K V px N",
    "set K V ex N get",
    "set K V pxat N",
    "setnx K V",
    "setex K N V",
    "psetex K N V",
    "getset K V",
    "getdel K",
    "getex K px N",
    "getex K persist",
    "getex K ex V",
    "mset K V K V",
    "msetnx K V K V",
    "del K K",
    "unlink K",
    "incr K",
    "decr K",
    "incrby K N",
    "decrby K N",
    "incrbyfloat K V",
    "append K V",
    "setrange K N V",
    "expire K N",
    "expire K N nx",
    "expireat K N",
    "pexpire K N gt",
    "pexpire K N lt",
    "pexpireat K N xx",
    "persist K",
    "rename K K",
    "renamenx K K",
    "copy K K replace",
    "copy K K",
    "xadd S * V V",
    "xadd S I V V",
    "xadd S * V V V V",
    "xadd S maxlen ~ L * V V",
    "xadd S nomkstream minid I * V V",
    "xtrim S maxlen L",
    "xtrim S minid ~ I",
    "xdel S I I",
    "xsetid S I",
    "xlen S",
    "xrange S - +",
    "xrange S I + count N",
    "xrevrange S + - count N",
    "xread streams S S I I",
    "xread count N streams S $",
    "xinfo stream S",
    "xinfo stream S full",
    "nonsense V",
    "get",
];

/// Is drawn once in `RARELY` commands, so that there are many keys most of the time.
const RARE: &str = "flushall";
const RARELY: u64 = 20_000;

const KEYS: u64 = 300;

/// How many compounds come between two snapshots, and how many snapshots between two restarts.
const SNAPSHOT_EVERY: u64 = 500;
const RESTORED_EVERY: u64 = 4;

/// A hash of everything that was added (FNV-1a).
struct Digest(u64);

impl Digest {
    fn add(&mut self, bytes: &[u8]) {
        let length = (bytes.len() as u64).to_le_bytes();
        for byte in length.iter().chain(bytes) {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

struct Run {
    random: Random,
    level: Level,
    now: u64,
    kv: Kv,
    replies: Digest,
    snapshots: Digest,
    commands: u64,
}

/// Executes a compound in a place of the log where the cluster has this level. Programs before
/// level 18 have `StateMachine::apply` instead.
fn execute(kv: &mut Kv, level: Level, now: u64, payload: &[u8], reply: &mut Vec<u8>) {
    let logged = LogCommand {
        slot: Slot(1),
        session: SessionId(1),
        number: 1,
        payload,
        level,
    };
    kv.apply_logged(Timestamp(now), &logged, reply);
}

impl Run {
    fn key(&mut self) -> String {
        // Half of the commands meet on a few keys.
        let keys = if self.random.once_in(2) { 12 } else { KEYS };
        format!("k{}", self.random.below(keys))
    }

    fn value(&mut self) -> String {
        match self.random.below(8) {
            0..=2 => (self.random.below(4000) as i64 - 2000).to_string(),
            3 => format!("{}.{}", self.random.below(90), self.random.below(1000)),
            4 => "v".repeat(self.random.below(6000) as usize),
            5 => i64::MAX.to_string(),
            _ => format!("v{:x}", self.random.below(1 << 20)),
        }
    }

    fn number(&mut self) -> u64 {
        match self.random.below(4) {
            0 => self.random.below(8),
            1 => self.now + self.random.below(20_000),
            2 => (self.now + self.random.below(20_000)) / 1000,
            _ => self.random.below(2000),
        }
    }

    fn word(&mut self, word: &str) -> String {
        match word {
            "K" => self.key(),
            "S" if !self.random.once_in(8) => format!("s{}", self.random.below(4)),
            "S" => self.key(),
            "V" => self.value(),
            "L" => (50 + self.random.below(300)).to_string(),
            "N" => self.number().to_string(),
            "I" => {
                let behind = self.random.below(300_000);
                format!("{}-{}", self.now - behind, self.random.below(3))
            }
            _ => word.to_owned(),
        }
    }

    fn command(&mut self) -> Option<Command> {
        let form = match self.random.once_in(RARELY) {
            true => RARE,
            false => FORMS[self.random.below(FORMS.len() as u64) as usize],
        };
        self.commands += 1;
        let words = form.split(' ').map(|word| Bytes::from(self.word(word)));
        let words: Vec<Bytes> = words.collect();
        match Command::parse_queued(&words) {
            Ok(command) => Some(command),
            Err(refusal) => {
                self.replies.add(refusal.as_bytes());
                None
            }
        }
    }

    fn compound(&mut self) -> Compound {
        if self.random.once_in(20) {
            let keys = 1 + self.random.below(3);
            return Compound::Versions((0..keys).map(|_| self.key().into()).collect());
        }
        let count = 1 + self.random.below(4);
        let commands = (0..count).filter_map(|_| self.command()).collect();
        if !self.random.once_in(5) {
            return Compound::Pipeline(commands);
        }
        let key = Bytes::from(self.key());
        let watched = match self.random.below(3) {
            0 => vec![(key, self.random.below(3))],
            1 => vec![(key.clone(), self.version(key))],
            _ => Vec::new(),
        };
        Compound::Transaction { watched, commands }
    }

    /// The version of a key, as a client learns it that watches the key.
    fn version(&self, key: Bytes) -> u64 {
        let (query, mut reply) = (Compound::Versions(vec![key]).encode(), Vec::new());
        let read = self.kv.read(Timestamp(self.now), &query, &mut reply);
        read.expect("it changes nothing");
        let digits = reply.iter().skip(4).filter(|byte| byte.is_ascii_digit());
        digits.fold(0, |number, digit| number * 10 + u64::from(digit - b'0'))
    }

    fn step(&mut self) {
        self.now += self.random.below(60);
        let compound = self.compound();
        let (payload, mut reply) = (compound.encode(), Vec::new());
        self.replies.add(&payload);
        let mut footprint = Footprint::default();
        self.kv.footprint(&payload, &mut footprint);
        self.replies.add(format!("{footprint:?}").as_bytes());
        if compound.is_read() && self.random.once_in(2) {
            let read = self.kv.read(Timestamp(self.now), &payload, &mut reply);
            read.expect("it changes nothing");
        } else {
            execute(&mut self.kv, self.level, self.now, &payload, &mut reply);
        }
        self.replies.add(&reply);
    }

    fn take_snapshot(&mut self, is_restored: bool) -> usize {
        let mut snapshot = Vec::new();
        self.kv.snapshot(&mut snapshot);
        self.snapshots.add(&snapshot);
        if is_restored {
            self.kv = Kv::default();
            self.kv.restore(&snapshot).expect("its own snapshot");
        }
        snapshot.len()
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|word| {
        let number = word.parse::<u64>();
        number.unwrap_or_else(|_| panic!("{word} is not a number: [SEED [COMMANDS [LEVEL]]]"))
    });
    let seed = arguments.next().unwrap_or(1);
    let count = arguments.next().unwrap_or(1_000_000);
    let level = arguments.next().map_or(Level::FIRST, |level| {
        Level(u16::try_from(level).expect("levels have two digits"))
    });
    let mut run = Run {
        random: Random::new(seed),
        level,
        now: 1_700_000_000_000,
        kv: Kv::default(),
        replies: Digest(0xcbf2_9ce4_8422_2325),
        snapshots: Digest(0xcbf2_9ce4_8422_2325),
        commands: 0,
    };
    let (mut compounds, mut length) = (0_u64, 0);
    for part in 1..=10 {
        while run.commands < count * part / 10 {
            run.step();
            compounds += 1;
            if compounds.is_multiple_of(SNAPSHOT_EVERY) {
                let is_restored = (compounds / SNAPSHOT_EVERY).is_multiple_of(RESTORED_EVERY);
                length = run.take_snapshot(is_restored);
            }
        }
        println!(
            "{} commands: replies {:016x}, snapshots {:016x}, the last of {length} bytes",
            run.commands, run.replies.0, run.snapshots.0
        );
    }
}
