//! Typed machines: their commands and answers, what they do not understand, and the test kit.
#![cfg(feature = "testing")]

use ionian::testing::{Commands, Random, Simulation, TypedCommands, exercise};
use ionian::{
    Context, Footprint, Machine, NotARead, ReadLevel, StateMachine, Timestamp, Typed, TypedClient,
    TypedError,
};
use serde::{Deserialize, Serialize, Serializer};
use std::collections::{BTreeMap, HashMap};

/// Named numbers, kept in a map of type `S`.
#[derive(Default, Serialize, Deserialize)]
struct Tally<S>(S);

/// The maps of a [`Tally`]: one that has an order, and one that has not.
trait Numbers: Default + Serialize + for<'a> Deserialize<'a> + Send + 'static {
    fn number(&mut self, name: String) -> &mut i64;
    fn all(&self) -> BTreeMap<String, i64>;
}

impl Numbers for BTreeMap<String, i64> {
    fn number(&mut self, name: String) -> &mut i64 {
        self.entry(name).or_default()
    }
    fn all(&self) -> BTreeMap<String, i64> {
        self.clone()
    }
}

impl Numbers for HashMap<String, i64> {
    fn number(&mut self, name: String) -> &mut i64 {
        self.entry(name).or_default()
    }
    fn all(&self) -> BTreeMap<String, i64> {
        self.clone().into_iter().collect()
    }
}

#[derive(Serialize, Deserialize)]
enum Command {
    Add {
        name: String,
        number: i64,
    },
    /// Answers with what cannot be encoded.
    Strange,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Reply {
    Now(i64),
    Strange(Unsized),
}

/// A sequence whose length is not known before.
#[derive(Debug, PartialEq, Deserialize)]
struct Unsized;

impl Serialize for Unsized {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeSeq;
        serializer.serialize_seq(None)?.end()
    }
}

#[derive(Serialize, Deserialize)]
enum Query {
    Get(String),
    All,
}

impl<S: Numbers> Machine for Tally<S> {
    type Command = Command;
    type Reply = Reply;
    type Query = Query;
    type Answer = BTreeMap<String, i64>;

    fn apply(&mut self, _: &Context, command: Command) -> Reply {
        let Command::Add { name, number } = command else {
            return Reply::Strange(Unsized);
        };
        let now = self.0.number(name);
        *now = now.wrapping_add(number);
        Reply::Now(*now)
    }

    fn read(&self, _: &Context, query: Query) -> BTreeMap<String, i64> {
        let mut all = self.0.all();
        if let Query::Get(wanted) = query {
            all.retain(|name, _| *name == wanted);
        }
        all
    }

    fn command_footprint(command: &Command, footprint: &mut Footprint) {
        if let Command::Add { name, .. } = command {
            footprint.writes.push(part(name));
        }
    }

    fn query_footprint(query: &Query, footprint: &mut Footprint) {
        match query {
            Query::Get(name) => footprint.reads.push(part(name)),
            Query::All => footprint.everything = true,
        }
    }
}

fn part(name: &str) -> u64 {
    name.bytes().map(u64::from).sum()
}

impl<S: Numbers> TypedCommands for Tally<S> {
    fn random_command(random: &mut Random) -> Command {
        if random.below(16) == 0 {
            return Command::Strange;
        }
        let name = format!("n{}", random.below(6));
        let number = random.below(100) as i64 - 50;
        Command::Add { name, number }
    }

    fn random_query(random: &mut Random) -> Query {
        match random.below(4) {
            0 => Query::All,
            _ => Query::Get(format!("n{}", random.below(6))),
        }
    }
}

type Ordered = Tally<BTreeMap<String, i64>>;

fn add(name: &str, number: i64) -> Command {
    let name = name.to_owned();
    Command::Add { name, number }
}

#[test]
fn a_typed_client_gets_typed_answers_and_says_what_went_wrong() {
    let cluster = ionian::start::<Typed<Ordered>>("colocated").expect("a cluster");
    let client = TypedClient::<Ordered>::new(cluster.client());
    assert_eq!(client.write_blocking(&add("a", 2)), Ok(Reply::Now(2)));
    assert_eq!(client.write_blocking(&add("b", 5)), Ok(Reply::Now(5)));
    assert_eq!(client.write_blocking(&add("a", 1)), Ok(Reply::Now(3)));
    for level in [ReadLevel::Linearizable, ReadLevel::Sequential] {
        let read = |query| client.read_blocking(&query, level);
        let expected = [("a".to_owned(), 3), ("b".to_owned(), 5)].into();
        assert_eq!(read(Query::All), Ok(expected));
        assert_eq!(read(Query::Get("a".into())), Ok([("a".into(), 3)].into()));
    }
    let strange = client.write_blocking(&Command::Strange);
    assert_eq!(strange, Err(TypedError::AnswerNotEncoded));

    // A client of another machine, whose commands are numbers.
    let other = TypedClient::<Other>::new(client.client().clone());
    assert_eq!(other.write_blocking(&77), Err(TypedError::NotUnderstood));
    let unknown = other.read_blocking(&Unsized, ReadLevel::Linearizable);
    assert!(
        matches!(unknown, Err(TypedError::NotEncoded(_))),
        "{unknown:?}"
    );
    assert_eq!(client.write_blocking(&add("a", 0)), Ok(Reply::Now(3)));
}

