//! The rules of a replica (MultiPaxos; compartmentalization, sections 2.3, 3.3, 3.4 and 3.6), one
//! test each. All that it asks of its driver is compared.

mod catch_up;
mod divergence;
mod levels;
mod snapshots;

use crate::servers::{config, only, round, without};
use crate::stage::{self, Stage};
use bytes::Bytes;
use ionian_kernel::id::*;
use ionian_kernel::layout::{NodeId, Options};
use ionian_kernel::machine::{NotARead, RestoreError, StateMachine};
use ionian_kernel::membership::{Change, Membership};
use ionian_kernel::protocol::Birth;
use ionian_kernel::role::{Asked, Cover, Picture, Role};
use ionian_kernel::time::{Duration, Instant, Timestamp};
use ionian_kernel::wire::encode_all;
use ionian_protocols::multipaxos::config::Config;
use ionian_protocols::multipaxos::message::Times;
use ionian_protocols::multipaxos::replica::{In, Replica};
use ionian_protocols::multipaxos::{Envelope, client, kind, leader, read_batcher, unbatcher};
use ionian_replication::batch::{Answer, AnswersByClient, Batch, BatchBuilder, Command, Purpose};
use ionian_replication::batch::{Answers, Outcome, Value};
use std::sync::Arc;

/// The replica under test, on node 1; and one of its peers.
const ID: ReplicaId = ReplicaId(1);
const PEER: ReplicaId = ReplicaId(2);

/// Appends each command's payload to a text, and answers with what it holds then. A query that
/// begins with `!` is a write.
#[derive(Default)]
struct Text(Vec<u8>);

