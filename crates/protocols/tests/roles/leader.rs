//! What a leader does while it leads (MultiPaxos; compartmentalization, sections 2.3, 3.1 and
//! 3.3), one test for each rule. All that it asks of its driver is compared.

use crate::servers::{
    config, in_phase1, leading, only, phase1b, round, value, vote, votes, without,
};
use crate::stage::{self, Stage, batch};
use ionian_kernel::id::*;
use ionian_kernel::layout::{NodeId, Options};
use ionian_kernel::role::Role;
use ionian_kernel::time::{Duration, Timestamp};
use ionian_kernel::wire::encode_all;
use ionian_protocols::multipaxos::leader::{In, Leader, Record};
use ionian_protocols::multipaxos::message::{Proposer, Times, Votes};
use ionian_protocols::multipaxos::{Envelope, acceptor, kind, proxy_leader, replica};
use ionian_replication::batch::{Batch, Command, Purpose, Value};

const CLIENT: Proposer = Proposer::Client { id: ClientId(2) };
const BATCHER: Proposer = Proposer::Batcher {
    id: BatcherId(1),
    number: 8,
};

fn first() -> Round {
    round(1, 0)
}

fn server() -> Stage<Leader> {
    leading(config(Options::default()))
}

/// A batch of one command with a number of its own.
fn numbered(number: u64) -> Batch {
    Batch::one(&Command {
        client: ClientId(2),
        purpose: Purpose::Execute(SessionId(1)),
        number,
        floor: 0,
        payload: "x".into(),
    })
}

fn propose_batch(batch: Batch, again: bool) -> In {
    In::Propose {
        proposer: CLIENT,
        near: Set::one(ReplicaId(1)),
        batch,
        again,
    }
}

fn propose(text: &'static str) -> In {
    propose_batch(batch(text), false)
}

fn phase2a_by(proxy: u8, slot: u64, value: Value, proposer: Proposer, replier: u8) -> Envelope {
    let message = proxy_leader::In::Phase2a {
        slot: Slot(slot),
        round: first(),
        value,
        proposer,
        replier: ReplicaId(replier),
    };
    Envelope::ToProxyLeaders(Set::one(ProxyLeaderId(proxy)), message)
}

/// The command of the client, proposed in this slot at this time.
fn proposed(slot: u64, stamp: u64, text: &'static str) -> Envelope {
    phase2a_by(0, slot, value(stamp, text), CLIENT, 1)
}

/// A noop of the leader's own, stamped with this time; replicas answer in turn.
fn noop(slot: u64, stamp: u64) -> Envelope {
    let noop = Value {
        stamp: Timestamp(stamp),
        batch: Batch::default(),
    };
    phase2a_by(0, slot, noop, Proposer::Leader {}, (slot % 3) as u8)
}

fn report(from: u8, executed: u64, kept: u64) -> In {
    In::Executed {
        from: ReplicaId(from),
        executed: Slot(executed),
        kept: Slot(kept),
        round: first(),
        times: Times::default(),
    }
}

fn recover(slots: &[u64]) -> In {
    In::Recover {
        slots: slots.iter().copied().map(Slot).collect(),
    }
}

// Proposing.

/// "The leader assigns log entries to commands in increasing order" (2.3), and sends one Phase2a
/// for each command, to a proxy leader (3.1): here the one on its node.
#[test]
fn commands_get_slots_in_the_order_in_which_they_come_each_with_one_message() {
    let mut leader = server();
    for (slot, text) in [(0, "a"), (1, "b"), (2, "c")] {
        let expected = proposed(slot, 1000, text);
        assert_eq!(leader.asked(propose(text)), only(vec![expected]));
    }
}

/// "The leader balances load evenly across all of the proxy leaders" (3.1).
#[test]
fn where_no_proxy_leader_is_on_its_node_all_get_as_many_slots() {
    let mut leader = stage::elected(stage::with_acceptors(&[0, 1, 2]), NodeId(99), 2);
    let mut given = [0; 2];
    for number in 0..20 {
        let asked = leader.asked(propose_batch(numbered(number), false));
        let [(Envelope::ToProxyLeaders(to, _), _)] = &asked.sends[..] else {
            panic!("{asked:?}")
        };
        let to: Vec<usize> = to.iter().map(|proxy| proxy.0.into()).collect();
        given[to[0]] += 1;
        assert_eq!(to.len(), 1);
    }
    assert_eq!(given, [10, 10]);
}

