//! The rules of the roles of P-SMR, by which the logs of groups are merged. Each instance is on a
//! stage; replicas are several where they must help each other.

#[path = "psmr/apart.rs"]
mod apart;
#[path = "psmr/catching_up.rs"]
pub(crate) mod catching_up;
#[path = "psmr/lane.rs"]
mod lane;
#[path = "psmr/leader.rs"]
mod leader;
#[path = "psmr/merge.rs"]
pub(crate) mod merge;
#[path = "psmr/random.rs"]
mod random;
#[path = "psmr/turns.rs"]
mod turns;

use crate::stage;
use bytes::Bytes;
use ionian_kernel::id::*;
use ionian_kernel::layout::{Layout, NodeId, Options, numbered};
use ionian_kernel::level::Level;
use ionian_kernel::machine::{Footprint, NotARead, Parts, RestoreError, StateMachine};
use ionian_kernel::protocol::{Birth, Instance as _, Protocol, Routed};
use ionian_kernel::random::Random;
use ionian_kernel::role::Outbox;
use ionian_kernel::time::{Duration, Instant, Timestamp};
use ionian_protocols::multipaxos::{self, client, kind, replica};
use ionian_protocols::psmr::{Instance, Message, PSmr};
use ionian_replication::batch::{Batch, Command, Outcome, Purpose, Value};
use std::any::Any;
use std::collections::BTreeMap;

/// The state of each key is a text. A command `ab=x` appends `x` to the texts of `a` and of `b`,
/// `*=x` to all, and is answered with the texts of the keys that it names; `ab?` changes nothing.
/// Each part answers `!?` as the whole would, which is a question about all keys.
/// Key `a` is in part 0, `b` in part 1, and so on.
#[derive(Default)]
struct Texts {
    texts: BTreeMap<u8, String>,
    parts: usize,
}

impl Texts {
    fn part(&self, key: u8) -> usize {
        usize::from(key - b'a') % self.parts.max(1)
    }

    fn answer(&self, keys: &[u8], reply: &mut Vec<u8>) {
        let texts = keys.iter().map(|key| match self.texts.get(key) {
            Some(text) => text.as_str(),
            None => "",
        });
        reply.extend(texts.collect::<Vec<_>>().join(",").bytes());
    }
}

/// The keys of a command, and what it appends.
fn parse(command: &[u8]) -> (&[u8], Option<char>) {
    match command {
        [keys @ .., b'=', last] => (keys, Some(char::from(*last))),
        [keys @ .., b'?'] => (keys, None),
        _ => panic!("no command"),
    }
}

impl StateMachine for Texts {
    fn apply(&mut self, _: Timestamp, command: &[u8], reply: &mut Vec<u8>) {
        let (keys, appended) = parse(command);
        for key in keys.iter().filter(|key| **key != b'*') {
            self.texts.entry(*key).or_default().extend(appended);
        }
        if keys == b"*" {
            self.texts
                .values_mut()
                .for_each(|text| text.extend(appended));
        }
        self.answer(keys, reply);
    }
    fn read(&self, _: Timestamp, query: &[u8], reply: &mut Vec<u8>) -> Result<(), NotARead> {
        match parse(query) {
            (keys, None) => self.answer(keys, reply),
            (_, Some(_)) => return Err(NotARead),
        }
        Ok(())
    }
    fn snapshot(&self, out: &mut Vec<u8>) {
        for (key, text) in &self.texts {
            out.extend(format!("{}{text};", char::from(*key)).bytes());
        }
    }
    fn restore(&mut self, snapshot: &[u8]) -> Result<(), RestoreError> {
        let text = std::str::from_utf8(snapshot).map_err(|it| RestoreError(it.to_string()))?;
        let texts = text
            .split_terminator(';')
            .map(|text| (text.as_bytes()[0], text[1..].to_owned()));
        self.texts = texts.collect();
        Ok(())
    }
    fn footprint(&self, command: &[u8], footprint: &mut Footprint) {
        let (keys, appended) = parse(command);
        footprint.everything |= keys == b"*" || keys == b"!";
        let keys = keys.iter().filter(|key| **key >= b'a').copied();
        match appended {
            Some(_) => footprint.writes.extend(keys.map(u64::from)),
            None => footprint.reads.extend(keys.map(u64::from)),
        }
    }
    fn parts(&mut self) -> Option<&mut dyn Parts> {
        Some(self)
    }
}

