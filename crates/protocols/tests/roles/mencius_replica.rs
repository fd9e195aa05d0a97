//! The rules of a replica of Mencius (Mencius, sections 4.2 and 5; compartmentalization, section
//! 6), one test each. All that it asks of its driver is compared.

use crate::servers::round;
use crate::stage::{self, Stage};
use bytes::Bytes;
use ionian_kernel::id::*;
use ionian_kernel::layout::{Layout, NodeId, Options, numbered};
use ionian_kernel::machine::{Footprint, NotARead, RestoreError, StateMachine};
use ionian_kernel::protocol::{Birth, Protocol};
use ionian_kernel::role::Asked;
use ionian_kernel::time::Timestamp;
use ionian_protocols::mencius::replica::{In, Replica};
use ionian_protocols::mencius::stripe::{Stripe, StripePosition};
use ionian_protocols::mencius::{Envelope, Mencius, kind, leader, unbatcher};
use ionian_protocols::multipaxos;
use ionian_protocols::multipaxos::message::Times;
use ionian_replication::batch::{Answer, AnswersByClient, Batch, Command, Outcome, Purpose, Value};
use std::collections::BTreeMap;

/// The replica under test, on node 1.
const ID: ReplicaId = ReplicaId(1);

/// Appends the second byte of each command to a text, and answers with what it holds then. Commands
/// write the key that their first byte names; `?` appends nothing, it reads that key and those that
/// follow.
#[derive(Default)]
struct Text(Vec<u8>);