/// "Only one replica needs to send the result": log entries are dealt out round-robin (2.3, 3.3),
/// unless there is a replica on the proposer's node.
#[test]
fn replicas_answer_in_turn_where_none_is_near_the_proposer() {
    let mut leader = server();
    for slot in 0..6 {
        let message = In::Propose {
            proposer: BATCHER,
            near: Set::EMPTY,
            batch: batch("x"),
            again: false,
        };
        let replier = (slot % 3) as u8;
        let expected = phase2a_by(0, slot, value(1000, "x"), BATCHER, replier);
        assert_eq!(leader.asked(message), only(vec![expected]));
    }
}

/// One that installs a snapshot was named for each command of its node: none was answered for as
/// long as that took.
#[test]
fn a_replica_that_is_far_behind_another_is_not_named_to_answer() {
    let mut leader = server();
    let mut named = |seconds, executed: [u64; 3]| {
        leader.now = leader.now + Duration::from_secs(seconds);
        for (from, executed) in (0..).zip(executed) {
            leader.tell(report(from, executed, 0));
        }
        let sends = leader.tell(propose_batch(numbered(leader.now.0), false));
        let named = sends.into_iter().find_map(|sent| match sent {
            Envelope::ToProxyLeaders(_, proxy_leader::In::Phase2a { replier, .. }) => {
                Some(replier.0)
            }
            _ => None,
        });
        named.expect("it is proposed")
    };
    assert_eq!(
        named(1, [9, 5, 9]),
        1,
        "it may have no news of the last slots"
    );
    assert_eq!(named(1, [19, 9, 19]), 1, "it has what others had then");
    assert_ne!(named(1, [19, 9, 19]), 1, "it is as far as a second before");
    assert_eq!(named(1, [19, 19, 19]), 1, "it has caught up");
}

#[test]
fn a_replica_that_is_not_heard_of_any_more_is_not_named_to_answer() {
    let mut leader = server();
    for from in [0, 1, 2] {
        leader.tell(report(from, 0, 0));
    }
    leader.now = leader.now + Duration::from_millis(900);
    leader.tell(report(2, 0, 0));
    let expected = phase2a_by(0, 0, value(1900, "x"), CLIENT, 2);
    assert_eq!(leader.asked(propose("x")), only(vec![expected]));
}

#[test]
fn a_proxy_leader_that_is_not_heard_of_any_more_is_given_no_slots() {
    let mut leader = server();
    for from in [0, 1, 2].map(ProxyLeaderId) {
        leader.tell(In::ProxyAlive { from });
    }
    leader.now = leader.now + Duration::from_millis(900);
    let from = ProxyLeaderId(1);
    leader.tell(In::ProxyAlive { from });
    let expected = phase2a_by(1, 0, value(1900, "x"), CLIENT, 1);
    assert_eq!(leader.asked(propose("x")), only(vec![expected]));
}

#[test]
fn a_command_that_comes_again_is_not_proposed_again_while_it_is_in_hand() {
    let mut leader = server();
    leader.tell(propose_batch(numbered(7), false));
    let again = propose_batch(numbered(7), true);
    assert_eq!(leader.asked(again.clone()), only(vec![]));
    // Another one is, though it was proposed elsewhere before.
    let asked = leader.asked(propose_batch(numbered(8), true));
    assert_eq!(asked.sends.len(), 1);
    // And the first once a replica has executed it: the answer may be lost.
    leader.tell(report(0, 2, 0));
    let asked = leader.asked(again);
    let value = Value {
        stamp: Timestamp(1000),
        batch: numbered(7),
    };
    assert_eq!(asked, only(vec![phase2a_by(0, 2, value, CLIENT, 1)]));
}

// The window.

