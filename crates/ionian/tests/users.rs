//! Users of the key-value machine on each protocol, in the simulator: random changes of users among
//! other commands, each judged at some epoch, while nodes crash and are restored from snapshots.
//!
//! Every answer ends with all users and their epoch. The simulator compares the answers of all
//! replicas, and with those of a machine that is never restored: after each slot all have the same
//! users and the same epoch.
#![cfg(feature = "testing")]

use bytes::Bytes;
use ionian::testing::{Commands, Random, Simulation};
use ionian::{Kv, NotARead, RestoreError, StateMachine, Timestamp};
use ionian_kernel::delegate;
use ionian_machines::kv::{self, Command, Compound};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The commands of a run are judged at epochs below this one.
const EPOCHS: u64 = 16;

fn words(line: &str) -> Vec<Bytes> {
    let words = line.split_whitespace();
    words.map(|word| Bytes::from(word.to_owned())).collect()
}

fn pipeline(line: &str) -> Compound {
    let command = Command::parse(&words(line));
    Compound::Pipeline(vec![command.expect("a command")])
}

/// The encoding of all users with their epoch, which is at the front.
fn users(kv: &Kv) -> Vec<u8> {
    let (mut users, all) = (Vec::new(), Compound::Users { known: u64::MAX });
    let read = kv.read(Timestamp(0), &all.encode(), &mut users);
    read.expect("a read");
    users
}

fn epoch(users: &[u8]) -> u64 {
    u64::from_le_bytes(*users.first_chunk().expect("an epoch"))
}

/// The epoch at which a command was judged, and the command as a gateway sends it.
fn judged(command: &[u8]) -> (u64, Bytes) {
    let (epoch, compound) = command.split_first().expect("an epoch");
    (
        u64::from(*epoch),
        kv::judged_at(u64::from(*epoch), compound),
    )
}

fn random_judged(random: &mut Random, compound: &Compound) -> Vec<u8> {
    let mut command = vec![random.below(EPOCHS) as u8];
    command.extend(compound.encode());
    command
}

/// The key-value machine. No two commands commute, as every answer has the users.
#[derive(Default)]
struct WithUsers(Kv);

impl StateMachine for WithUsers {
    delegate!(0: snapshot freeze restore next_deadline needs);

    fn apply(&mut self, now: Timestamp, command: &[u8], reply: &mut Vec<u8>) {
        let present = epoch(&users(&self.0));
        let (epoch, command) = judged(command);
        self.0.apply(now, &command, reply);
        let refused = kv::is_outdated(reply);
        assert_eq!(
            refused,
            epoch < present,
            "judged at {epoch}, at epoch {present}"
        );
        reply.extend(users(&self.0));
    }

    fn read(&self, now: Timestamp, query: &[u8], reply: &mut Vec<u8>) -> Result<(), NotARead> {
        self.0.read(now, &judged(query).1, reply)?;
        reply.extend(users(&self.0));
        Ok(())
    }
}

impl Commands for WithUsers {
    fn random_write(random: &mut Random) -> Vec<u8> {
        let user = ["u", "v", "default"][random.below(3) as usize];
        let rule = [
            "on",
            "off",
            "nopass",
            "~a*",
            "reset",
            "+get",
            "-get",
            "(~b +set)",
            "+no",
        ];
        let rule = rule[random.below(rule.len() as u64) as usize];
        let compound = match random.below(6) {
            0 | 1 => Compound::SetUser {
                name: user.into(),
                rules: words(rule),
            },
            2 => Compound::DeleteUsers(words(user)),
            _ => pipeline("incr n"),
        };
        random_judged(random, &compound)
    }

    fn random_read(random: &mut Random) -> Vec<u8> {
        random_judged(random, &pipeline("get n"))
    }
}

/// One preset of each protocol, as many at a time as there are processors.
#[test]
fn users_are_linearizable_on_every_protocol() {
    let mut first = BTreeMap::new();
    for (protocol, preset) in ionian::presets() {
        first.entry(protocol.name).or_insert(preset.name);
    }
    let (first, next) = (Vec::from_iter(first), AtomicUsize::new(0));
    let work = || {
        while let Some((protocol, preset)) = first.get(next.fetch_add(1, Ordering::Relaxed)) {
            let report = Simulation::new(preset)
                .seeds(0..3)
                .operations(30)
                .run::<WithUsers>();
            let report = report.unwrap_or_else(|failure| panic!("{protocol}: {failure}"));
            let answered = report.acknowledged;
            assert!(answered > 30, "{protocol}: {answered} acknowledged");
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
}

/// A machine with a defect: the epoch of its users is beside the state, and not in snapshots. After
/// a restart it begins at zero.
#[derive(Default)]
struct EpochApart(WithUsers);

impl StateMachine for EpochApart {
    delegate!(0: apply read snapshot freeze next_deadline needs);

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), RestoreError> {
        self.0.restore(snapshot)?;
        let users = users(&self.0.0);
        let mut without = snapshot.to_vec();
        let place = snapshot.windows(users.len()).position(|part| part == users);
        if let Some(place) = place {
            without[place..place + 8].fill(0);
        }
        self.0.restore(&without)
    }
}

impl Commands for EpochApart {
    fn random_write(random: &mut Random) -> Vec<u8> {
        WithUsers::random_write(random)
    }

    fn random_read(random: &mut Random) -> Vec<u8> {
        WithUsers::random_read(random)
    }
}

#[test]
fn an_epoch_outside_snapshots_is_caught() {
    let report = Simulation::new("colocated")
        .seeds(0..20)
        .run::<EpochApart>();
    let failure = report.expect_err("replicas differ");
    println!("{failure}");
}
