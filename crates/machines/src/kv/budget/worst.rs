//! Searches for commands that do more than they are charged for: over the whole table of commands,
//! over states that an adversary would make, and, by changing the worst found so far, over their
//! arguments.

use super::super::codec::decode;
use super::super::command::Command;
use super::super::decoded::Decoded;
use super::super::shard::{Key, SEGMENTS};
use super::super::table::command_table;
use super::super::{Compound, Kv, SINCE, answered, hash, work};
use super::*;
use bytes::Bytes;
use ionian_kernel::machine::StateMachine;
use ionian_kernel::random::Random;
use ionian_kernel::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// The steps of a command besides those that it is charged for: keys that have expired, a short
/// stream that is freed, the lists of a stream's block and group.
const STEPS: u64 = 512;

/// The steps for each byte of a command and of its reply.
const STEPS_PER_BYTE: u64 = 16;

/// The bytes by which a command may let the state grow for each of its own, besides those that it
/// is charged for: an entry has 128 of its own, its key may have one.
const GROWTH_PER_BYTE: u64 = 32;

const NOW: u64 = 1_000_000;

/// The commands that are executed one after the other, from a state on.
const ROUND: usize = 100;

/// The keys of a segment that an adversary has filled beyond what has no index.
const CROWDED: u64 = 40_000;

/// What commands of the table have behind their names. `K` is a key, `V` a value, `N` a number, `T`
/// a time, `P` a pattern, `I` an ID; `?` means perhaps, `*` many times what stands before it,
/// anything else itself.
const FORMS: &[(&str, &str)] = &[
    ("append", "K V"),
    ("copy", "K K replace?"),
    ("dbsize", ""),
    ("decr", "K"),
    ("decrby", "K N"),
    ("del", "K*"),
    ("exists", "K*"),
    ("expire", "K N"),
    ("expireat", "K T"),
    ("expiretime", "K"),
    ("flushall", ""),
    ("flushdb", ""),
    ("get", "K"),
    ("getdel", "K"),
    ("getex", "K persist?"),
    ("getrange", "K N N"),
    ("getset", "K V"),
    ("incr", "K"),
    ("incrby", "K N"),
    ("incrbyfloat", "K N"),
    ("keys", "P"),
    ("memory|usage", "K"),
    ("mget", "K*"),
    ("mset", "KV*"),
    ("msetnx", "KV*"),
    ("object|encoding", "K"),
    ("object|freq", "K"),
    ("object|idletime", "K"),
    ("object|refcount", "K"),
    ("persist", "K"),
    ("pexpire", "K N"),
    ("pexpireat", "K T"),
    ("pexpiretime", "K"),
    ("psetex", "K T V"),
    ("pttl", "K"),
    ("randomkey", ""),
    ("rename", "K K"),
    ("renamenx", "K K"),
    ("scan", "N matchP? countN?"),
    ("set", "K V get?"),
    ("setex", "K T V"),
    ("setnx", "K V"),
    ("setrange", "K N V"),
    ("strlen", "K"),
    ("substr", "K N N"),
    ("touch", "K*"),
    ("ttl", "K"),
    ("type", "K"),
    ("unlink", "K*"),
    ("xadd", "K maxlenN? * VV*"),
    ("xdel", "K I*"),
    ("xinfo", "stream K"),
    ("xlen", "K"),
    ("xrange", "K I I countN?"),
    ("xread", "countN? streams KI*"),
    ("xrevrange", "K I I countN?"),
    ("xsetid", "K I"),
    ("xtrim", "K maxlen N"),
];