impl StateMachine for Text {
    fn apply(&mut self, _: Timestamp, command: &[u8], reply: &mut Vec<u8>) {
        self.0.extend(command.get(1).filter(|byte| **byte != b'?'));
        reply.extend_from_slice(&self.0);
    }
    fn read(&self, _: Timestamp, _: &[u8], reply: &mut Vec<u8>) -> Result<(), NotARead> {
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
    fn footprint(&self, command: &[u8], footprint: &mut Footprint) {
        match command[1] {
            b'?' => {
                let keys = [&command[..1], &command[2..]].concat();
                footprint.reads.extend(keys.into_iter().map(u64::from));
            }
            _ => footprint.writes.push(command[0].into()),
        }
    }
}

fn text() -> Box<dyn StateMachine> {
    Box::new(Text::default())
}

/// The replica, in whose first slot, 0, client 0 has opened session 1.
fn replica_with(settings: &[(&'static str, u64)]) -> Stage<Replica> {
    let nodes: Vec<NodeId> = (0..3).map(NodeId).collect();
    let options = Options {
        own: BTreeMap::from_iter(settings.iter().copied()),
        ..Options::default()
    };
    let layout = Layout {
        f: 1,
        instances: numbered(vec![nodes; 8]),
        options,
        ..Layout::default()
    };
    let config = Mencius::configure(layout).expect("a deployment");
    let birth = Birth {
        machine: &text,
        ..stage::birth(kind::Replica, ID.0, NodeId(1))
    };
    let mut replica = Stage::new(config, &birth, Replica::new);
    // Its first report, a while ago.
    replica.timer();
    replica.tell(chosen(0, of_session(Purpose::Open, 99, ""), false));
    replica
}

fn replica() -> Stage<Replica> {
    replica_with(&[])
}

fn of_session(purpose: Purpose, number: u64, payload: &'static str) -> Value {
    let batch = Batch::one(&Command {
        client: ClientId(0),
        purpose,
        number,
        floor: 0,
        payload: payload.into(),
    });
    Value {
        stamp: Timestamp(1000),
        batch,
    }
}

fn write(number: u64, payload: &'static str) -> Value {
    of_session(Purpose::Execute(SessionId(1)), number, payload)
}

/// A value is chosen in a slot of the log; the replica under test answers if it is `asked` to.
fn chosen(slot: u64, value: Value, asked: bool) -> In {
    let message = multipaxos::replica::In::Chosen {
        slot: Slot(slot),
        value,
        replier: if asked { ID } else { ReplicaId(2) },
    };
    In::OfLog { message }
}

fn skip(stripe: u8, start: u64, end: u64) -> In {
    In::Skip {
        stripe: Stripe(stripe),
        start: StripePosition(start),
        end: StripePosition(end),
    }
}

fn only(sends: Vec<Envelope>) -> Asked<Envelope> {
    let sends = sends.into_iter().map(|one| (one, Some(0))).collect();
    stage::only(Vec::new(), sends)
}

/// Answers to these commands when every slot below `executed` is executed.
fn answered(executed: u64, all: &[(u64, &'static str)]) -> Envelope {
    answers_of(Purpose::Execute(SessionId(1)), executed, all)
}

fn answers_of(purpose: Purpose, executed: u64, all: &[(u64, &'static str)]) -> Envelope {
    let mut answers = AnswersByClient::default();
    for (number, text) in all {
        answers.push(&Answer {
            client: ClientId(0),
            purpose,
            number: *number,
            outcome: Outcome::Done(*text),
        });
    }
    let answers = answers.take_some(ID.0, Slot(executed));
    let message = unbatcher::In::Results { answers };
    Envelope::ToUnbatchers(Set::one(UnbatcherId(1)), message)
}

/// Lets time pass up to the first message to leaders that is not a report.
fn next_to_leaders(replica: &mut Stage<Replica>) -> Envelope {
    for _ in 0..100 {
        let found = replica.timer().into_iter().find(|envelope| match envelope {
            Envelope::ToLeaders(_, message) => !matches!(message, leader::In::Executed { .. }),
            _ => false,
        });
        if let Some(envelope) = found {
            return envelope;
        }
    }
    panic!("it sends nothing but reports")
}

// Learning and executing.

/// "Servers cannot commit requests before all previous requests are committed" (4.3).
#[test]
fn slots_of_all_stripes_are_executed_in_the_order_of_the_log() {
    let mut replica = replica();
    assert_eq!(replica.asked(chosen(3, write(2, "xc"), true)), only(vec![]));
    assert_eq!(
        replica.asked(chosen(1, write(0, "xa"), true)).sends,
        [(answered(2, &[(0, "a")]), Some(0))]
    );
    let all = answered(4, &[(1, "ab"), (2, "abc")]);
    assert_eq!(
        replica.asked(chosen(2, write(1, "xb"), true)),
        only(vec![all])
    );
}

/// "A server learns no-op upon receiving a skip message from the coordinator" (4.2).
#[test]
fn a_skip_is_learned_from_its_leader_alone() {
    let mut replica = replica();
    assert_eq!(replica.asked(chosen(3, write(0, "xa"), true)), only(vec![]));
    assert_eq!(replica.asked(skip(1, 0, 1)), only(vec![]));
    let answer = answered(4, &[(0, "a")]);
    assert_eq!(replica.asked(skip(2, 0, 1)), only(vec![answer]));
}

#[test]
fn a_range_of_skips_makes_way_for_many_slots() {
    let mut replica = replica();
    // Slots 1, 4, 7, 10 and 2, 5, 8; slots 3, 6 and 9 are another leader's.
    replica.tell(skip(1, 0, 4));
    replica.tell(skip(2, 0, 3));
    for (slot, number, text) in [(3, 0, "a"), (6, 1, "aa"), (9, 2, "aaa")] {
        // Everything up to the next slot of stripe 0, or to slot 11, is executed then.
        let executed = (slot + 3).min(11);
        let answer = answered(executed, &[(number, text)]);
        assert_eq!(
            replica.asked(chosen(slot, write(number, "xa"), true)),
            only(vec![answer])
        );
    }
}

#[test]
fn a_skip_that_comes_again_or_of_a_stripe_that_does_not_exist_changes_nothing() {
    let mut replica = replica();
    replica.tell(chosen(1, write(0, "xa"), false));
    for again in [skip(0, 0, 1), skip(1, 0, 1), skip(3, 0, 9), skip(2, 5, 5)] {
        assert_eq!(replica.asked(again), only(vec![]));
    }
    let answer = answered(3, &[(1, "ab")]);
    assert_eq!(
        replica.asked(chosen(2, write(1, "xb"), true)),
        only(vec![answer])
    );
}

/// They would take the room of what is not known: a replica remembers a limited number of ranges.
#[test]
pub(crate) fn skips_that_come_again_after_their_slots_are_executed_are_not_remembered() {
    let mut replica = replica();
    let executed = 400_000;
    for stripe in 0..3 {
        replica.tell(skip(stripe, 0, executed));
    }
    assert_eq!(replica.figure("executed"), 3 * executed);
    // As many ranges as it remembers of a stripe.
    for position in 0..1 << 16 {
        replica.tell(skip(1, 2 * position, 2 * position + 1));
    }
    for stripe in [1, 0, 2] {
        replica.tell(skip(stripe, executed, executed + 1));
    }
    assert_eq!(replica.figure("executed"), 3 * (executed + 1));
}

// What is missing.

/// Each leader answers for the stripes that it leads. What is known to be skipped is not asked for.
#[test]
fn all_leaders_are_asked_for_the_slots_that_peers_do_not_have() {
    let mut replica = replica();
    replica.tell(skip(2, 0, 1));
    replica.tell(chosen(5, write(0, "xa"), false));
    let message = leader::In::Recover {
        from: ID,
        slots: [1, 3, 4].map(Slot).to_vec(),
    };
    let expected = Envelope::ToLeaders(Set::first(3), message);
    assert_eq!(next_to_leaders(&mut replica), expected);
}

/// A message of a skip may be lost, and nothing comes after it.
#[test]
fn slots_below_the_index_that_a_leader_reports_are_asked_for() {
    let mut replica = replica();
    let message = In::Heartbeat {
        stripe: Stripe(0),
        round: round(1, 0),
        executed: Slot(3),
        keep: Slot(0),
        time: Timestamp(1000),
    };
    assert_eq!(replica.asked(message), only(vec![]));
    let message = leader::In::Recover {
        from: ID,
        slots: [1, 2].map(Slot).to_vec(),
    };
    let expected = Envelope::ToLeaders(Set::first(3), message);
    assert_eq!(next_to_leaders(&mut replica), expected);
}

/// Leaders tell by it whether the replica speaks of what it has kept since their round began.
#[test]
fn a_report_names_the_highest_round_of_each_stripe() {
    let mut replica = replica();
    for (stripe, count) in [(0, 1), (2, 7), (2, 3)] {
        let message = In::Heartbeat {
            stripe: Stripe(stripe),
            round: round(count, stripe),
            executed: Slot(0),
            keep: Slot(0),
            time: Timestamp(1000),
        };
        replica.tell(message);
    }
    let asked = replica.woken();
    let message = leader::In::Executed {
        from: ID,
        executed: Slot(1),
        kept: Slot(0),
        rounds: vec![round(1, 0), Round(0), round(7, 2)],
        times: Times {
            clock: replica.now.timestamp(),
            log: Timestamp(1000),
        },
    };
    assert_eq!(
        asked,
        only(vec![Envelope::ToLeaders(Set::first(3), message)])
    );
}

// Out-of-order commit (section 5).

fn suggested(slot: u64, value: Value) -> In {
    let slot = Slot(slot);
    In::Suggested { slot, value }
}

fn out_of_order() -> Stage<Replica> {
    replica_with(&[("out_of_order", 1)])
}

/// "If the request commutes with all previous ones, it can be committed before they are learned."
#[test]
fn a_command_that_commutes_with_all_that_is_suggested_before_it_is_executed_at_once() {
    let mut replica = out_of_order();
    replica.tell(suggested(1, write(0, "xa")));
    replica.tell(skip(2, 0, 1));
    // The client's later sequential reads must see slot 3, though slot 1 is not executed yet.
    let answer = answered(4, &[(1, "b")]);
    let asked = replica.asked(chosen(3, write(1, "yb"), true));
    assert_eq!(asked, only(vec![answer]));
    // The earlier one comes: it is executed, and the later one not again.
    let answer = answered(4, &[(0, "ba")]);
    let asked = replica.asked(chosen(1, write(0, "xa"), true));
    assert_eq!(asked, only(vec![answer]));
}

#[test]
fn a_command_that_touches_the_same_key_waits_for_the_earlier_one() {
    let mut replica = out_of_order();
    replica.tell(suggested(1, write(0, "xa")));
    replica.tell(skip(2, 0, 1));
    let asked = replica.asked(chosen(3, write(1, "xb"), true));
    assert_eq!(asked, only(vec![]));
    let answer = answered(4, &[(1, "ab")]);
    let asked = replica.asked(chosen(1, write(0, "xa"), false));
    assert_eq!(asked, only(vec![answer]));
}

#[test]
fn a_command_waits_for_earlier_slots_of_which_nothing_is_known() {
    let mut replica = out_of_order();
    replica.tell(suggested(2, write(2, "zc")));
    let asked = replica.asked(chosen(3, write(1, "yb"), true));
    assert_eq!(asked, only(vec![]));
    let answer = answered(4, &[(1, "b")]);
    let asked = replica.asked(suggested(1, write(0, "xa")));
    assert_eq!(asked, only(vec![answer]));
}

/// A client that sends a command with floor 1 has its answers to all before: executed first, it
/// would have the session take command 0 for settled.
#[test]
fn a_command_waits_for_an_earlier_one_of_its_session_that_it_would_settle() {
    let mut replica = out_of_order();
    replica.tell(suggested(1, write(0, "xa")));
    replica.tell(skip(2, 0, 1));
    let batch = Batch::one(&Command {
        client: ClientId(0),
        purpose: Purpose::Execute(SessionId(1)),
        number: 1,
        floor: 1,
        payload: Bytes::from_static(b"yb"),
    });
    let stamp = Timestamp(1000);
    let asked = replica.asked(chosen(3, Value { stamp, batch }, true));
    assert_eq!(asked, only(vec![]));
    let answer = answered(4, &[(1, "ab")]);
    let asked = replica.asked(chosen(1, write(0, "xa"), false));
    assert_eq!(asked, only(vec![answer]));
}

/// A client sent its command again, through another leader. An operator may have told all replicas
/// to skip the first copy: the session then takes the command for failed, whatever the second does.
#[test]
pub(crate) fn a_copy_of_a_command_waits_for_the_earlier_copy() {
    let mut replica = out_of_order();
    replica.tell(suggested(1, write(0, "x?")));
    replica.tell(skip(2, 0, 1));
    let asked = replica.asked(chosen(3, write(0, "x?"), true));
    assert_eq!(asked, only(vec![]));
    // Another command that only reads does not wait.
    let answer = answered(5, &[(1, "")]);
    let asked = replica.asked(chosen(4, write(1, "x?"), true));
    assert_eq!(asked, only(vec![answer]));
}

#[test]
fn commands_wait_for_their_turn_where_execution_is_in_order() {
    let mut replica = replica();
    replica.tell(suggested(1, write(0, "xa")));
    replica.tell(skip(2, 0, 1));
    let asked = replica.asked(chosen(3, write(1, "yb"), true));
    assert_eq!(asked, only(vec![]));
}

/// The state in which a later slot is executed before an earlier one is that of no moment. A read
/// of two keys waits until the earlier slots are executed, and for all that it must see: here the
/// reader has heard that slots were voted for beyond the one that was executed early.
#[test]
pub(crate) fn a_read_of_two_keys_waits_for_what_is_executed_early_and_for_what_it_must_see() {
    let mut replica = out_of_order();
    let read = |number, keys, executed| {
        let message = multipaxos::replica::In::Read {
            reads: of_session(Purpose::Read, number, keys).batch,
            executed: Slot(executed),
        };
        In::OfLog { message }
    };
    replica.tell(suggested(1, write(0, "xa")));
    replica.tell(skip(2, 0, 1));
    replica.tell(chosen(3, write(1, "yb"), false));
    // A read of one key sees the latest of it.
    let answer = answers_of(Purpose::Read, 4, &[(0, "b")]);
    assert_eq!(replica.asked(read(0, "y?", 1)), only(vec![answer]));
    assert_eq!(replica.asked(read(1, "y?x", 1)), only(vec![]));
    assert_eq!(replica.asked(read(2, "y?x", 5)), only(vec![]));
    let answer = answers_of(Purpose::Read, 4, &[(1, "ba")]);
    let asked = replica.asked(chosen(1, write(0, "xa"), false));
    assert_eq!(asked, only(vec![answer]));
    let answer = answers_of(Purpose::Read, 5, &[(2, "bac")]);
    let asked = replica.asked(chosen(4, write(2, "xc"), false));
    assert_eq!(asked, only(vec![answer]));
}