fn windowed(window_slots: usize) -> Stage<Leader> {
    let options = Options {
        window_slots,
        ..Options::default()
    };
    leading(config(options))
}

#[test]
fn a_leader_proposes_a_window_of_slots_beyond_what_a_replica_has_executed() {
    let mut leader = windowed(2);
    for (slot, text) in [(0, "a"), (1, "b")] {
        let expected = proposed(slot, 1000, text);
        assert_eq!(leader.asked(propose(text)), only(vec![expected]));
    }
    for text in ["c", "d"] {
        assert_eq!(leader.asked(propose(text)), only(vec![]));
    }
    // Any replica makes room.
    let asked = leader.asked(report(2, 1, 0));
    assert_eq!(asked, only(vec![proposed(2, 1000, "c")]));
    let asked = leader.asked(report(0, 1, 0));
    assert_eq!(asked, only(vec![]), "it was known");
    let asked = leader.asked(report(0, 2, 0));
    assert_eq!(asked, only(vec![proposed(3, 1000, "d")]));
}

/// Time to hand over a slot again: five times `resend_after`.
const PATIENCE: Duration = Duration::from_millis(200);

#[test]
fn a_slot_that_no_replica_executes_is_handed_to_a_proxy_leader_again() {
    let mut leader = server();
    leader.tell(propose("a"));
    let begun = leader.now;
    let mut again = Vec::new();
    while again.is_empty() {
        assert!(leader.now < begun + 2 * PATIENCE, "it waits without end");
        let asked = leader.woken();
        let of_proxy = |(envelope, _): &(Envelope, _)| match envelope {
            Envelope::ToProxyLeaders(_, message) => Some(message.clone()),
            _ => None,
        };
        again = asked.sends.iter().filter_map(of_proxy).collect();
    }
    assert!(leader.now >= begun + PATIENCE);
    let Envelope::ToProxyLeaders(_, expected) = proposed(0, 1000, "a") else {
        unreachable!()
    };
    assert_eq!(
        again,
        [expected],
        "slot, value and replier stay as they were"
    );
}

#[test]
fn a_slot_that_a_replica_has_executed_is_not_handed_over_again() {
    let mut leader = server();
    leader.tell(propose("a"));
    leader.tell(report(1, 1, 0));
    let until = leader.now + 4 * PATIENCE;
    while leader.now < until {
        let asked = leader.woken();
        let of_proxy =
            |(envelope, _): &(Envelope, _)| matches!(envelope, Envelope::ToProxyLeaders(..));
        assert!(!asked.sends.iter().any(of_proxy), "{asked:?}");
        if leader.figure("leading") == 0 {
            return; // Nothing answers here: it stops in the end.
        }
    }
}

// Repair.

/// A replica that misses a slot may have asked before the value can have arrived.
#[test]
fn a_slot_on_its_way_is_handed_over_at_a_replicas_request_when_it_is_late() {
    let mut leader = server();
    leader.tell(propose("a"));
    assert_eq!(leader.asked(recover(&[0])), only(vec![]));
    leader.now = leader.now + Options::default().resend_after;
    let asked = leader.asked(recover(&[0]));
    let [(Envelope::ToProxyLeaders(_, message), Some(0))] = &asked.sends[..] else {
        panic!("{asked:?}")
    };
    let Envelope::ToProxyLeaders(_, expected) = proposed(0, 1000, "a") else {
        unreachable!()
    };
    assert_eq!(*message, expected);
}

/// A leader whose acceptors have forgotten slots below 9 repairs slot 5 by a phase 1 for it alone
/// (l2).
fn repairing() -> Stage<Leader> {
    let mut leader = in_phase1(config(Options::default()));
    let forgot = Votes {
        forgotten: Slot(9),
        watermark: Slot(9),
        ..votes(&[])
    };
    leader.tell(phase1b(0, first(), forgot));
    leader.tell(phase1b(1, first(), votes(&[])));
    let ask = acceptor::In::Phase1a {
        from: LeaderId(0),
        round: first(),
        start: Slot(5),
        end: Slot(6),
    };
    let asked = leader.asked(recover(&[5]));
    let ask = Envelope::ToAcceptors(Set::first(3), ask);
    assert_eq!(asked, only(vec![ask]));
    assert_eq!(leader.asked(recover(&[5])), only(vec![]), "once");
    leader
}

