//! How a leader is elected, what it proposes again after phase 1, and how it is deposed
//! (MultiPaxos; compartmentalization, sections 2.2 and 2.3), one test for each rule. All that it
//! asks of its driver is compared.

use crate::servers::{
    config, in_phase1, leading, only, phase1b, pre_vote_reply, round, value, vote, votes,
};
use crate::stage::{self, Stage, batch};
use ionian_kernel::id::*;
use ionian_kernel::layout::{NodeId, Options};
use ionian_kernel::role::Role;
use ionian_kernel::time::{Duration, Timestamp};
use ionian_kernel::wire::encode_all;
use ionian_protocols::multipaxos::leader::{In, Leader, Record};
use ionian_protocols::multipaxos::message::{Proposer, Times, Votes};
use ionian_protocols::multipaxos::{
    Envelope, acceptor, batcher, client, kind, proxy_leader, replica,
};
use ionian_replication::batch::Value;

/// The leader under test, and its first round.
const ID: LeaderId = LeaderId(0);

fn first() -> Round {
    round(1, ID.0)
}

/// A leader, started.
fn leader(index: u8) -> Stage<Leader> {
    let birth = stage::birth(kind::Leader, index, NodeId(index.into()));
    Stage::new(config(Options::default()), &birth, Leader::new)
}

/// Leader 0 as a candidate, that has asked the acceptors.
fn candidate() -> Stage<Leader> {
    let mut leader = leader(0);
    leader.timer();
    leader
}

fn phase1a(to: &[u8], from: LeaderId, round: Round, start: u64, end: Slot) -> Envelope {
    let message = acceptor::In::Phase1a {
        from,
        round,
        start: Slot(start),
        end,
    };
    let to = to.iter().copied().map(AcceptorId).collect();
    Envelope::ToAcceptors(to, message)
}

/// All acceptors are asked for promises in a round, and for their votes, behind its record.
fn begins(round: Round, start: u64) -> ionian_kernel::role::Asked<Envelope> {
    let ask = phase1a(&[0, 1, 2], round.leader(), round, start, Slot::MAX);
    let record = (encode_all(&Record { round }), true);
    stage::only(vec![record], vec![(ask, Some(1))])
}

fn heartbeats(round: Round, executed: u64, time: u64) -> Vec<Envelope> {
    let others = Set::first(3).without(Set::one(round.leader()));
    let to_acceptors = acceptor::In::Heartbeat {
        round,
        kept: Slot(0),
    };
    let to_replicas = replica::In::Heartbeat {
        round,
        executed: Slot(executed),
        keep: Slot(0),
        time: Timestamp(time),
    };
    vec![
        Envelope::ToLeaders(others, In::Heartbeat { round }),
        Envelope::ToAcceptors(Set::first(3), to_acceptors),
        Envelope::ToReplicas(Set::first(3), to_replicas),
    ]
}

fn new_leader(round: Round) -> Vec<Envelope> {
    vec![
        Envelope::ToClients(Set::first(3), client::In::NewLeader { round }),
        Envelope::ToBatchers(Set::first(3), batcher::In::NewLeader { round }),
    ]
}

/// The leader has a value proposed through the proxy leader of its node.
fn phase2a(slot: u64, value: Value, proposer: Proposer, replier: u8) -> Envelope {
    let message = proxy_leader::In::Phase2a {
        slot: Slot(slot),
        round: first(),
        value,
        proposer,
        replier: ReplicaId(replier),
    };
    Envelope::ToProxyLeaders(Set::one(ProxyLeaderId(0)), message)
}

/// What phase 1 has found is proposed again by the leader itself; replicas answer in turn.
fn again(slot: u64, value: Value) -> Envelope {
    phase2a(slot, value, Proposer::Leader {}, (slot % 3) as u8)
}

fn propose(proposer: Proposer, text: &'static str) -> In {
    In::Propose {
        proposer,
        near: Set::one(ReplicaId(1)),
        batch: batch(text),
        again: false,
    }
}

fn executed(from: u8, executed: u64) -> In {
    In::Executed {
        from: ReplicaId(from),
        executed: Slot(executed),
        kept: Slot(0),
        round: first(),
        times: Times::default(),
    }
}

