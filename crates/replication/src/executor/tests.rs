mod levels;

use super::*;
use crate::batch::BatchBuilder;
use alloc::vec;
use ionian_kernel::id::{ClientId, Epoch};
use ionian_kernel::level::Level;
use ionian_kernel::membership::Change;
use ionian_kernel::wire::encode_all;

/// Appends each command and answers with all of them; refuses to read `!`.
#[derive(Default)]
struct Tape(Vec<u8>);

impl StateMachine for Tape {
    fn apply(&mut self, _: Timestamp, command: &[u8], reply: &mut Vec<u8>) {
        self.0.extend_from_slice(command);
        reply.extend_from_slice(&self.0);
    }
    fn read(&self, _: Timestamp, query: &[u8], reply: &mut Vec<u8>) -> Result<(), NotARead> {
        if query == b"!" {
            return Err(NotARead);
        }
        reply.extend_from_slice(&self.0);
        Ok(())
    }
    fn snapshot(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }
    fn restore(&mut self, snapshot: &[u8]) -> Result<(), RestoreError> {
        self.0 = snapshot.to_vec();
        Ok(())
    }
    // It sets the flag, where it should only ever raise it.
    fn footprint(&self, command: &[u8], footprint: &mut Footprint) {
        footprint.timed = command == b"timed";
    }
}