impl Parts for Texts {
    fn divide(&mut self, count: usize) -> usize {
        self.parts = count;
        count
    }
    fn part_of(&mut self, key: u64) -> usize {
        self.part(key as u8)
    }
    fn each_answers(&self, query: &[u8]) -> bool {
        query == b"!?"
    }
    fn lend(&mut self, part: usize) -> Box<dyn StateMachine> {
        let parts = self.parts;
        let all = std::mem::take(self);
        let (texts, kept) = all
            .texts
            .into_iter()
            .partition(|(key, _)| usize::from(*key - b'a') % parts == part);
        *self = Texts { texts: kept, parts };
        Box::new(Texts { texts, parts })
    }
    fn take_back(&mut self, part: usize, lent: Box<dyn StateMachine>) {
        let lent: Box<dyn Any> = lent;
        let lent = lent.downcast::<Texts>().expect("a part of it");
        assert!(lent.texts.keys().all(|key| self.part(*key) == part));
        self.texts.extend(lent.texts);
    }
}

fn texts() -> Box<dyn StateMachine> {
    Box::new(Texts::default())
}

/// Roles on nodes of their own: a client, 2 leaders, 3 replicas, no unbatcher.
fn layout(groups: u64, options: Options) -> Layout {
    let mut places = (0..).map(NodeId);
    let counts = [1, 0, 2, 2, 2, 3, 3, 0];
    let instances = counts.map(|count| places.by_ref().take(count).collect());
    Layout {
        f: 1,
        instances: numbered(instances.to_vec()),
        options: with(&[("groups", groups)], options),
        ..Layout::default()
    }
}