/// All that leader 0 asks for when two acceptors have told it these votes in phase 1.
fn leads_after(one: Votes, other: Votes) -> Vec<Envelope> {
    let mut leader = in_phase1(config(Options::default()));
    assert_eq!(leader.asked(phase1b(0, first(), one)), only(vec![]));
    let asked = leader.asked(phase1b(1, first(), other));
    let sends: Vec<_> = asked.sends.iter().map(|(one, _)| one.clone()).collect();
    assert_eq!(asked, only(sends.clone()));
    sends
}

// Elections.

#[test]
fn the_first_leader_of_a_new_cluster_asks_the_acceptors_at_once() {
    let ask = Envelope::ToAcceptors(Set::first(3), acceptor::In::PreVote { from: ID });
    let mut leader = leader(0);
    let started = leader.now;
    assert_eq!(leader.woken(), only(vec![ask]));
    assert_eq!(leader.now, started);
}

#[test]
fn another_leader_waits_for_its_election_timeout() {
    let mut leader = leader(1);
    let timeout = Options::default().election_timeout;
    let at = leader.role.next_timer().expect("a timeout");
    assert!((leader.now + timeout..=leader.now + 2 * timeout).contains(&at));
    let ask = Envelope::ToAcceptors(Set::first(3), acceptor::In::PreVote { from: LeaderId(1) });
    assert_eq!(leader.woken(), only(vec![ask]));
}

#[test]
fn a_leader_that_has_lived_before_waits_for_its_election_timeout_too() {
    let birth = stage::birth(kind::Leader, 0, NodeId(0));
    let records = vec![Record { round: round(4, 0) }];
    let leader = Stage::after(config(Options::default()), &birth, records, Leader::new);
    let timeout = Options::default().election_timeout;
    assert!(leader.role.next_timer() >= Some(leader.now + timeout));
}

#[test]
fn a_candidate_asks_the_acceptors_again_until_they_answer() {
    let mut leader = candidate();
    let asked_at = leader.now;
    let ask = Envelope::ToAcceptors(Set::first(3), acceptor::In::PreVote { from: ID });
    assert_eq!(leader.woken(), only(vec![ask]));
    assert_eq!(leader.now, asked_at + Options::default().resend_after);
}

/// "Phase 1 of Paxos": a proposer picks a round and sends Phase1a to the acceptors (2.2). The
/// record of the round comes first, so that no round is used twice.
#[test]
fn a_read_quorum_without_a_leader_lets_a_candidate_begin_phase_1_for_all_slots() {
    let mut leader = candidate();
    let reply = |from| pre_vote_reply(from, true, Round(0));
    assert_eq!(leader.asked(reply(2)), only(vec![]));
    assert_eq!(leader.asked(reply(0)), begins(first(), 0));
}

#[test]
fn two_replies_of_one_acceptor_count_once() {
    let mut leader = candidate();
    for _ in 0..3 {
        assert_eq!(
            leader.asked(pre_vote_reply(1, true, Round(0))),
            only(vec![])
        );
    }
}

#[test]
fn an_acceptor_that_hears_a_leader_does_not_count() {
    let mut leader = candidate();
    for (from, gone) in [(0, true), (1, false), (2, false)] {
        assert_eq!(
            leader.asked(pre_vote_reply(from, gone, Round(0))),
            only(vec![])
        );
    }
}

#[test]
fn a_round_begins_above_every_promise_that_acceptors_name() {
    let mut leader = candidate();
    // Also that of one that hears a leader.
    leader.tell(pre_vote_reply(2, false, round(7, 2)));
    leader.tell(pre_vote_reply(0, true, round(3, 1)));
    let asked = leader.asked(pre_vote_reply(1, true, Round(0)));
    assert_eq!(asked, begins(round(8, 0), 0));
}

#[test]
fn a_leader_uses_no_round_again_after_a_restart() {
    let birth = stage::birth(kind::Leader, 0, NodeId(0));
    let records = vec![Record { round: round(4, 0) }, Record { round: round(5, 0) }];
    let mut leader = Stage::after(config(Options::default()), &birth, records, Leader::new);
    leader.timer();
    leader.tell(pre_vote_reply(0, true, Round(0)));
    let asked = leader.asked(pre_vote_reply(1, true, Round(0)));
    assert_eq!(asked, begins(round(6, 0), 0));
}

#[test]
fn a_checkpoint_keeps_the_round_as_vital() {
    let mut leader = leading(config(Options::default()));
    let record = (encode_all(&Record { round: first() }), true);
    assert_eq!(leader.checkpoint(), stage::only(vec![record], vec![]));
}