fn of_slot(found: &[(u64, ionian_protocols::multipaxos::message::Vote)], forgotten: u64) -> Votes {
    Votes {
        start: Slot(5),
        end: Slot(6),
        forgotten: Slot(forgotten),
        watermark: Slot(9),
        ..votes(found)
    }
}

#[test]
fn a_slot_below_the_window_is_repaired_with_the_vote_of_the_highest_round_of_a_read_quorum() {
    let mut leader = repairing();
    let (old, new) = (vote(round(1, 1), 100, "a"), vote(round(1, 2), 200, "b"));
    let asked = leader.asked(phase1b(2, first(), of_slot(&[(5, new)], 0)));
    assert_eq!(asked, only(vec![]));
    let asked = leader.asked(phase1b(0, first(), of_slot(&[(5, old)], 0)));
    let expected = phase2a_by(0, 5, value(200, "b"), Proposer::Leader {}, 2);
    assert_eq!(asked, only(vec![expected]));
}

/// The acceptor that forgot the slot may be the only one that voted for what was chosen.
#[test]
fn a_slot_that_an_acceptor_has_forgotten_is_not_repaired_with_the_votes_of_others() {
    let mut leader = repairing();
    let found = [(5, vote(round(1, 1), 100, "a"))];
    for (from, votes) in [
        (0, of_slot(&found, 0)),
        (1, of_slot(&[], 6)),
        (2, of_slot(&found, 0)),
    ] {
        let asked = leader.asked(phase1b(from, first(), votes));
        assert_eq!(asked, only(vec![]));
    }
}

/// A replica asks for no more at a time.
#[test]
fn of_the_slots_that_a_replica_misses_a_leader_heeds_the_first_32() {
    let mut leader = server();
    for _ in 0..40 {
        leader.tell(propose("a"));
    }
    leader.now = leader.now + Options::default().resend_after;
    let all: Vec<u64> = (0..40).collect();
    assert_eq!(leader.asked(recover(&all)).sends.len(), 32);
}

/// l5: an acceptor has voted there, and the read quorum of phase 1 had not.
#[test]
fn slots_beyond_the_last_are_filled_with_noops_up_to_one_that_a_replica_waits_for() {
    let mut leader = server();
    leader.tell(propose("a"));
    let asked = leader.asked(recover(&[3]));
    let noops = (1..=3).map(|slot| noop(slot, 1000)).collect();
    assert_eq!(asked, only(noops));
}

/// b4: no message makes the leader fill the log without end.
#[test]
fn a_request_for_a_slot_that_is_far_beyond_the_window_is_ignored() {
    let mut leader = server();
    assert_eq!(leader.asked(recover(&[1 << 40])), only(vec![]));
}

// Time.

#[test]
fn the_log_gets_the_time_by_a_noop_when_a_deadline_has_passed_and_once() {
    let mut leader = server();
    let ask = |deadline| In::AdvanceClock {
        deadline: Timestamp(deadline),
    };
    assert_eq!(leader.asked(ask(1001)), only(vec![]), "not yet");
    assert_eq!(leader.asked(ask(1000)), only(vec![noop(0, 1000)]));
    assert_eq!(leader.asked(ask(1000)), only(vec![]), "once");
}

#[test]
fn stamps_grow_with_the_clock() {
    let mut leader = server();
    leader.tell(propose("a"));
    leader.now = leader.now + Duration::from_millis(7);
    let expected = proposed(1, 1007, "b");
    assert_eq!(leader.asked(propose("b")), only(vec![expected]));
}

// Heartbeats.