#[derive(Default, Serialize, Deserialize)]
struct Other;

impl Machine for Other {
    type Command = u64;
    type Reply = u64;
    type Query = Unsized;
    type Answer = u64;

    fn apply(&mut self, _: &Context, command: u64) -> u64 {
        command
    }
    fn read(&self, _: &Context, _: Unsized) -> u64 {
        0
    }
}

#[test]
fn what_is_no_command_changes_nothing_and_is_answered() {
    let now = Timestamp::default();
    let mut machine = Typed::<Ordered>::default();
    let mut random = Random::new(1);
    let command = loop {
        let command = Typed::<Ordered>::random_write(&mut random);
        // Not that without a name.
        if command.len() > 4 {
            break command;
        }
    };
    let (mut reply, mut before) = (Vec::new(), Vec::new());
    machine.apply(now, &command, &mut reply);
    machine.snapshot(&mut before);
    let longer: Vec<u8> = command.iter().copied().chain([0]).collect();
    for rubbish in [&[][..], &[2], &[0], &[0, 9], &command[..3], &longer] {
        let (mut reply, mut after) = (b"kept".to_vec(), Vec::new());
        machine.apply(now, rubbish, &mut reply);
        assert_eq!(reply, b"kept\x01", "{rubbish:?}");
        reply.truncate(4);
        assert_eq!(
            machine.read(now, rubbish, &mut reply),
            Ok(()),
            "{rubbish:?}"
        );
        assert_eq!(reply, b"kept\x01", "{rubbish:?}");
        machine.snapshot(&mut after);
        assert_eq!(after, before, "{rubbish:?}");
    }
    assert_eq!(machine.read(now, &command, &mut reply), Err(NotARead));
    let refused = machine
        .restore(&before[1..])
        .expect_err("a byte is missing");
    assert!(refused.0.contains("Tally"), "{refused:?}");
}

/// Bytes near commands and queries, and bytes that are near nothing: each is answered, and what is
/// not understood changes nothing.
#[test]
fn any_bytes_are_answered() {
    let (mut random, now) = (Random::new(5), Timestamp::default());
    let mut machine = Typed::<Ordered>::default();
    let (mut understood, mut before) = (0, Vec::new());
    machine.snapshot(&mut before);
    for _ in 0..50_000 {
        let bytes = any_bytes(&mut random);
        let (mut reply, mut footprint) = (Vec::new(), Footprint::default());
        machine.footprint(&bytes, &mut footprint);
        let read = machine.read(now, &bytes, &mut reply);
        assert!(read.is_err() || !reply.is_empty(), "{bytes:?}");
        reply.clear();
        machine.apply(now, &bytes, &mut reply);
        if reply != [1] {
            understood += 1;
            before.clear();
            machine.snapshot(&mut before);
            continue;
        }
        assert_eq!(read, Ok(()), "{bytes:?} is understood as a command only");
        let mut after = Vec::new();
        machine.snapshot(&mut after);
        assert_eq!(after, before, "{bytes:?}");
        // Some bytes are a snapshot.
        let _ = machine.restore(&bytes);
        machine.restore(&before).expect("its own snapshot");
    }
    assert!((1000..49_000).contains(&understood), "{understood}");
}

fn any_bytes(random: &mut Random) -> Vec<u8> {
    let mut bytes = match random.below(3) {
        0 => Typed::<Ordered>::random_write(random),
        1 => Typed::<Ordered>::random_read(random),
        _ => (0..random.below(12)).map(|_| random.any() as u8).collect(),
    };
    for _ in 0..random.below(4) {
        let at = random.below(bytes.len() as u64 + 1) as usize;
        match random.below(3) {
            0 => bytes.insert(at, random.any() as u8),
            1 => bytes.truncate(at),
            _ => bytes
                .iter_mut()
                .skip(at)
                .take(1)
                .for_each(|it| *it = random.any() as u8),
        }
    }
    bytes
}

#[test]
fn the_test_kit_finds_a_map_without_an_order() {
    let done = exercise::<Typed<Ordered>>(0..100).expect("no fault");
    assert!(done.commuted > 1000, "{done:?}");
    let fault = exercise::<Typed<Tally<HashMap<String, i64>>>>(0..100).expect_err("an order");
    assert!(fault.what.contains("snapshot"), "{fault}");
}

#[test]
fn a_typed_machine_is_simulated() {
    let report = Simulation::new("colocated")
        .seeds(0..3)
        .run::<Typed<Ordered>>();
    assert!(report.expect("no failure").acknowledged > 0);
}