#[test]
fn phase_1_asks_only_for_slots_that_no_replica_has_executed() {
    let mut leader = candidate();
    leader.tell(executed(2, 17));
    leader.tell(pre_vote_reply(0, true, Round(0)));
    let asked = leader.asked(pre_vote_reply(1, true, Round(0)));
    assert_eq!(asked, begins(first(), 17));
}

// Phase 1.

#[test]
fn a_leader_leads_when_a_read_quorum_has_promised_and_tells_everyone() {
    let mut leader = in_phase1(config(Options::default()));
    let promise = |from| phase1b(from, first(), votes(&[]));
    assert_eq!(leader.asked(promise(0)), only(vec![]));
    assert_eq!(leader.asked(promise(0)), only(vec![]), "the same one");
    let all = [heartbeats(first(), 0, 1000), new_leader(first())].concat();
    assert_eq!(leader.asked(promise(1)), only(all));
    assert_eq!(leader.asked(promise(2)), only(vec![]), "it is over");
}

#[test]
fn promises_of_other_rounds_do_not_count() {
    let mut leader = in_phase1(config(Options::default()));
    for (from, other) in [(0, round(1, 1)), (1, Round(0)), (2, round(2, 0))] {
        assert_eq!(leader.asked(phase1b(from, other, votes(&[]))), only(vec![]));
    }
}

/// "It selects the value with the highest round" (2.2): over the whole read quorum, slot by slot.
#[test]
fn the_value_of_the_highest_round_is_proposed_again_in_each_slot() {
    let old = |text| vote(round(1, 1), 100, text);
    let new = |text| vote(round(2, 2), 200, text);
    let sends = leads_after(
        votes(&[(0, old("a")), (1, new("b"))]),
        votes(&[(0, new("c")), (1, old("d")), (2, old("e"))]),
    );
    let proposals = vec![
        again(0, value(200, "c")),
        again(1, value(200, "b")),
        again(2, value(100, "e")),
    ];
    let all = [heartbeats(first(), 0, 1000), proposals, new_leader(first())];
    assert_eq!(sends, all.concat());
}

/// A slot without a vote below one with a vote is filled, or replicas could not execute beyond it.
#[test]
fn holes_below_the_highest_vote_are_filled_with_noops() {
    let found = |slot| (slot, vote(round(1, 1), 100, "a"));
    let sends = leads_after(votes(&[found(1)]), votes(&[found(3)]));
    let proposals = vec![
        again(0, Value::default()),
        again(1, value(100, "a")),
        again(2, Value::default()),
        again(3, value(100, "a")),
    ];
    let all = [heartbeats(first(), 0, 1000), proposals, new_leader(first())];
    assert_eq!(sends, all.concat());
}

/// What an acceptor has forgotten is chosen, and f+1 replicas keep it.
#[test]
fn what_one_acceptor_has_forgotten_is_not_proposed_again() {
    let found = |slot| (slot, vote(round(1, 1), 100, "a"));
    let forgot = Votes {
        forgotten: Slot(3),
        watermark: Slot(3),
        ..votes(&[])
    };
    let sends = leads_after(votes(&[found(0), found(2), found(3)]), forgot);
    let proposals = vec![again(3, value(100, "a"))];
    let all = [heartbeats(first(), 0, 1000), proposals, new_leader(first())];
    assert_eq!(sends, all.concat());
}

/// s2: acceptors name their watermark itself, for they may hold none of their votes any more.
#[test]
fn new_commands_get_slots_above_everything_that_was_ever_voted_for() {
    let mut leader = in_phase1(config(Options::default()));
    let forgot = Votes {
        forgotten: Slot(5),
        watermark: Slot(9),
        ..votes(&[])
    };
    leader.tell(phase1b(0, first(), forgot));
    leader.tell(phase1b(1, first(), votes(&[])));
    let by = Proposer::Client { id: ClientId(2) };
    let expected = phase2a(9, value(1000, "x"), by, 1);
    assert_eq!(leader.asked(propose(by, "x")), only(vec![expected]));
}

