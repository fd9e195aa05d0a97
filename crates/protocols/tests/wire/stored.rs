//! Records and snapshots as released programs wrote them to disk, in the way of [`golden`]: records
//! are drawn from bytes, snapshots are those of an executor that has executed some commands.

use super::drawn;
use super::golden::{self, EACH, LEVELS, bytes_of, digits, is_read_and_written_as_before, line};
use bytes::Bytes;
use ionian_kernel::id::{ClientId, SessionId, Slot};
use ionian_kernel::machine::{NotARead, RestoreError, StateMachine};
use ionian_kernel::membership::Membership;
use ionian_kernel::random::Random;
use ionian_kernel::role::Role;
use ionian_kernel::time::Timestamp;
use ionian_kernel::wire::{Reader, Wire};
use ionian_protocols::{epaxos, mencius, multipaxos, scalog, spaxos, unreplicated};
use ionian_replication::batch::{Batch, BatchBuilder, Command, Purpose, Value};
use ionian_replication::executor::Executor;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

/// Attempts to draw a record.
const DRAWN: usize = 200_000;

/// The variants that it consists of, by what is shown of it.
fn variants(shown: &str) -> String {
    let words: Vec<_> = shown.split(' ').collect();
    let named = words.windows(2).filter(|pair| pair[1] == "{");
    let names = named.map(|pair| pair[0].rsplit(['(', '[']).next().unwrap_or_default());
    let names: Vec<_> = names.filter(|name| *name != "Record").take(2).collect();
    names.join(".")
}

/// Records of a role, or other things on disk, a few of each variant.
fn drawn<T: Wire + Debug>(name: &str) -> String {
    let (mut random, mut counts) = (Random::new(u64::from(LEVELS[0])), BTreeMap::new());
    let mut lines = String::new();
    for _ in 0..DRAWN {
        let tags = [16, 4, 16].map(|most| random.below(most) as u8);
        let mut bytes = drawn::bytes(&mut random);
        bytes.splice(..0, tags[..random.below(4) as usize].iter().copied());
        let bytes = Bytes::from(bytes);
        let Ok(record) = T::decode(&mut Reader::new(&bytes)) else {
            continue;
        };
        let name = format!("{name}.{}", variants(&format!("{record:?}")));
        let count = counts.entry(name.clone()).or_insert(0);
        *count += 1;
        if *count <= EACH {
            lines += &line(&name, &record);
        }
    }
    lines
}

/// How the values of a kind are drawn, and how a line with one is checked.
struct Kind {
    name: &'static str,
    drawn: fn(&str) -> String,
    check: fn(&str, &str),
}

const fn kind<T: Wire + Debug>(name: &'static str) -> Kind {
    Kind {
        name,
        drawn: drawn::<T>,
        check: |place, line| drop(is_read_and_written_as_before::<T>(place, line)),
    }
}

/// Whatever is in the log of a node, or in the head of a snapshot. P-SMR has the records of
/// MultiPaxos with a group, the other logs of CRAQ and Scalog have those of MultiPaxos. The chain
/// nodes of CRAQ are of level 18, which is not released.
const KINDS: [Kind; 11] = [
    kind::<Membership>("membership"),
    kind::<<multipaxos::acceptor::Acceptor as Role>::Record>("multipaxos/acceptor"),
    kind::<<multipaxos::leader::Leader as Role>::Record>("multipaxos/leader"),
    kind::<<mencius::acceptor::Acceptor as Role>::Record>("mencius/acceptor"),
    kind::<<mencius::leader::Leader as Role>::Record>("mencius/leader"),
    kind::<<spaxos::leader::Leader as Role>::Record>("spaxos/leader"),
    kind::<<spaxos::stabilizer::Stabilizer as Role>::Record>("spaxos/stabilizer"),
    kind::<<epaxos::acceptor::Acceptor as Role>::Record>("epaxos/acceptor"),
    kind::<<epaxos::leader::Leader as Role>::Record>("epaxos/leader"),
    kind::<<scalog::server::Server as Role>::Record>("scalog/server"),
    kind::<<unreplicated::server::Server as Role>::Record>("unreplicated/server"),
];

