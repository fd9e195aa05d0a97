use super::*;
use crate::batch::{BatchBuilder, Command, Outcome};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use bytes::Bytes;
use core::time::Duration;
use ionian_kernel::id::ClientId;
use ionian_kernel::machine::{NotARead, RestoreError, StateMachine};
use ionian_kernel::random::Random;
use ionian_kernel::time::Timestamp;

/// Counters: a command is a key, of which it adds one; the answer is the count and the time. Reads
/// give the count. `t` is timed.
#[derive(Default)]
struct Counters([u8; 8]);

impl StateMachine for Counters {
    fn apply(&mut self, now: Timestamp, command: &[u8], reply: &mut Vec<u8>) {
        let counter = &mut self.0[usize::from(command[0] % 8)];
        *counter = counter.wrapping_add(1);
        reply.extend_from_slice(&[*counter, now.0 as u8]);
    }
    fn read(&self, _: Timestamp, query: &[u8], reply: &mut Vec<u8>) -> Result<(), NotARead> {
        reply.push(self.0[usize::from(query[0] % 8)]);
        Ok(())
    }
    fn snapshot(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }
    fn restore(&mut self, snapshot: &[u8]) -> Result<(), RestoreError> {
        let error = |_| RestoreError("it is not of eight bytes".into());
        self.0 = snapshot.try_into().map_err(error)?;
        Ok(())
    }
    fn footprint(&self, command: &[u8], footprint: &mut Footprint) {
        footprint.writes.push(u64::from(command[0] % 8));
        footprint.timed = command == b"t";
    }
}

const EXPIRY: Duration = Duration::from_secs(1);

fn executor() -> Executor {
    Executor::new(Box::new(Counters::default()), EXPIRY)
}

fn command(purpose: Purpose, number: u64, floor: u64, payload: &[u8]) -> Command {
    Command {
        client: ClientId(3),
        purpose,
        number,
        floor,
        payload: Bytes::copy_from_slice(payload),
    }
}

fn increment(session: u64, number: u64, floor: u64, key: u8) -> Command {
    command(Purpose::Execute(SessionId(session)), number, floor, &[key])
}

fn value(stamp: u64, commands: &[Command]) -> Value {
    let mut builder = BatchBuilder::default();
    commands.iter().for_each(|command| builder.push(command));
    Value {
        stamp: Timestamp(stamp),
        batch: builder.take(),
    }
}

/// Executes a value as its footprint demands.
fn execute(executor: &mut Executor, value: &Value) -> Vec<Outcome> {
    let is_barrier = executor.footprint_unordered(&value.batch).everything;
    let mut answers = AnswersByClient::default();
    executor.execute_unordered(value, is_barrier, Some(&mut answers));
    let answers = answers.take_some(0, Slot(0));
    answers.iter().map(|answer| answer.outcome).collect()
}

fn done(count: u8, now: u8) -> Outcome {
    Outcome::Done(Bytes::copy_from_slice(&[count, now]))
}

fn footprint(command: Command) -> Footprint {
    executor().footprint_unordered(&value(0, &[command]).batch)
}

#[test]
fn what_is_counted_or_timed_or_settles_a_session_conflicts_with_everything() {
    let barriers = [
        command(Purpose::Open, 7, 0, b""),
        command(Purpose::Change, 7, 0, b""),
        command(Purpose::KeepAlive(SessionId(1)), 0, 0, b""),
        command(Purpose::Execute(SessionId(1)), 1, 0, b"t"),
        increment(1, SETTLE, 0, 1),
        increment(1, 7 * SETTLE, 0, 1),
    ];
    for barrier in barriers {
        assert!(footprint(barrier.clone()).everything, "{barrier:?}");
    }
    for number in [0, 1, SETTLE - 1, SETTLE + 1] {
        assert!(!footprint(increment(1, number, 0, 1)).everything);
    }
    assert!(!footprint(command(Purpose::Read, 1, 0, b"t")).everything);
}

/// e16: copies of a command at two leaders are executed in the same order everywhere.
#[test]
fn e16_copies_of_a_command_conflict_and_others_of_their_session_do_not() {
    let of = |session, number, key| footprint(increment(session, number, 0, key));
    assert!(
        of(1, 5, 1).conflicts(&of(1, 5, 2)),
        "however the machine sees them"
    );
    assert!(!of(1, 5, 1).conflicts(&of(1, 6, 2)));
    assert!(!of(1, 5, 1).conflicts(&of(2, 5, 2)));
    assert!(of(1, 5, 1).conflicts(&of(2, 6, 1)));
    let mut keys: Vec<u64> = (0..100)
        .flat_map(|session| (0..1000).map(move |number| (session, number)))
        .map(|(session, number)| copies_key(SessionId(session), number))
        .collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), 100_000);
}