/// What a search draws.
struct Draw(Random);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0.any()
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    fn one_of<T: Clone>(&mut self, some: &[T]) -> T {
        some[self.below(some.len() as u64) as usize].clone()
    }

    fn word(&mut self, kind: char) -> Bytes {
        let text = match kind {
            'K' => format!("{}{}", self.one_of(&["k", "k", "s"]), self.below(6)),
            'N' => match self.below(3) {
                0 => self.one_of(&[0, 1, -1, 1 << 20, i64::MAX]).to_string(),
                1 => self.below(40_000).to_string(),
                _ => (self.next() >> 1).to_string(),
            },
            'T' => (NOW + 1 + self.below(1 << 20)).to_string(),
            'I' => self
                .one_of(&["-", "+", "-", "+", "5-5", "1-20000"])
                .to_owned(),
            'P' => {
                let piece = self.one_of(&["a", "?", "[^]", "[a-z]", "[\u{1}-\u{7f}]"]);
                let pieces = piece.repeat(self.below(1000 / piece.len() as u64) as usize);
                self.one_of(&["*", "a", ""]).to_owned() + &pieces + self.one_of(&["*", "b*", ""])
            }
            _ => {
                let len = self.one_of(&[0, 1, 30, 500, 5000]);
                return vec![b'a'; self.below(len + 1) as usize].into();
            }
        };
        text.into()
    }

    /// The words of a part of a form.
    fn part(&mut self, form: &str) -> Vec<Bytes> {
        let (form, times) = match (form.strip_suffix('?'), form.strip_suffix('*')) {
            (Some(form), _) => (form, self.below(2)),
            (_, Some("")) | (None, None) => (form, 1),
            (_, Some(form)) => (form, self.one_of(&[1, 2, 100])),
        };
        let literal = form.trim_end_matches(|letter: char| letter.is_ascii_uppercase());
        let kinds = &form[literal.len()..];
        let mut words = Vec::new();
        if times > 0 && !literal.is_empty() {
            words.push(Bytes::copy_from_slice(literal.as_bytes()));
        }
        // XREAD has all keys before all IDs.
        let apart = form == "KI";
        match apart {
            true => kinds.chars().for_each(|kind| {
                words.extend((0..times).map(|_| self.word(kind)));
            }),
            false => (0..times).for_each(|_| words.extend(kinds.chars().map(|it| self.word(it)))),
        }
        words
    }
}

/// A command, part by part.
#[derive(Clone)]
struct Candidate {
    name: &'static str,
    parts: Vec<Vec<Bytes>>,
    times: u64,
}