#[test]
pub(crate) fn golden_records_of_released_programs_are_read_and_written_as_before() {
    for level in LEVELS {
        let path = golden::folder(level).join("records.txt");
        let text = golden::text(&path, || {
            KINDS.iter().map(|kind| (kind.drawn)(kind.name)).collect()
        });
        let mut counts = [0; KINDS.len()];
        for (number, line) in text.lines().enumerate() {
            let place = format!("{}:{}", path.display(), number + 1);
            let name = line.split_once('.').expect("a name").0;
            let at = KINDS.iter().position(|kind| kind.name == name);
            let at = at.unwrap_or_else(|| panic!("{place}: no {name} any more"));
            (KINDS[at].check)(&place, line);
            counts[at] += 1;
        }
        assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
    }
}

/// Appends each command, and answers with all of them.
#[derive(Default)]
struct Tape(Vec<u8>);

impl StateMachine for Tape {
    fn apply(&mut self, _: Timestamp, command: &[u8], reply: &mut Vec<u8>) {
        self.0.extend_from_slice(command);
        reply.extend_from_slice(&self.0);
    }
    fn read(&self, _: Timestamp, _: &[u8], _: &mut Vec<u8>) -> Result<(), NotARead> {
        Ok(())
    }
    fn snapshot(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }
    fn restore(&mut self, snapshot: &[u8]) -> Result<(), RestoreError> {
        self.0 = snapshot.to_vec();
        Ok(())
    }
}

/// What pictures have before the state: nothing, how far several logs are (P-SMR), or what the
/// protocol notes (Scalog).
const PREAMBLES: [&str; 3] = ["none", "cuts", "note"];

fn executor(preamble: &str) -> Executor {
    let mut executor = Executor::new(Box::<Tape>::default(), Duration::from_secs(60));
    match preamble {
        "cuts" => executor.expect_cuts(2, true),
        "note" => executor.keep_notes(),
        _ => {}
    }
    executor
}

/// Opens sessions for two clients, and executes commands in them, some of which repeat others.
fn history() -> Vec<(u64, Batch)> {
    let command = |client, purpose, number, floor, payload: &'static [u8]| Command {
        client: ClientId(client),
        purpose,
        number,
        floor,
        payload: Bytes::from_static(payload),
    };
    let (one, other) = (
        Purpose::Execute(SessionId(1)),
        Purpose::Execute(SessionId(2)),
    );
    let batches = [
        vec![
            command(3, Purpose::Open, 7, 0, b""),
            command(5, Purpose::Open, 8, 0, b""),
        ],
        vec![
            command(3, one, 1, 0, b"a"),
            command(5, other, 1, 0, b"b"),
            command(3, one, 1, 0, b"a"),
            command(3, one, 4, 0, b"c"),
        ],
        vec![
            command(0, Purpose::Internal, 0, 0, b"noted"),
            command(3, one, 2, 2, b"d"),
        ],
        vec![command(5, other, 9, 5, b"e")],
    ];
    let batches = batches.into_iter().map(|commands| {
        let mut builder = BatchBuilder::default();
        commands.iter().for_each(|command| builder.push(command));
        builder.take()
    });
    (1..).map(|at| at * 1000).zip(batches).collect()
}

/// The snapshot after these commands.
fn snapshot(preamble: &str) -> Bytes {
    let mut executor = executor(preamble);
    for (slot, (stamp, batch)) in (0..).zip(history()) {
        let stamp = Timestamp(stamp);
        executor.execute(Slot(slot), &Value { stamp, batch }, None);
    }
    if preamble == "cuts" {
        let mut sessions = Vec::new();
        executor.put_sessions(&mut sessions);
        let cuts = [Slot(4), Slot(2)].map(|slot| (slot, Bytes::from(sessions.clone())));
        executor.set_cuts(Some(&cuts.to_vec()));
    }
    executor.snapshot()
}

#[test]
fn golden_snapshots_of_released_programs_are_read_and_written_as_before() {
    for level in LEVELS {
        let path = golden::folder(level).join("executor.txt");
        let text = golden::text(&path, || {
            let lines = PREAMBLES.map(|name| format!("{name} {}\n", digits(&snapshot(name))));
            lines.concat()
        });
        let mut names = Vec::new();
        for line in text.lines() {
            let (name, digits) = line.split_once(' ').expect("a name");
            let mut executor = executor(name);
            executor.restore(&bytes_of(digits)).expect("it is read");
            assert_eq!(executor.now(), Timestamp(4000), "{name}");
            assert_eq!(executor.session_count(), 2, "{name}");
            assert_eq!(executor.snapshot(), bytes_of(digits), "{name}");
            // Commands of then come to the same now.
            assert_eq!(snapshot(name), bytes_of(digits), "{name}");
            names.push(name);
        }
        assert_eq!(names, PREAMBLES);
    }
}