#[test]
fn a_copy_through_another_leader_is_answered_and_not_executed() {
    let mut executor = executor();
    execute(
        &mut executor,
        &value(5, &[command(Purpose::Open, 1, 0, b"")]),
    );
    let copy = value(6, &[increment(1, 0, 0, 1)]);
    assert_eq!(execute(&mut executor, &copy), [done(1, 5)]);
    assert_eq!(execute(&mut executor, &copy), [done(1, 5)]);
    // The client has seen it.
    execute(&mut executor, &value(6, &[increment(1, 1, 1, 1)]));
    assert_eq!(execute(&mut executor, &copy), []);
    assert_eq!(
        execute(&mut executor, &value(6, &[increment(9, 0, 0, 1)])),
        [Outcome::NoSession]
    );
}

/// e18: a stamp that one replica has executed and another has not makes no difference.
#[test]
fn e18_time_advances_and_sessions_expire_at_barriers_only() {
    let mut executor = executor();
    let open = |number| command(Purpose::Open, number, 0, b"");
    execute(&mut executor, &value(5, &[open(1), open(2)]));
    assert_eq!(
        execute(&mut executor, &value(9000, &[increment(1, 0, 0, 1)])),
        [done(1, 5)]
    );
    assert_eq!(
        (executor.now(), executor.session_count()),
        (Timestamp(5), 2)
    );
    execute(&mut executor, &value(9001, &[]));
    assert_eq!(executor.session_count(), 2);
    executor.execute_unordered(&value(9002, &[]), true, None);
    assert_eq!(
        (executor.now(), executor.session_count()),
        (Timestamp(9002), 1)
    );
    // The clock of the next leader is behind.
    executor.execute_unordered(&value(9001, &[]), true, None);
    assert_eq!(executor.now(), Timestamp(9002));
}

/// Between barriers, each replica executes the commands in another order; those on one key, and
/// copies, in the same.
#[test]
fn replicas_that_execute_commuting_commands_in_any_order_end_alike() {
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let open = |number| command(Purpose::Open, number, 0, b"");
        let opened = value(1, &[open(1), open(2), open(3)]);
        let mut replicas: Vec<Executor> = (0..3).map(|_| executor()).collect();
        replicas.iter_mut().for_each(|replica| {
            execute(replica, &opened);
        });
        let (mut next, mut stamp) = ([0u64; 3], 2);
        for _ in 0..4 {
            let mut commands: Vec<(u64, Value)> = Vec::new();
            for _ in 0..random.below(20) {
                let session = random.below(3);
                let number = next[session as usize];
                // Some numbers are left out, and come later or never; some come twice.
                next[session as usize] += random.below(3);
                let number = number.saturating_sub(random.below(3));
                let floor = number.saturating_sub(random.below(4));
                let key = (session * 64 + number) as u8 % 8;
                let command = increment(session + 1, number, floor, key);
                let place = u64::from(key);
                commands.push((place, value(stamp + random.below(300), &[command])));
            }
            let mut answers: Vec<Vec<(usize, Vec<Outcome>)>> = Vec::new();
            for replica in &mut replicas {
                let mut rest: Vec<usize> = (0..commands.len()).collect();
                let mut given = Vec::new();
                while !rest.is_empty() {
                    let at = random.below(rest.len() as u64) as usize;
                    // The first of those that conflict with it.
                    let key = commands[rest[at]].0;
                    let first = rest.iter().position(|of| commands[*of].0 == key);
                    let first = rest.remove(first.expect("itself"));
                    given.push((first, execute(replica, &commands[first].1)));
                }
                given.sort_unstable_by_key(|(at, _)| *at);
                answers.push(given);
            }
            let states: Vec<Bytes> = replicas.iter_mut().map(Executor::snapshot).collect();
            assert!(
                states.iter().all(|state| *state == states[0]),
                "seed {seed}"
            );
            stamp += random.below(900);
            let session = random.below(3);
            let keep_alive = Purpose::KeepAlive(SessionId(session + 1));
            let floor = next[session as usize].saturating_sub(2);
            let barrier = value(stamp, &[command(keep_alive, 0, floor, b"")]);
            for replica in &mut replicas {
                execute(replica, &barrier);
            }
            // One starts again.
            let snapshot = replicas[0].snapshot();
            replicas[1] = executor();
            replicas[1].restore(&snapshot).unwrap();
        }
    }
}

/// A number of which a replica is not sure whether it comes: below the floor until a barrier.
#[test]
fn a_session_keeps_a_bounded_number_of_marks_between_barriers() {
    let mut executor = executor();
    execute(
        &mut executor,
        &value(5, &[command(Purpose::Open, 1, 0, b"")]),
    );
    let mut lengths = vec![];
    for number in 0..10 * SETTLE {
        let floor = number.saturating_sub(10);
        execute(
            &mut executor,
            &value(5, &[increment(1, number, floor, number as u8 / 255)]),
        );
        lengths.push(executor.snapshot().len());
    }
    // An option's byte and the length of a mark, for each; and as much room for what is kept.
    let most = lengths.iter().max().copied().unwrap_or_default();
    assert!(most < 2 * 5 * (SETTLE as usize + 20), "{most} bytes");
}
