//! Several threads leave the state and give the answers of one, whichever of them is done first.

use super::*;
use crate::batch::{BatchBuilder, Outcome};
use crate::executor::tests::Wary;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use bytes::Bytes;
use core::time::Duration;
use ionian_kernel::id::{ClientId, Epoch};
use ionian_kernel::layout::{Address, Layout, NodeId};
use ionian_kernel::level::Level;
use ionian_kernel::machine::{NotARead, Parts, RestoreError, StateMachine};
use ionian_kernel::membership::Change;
use ionian_kernel::protocol::Birth;
use ionian_kernel::random::Random;
use ionian_kernel::wire::encode_all;
use ionian_kernel::work::Inline;

/// Texts by key. A command `[b'a', key, byte]` appends, `[b'm', from, to]` moves the last byte from
/// one text to another, `[b'*']` appends to all texts; each answers with what it has changed.
/// `[b'o', key]` answers with where the command comes from. A query `[b'g', key]` answers with a
/// text, `[b'#']` with all of them.
#[derive(Default)]
struct Texts {
    parts: usize,
    texts: BTreeMap<u8, Vec<u8>>,
}

impl Texts {
    fn part(&self, key: u8) -> usize {
        usize::from(key) % self.parts.max(1)
    }
}

impl StateMachine for Texts {
    fn apply(&mut self, now: Timestamp, command: &[u8], reply: &mut Vec<u8>) {
        match *command {
            [b'a', key, byte] => {
                let text = self.texts.entry(key).or_default();
                text.extend([byte, now.0 as u8]);
                reply.extend_from_slice(text);
            }
            [b'm', from, to] => {
                let last = self.texts.get_mut(&from).and_then(Vec::pop);
                self.texts.entry(to).or_default().extend(last);
                reply.extend_from_slice(&self.texts[&to]);
            }
            _ => {
                self.texts.values_mut().for_each(|text| text.push(b'*'));
                reply.push(self.texts.len() as u8);
            }
        }
    }
    fn apply_logged(&mut self, now: Timestamp, command: &LogCommand<'_>, reply: &mut Vec<u8>) {
        match *command.payload {
            [b'o', _] => reply.extend([
                command.slot.0 as u8,
                command.session.0 as u8,
                command.number as u8,
                command.level.0 as u8,
            ]),
            _ => self.apply(now, command.payload, reply),
        }
    }
    fn read(&self, _: Timestamp, query: &[u8], reply: &mut Vec<u8>) -> Result<(), NotARead> {
        match *query {
            [b'g', key] => reply.extend(self.texts.get(&key).into_iter().flatten()),
            [b'#'] => self.snapshot(reply),
            _ => return Err(NotARead),
        }
        Ok(())
    }
    fn snapshot(&self, out: &mut Vec<u8>) {
        for (key, text) in &self.texts {
            out.extend([*key, text.len() as u8]);
            out.extend_from_slice(text);
        }
    }
    fn restore(&mut self, snapshot: &[u8]) -> Result<(), RestoreError> {
        let (mut rest, mut texts) = (snapshot, BTreeMap::new());
        while let [key, length, after @ ..] = rest {
            let (text, next) = after.split_at(usize::from(*length));
            texts.insert(*key, text.to_vec());
            rest = next;
        }
        *self = Texts { parts: 0, texts };
        Ok(())
    }
    fn footprint(&self, command: &[u8], footprint: &mut Footprint) {
        match *command {
            [b'a', key, _] | [b'o', key] => footprint.writes.push(key.into()),
            [b'm', from, to] => footprint.writes.extend([from, to].map(u64::from)),
            [b'g', key] => footprint.reads.push(key.into()),
            [b'!'] => panic!("a defect of the machine"),
            _ => footprint.everything = true,
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
    fn lend(&mut self, part: usize) -> Box<dyn StateMachine> {
        let all = core::mem::take(&mut self.texts);
        let (lent, kept) = all
            .into_iter()
            .partition(|(key, _)| self.part(*key) == part);
        self.texts = kept;
        let parts = self.parts;
        Box::new(Texts { parts, texts: lent })
    }
    fn take_back(&mut self, part: usize, lent: Box<dyn StateMachine>) {
        let lent: Box<dyn Any> = lent;
        let lent = lent.downcast::<Texts>().expect("a part of this machine");
        assert!(lent.texts.keys().all(|key| self.part(*key) == part));
        self.texts.extend(lent.texts);
    }
}

fn executor(workers: usize, seed: u64) -> Executor {
    guarded(workers, seed, None)
}

fn guarded(workers: usize, seed: u64, guard: Option<&Arc<dyn Guard>>) -> Executor {
    let hire = move |count| Inline::at_random(Random::new(seed), count, 3);
    let birth = Birth {
        address: Address { kind: 0, index: 0 },
        node: NodeId(0),
        seed,
        amnesiac: false,
        predecessors: 0,
        keeps_records: true,
        machine: &|| Box::new(Texts::default()),
        guard,
        workers: Some(&hire),
    };
    let mut layout = Layout::default();
    layout.options.session_expiry = Duration::from_secs(1);
    Executor::with_workers(&birth, &layout, workers)
}

/// An answer without what is the same for all.
type Answered = (Purpose, u64, Outcome);

fn taken(answers: &mut AnswersByClient, into: &mut Vec<Answered>) {
    let all = answers.take_some(0, Slot::ZERO);
    into.extend(all.iter().map(|it| (it.purpose, it.number, it.outcome)));
}

/// A batch of the log, or queries.
enum Step {
    Commands(Value),
    Queries(Batch),
    /// Nothing comes for a moment.
    Pause,
    /// The state is stored, and restored.
    Restore,
}

fn command(random: &mut Random, number: u64, last: u64) -> Command<Vec<u8>> {
    let key = |random: &mut Random| random.below(12) as u8;
    let payload = match random.below(40) {
        0 => vec![b'*'],
        1..=3 => vec![b'm', key(random), key(random)],
        _ => vec![b'a', key(random), number as u8],
    };
    Command {
        client: ClientId(0),
        purpose: Purpose::Execute(SessionId(1 + random.below(3))),
        number,
        floor: last.saturating_sub(random.below(60)),
        payload,
    }
}

fn steps(seed: u64) -> Vec<Step> {
    let mut random = Random::new(seed);
    let mut sent: Vec<Command<Vec<u8>>> = Vec::new();
    let (mut next, mut now) = ([0; 4], 1000);
    let plain = |purpose, number, payload: &[u8]| Command {
        client: ClientId(0),
        purpose,
        number,
        floor: 0,
        payload: payload.to_vec(),
    };
    let mut all = Vec::new();
    for step in 0..60 {
        let mut batch = BatchBuilder::default();
        match random.below(10) {
            0 => all.push(Step::Pause),
            1 if random.once_in(3) => all.push(Step::Restore),
            2 | 3 => {
                for number in 0..random.below(20) {
                    let query: &[u8] = match random.below(12) {
                        0 => b"#",
                        1 => b"a?",
                        key => &[b'g', key as u8],
                    };
                    batch.push(&plain(Purpose::Read, step * 100 + number, query));
                }
                all.push(Step::Queries(batch.take()));
            }
            _ => {
                if step == 0 || random.once_in(8) {
                    batch.push(&plain(Purpose::Open, step, b""));
                }
                for _ in 0..random.below(60) {
                    if let Some(copy) = sent.iter().rev().nth(random.below(200) as usize)
                        && random.once_in(10)
                    {
                        batch.push(copy);
                        continue;
                    }
                    let mut new = command(&mut random, 0, 0);
                    let Purpose::Execute(SessionId(session)) = new.purpose else {
                        unreachable!()
                    };
                    let number = &mut next[session as usize];
                    new = Command {
                        purpose: new.purpose,
                        ..command(&mut random, *number, *number)
                    };
                    *number += 1;
                    batch.push(&new);
                    sent.push(new);
                }
                now += random.below(100);
                all.push(Step::Commands(Value {
                    stamp: Timestamp(now),
                    batch: batch.take(),
                }));
            }
        }
    }
    all
}

/// The state at the end, the answers to commands in the order of their numbers, and how many
/// queries were answered.
fn run(executor: &mut Executor, steps: &[Step]) -> (Bytes, Vec<String>, usize) {
    let (mut answers, mut given) = (AnswersByClient::default(), Vec::new());
    for (slot, step) in (0..).map(Slot).zip(steps) {
        match step {
            Step::Commands(value) => executor.execute(slot, value, Some(&mut answers)),
            Step::Queries(batch) => {
                let rest = executor.read(Timestamp(0), batch, &mut answers);
                assert_eq!(rest, None);
            }
            Step::Pause => executor.finish(&mut |answers| taken(answers, &mut given)),
            Step::Restore => {
                let snapshot = executor.snapshot();
                executor.restore(&snapshot).expect("its own");
            }
        }
        executor.collect(&mut |answers| taken(answers, &mut given));
        taken(&mut answers, &mut given);
    }
    executor.finish(&mut |answers| taken(answers, &mut given));
    let (queries, commands): (Vec<_>, Vec<_>) =
        given.into_iter().partition(|it| it.0 == Purpose::Read);
    let mut commands: Vec<String> = commands.iter().map(|it| format!("{it:?}")).collect();
    commands.sort();
    (executor.snapshot(), commands, queries.len())
}

#[test]
fn any_number_of_workers_leaves_the_state_and_gives_the_answers_of_one() {
    let (mut given, mut spanning) = (0, 0);
    for seed in 0..100 {
        let steps = steps(seed);
        let alone = run(&mut executor(1, seed), &steps);
        for workers in 2..6 {
            let mut several = executor(workers, seed);
            assert_eq!(several.workers()[0], workers as u64);
            assert!(
                run(&mut several, &steps) == alone,
                "seed {seed}, {workers} workers"
            );
            given += several.workers()[1];
            spanning += several.workers()[2];
        }
    }
    assert!(given > 10_000 && spanning > 10_000, "{given} {spanning}");
}

/// What the commands of a new session are answered, with their numbers.
fn answered(mut executor: Executor, commands: &[(u64, &'static [u8])]) -> Vec<(u64, Outcome)> {
    let open = Command {
        client: ClientId(0),
        purpose: Purpose::Open,
        number: 0,
        floor: 0,
        payload: Bytes::new(),
    };
    let purpose = Purpose::Execute(SessionId(1));
    let (mut answers, mut given) = (AnswersByClient::default(), Vec::new());
    let rest = commands.iter().map(|(number, payload)| Command {
        purpose,
        number: *number,
        payload: Bytes::from_static(payload),
        ..open.clone()
    });
    for (slot, command) in (0..).map(Slot).zip([open.clone()].into_iter().chain(rest)) {
        let (stamp, batch) = (Timestamp(1), Batch::one(&command));
        executor.execute(slot, &Value { stamp, batch }, Some(&mut answers));
    }
    executor.finish(&mut |answers| taken(answers, &mut given));
    taken(&mut answers, &mut given);
    let of_session = given.into_iter().filter(|it| it.0 == purpose);
    of_session
        .map(|(_, number, outcome)| (number, outcome))
        .collect()
}

#[test]
fn the_machine_and_its_parts_are_told_where_a_command_comes_from() {
    let whole = Executor::new(Box::new(Texts::default()), Duration::from_secs(60));
    for executor in [whole, executor(4, 7)] {
        let mut answers = answered(executor, &[(0, b"ok"), (5, b"ol")]);
        answers.sort_by_key(|(number, _)| *number);
        let told = |bytes| Outcome::Done(Bytes::from_static(bytes));
        assert_eq!(
            answers,
            [(0, told(&[1, 1, 0, 17])), (5, told(&[2, 1, 5, 17]))]
        );
    }
}

/// What comes before a change of the level in its batch is executed at the level before.
#[test]
fn a_change_of_the_level_divides_its_batch() {
    let of = |purpose, number, payload: &[u8]| Command {
        client: ClientId(0),
        purpose,
        number,
        floor: 0,
        payload: Bytes::copy_from_slice(payload),
    };
    let change = Change::Level {
        base: Epoch(0),
        to: Level(18),
    };
    let execute = Purpose::Execute(SessionId(1));
    let mut batch = BatchBuilder::default();
    batch.push(&of(Purpose::Open, 0, b""));
    batch.push(&of(execute, 0, b"ok"));
    batch.push(&of(Purpose::Change, 1, &encode_all(&change)));
    batch.push(&of(execute, 1, b"ok"));
    let (stamp, batch) = (Timestamp(1), batch.take());
    for seed in 0..20 {
        let mut executor = executor(4, seed);
        let (mut answers, mut given) = (AnswersByClient::default(), Vec::new());
        let value = Value {
            stamp,
            batch: batch.clone(),
        };
        executor.execute(Slot(1), &value, Some(&mut answers));
        executor.finish(&mut |answers| taken(answers, &mut given));
        taken(&mut answers, &mut given);
        let level = |(_, number, outcome): &Answered| match outcome {
            Outcome::Done(bytes) => (*number, bytes.last().copied()),
            other => panic!("{other:?}"),
        };
        let of_session = given.iter().filter(|it| it.0 == execute);
        let mut levels: Vec<_> = of_session.map(level).collect();
        levels.sort();
        assert_eq!(levels, [(0, Some(17)), (1, Some(18))], "seed {seed}");
    }
}

/// A thread that is asked for a result may not have it yet.
#[test]
fn a_copy_of_a_command_that_is_away_gets_its_answer() {
    let done = (0, Outcome::Done(Bytes::from_static(b"x\x01")));
    assert_eq!(
        answered(executor(4, 7), &[(0, b"akx"), (0, b"akx")]),
        [done.clone(), done]
    );
}

#[test]
fn a_command_that_is_left_out_is_not_asked_what_it_touches() {
    let wary: Arc<dyn Guard> = Arc::new(Wary);
    let executor = guarded(4, 7, Some(&wary));
    let mut answers = answered(executor, &[(0, b"akx"), (1, b"!"), (2, b"aky")]);
    answers.sort_by_key(|(number, _)| *number);
    let done = |bytes| Outcome::Done(Bytes::from_static(bytes));
    assert_eq!(
        answers,
        [
            (0, done(b"x\x01")),
            (1, Outcome::Failed),
            (2, done(b"x\x01y\x01"))
        ]
    );
}