impl Candidate {
    fn random(random: &mut Draw, (name, form): (&'static str, &str)) -> Candidate {
        let parts = form.split_whitespace().map(|part| random.part(part));
        Candidate {
            name,
            parts: parts.collect(),
            times: random.one_of(&[1, 1, 1, 2, 20]),
        }
    }

    /// The same with one part made anew.
    fn changed(&self, random: &mut Draw, form: &str) -> Candidate {
        let mut changed = self.clone();
        let parts: Vec<_> = form.split_whitespace().collect();
        let at = random.below(parts.len() as u64 + 1) as usize;
        match parts.get(at) {
            Some(part) => changed.parts[at] = random.part(part),
            None => changed.times = 1 + random.below(40),
        }
        changed
    }

    /// As a pipeline, if it is a command.
    fn compound(&self) -> Option<Compound> {
        let name = self
            .name
            .split('|')
            .map(|it| Bytes::copy_from_slice(it.as_bytes()));
        let words: Vec<Bytes> = name.chain(self.parts.concat()).collect();
        let command = Command::parse(&words).ok()?;
        let commands = (0..self.times).map(|_| command.clone()).collect();
        Some(Compound::Pipeline(commands))
    }
}

/// States that an adversary would make.
const STATES: [fn(&mut Kv); 7] = [
    |_| {},
    // All keys are in one segment, as many as have no index.
    |kv| crowd(kv, 7, CROWD as u64, None),
    // With an index.
    |kv| crowd(kv, 7, CROWDED, None),
    // In the last segment, and all have expired.
    |kv| crowd(kv, SEGMENTS as u64 - 1, CROWDED, Some(NOW)),
    // Values without room behind them.
    |kv| (0..6).for_each(|at| put(kv, &format!("k{at}"), &vec![b'a'; 1 << 20])),
    // Keys that take long to be matched.
    |kv| {
        put(kv, &"a".repeat(MATCHED), b"v");
        put(kv, &"a".repeat(4 << 20), b"v");
        (0..200).for_each(|at| put(kv, &format!("{at}{}", "a".repeat(3000)), b"v"));
    },
    streams,
];

fn command(line: &str) -> Command {
    let words = line
        .split(' ')
        .map(|it| Bytes::copy_from_slice(it.as_bytes()));
    Command::parse(&words.collect::<Vec<_>>()).expect("a command")
}

fn put(kv: &mut Kv, key: &str, value: &[u8]) {
    kv.store.set(Key::new(key.as_bytes()), value, None, 0);
}

fn crowd(kv: &mut Kv, segment: u64, keys: u64, deadline: Option<u64>) {
    let shift = 64 - SEGMENTS.ilog2();
    for at in 0..keys {
        let key = Key {
            position: segment << shift | at,
            bytes: &at.to_le_bytes(),
        };
        kv.store.set(key, b"v", deadline, 0);
    }
}

/// Streams with many entries, some of which share them, and short ones.
fn streams(kv: &mut Kv) {
    for (key, count) in [("s0", 40_000), ("s4", 4000)] {
        let add = command(&format!("xadd {key} 1-* f v"));
        let many = Compound::Pipeline(vec![add; count]).encode();
        kv.apply_at(SINCE, Timestamp(NOW - 1), &many, &mut Vec::new());
    }
    let s0 = kv
        .store
        .get(Key::new(b"s0"), 0)
        .expect("it is there")
        .clone();
    let stream = s0.stream().expect("it is one");
    for at in 1..4 {
        let key = format!("s{at}");
        kv.store
            .set_stream(Key::new(key.as_bytes()), stream.clone(), None, 0);
    }
}

/// What executing commands took, beside what it may take.
#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    steps: u64,
    grown: u64,
    /// The work that is not paid for by commands before, and the most that a gateway expects.
    demanded: (u64, u64),
    /// What they were charged for, in steps and bytes.
    charged: (u64, u64),
    commands: u64,
    /// The bytes of commands and replies.
    bytes: u64,
    /// Keys that have expired are removed once.
    expired: u64,
}

impl Taken {
    fn of(kv: &mut Kv, compound: &Compound, logged: bool) -> Taken {
        let encoded = &compound.encode()[..];
        // Beside a write it is in the log.
        let demand = || {
            let Compound::Pipeline(mut commands) = compound.clone() else {
                unreachable!("it is a pipeline");
            };
            commands.push(command("set k v"));
            Compound::Pipeline(commands).demand()
        };
        let (_, decoded) = decode(encoded).expect("it was encoded");
        let Decoded::Pipeline(commands) = &decoded else {
            unreachable!("it is a pipeline");
        };
        let before = kv.store.live_bytes(NOW);
        let expired = kv.store.len() - kv.store.live_len(NOW);
        let mut reply = Vec::new();
        let mut budget = Budget::new(&decoded, encoded, &reply);
        work::take();
        for op in commands.as_slice() {
            let _ = match logged {
                true => kv.execute(NOW, op, Some(&mut budget), &mut reply),
                false => kv.look_up(NOW, op, Some(&mut budget), &mut reply),
            };
        }
        Taken {
            steps: work::take() / 8,
            grown: kv.store.live_bytes(NOW).saturating_sub(before),
            // The last of them finishes what it has begun.
            demanded: (
                budget.taken().min(WORK),
                logged.then(demand).map_or(u64::MAX, |it| it.work),
            ),
            charged: ((WORK as i64 - budget.work) as u64, GROWTH - budget.growth),
            commands: commands.as_slice().len() as u64,
            bytes: (encoded.len() + reply.len()) as u64,
            expired: expired as u64,
        }
    }

    fn allowed(&self) -> (u64, u64) {
        let of_bytes = STEPS_PER_BYTE * self.bytes;
        let steps = self.charged.0 + STEPS * self.commands + of_bytes + self.expired;
        (steps, self.charged.1 + GROWTH_PER_BYTE * self.bytes)
    }