fn heartbeats(executed: u64, kept: u64, time: u64) -> Vec<Envelope> {
    let to_acceptors = acceptor::In::Heartbeat {
        round: first(),
        kept: Slot(kept),
    };
    let to_replicas = replica::In::Heartbeat {
        round: first(),
        executed: Slot(executed),
        keep: Slot(0),
        time: Timestamp(time),
    };
    let others = Set::from_bits(0b110);
    vec![
        Envelope::ToLeaders(others, In::Heartbeat { round: first() }),
        Envelope::ToAcceptors(Set::first(3), to_acceptors),
        Envelope::ToReplicas(Set::first(3), to_replicas),
    ]
}

#[test]
fn a_leader_sends_heartbeats_to_leaders_acceptors_and_replicas() {
    let mut leader = server();
    for beat in 1..=3 {
        let time = 1000 + 100 * beat;
        assert_eq!(leader.woken(), only(heartbeats(0, 0, time)));
        assert_eq!(leader.now.timestamp(), Timestamp(time));
    }
}

/// Acceptors forget what f+1 replicas would find again after a crash.
#[test]
fn acceptors_may_forget_what_f_plus_one_replicas_keep() {
    let mut leader = server();
    leader.tell(report(0, 9, 7));
    leader.tell(report(1, 5, 0));
    assert_eq!(leader.woken(), only(heartbeats(9, 0, 1100)));
    leader.tell(report(2, 6, 4));
    assert_eq!(leader.woken(), only(heartbeats(9, 4, 1200)));
    // Late reports change nothing.
    leader.tell(report(0, 3, 2));
    assert_eq!(leader.woken(), only(heartbeats(9, 4, 1300)));
}

// Acceptors that lost their votes.

fn rejoin(nonce: u64, promise: Round) -> In {
    In::Rejoin {
        from: AcceptorId(2),
        nonce,
        promise,
    }
}

/// The round must be above everything that it has promised, and be won without it.
#[test]
fn an_acceptor_that_lost_its_votes_is_admitted_when_replicas_keep_what_came_before_the_round() {
    let mut leader = server();
    leader.tell(propose("a"));
    let second = round(5, 0);
    let ask = acceptor::In::Phase1a {
        from: LeaderId(0),
        round: second,
        start: Slot(0),
        end: Slot::MAX,
    };
    let ask = Envelope::ToAcceptors(Set::first(3), ask);
    let record = (encode_all(&Record { round: second }), true);
    let begins = stage::only(vec![record], vec![(ask, Some(1))]);
    assert_eq!(leader.asked(rejoin(3, round(4, 1))), begins);
    let found = votes(&[(0, vote(first(), 1000, "a"))]);
    leader.tell(phase1b(0, second, found));
    leader.tell(phase1b(1, second, votes(&[])));
    let keeps = |from, kept, round| In::Executed {
        from: ReplicaId(from),
        executed: Slot(1),
        kept: Slot(kept),
        round,
        times: Times::default(),
    };
    for (from, kept, round) in [(0, 1, second), (1, 1, first()), (2, 0, second)] {
        let asked = leader.asked(keeps(from, kept, round));
        assert_eq!(
            asked,
            only(vec![]),
            "f+1 must keep slot 0, and know the round"
        );
    }
    let admit = acceptor::In::Admit {
        nonce: 3,
        round: second,
        frontier: Slot(1),
    };
    let admit = Envelope::ToAcceptors(Set::one(AcceptorId(2)), admit);
    assert_eq!(leader.asked(keeps(1, 1, second)), only(vec![admit.clone()]));
    assert_eq!(leader.asked(keeps(1, 1, second)), only(vec![]), "once");
    assert_eq!(
        leader.asked(rejoin(3, round(4, 1))),
        only(vec![admit]),
        "again when it asks again"
    );
}

#[test]
fn only_the_leader_repairs_admits_and_advances_the_clock() {
    let birth = stage::birth(kind::Leader, 1, NodeId(1));
    let mut leader = Stage::new(without(&[], Options::default()), &birth, Leader::new);
    for message in [
        recover(&[0]),
        rejoin(3, Round(0)),
        In::AdvanceClock {
            deadline: Timestamp(1),
        },
        report(0, 4, 4),
    ] {
        assert_eq!(leader.asked(message), only(vec![]));
    }
    assert!(leader.role.is_drained());
}