/// Options with these settings too.
fn with(settings: &[(&'static str, u64)], mut options: Options) -> Options {
    options.own.extend(settings.iter().copied());
    options
}

/// An instance on its stage.
struct Stage {
    instance: Instance,
    outbox: Outbox<Routed<Message>>,
    now: Instant,
}

type Sent = Vec<Routed<Message>>;

impl Stage {
    fn new((groups, options): (u64, Options), of: (u8, u8), keeps_records: bool) -> Self {
        Stage::of(layout(groups, options), of, keeps_records)
    }

    fn of(layout: Layout, of: (u8, u8), keeps_records: bool) -> Self {
        let birth = Birth {
            machine: &texts,
            keeps_records,
            ..stage::birth(of.0, of.1, NodeId(90))
        };
        Stage::born(layout, birth)
    }

    fn born(layout: Layout, birth: Birth<'_>) -> Self {
        let config = PSmr::configure(layout).expect("a deployment");
        let mut stage = Stage {
            outbox: Outbox::new(birth.keeps_records),
            instance: PSmr::instantiate(&config, birth),
            now: Instant(1_000_000),
        };
        stage.instance.on_start(stage.now, &mut stage.outbox);
        stage.ended();
        stage
    }

    fn ended(&mut self) -> Sent {
        self.instance.on_burst_end(self.now, &mut self.outbox);
        self.instance.invariants();
        self.outbox.take_sends()
    }

    fn tell(&mut self, message: Message) -> Sent {
        self.instance
            .on_message(self.now, message, &mut self.outbox);
        self.ended()
    }

    /// Time has passed to its next timer.
    fn timer(&mut self) -> Sent {
        let at = self.instance.next_timer().expect("a timer is set");
        self.now = self.now.max(at);
        self.instance.on_timer(self.now, &mut self.outbox);
        self.ended()
    }

    /// All that it sends in this time.
    fn waited(&mut self, time: Duration) -> Sent {
        let (end, mut sent) = (self.now + time, Vec::new());
        while self.instance.next_timer().is_some_and(|at| at <= end) {
            sent.extend(self.timer());
        }
        self.now = end;
        sent
    }
}

/// A message to a role in a group.
fn within(group: usize, message: impl Into<multipaxos::Message>) -> Message {
    Message::InGroup {
        group: group as u8,
        message: message.into(),
    }
}

fn value(purpose: Purpose, number: u64, payload: &'static str) -> Value {
    let batch = Batch::one(&Command {
        client: ClientId(0),
        purpose,
        number,
        floor: 0,
        payload: Bytes::from(payload),
    });
    let stamp = Timestamp(1000);
    Value { stamp, batch }
}

fn marker(until: u64) -> Value {
    value(Purpose::Internal, until, "")
}

/// It stands for this number of messages without effect.
fn skip(count: u64) -> Value {
    let batch = Batch::one(&Command {
        client: ClientId(0),
        purpose: Purpose::Internal,
        number: 0,
        floor: count,
        payload: Bytes::new(),
    });
    let stamp = Timestamp(1000);
    Value { stamp, batch }
}

fn noop() -> Value {
    let batch = Batch::default();
    let stamp = Timestamp(1000);
    Value { stamp, batch }
}

/// Chosen values of the groups: what replicas are to execute.
struct Logs {
    logs: Vec<Vec<Value>>,
    numbers: Vec<u64>,
}

impl Logs {
    /// In each group a session is open, and what opened that of g_all is executed.
    fn new(groups: usize) -> Self {
        let mut logs = vec![vec![value(Purpose::Open, 99, ""), marker(1)]; groups];
        logs.push(vec![value(Purpose::Open, 99, "")]);
        Logs {
            logs,
            numbers: vec![0; groups + 1],
        }
    }

    fn all(&self) -> usize {
        self.logs.len() - 1
    }

    /// A command is next in the log of a group.
    fn write(&mut self, group: usize, payload: &'static str) {
        let session = SessionId(group as u64 + 1);
        let number = self.numbers[group];
        self.numbers[group] += 1;
        self.logs[group].push(value(Purpose::Execute(session), number, payload));
    }

    fn mark(&mut self, group: usize, until: u64) {
        self.logs[group].push(marker(until));
    }

    /// The message that brings this slot of a group; replica 0 is to answer.
    fn chosen(&self, group: usize, slot: usize) -> Message {
        let message = replica::In::Chosen {
            slot: Slot(slot as u64),
            value: self.logs[group][slot].clone(),
            replier: ReplicaId(0),
        };
        within(group, multipaxos::Message::Replica(message))
    }

    /// The messages that bring all slots, group by group.
    fn messages(&self) -> Vec<Message> {
        let each = self.logs.iter().enumerate();
        each.flat_map(|(group, log)| (0..log.len()).map(move |slot| self.chosen(group, slot)))
            .collect()
    }
}

/// The messages in groups among what was sent.
fn in_groups(sent: &Sent) -> impl Iterator<Item = (u8, &multipaxos::Message)> {
    sent.iter().filter_map(|envelope| match envelope {
        Routed::Roles {
            message: Message::InGroup { group, message },
            ..
        } => Some((*group, message)),
        _ => None,
    })
}

/// The answers among what was sent: group, number, and text.
fn answers(sent: &Sent) -> Vec<(u8, u64, String)> {
    let mut found = Vec::new();
    for (group, message) in in_groups(sent) {
        if let multipaxos::Message::Client(client::In::Answers { answers }) = message {
            for answer in answers.iter() {
                if let Outcome::Done(text) = &answer.outcome {
                    let text = String::from_utf8(text.to_vec()).expect("a text");
                    found.push((group, answer.number, text));
                }
            }
        }
    }
    found
}

/// As `answers` has them.
fn expected(answers: &[(u8, u64, &str)]) -> Vec<(u8, u64, String)> {
    answers
        .iter()
        .map(|(group, number, text)| (*group, *number, (*text).to_owned()))
        .collect()
}

fn a_replica(groups: u64) -> Stage {
    Stage::new((groups, Options::default()), (kind::Replica, 0), true)
}

/// A new replica has these answers, sorted, in whatever order the slots come.
fn in_any_order((groups, options): (u64, Options), logs: &Logs, answered: &[(u8, u64, &str)]) {
    let mut random = Random::new(5);
    for _ in 0..200 {
        let mut replica = Stage::new((groups, options.clone()), (kind::Replica, 0), true);
        let (mut left, mut sent) = (logs.messages(), Vec::new());
        while !left.is_empty() {
            let message = left.swap_remove(random.below(left.len() as u64) as usize);
            sent.extend(replica.tell(message));
        }
        let mut all = answers(&sent);
        all.sort();
        assert_eq!(all, expected(answered));
    }
}