    /// How near it comes to what is allowed, or by how much it exceeds that.
    fn badness(&self) -> f64 {
        let (steps, growth) = self.allowed();
        (self.steps as f64 / steps as f64).max(self.grown as f64 / growth as f64)
    }
}

/// The worst of each command in each state.
type Worst = BTreeMap<(&'static str, usize), (f64, Candidate, Taken)>;

fn search(commands: u64, seed: u64) -> Worst {
    let mut random = Draw(Random::new(seed));
    let (mut worst, mut done) = (Worst::new(), 0);
    while done < commands {
        let (mut kv, state) = (Kv::default(), random.below(STATES.len() as u64) as usize);
        STATES[state](&mut kv);
        for _ in 0..ROUND {
            let form = random.one_of(FORMS);
            // What comes after it finds nothing.
            if form.0.starts_with("flush") && random.below(8) > 0 {
                continue;
            }
            let candidate = match worst.get(&(form.0, state)) {
                Some((_, worst, _)) if random.below(2) == 0 => worst.changed(&mut random, form.1),
                _ => Candidate::random(&mut random, form),
            };
            let Some(compound) = candidate.compound() else {
                continue;
            };
            let logged = !compound.is_read() || random.below(2) == 0;
            let taken = Taken::of(&mut kv, &compound, logged);
            let (work, most) = taken.demanded;
            assert!(work <= most, "{:?}: {taken:?}", candidate.parts);
            done += taken.commands;
            let badness = taken.badness();
            let key = (form.0, state);
            if worst.get(&key).is_none_or(|it| it.0 < badness) {
                worst.insert(key, (badness, candidate, taken));
            }
        }
    }
    worst
}

fn check(worst: &Worst) {
    let names: BTreeSet<&str> = worst.keys().map(|(name, _)| *name).collect();
    let table = command_table().iter().map(|info| info.name);
    assert_eq!(names, table.collect(), "each was executed");
    for ((name, state), (badness, candidate, taken)) in worst {
        let words = candidate.parts.concat();
        let words = words.iter().take(4).map(|it| it.slice(..it.len().min(40)));
        let words: Vec<_> = words.collect();
        let line = format!("{badness:.3} {name} {words:?} in state {state}: {taken:?}");
        println!("{line}");
        assert!(*badness <= 1.0, "{line}; allowed {:?}", taken.allowed());
    }
}

#[test]
fn no_command_does_much_more_than_it_is_charged_for() {
    check(&search(30_000, 43));
}

/// With `cargo test --release -p ionian-machines -- --ignored million`.
#[test]
#[ignore = "takes minutes"]
fn none_of_a_million_commands_does_much_more_than_it_is_charged_for() {
    check(&search(1_000_000, 44));
}

/// What an adversary would repeat.
const HOSTILE: [&str; 14] = [
    "append k0 v",
    "copy k0 k1 replace",
    "dbsize",
    "flushall",
    "getex k2",
    "keys *aaaaaaaaaaaaaaab*",
    "mget k0 k0 k0 k0",
    "randomkey",
    "rename k3 k4",
    "scan 0 match *aaaaaaaaaaaaaaab* count 1000",
    "setrange k5 67108863 v",
    "xadd s1 maxlen 10 * f v",
    "xrange s0 - + count 100000",
    "xtrim s2 maxlen 0",
];

/// The commands that a gateway queues, at most.
const QUEUED: usize = 65_536;

#[test]
fn a_transaction_of_many_hostile_commands_takes_bounded_work() {
    let commands: Vec<Command> = HOSTILE.iter().map(|line| command(line)).collect();
    let mut random = Draw(Random::new(7));
    for (at, state) in STATES.iter().enumerate() {
        let mut kv = Kv::default();
        state(&mut kv);
        let some = (0..QUEUED).map(|_| random.one_of(&commands));
        let transaction = Compound::Transaction {
            watched: Vec::new(),
            commands: some.collect(),
        };
        let (encoded, mut reply) = (transaction.encode(), Vec::new());
        work::take();
        kv.apply_at(SINCE, Timestamp(NOW), &encoded, &mut reply);
        let steps = work::take() / 8;
        let bytes = (encoded.len() + reply.len()) as u64;
        let most = WORK + CROWDED + STEPS * QUEUED as u64 / 64 + bytes;
        assert!(steps <= most, "state {at}: {steps} steps, at most {most}");
    }
}

/// Alone it may have more; what is too much even then is refused by name.
#[test]
fn a_pipeline_stops_before_keys_that_would_take_more_than_is_left() {
    let mut kv = Kv::default();
    STATES[5](&mut kv);
    let keys = command("keys *aaaaaaaaaaaaaaab*");
    let compound = Compound::Pipeline(vec![command("set a b"), keys.clone(), keys.clone()]);
    let mut reply = Vec::new();
    kv.apply_at(SINCE, Timestamp(NOW), &compound.encode(), &mut reply);
    let (done, replies) = answered(&reply.into());
    assert_eq!((done, &replies[..]), (Some(2), &b"+OK\r\n*0\r\n"[..]));
    (0..50).for_each(|at| put(&mut kv, &format!("more{at}{}", "a".repeat(3000)), b"v"));
    let (alone, mut reply) = (Compound::Pipeline(vec![keys]).encode(), Vec::new());
    kv.read(Timestamp(NOW), &alone, &mut reply).expect("a read");
    let text = String::from_utf8_lossy(&reply);
    assert!(text.contains("use SCAN"), "{text}");
}

/// Replicas remove what has expired at times of their own.
#[test]
fn keys_that_have_expired_change_no_answer_in_the_log() {
    let mut replicas = [Kv::default(), Kv::default()];
    // On the first one, more of them than a page of SCAN passes over.
    for at in 0..(PAGE + 2 * PAGE / 8) {
        let key = Key {
            position: at,
            bytes: &at.to_le_bytes(),
        };
        replicas[0].store.set(key, b"v", Some(NOW), 0);
    }
    let lines = ["scan 0", "randomkey", "dbsize", "keys *", "set other v"];
    let many = lines.repeat(30);
    let transaction = Compound::Transaction {
        watched: Vec::new(),
        commands: many.iter().map(|line| command(line)).collect(),
    };
    let replies = replicas.each_mut().map(|kv| {
        let mut reply = Vec::new();
        put(kv, "lives", b"v");
        kv.store.set_modifications(1);
        kv.apply_at(SINCE, Timestamp(NOW), &transaction.encode(), &mut reply);
        String::from_utf8(reply).expect("text")
    });
    assert_eq!(replies[0], replies[1]);
}

/// Replicas store snapshots by it.
#[test]
fn a_machine_counts_its_work_and_not_what_bytes_have_paid_for() {
    let mut kv = Kv::default();
    STATES[4](&mut kv);
    let apply = |kv: &mut Kv, line: &str| {
        let compound = Compound::Pipeline(vec![command(line)]).encode();
        kv.apply_at(SINCE, Timestamp(NOW), &compound, &mut Vec::new());
        kv.work()
    };
    assert_eq!(apply(&mut kv, "append k0 v"), 1);
    let moved = 2 * (1 << 20) / PIECE;
    assert_eq!(apply(&mut kv, "rename k1 k1copy"), 2 + moved);
    // A part counts its own.
    let parts = kv.parts().expect("it has parts");
    assert_eq!(parts.divide(4), 4);
    let at = parts.part_of(hash::position(b"k2") >> 48);
    let mut part = parts.lend(at);
    let compound = Compound::Pipeline(vec![command("rename k2 k2")]).encode();
    part.apply(Timestamp(NOW), &compound, &mut Vec::new());
    assert_eq!(part.work(), 1 + moved);
    kv.parts().expect("it has parts").take_back(at, part);
    assert_eq!(kv.work(), 3 + 2 * moved);
    let mut snapshot = Vec::new();
    kv.snapshot(&mut snapshot);
    kv.restore(&snapshot).expect("a snapshot");
    assert_eq!(kv.work(), 3 + 2 * moved);
}