#[test]
fn an_acceptor_that_has_more_votes_is_asked_for_the_next_stretch_before_it_counts() {
    let mut leader = in_phase1(config(Options::default()));
    leader.tell(phase1b(0, first(), votes(&[])));
    let found = vote(round(1, 1), 100, "a");
    let stretch = |start, next, slot| Votes {
        start: Slot(start),
        next,
        watermark: Slot(6),
        ..votes(&[(slot, found.clone())])
    };
    let more = leader.asked(phase1b(1, first(), stretch(0, Slot(5), 4)));
    assert_eq!(more, only(vec![phase1a(&[1], ID, first(), 5, Slot::MAX)]));
    // The stretch before it once more, for the network may repeat it.
    let repeated = leader.asked(phase1b(1, first(), stretch(0, Slot(5), 4)));
    assert_eq!(repeated, only(vec![]));
    let asked = leader.asked(phase1b(1, first(), stretch(5, Slot::MAX, 5)));
    let noops = (0..4).map(|slot| again(slot, Value::default()));
    let proposals = noops.chain([4, 5].map(|slot| again(slot, value(100, "a"))));
    let all = [
        heartbeats(first(), 0, 1000),
        proposals.collect(),
        new_leader(first()),
    ];
    assert_eq!(asked, only(all.concat()));
}

#[test]
fn acceptors_that_do_not_answer_in_phase_1_are_asked_again() {
    let mut leader = in_phase1(config(Options::default()));
    let begun = leader.now;
    leader.tell(phase1b(1, first(), votes(&[])));
    let missing = phase1a(&[0, 2], ID, first(), 0, Slot::MAX);
    assert_eq!(leader.woken(), only(vec![missing]));
    assert_eq!(leader.now, begun + Options::default().resend_after);
}

/// "A batch received during phase 1 waits; it is not lost" (l3).
#[test]
fn a_batch_that_comes_in_phase_1_waits_and_follows_what_phase_1_has_found() {
    let mut leader = in_phase1(config(Options::default()));
    let by = Proposer::Batcher {
        id: BatcherId(1),
        number: 8,
    };
    assert_eq!(leader.asked(propose(by, "x")), only(vec![]));
    leader.tell(phase1b(0, first(), votes(&[])));
    let found = votes(&[(0, vote(round(1, 1), 100, "a"))]);
    let asked = leader.asked(phase1b(1, first(), found));
    let all = [
        heartbeats(first(), 0, 1000),
        vec![again(0, value(100, "a"))],
        new_leader(first()),
        vec![phase2a(1, value(1000, "x"), by, 1)],
    ];
    assert_eq!(asked, only(all.concat()));
}

/// Time in the log never falls: a new leader whose clock is behind goes on from the last stamp.
#[test]
fn stamps_go_on_from_the_largest_that_phase_1_has_found() {
    let mut leader = in_phase1(config(Options::default()));
    leader.tell(phase1b(0, first(), votes(&[])));
    leader.tell(phase1b(
        1,
        first(),
        votes(&[(0, vote(round(1, 1), 5000, "a"))]),
    ));
    let by = Proposer::Client { id: ClientId(2) };
    let expected = phase2a(1, value(5000, "x"), by, 1);
    assert_eq!(leader.asked(propose(by, "x")), only(vec![expected]));
}

// Being deposed.

fn not_leader(round: Round) -> Vec<Envelope> {
    vec![
        Envelope::ToClients(Set::one(ClientId(2)), client::In::NotLeader { round }),
        Envelope::ToBatchers(Set::one(BatcherId(1)), batcher::In::NotLeader { round }),
    ]
}

fn proposers() -> [Proposer; 2] {
    let (id, number) = (BatcherId(1), 8);
    [
        Proposer::Client { id: ClientId(2) },
        Proposer::Batcher { id, number },
    ]
}

/// l10: proposers are not left to their timers.
#[test]
fn a_higher_round_deposes_a_candidate_and_what_waits_goes_back_to_its_proposers() {
    let higher = round(3, 1);
    for message in [In::Nack { round: higher }, In::Heartbeat { round: higher }] {
        let mut leader = in_phase1(config(Options::default()));
        for by in proposers() {
            leader.tell(propose(by, "x"));
        }
        assert_eq!(leader.asked(message), only(not_leader(higher)));
        // Its own round is over: promises that come late lead to nothing.
        for from in 0..3 {
            let late = phase1b(from, first(), votes(&[]));
            assert_eq!(leader.asked(late), only(vec![]));
        }
    }
}

/// l4: two leaders would depose each other without end.
#[test]
fn a_deposed_leader_waits_for_an_election_timeout() {
    let mut leader = leading(config(Options::default()));
    leader.tell(In::Nack { round: round(3, 1) });
    let timeout = Options::default().election_timeout;
    let at = leader.role.next_timer().expect("a timeout");
    assert!((leader.now + timeout..=leader.now + 2 * timeout).contains(&at));
}