impl StateMachine for Text {
    fn apply(&mut self, _: Timestamp, command: &[u8], reply: &mut Vec<u8>) {
        self.0.extend_from_slice(command);
        reply.extend_from_slice(&self.0);
    }
    fn read(&self, _: Timestamp, query: &[u8], reply: &mut Vec<u8>) -> Result<(), NotARead> {
        if query.starts_with(b"!") {
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
}

fn text() -> Box<dyn StateMachine> {
    Box::new(Text::default())
}

fn birth(index: u8) -> Birth<'static> {
    Birth {
        machine: &text,
        ..stage::birth(kind::Replica, index, NodeId(index.into()))
    }
}

fn replica_of(config: Arc<Config>, birth: &Birth<'_>) -> Stage<Replica> {
    let mut replica = Stage::new(config, birth, Replica::new);
    // Its first report, a while ago.
    replica.timer();
    replica
}

/// Replica 1 of three servers.
fn replica() -> Stage<Replica> {
    replica_of(config(Options::default()), &birth(ID.0))
}

/// The same in whose first slot client 0 has opened session 1.
fn in_session() -> Stage<Replica> {
    let mut replica = replica();
    replica.tell(chosen(0, open(), PEER));
    replica
}

/// Replica 1, which has executed the slots 0 to 3 and keeps this number of them for peers.
fn retaining(retained_slots: usize) -> Stage<Replica> {
    let options = Options {
        retained_slots,
        ..Options::default()
    };
    let mut replica = replica_of(config(options), &birth(ID.0));
    for (slot, value) in (0..).zip([open(), write(0, "a"), write(1, "b"), write(2, "c")]) {
        replica.tell(chosen(slot, value, PEER));
    }
    replica
}

/// Commands in session 1.
const WRITE: Purpose = Purpose::Execute(SessionId(1));

fn command(purpose: Purpose, number: u64, payload: &'static str) -> Batch {
    Batch::one(&Command {
        client: ClientId(0),
        purpose,
        number,
        floor: 0,
        payload: payload.into(),
    })
}

/// A command that opens a session.
fn open() -> Value {
    let batch = command(Purpose::Open, 99, "");
    Value {
        stamp: Timestamp(1000),
        batch,
    }
}

/// The command of this number in session 1.
fn write(number: u64, payload: &'static str) -> Value {
    let batch = command(WRITE, number, payload);
    Value {
        stamp: Timestamp(1000),
        batch,
    }
}

fn query(number: u64, payload: &'static str) -> Batch {
    command(Purpose::Read, number, payload)
}

fn chosen(slot: u64, value: Value, replier: ReplicaId) -> In {
    In::Chosen {
        slot: Slot(slot),
        value,
        replier,
    }
}

fn read(number: u64, executed: u64) -> In {
    In::Read {
        reads: query(number, "?"),
        executed: Slot(executed),
    }
}

fn done(text: &'static str) -> Outcome {
    Outcome::Done(text.into())
}

/// Answers to client 0 when every slot below `executed` is executed.
fn answers(executed: u64, all: &[(Purpose, u64, Outcome)]) -> Answers {
    let mut answers = AnswersByClient::default();
    for (purpose, number, outcome) in all.iter().cloned() {
        answers.push(&Answer {
            client: ClientId(0),
            purpose,
            number,
            outcome,
        });
    }
    answers.take_some(ID.0, Slot(executed))
}

/// These answers, by way of the unbatcher of its node.
fn answered(executed: u64, all: &[(Purpose, u64, Outcome)]) -> Envelope {
    let answers = answers(executed, all);
    let message = unbatcher::In::Results { answers };
    Envelope::ToUnbatchers(Set::one(UnbatcherId(1)), message)
}

fn to_peer(message: In) -> Envelope {
    Envelope::ToReplicas(Set::one(PEER), message)
}

/// What it reports to all leaders.
fn report(replica: &Stage<Replica>, executed: u64, kept: u64, log: u64) -> Envelope {
    let times = Times {
        clock: replica.now.timestamp(),
        log: Timestamp(log),
    };
    let message = leader::In::Executed {
        from: ID,
        executed: Slot(executed),
        kept: Slot(kept),
        round: Round(0),
        times,
    };
    Envelope::ToLeaders(Set::first(3), message)
}

/// Lets time pass up to the first timer at which it sends something else than its reports.
fn next_sent(replica: &mut Stage<Replica>) -> Vec<Envelope> {
    for _ in 0..100 {
        let mut sent = replica.timer();
        sent.retain(|envelope| {
            !matches!(
                envelope,
                Envelope::ToLeaders(_, leader::In::Executed { .. }) | Envelope::ToReadBatchers(..)
            )
        });
        if !sent.is_empty() {
            return sent;
        }
    }
    panic!("it sends nothing but reports")
}

// Writes.

/// "Replicas execute the log in prefix order" (2.3).
#[test]
fn a_replica_executes_slots_in_the_order_of_the_log() {
    let mut replica = in_session();
    assert_eq!(replica.asked(chosen(3, write(2, "c"), ID)), only(vec![]));
    assert_eq!(replica.asked(chosen(2, write(1, "b"), ID)), only(vec![]));
    let all = [(0, "a"), (1, "ab"), (2, "abc")];
    let all = all.map(|(number, text)| (WRITE, number, done(text)));
    let asked = replica.asked(chosen(1, write(0, "a"), ID));
    assert_eq!(asked, only(vec![answered(4, &all)]));
}

/// "Only one replica needs to send the result of executing x back to the client" (2.3).
#[test]
fn only_the_replica_that_is_named_answers() {
    let mut replica = in_session();
    assert_eq!(replica.asked(chosen(1, write(0, "a"), PEER)), only(vec![]));
    let expected = answered(3, &[(WRITE, 1, done("ab"))]);
    let asked = replica.asked(chosen(2, write(1, "b"), ID));
    assert_eq!(asked, only(vec![expected]));
}

#[test]
fn a_session_is_opened_through_the_log() {
    let mut replica = replica();
    let opened = Outcome::Opened(SessionId(1));
    let expected = answered(1, &[(Purpose::Open, 99, opened)]);
    assert_eq!(replica.asked(chosen(0, open(), ID)), only(vec![expected]));
}

#[test]
fn a_command_that_is_chosen_twice_is_executed_once_and_answered_alike() {
    let mut replica = in_session();
    replica.tell(chosen(1, write(0, "a"), PEER));
    replica.tell(chosen(2, write(1, "b"), PEER));
    let expected = answered(4, &[(WRITE, 0, done("a"))]);
    let asked = replica.asked(chosen(3, write(0, "a"), ID));
    assert_eq!(asked, only(vec![expected]));
}

#[test]
fn a_command_of_a_session_that_is_not_known_is_not_executed() {
    let mut replica = replica();
    let expected = answered(1, &[(WRITE, 0, Outcome::NoSession)]);
    let asked = replica.asked(chosen(0, write(0, "a"), ID));
    assert_eq!(asked, only(vec![expected]));
}

#[test]
fn a_noop_executes_nothing_and_makes_way_for_the_next_slot() {
    let mut replica = in_session();
    replica.tell(chosen(2, write(0, "a"), ID));
    let expected = answered(3, &[(WRITE, 0, done("a"))]);
    let asked = replica.asked(chosen(1, Value::default(), ID));
    assert_eq!(asked, only(vec![expected]));
}

#[test]
fn a_slot_that_it_is_told_of_again_is_executed_once() {
    let mut replica = in_session();
    replica.tell(chosen(1, write(0, "a"), PEER));
    assert_eq!(replica.asked(chosen(1, write(0, "a"), ID)), only(vec![]));
}

#[test]
#[should_panic(expected = "two values chosen in Slot(2)")]
fn two_values_in_one_slot_stop_the_node() {
    let mut replica = in_session();
    replica.tell(chosen(2, write(0, "a"), PEER));
    replica.tell(chosen(2, write(0, "b"), PEER));
}

#[test]
fn answers_of_a_burst_leave_in_one_message() {
    let mut replica = in_session();
    let mut batch = BatchBuilder::default();
    batch.append(&write(0, "a").batch);
    batch.append(&write(1, "b").batch);
    let value = Value {
        stamp: Timestamp(1000),
        batch: batch.take(),
    };
    let all = [(WRITE, 0, done("a")), (WRITE, 1, done("ab"))];
    let asked = replica.asked(chosen(1, value, ID));
    assert_eq!(asked, only(vec![answered(2, &all)]));
}

#[test]
fn where_there_are_no_unbatchers_each_client_gets_its_answers_from_the_replica() {
    let config = without(&[kind::Unbatcher], Options::default());
    let mut replica = replica_of(config, &birth(ID.0));
    replica.tell(chosen(0, open(), PEER));
    let answers = answers(2, &[(WRITE, 0, done("a"))]);
    let message = client::In::Answers { answers };
    let expected = Envelope::ToClients(Set::one(ClientId(0)), message);
    let asked = replica.asked(chosen(1, write(0, "a"), ID));
    assert_eq!(asked, only(vec![expected]));
}

#[test]
fn an_unbatcher_that_is_not_heard_of_any_more_is_not_used() {
    let mut replica = in_session();
    for from in (0..3).map(UnbatcherId) {
        replica.tell(In::UnbatcherAlive { from });
    }
    replica.now = replica.now + Duration::from_millis(900);
    let from = UnbatcherId(2);
    replica.tell(In::UnbatcherAlive { from });
    let answers = answers(2, &[(WRITE, 0, done("a"))]);
    let message = unbatcher::In::Results { answers };
    let expected = Envelope::ToUnbatchers(Set::one(from), message);
    let asked = replica.asked(chosen(1, write(0, "a"), ID));
    assert!(asked.sends.contains(&(expected, Some(0))), "{asked:?}");
}

// Reads.

/// "A replica waits until it has executed the command in log entry i" (3.4).
#[test]
fn a_read_waits_until_the_slots_that_it_must_see_are_executed() {
    let mut replica = in_session();
    assert_eq!(replica.asked(read(5, 3)), only(vec![]));
    assert_eq!(replica.asked(chosen(1, write(0, "a"), PEER)), only(vec![]));
    let expected = answered(3, &[(Purpose::Read, 5, done("ab"))]);
    let asked = replica.asked(chosen(2, write(1, "b"), PEER));
    assert_eq!(asked, only(vec![expected]));
}

/// "It may have already executed the log beyond i. This is okay" (3.4).
#[test]
fn a_read_of_what_is_executed_already_is_answered_at_once_from_the_present_state() {
    let mut replica = in_session();
    replica.tell(chosen(1, write(0, "a"), PEER));
    // Linearizable and sequential reads name a slot; eventual ones name none (3.6).
    for executed in [2, 1, 0] {
        let expected = answered(2, &[(Purpose::Read, 5, done("a"))]);
        assert_eq!(replica.asked(read(5, executed)), only(vec![expected]));
    }
}

#[test]
fn an_eventual_read_does_not_wait_for_a_hole() {
    let mut replica = in_session();
    replica.tell(chosen(2, write(1, "b"), PEER));
    let expected = answered(1, &[(Purpose::Read, 5, done(""))]);
    assert_eq!(replica.asked(read(5, 0)), only(vec![expected]));
}

/// b3: a write that one replica executed would make it differ from the others.
#[test]
fn a_write_that_comes_as_a_read_is_refused() {
    let mut replica = in_session();
    let message = In::Read {
        reads: query(5, "!a"),
        executed: Slot(0),
    };
    let expected = answered(1, &[(Purpose::Read, 5, Outcome::NotARead)]);
    assert_eq!(replica.asked(message), only(vec![expected]));
}

/// l5: something was voted for in the slot that a read waits for, and may never have been chosen.
#[test]
fn a_slot_that_a_read_waits_for_is_asked_for_like_any_that_is_missing() {
    let mut replica = in_session();
    replica.tell(read(5, 2));
    let sent = next_sent(&mut replica);
    let asks = |start, end| In::Fetch {
        from: ID,
        start: Slot(start),
        end: Slot(end),
        waits: false,
    };
    let [Envelope::ToReplicas(to, message)] = &sent[..] else {
        panic!("{sent:?}")
    };
    assert_eq!((to.len(), to.contains(ID)), (1, false));
    assert_eq!(*message, asks(1, 2));
}

// The membership.

#[test]
fn a_change_of_the_membership_in_the_log_is_announced_to_the_driver() {
    let mut replica = in_session();
    let (from, to) = (Bytes::from("old"), Bytes::from("new"));
    let change = Change::Begin {
        base: Epoch(0),
        from: from.clone(),
        to: to.clone(),
        joint: true,
    };
    let batch = Batch::one(&Command {
        client: ClientId(0),
        purpose: Purpose::Change,
        number: 3,
        floor: 0,
        payload: encode_all(&change).into(),
    });
    let value = Value {
        stamp: Timestamp(1000),
        batch,
    };
    let membership = Membership {
        epoch: Epoch(1),
        text: from,
        next: Some(to),
        ..Membership::default()
    };
    let expected = Asked {
        membership: Some(membership),
        ..only(vec![])
    };
    assert_eq!(replica.asked(chosen(1, value, PEER)), expected);
}