#[test]
fn a_batch_is_timed_if_any_of_its_commands_is() {
    let of = |batch: &[(u64, u64, &'static [u8])]| executor().footprint(&value(batch).batch).timed;
    assert!(of(&[(1, 0, b"timed"), (1, 1, b"not")]));
    assert!(of(&[(1, 0, b"not"), (1, 1, b"timed")]));
    assert!(!of(&[(1, 0, b"not"), (1, 1, b"not")]));
}

fn executor() -> Executor {
    Executor::new(Box::new(Tape::default()), Duration::from_secs(60))
}

/// Opens a session for 0, and executes in the session for any other number.
fn purpose(session: u64) -> Purpose {
    match session {
        0 => Purpose::Open,
        _ => Purpose::Execute(SessionId(session)),
    }
}

fn value(commands: &[(u64, u64, &'static [u8])]) -> Value {
    let mut builder = BatchBuilder::default();
    for (session, number, payload) in commands {
        let payload = Bytes::from_static(payload);
        builder.push(&Command {
            client: ClientId(3),
            purpose: purpose(*session),
            number: *number,
            floor: 0,
            payload,
        });
    }
    Value {
        stamp: Timestamp(5),
        batch: builder.take(),
    }
}

fn outcomes(executor: &mut Executor, value: &Value) -> Vec<Outcome> {
    let mut answers = AnswersByClient::default();
    executor.execute(Slot(1), value, Some(&mut answers));
    answers
        .take_some(0, Slot(1))
        .iter()
        .map(|answer| answer.outcome)
        .collect()
}

#[test]
fn a_command_in_two_slots_is_executed_once_and_answered_twice() {
    let mut executor = executor();
    assert_eq!(
        outcomes(&mut executor, &value(&[(0, 77, b"")])),
        [Outcome::Opened(SessionId(1))]
    );
    let twice = value(&[(1, 0, b"a"), (1, 0, b"a"), (9, 0, b"x")]);
    let done = Outcome::Done(Bytes::from_static(b"a"));
    assert_eq!(
        outcomes(&mut executor, &twice),
        [done.clone(), done.clone(), Outcome::NoSession]
    );
    assert_eq!(outcomes(&mut executor, &twice)[0], done);
}

#[test]
fn a_write_sent_as_a_read_is_refused() {
    let mut executor = executor();
    let mut answers = AnswersByClient::default();
    executor.read(
        Timestamp(0),
        &value(&[(u64::MAX, 1, b"!"), (u64::MAX, 2, b"?")]).batch,
        &mut answers,
    );
    let outcomes: Vec<_> = answers
        .take_some(0, Slot(0))
        .iter()
        .map(|answer| answer.outcome)
        .collect();
    assert_eq!(outcomes, [Outcome::NotARead, Outcome::Done(Bytes::new())]);
}

/// Makes no call for what is or asks for `!`.
pub(super) struct Wary;

impl Guard for Wary {
    fn call(&self, what: Call<'_>, call: &mut dyn FnMut()) -> Result<(), NotDone> {
        match what {
            Call::Apply(LogCommand { payload: b"!", .. })
            | Call::Footprint(Some(LogCommand { payload: b"!", .. }))
            | Call::Read(b"!") => Err(NotDone),
            _ => {
                call();
                Ok(())
            }
        }
    }

    fn must_call(&self, _: Must, call: &mut dyn FnMut()) {
        call();
    }
}

#[test]
fn a_command_that_is_left_out_stays_so_for_every_replica_that_hears_of_it() {
    let mut executor = Executor::guarded(
        Box::new(Tape::default()),
        Duration::from_secs(60),
        Arc::new(Wary),
    );
    outcomes(&mut executor, &value(&[(0, 77, b"")]));
    let done = Outcome::Done(Bytes::from_static(b"ab"));
    let first = outcomes(
        &mut executor,
        &value(&[(1, 0, b"a"), (1, 1, b"!"), (1, 2, b"b")]),
    );
    assert_eq!(first[1..], [Outcome::Failed, done.clone()]);
    assert_eq!(
        outcomes(&mut executor, &value(&[(1, 1, b"!")])),
        [Outcome::Failed],
        "sent again"
    );
    // One that takes the state over knows it without being told to leave anything out.
    let mut other = Executor::new(Box::new(Tape::default()), Duration::from_secs(60));
    other.restore(&executor.snapshot()).unwrap();
    assert_eq!(
        outcomes(&mut other, &value(&[(1, 1, b"!"), (1, 2, b"b")])),
        [Outcome::Failed, done]
    );
    assert_eq!(other.snapshot(), executor.snapshot());
    let mut answers = AnswersByClient::default();
    executor.read(
        Timestamp(0),
        &value(&[(u64::MAX, 1, b"!"), (u64::MAX, 2, b"?")]).batch,
        &mut answers,
    );
    let read: Vec<_> = answers
        .take_some(0, Slot(0))
        .iter()
        .map(|answer| answer.outcome)
        .collect();
    assert_eq!(
        (read, executor.failed_reads()),
        (
            vec![Outcome::Failed, Outcome::Done(Bytes::from_static(b"ab"))],
            1
        )
    );
}

#[test]
fn only_commands_of_a_session_reach_the_machine() {
    let mut executor = executor();
    outcomes(&mut executor, &value(&[(0, 9, b"")]));
    let one = SessionId(1);
    for (purpose, expected) in [
        (Purpose::Internal, None),
        (Purpose::KeepAlive(SessionId(2)), Some(Outcome::NoSession)),
        (Purpose::KeepAlive(one), None),
        (Purpose::Execute(SessionId(2)), Some(Outcome::NoSession)),
        (
            Purpose::Execute(one),
            Some(Outcome::Done(Bytes::from_static(b"x"))),
        ),
    ] {
        let batch = Batch::one(&Command {
            client: ClientId(3),
            purpose,
            number: 0,
            floor: 0,
            payload: Bytes::from_static(b"x"),
        });
        let stamp = Timestamp(1);
        let answered = outcomes(&mut executor, &Value { stamp, batch });
        assert_eq!(answered, Vec::from_iter(expected), "{purpose:?}");
    }
}

#[test]
fn the_memory_of_a_large_reply_is_not_kept() {
    let mut executor = executor();
    let large = [7; 2 * MAX_IDLE_REPLY_BYTES];
    let mut builder = BatchBuilder::default();
    for (session, payload) in [(0, &[][..]), (1, &large)] {
        let (client, purpose) = (ClientId(3), self::purpose(session));
        builder.push(&Command {
            client,
            purpose,
            number: 0,
            floor: 0,
            payload,
        });
    }
    let written = Value {
        stamp: Timestamp(5),
        batch: builder.take(),
    };
    assert_eq!(
        outcomes(&mut executor, &written)[1],
        Outcome::Done(Bytes::copy_from_slice(&large))
    );
    assert!(
        executor.reply.capacity() <= MAX_IDLE_REPLY_BYTES,
        "{}",
        executor.reply.capacity()
    );
    let mut answers = AnswersByClient::default();
    executor.read(
        Timestamp(0),
        &value(&[(u64::MAX, 1, b"?")]).batch,
        &mut answers,
    );
    assert!(
        executor.reply.capacity() <= MAX_IDLE_REPLY_BYTES,
        "{}",
        executor.reply.capacity()
    );
}

/// A batch of short reads had all its answers made at once, however large they were together.
#[test]
fn reads_stop_when_their_answers_are_large_and_go_on_where_they_stopped() {
    let mut executor = executor();
    executor
        .restore(&{
            let mut large = Executor::new(
                Box::new(Tape(alloc::vec![7; 1 << 20])),
                Duration::from_secs(60),
            );
            large.execute(Slot::ZERO, &Value::default(), None);
            large.snapshot()
        })
        .unwrap();
    let reads: Vec<(u64, u64, &[u8])> = (0..10)
        .map(|number| (u64::MAX, number, &b"?"[..]))
        .collect();
    let (mut rest, mut rounds) = (Some(value(&reads).batch), Vec::new());
    while let Some(reads) = rest.take() {
        let mut answers = AnswersByClient::default();
        rest = executor.read(Timestamp(0), &reads, &mut answers);
        assert_eq!(
            rest.is_some(),
            rest.as_ref().is_some_and(|rest| !rest.is_empty())
        );
        rounds.push(
            answers
                .take_some(0, Slot(0))
                .iter()
                .map(|answer| answer.number)
                .collect::<Vec<_>>(),
        );
        assert!(!answers.is_full());
    }
    assert_eq!(rounds, [vec![0, 1, 2, 3], vec![4, 5, 6, 7], vec![8, 9]]);
}

#[test]
fn reads_see_time_pass_but_never_a_deadline() {
    /// Its next deadline is 100.
    struct Alarm;
    impl StateMachine for Alarm {
        fn apply(&mut self, _: Timestamp, _: &[u8], _: &mut Vec<u8>) {}
        fn read(&self, now: Timestamp, _: &[u8], reply: &mut Vec<u8>) -> Result<(), NotARead> {
            reply.push(now.0 as u8);
            Ok(())
        }
        fn snapshot(&self, _: &mut Vec<u8>) {}
        fn restore(&mut self, _: &[u8]) -> Result<(), RestoreError> {
            Ok(())
        }
        fn next_deadline(&self, now: Timestamp) -> Option<Timestamp> {
            (now.0 < 100).then_some(Timestamp(100))
        }
    }
    let mut executor = Executor::new(Box::new(Alarm), Duration::from_secs(60));
    let mut seen = |clock, stamp| {
        executor.execute(
            Slot(1),
            &Value {
                stamp: Timestamp(stamp),
                ..Value::default()
            },
            None,
        );
        let mut answers = AnswersByClient::default();
        executor.read(
            Timestamp(clock),
            &value(&[(u64::MAX, 1, b"?")]).batch,
            &mut answers,
        );
        answers
            .take_some(0, Slot(0))
            .iter()
            .next()
            .map(|answer| answer.outcome)
    };
    let at = |time| Some(Outcome::Done(Bytes::from(alloc::vec![time])));
    assert_eq!(
        [seen(20, 10), seen(5, 10), seen(200, 10), seen(200, 100)],
        [at(20), at(10), at(99), at(200)]
    );
}

#[test]
fn how_long_sessions_live_changes_in_one_slot_and_is_part_of_the_state() {
    let tune = |base, before: u64, after: u64| {
        let (from, to) = (Bytes::from_static(b"a"), Bytes::from_static(b"b"));
        let change = Change::Tune {
            base: Epoch(base),
            from,
            to,
            expiry_ms: (before, after),
        };
        let mut builder = BatchBuilder::default();
        let payload = Bytes::from(encode_all(&change));
        let (client, purpose) = (ClientId(3), Purpose::Change);
        builder.push(&Command {
            client,
            purpose,
            number: 0,
            floor: 0,
            payload,
        });
        builder.take()
    };
    let at = |stamp, batch| Value {
        stamp: Timestamp(stamp),
        batch,
    };
    let opening = value(&[(0, 1, b"")]).batch;
    // Founded with a minute; two sessions, one of them unused for ten seconds when the life of
    // all becomes five.
    let log = [
        at(0, opening.clone()),
        at(10_000, opening.clone()),
        at(10_000, tune(0, 60_000, 5_000)),
        at(10_700, Batch::default()),
        at(14_000, Batch::default()),
        at(14_000, tune(1, 5_000, 3_600_000)),
        at(600_000, Batch::default()),
    ];
    let mut one = executor();
    let open: Vec<usize> = log
        .iter()
        .map(|value| {
            one.execute(Slot(1), value, None);
            one.session_count()
        })
        .collect();
    assert_eq!(
        open,
        [1, 2, 2, 1, 1, 1, 1],
        "the idle one goes soon after the change, the other outlives the next"
    );
    // One that takes a snapshot on the way ends in the same state, whatever it was made with.
    for place in 0..log.len() {
        let mut first = executor();
        log[..place]
            .iter()
            .for_each(|value| first.execute(Slot(1), value, None));
        let founded_with = if place < 3 { 60 } else { 7 };
        let mut second =
            Executor::new(Box::new(Tape::default()), Duration::from_secs(founded_with));
        second.restore(&first.snapshot()).unwrap();
        log[place..]
            .iter()
            .for_each(|value| second.execute(Slot(1), value, None));
        assert_eq!(
            second.snapshot(),
            one.snapshot(),
            "a snapshot before entry {place}"
        );
    }
}

#[test]
fn time_never_falls_and_snapshots_hold_everything() {
    let mut one = executor();
    outcomes(&mut one, &value(&[(0, 1, b"")]));
    outcomes(&mut one, &value(&[(1, 0, b"a")]));
    one.execute(
        Slot(1),
        &Value {
            stamp: Timestamp(2),
            ..Value::default()
        },
        None,
    );
    assert_eq!(one.now(), Timestamp(5));
    let mut two = executor();
    two.restore(&one.snapshot()).unwrap();
    assert_eq!(two.snapshot(), one.snapshot());
    let (mut frozen, mut pieces) = (one.freeze(), Vec::new());
    while frozen.write_some(&mut pieces) {}
    assert_eq!(pieces, one.snapshot());
    two.membership.epoch = ionian_kernel::id::Epoch(3);
    assert_eq!(
        refounded(&two.snapshot(), Level::FIRST).unwrap(),
        one.snapshot()
    );
    two.set_cuts(Some(&vec![(
        Slot(7),
        Bytes::from_static(b"time and sessions"),
    )]));
    assert_eq!(
        refounded(&two.snapshot(), Level::FIRST).unwrap(),
        one.snapshot(),
        "a preamble is left out"
    );
    two.set_cuts(None);
    two.membership = Membership::default();
    // The duplicate is known to the restored replica as well.
    assert_eq!(
        outcomes(&mut two, &value(&[(1, 0, b"a")])),
        [Outcome::Done(Bytes::from_static(b"a"))]
    );
    assert!(two.restore(&Bytes::from_static(b"short")).is_err());
    assert_eq!(two.snapshot(), one.snapshot());
}