/// Whether the timer of a leader has doubled: of many random times one is beyond twice the timeout.
fn waits_longer(leader: &mut Stage<Leader>, present: Round) -> bool {
    let timeout = Options::default().election_timeout;
    let mut waits = (0..50).map(|_| {
        leader.tell(In::Heartbeat { round: present });
        leader
            .role
            .next_timer()
            .expect("a timeout")
            .since(leader.now)
    });
    waits.any(|wait| wait > 2 * timeout)
}

/// A leader whose process was not run for a timeout was deposed without having failed, and so will
/// others be. One that was deposed for another reason sent heartbeats until then.
#[test]
fn a_leader_that_was_deposed_after_a_pause_waits_longer_before_it_deposes_another() {
    let options = Options::default();
    let pause = options.election_timeout - options.heartbeat;
    for (pause, longer) in [(pause - Duration::from_millis(1), false), (pause, true)] {
        let mut leader = leading(config(options.clone()));
        let due = leader.role.next_timer().expect("a heartbeat");
        leader.now = due + pause;
        assert_eq!(waits_longer(&mut leader, round(3, 1)), longer, "{pause:?}");
    }
}

#[test]
fn a_leader_that_finds_after_a_pause_that_it_still_leads_waits_longer_later() {
    let options = Options::default();
    let mut leader = leading(config(options.clone()));
    let due = leader.role.next_timer().expect("a heartbeat");
    leader.now = due + options.election_timeout;
    leader.timer();
    assert!(waits_longer(&mut leader, round(3, 1)));
}

#[test]
fn a_candidate_that_receives_a_heartbeat_of_the_leader_that_it_suspects_waits_longer() {
    let mut leader = leader(1);
    leader.tell(In::Heartbeat { round: first() });
    assert!(!waits_longer(&mut leader, first()));
    leader.timer();
    assert!(waits_longer(&mut leader, first()));
}

#[test]
fn a_leader_that_does_not_lead_turns_proposals_away_with_the_round_that_it_knows() {
    let mut leader = leading(config(Options::default()));
    leader.tell(In::Heartbeat { round: round(3, 1) });
    for (by, expected) in proposers().into_iter().zip(not_leader(round(3, 1))) {
        assert_eq!(leader.asked(propose(by, "x")), only(vec![expected]));
    }
}

#[test]
fn lower_rounds_do_not_depose_a_leader() {
    let mut leader = leading(config(Options::default()));
    for message in [
        In::Nack { round: Round(0) },
        In::Nack { round: first() },
        In::Heartbeat { round: Round(0) },
    ] {
        assert_eq!(leader.asked(message), only(vec![]));
    }
    let by = Proposer::Client { id: ClientId(2) };
    let expected = phase2a(0, value(1000, "x"), by, 1);
    assert_eq!(leader.asked(propose(by, "x")), only(vec![expected]));
}

#[test]
fn a_leader_that_is_heard_of_in_time_is_not_suspected() {
    let mut leader = leader(1);
    let timeout = Options::default().election_timeout;
    for _ in 0..5 {
        leader.now = leader.now + timeout - Duration::from_millis(1);
        assert_eq!(leader.asked(In::Heartbeat { round: first() }), only(vec![]));
        assert!(leader.role.next_timer() >= Some(leader.now + timeout));
    }
}

/// Rounds of a deposed leader are below the one that it has heard of.
#[test]
fn a_leader_that_was_deposed_begins_its_next_round_above_the_one_that_deposed_it() {
    let mut leader = leading(config(Options::default()));
    leader.tell(In::Nack { round: round(3, 1) });
    leader.timer();
    leader.tell(pre_vote_reply(0, true, Round(0)));
    let asked = leader.asked(pre_vote_reply(1, true, Round(0)));
    assert_eq!(asked, begins(round(4, 0), 0));
}

// Handing over.

#[test]
fn a_leader_that_drains_asks_another_to_take_over() {
    let mut leader = leading(config(Options::default()));
    let message = In::TakeOver {
        from: ID,
        round: first(),
    };
    let asks = Envelope::ToLeaders(Set::one(LeaderId(1)), message);
    assert_eq!(leader.drain(true), vec![asks]);
}

#[test]
fn a_leader_that_is_asked_to_take_over_begins_a_round_above_that_of_the_other() {
    let mut leader = leader(1);
    let message = In::TakeOver {
        from: ID,
        round: first(),
    };
    assert_eq!(leader.asked(message), begins(round(2, 1), 0));
}
