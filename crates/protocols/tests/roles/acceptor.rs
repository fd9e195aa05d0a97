//! The rules of an acceptor (MultiPaxos; compartmentalization, sections 2.2, 3.1 and 3.4), one test
//! each. All that it asks of its driver is compared: messages with their fences, records, releases.

use crate::stage::{Stage, batch, birth, only};
use bytes::Bytes;
use ionian_kernel::id::*;
use ionian_kernel::layout::{Layout, NodeId, numbered};
use ionian_kernel::protocol::Protocol;
use ionian_kernel::role::Asked;
use ionian_kernel::time::Timestamp;
use ionian_kernel::wire::encode_all;
use ionian_protocols::multipaxos::acceptor::{Acceptor, In, Record};
use ionian_protocols::multipaxos::message::{ReaderId, Vote, Votes};
use ionian_protocols::multipaxos::{
    Envelope, MultiPaxos, client, kind, leader, proxy_leader, replica,
};
use ionian_replication::batch::Value;

/// The acceptor; every kind has an instance of the same number on each of three nodes.
const ID: AcceptorId = AcceptorId(1);
/// Who asks it for votes.
const PROXY: ProxyLeaderId = ProxyLeaderId(2);
const SLOT: Slot = Slot(5);

fn acceptor() -> Stage<Acceptor> {
    let nodes: Vec<NodeId> = (0..3).map(NodeId).collect();
    let layout = Layout {
        f: 1,
        instances: numbered(vec![nodes; 8]),
        ..Layout::default()
    };
    let config = MultiPaxos::configure(layout).expect("a deployment");
    Stage::new(
        config,
        &birth(kind::Acceptor, ID.0, NodeId(1)),
        Acceptor::new,
    )
}

/// The `count`-th round of leader 2.
fn round(count: u64) -> Round {
    Round::new(Epoch::default(), count, LeaderId(2))
}

fn value(text: &'static str) -> Value {
    Value {
        stamp: Timestamp(7),
        batch: batch(text),
    }
}

fn vote(count: u64, text: &'static str) -> Vote {
    Vote {
        round: round(count),
        value: value(text),
    }
}

fn phase1a(count: u64) -> In {
    In::Phase1a {
        from: LeaderId(2),
        round: round(count),
        start: Slot(0),
        end: Slot::MAX,
    }
}

fn phase2a(slot: Slot, Vote { round, value }: Vote) -> In {
    In::Phase2a {
        from: PROXY,
        slot,
        round,
        value,
    }
}

fn to_leader(message: leader::In) -> Envelope {
    Envelope::ToLeaders(Set::one(LeaderId(2)), message)
}

fn to_proxy(message: proxy_leader::In) -> Envelope {
    Envelope::ToProxyLeaders(Set::one(PROXY), message)
}

/// A promise with these votes.
fn phase1b(acceptor: &Stage<Acceptor>, count: u64, votes: Vec<(Slot, Vote)>) -> Envelope {
    let after = |(slot, _): &(Slot, Vote)| slot.next();
    let votes = Votes {
        start: Slot(0),
        end: Slot::MAX,
        next: Slot::MAX,
        forgotten: Slot(0),
        watermark: votes.last().map_or(Slot(0), after),
        votes,
    };
    to_leader(leader::In::Phase1b {
        from: ID,
        round: round(count),
        votes,
        clock: acceptor.now.timestamp(),
    })
}

fn phase2b(slot: Slot, count: u64) -> Envelope {
    to_proxy(proxy_leader::In::Phase2b {
        from: ID,
        slot,
        round: round(count),
    })
}

fn promised(count: u64) -> (Vec<u8>, bool) {
    let round = round(count);
    (encode_all(&Record::Promised { round }), true)
}

fn voted(slot: Slot, vote: Vote) -> (Vec<u8>, bool) {
    (encode_all(&Record::Voted { slot, vote }), false)
}

#[test]
fn a_promise_is_recorded_as_vital_and_leaves_behind_its_record() {
    let mut acceptor = acceptor();
    let answer = phase1b(&acceptor, 1, Vec::new());
    assert_eq!(
        acceptor.asked(phase1a(1)),
        only(vec![promised(1)], vec![(answer, Some(1))])
    );
}

#[test]
fn a_promise_that_is_asked_for_again_needs_no_record() {
    let mut acceptor = acceptor();
    acceptor.asked(phase1a(1));
    let answer = phase1b(&acceptor, 1, Vec::new());
    assert_eq!(
        acceptor.asked(phase1a(1)),
        only(vec![], vec![(answer, Some(0))])
    );
}

#[test]
fn a_promise_names_the_last_vote_in_each_slot() {
    let mut acceptor = acceptor();
    acceptor.asked(phase2a(SLOT, vote(1, "a")));
    acceptor.asked(phase2a(SLOT, vote(2, "b")));
    acceptor.asked(phase2a(Slot(9), vote(2, "c")));
    let votes = vec![(SLOT, vote(2, "b")), (Slot(9), vote(2, "c"))];
    let answer = phase1b(&acceptor, 3, votes);
    assert_eq!(
        acceptor.asked(phase1a(3)),
        only(vec![promised(3)], vec![(answer, Some(1))])
    );
}

#[test]
fn phase_1_of_a_lower_round_is_refused_at_once_and_changes_nothing() {
    let mut acceptor = acceptor();
    acceptor.asked(phase1a(2));
    let nack = to_leader(leader::In::Nack { round: round(2) });
    let refused = only(vec![], vec![(nack, None)]);
    assert_eq!(acceptor.asked(phase1a(1)), refused);
}

#[test]
pub(crate) fn a_vote_in_the_promised_round_leaves_behind_its_record() {
    let mut acceptor = acceptor();
    acceptor.asked(phase1a(1));
    assert_eq!(
        acceptor.asked(phase2a(SLOT, vote(1, "a"))),
        only(
            vec![voted(SLOT, vote(1, "a"))],
            vec![(phase2b(SLOT, 1), Some(1))]
        )
    );
}

#[test]
fn a_vote_in_a_higher_round_promises_it_too() {
    let mut acceptor = acceptor();
    acceptor.asked(phase1a(1));
    assert_eq!(
        acceptor.asked(phase2a(SLOT, vote(2, "a"))),
        only(
            vec![promised(2), voted(SLOT, vote(2, "a"))],
            vec![(phase2b(SLOT, 2), Some(2))]
        )
    );
}

#[test]
fn a_vote_that_is_asked_for_again_needs_no_record_and_waits_for_the_first_one() {
    let mut acceptor = acceptor();
    acceptor.asked(phase2a(SLOT, vote(1, "a")));
    assert_eq!(
        acceptor.asked(phase2a(SLOT, vote(1, "a"))),
        only(vec![], vec![(phase2b(SLOT, 1), Some(0))])
    );
}

#[test]
fn a_vote_for_the_same_value_in_a_higher_round_is_recorded_without_the_value() {
    let mut acceptor = acceptor();
    acceptor.asked(phase2a(SLOT, vote(1, "a")));
    let confirmed = Record::Confirmed {
        slot: SLOT,
        round: round(2),
    };
    assert_eq!(
        acceptor.asked(phase2a(SLOT, vote(2, "a"))),
        only(
            vec![promised(2), (encode_all(&confirmed), false)],
            vec![(phase2b(SLOT, 2), Some(2))]
        )
    );
}

#[test]
fn a_vote_for_another_value_in_a_higher_round_is_recorded_with_it() {
    let mut acceptor = acceptor();
    acceptor.asked(phase2a(SLOT, vote(1, "a")));
    assert_eq!(
        acceptor.asked(phase2a(SLOT, vote(2, "b"))),
        only(
            vec![promised(2), voted(SLOT, vote(2, "b"))],
            vec![(phase2b(SLOT, 2), Some(2))]
        )
    );
}

#[test]
#[should_panic(expected = "two values proposed in")]
fn two_values_in_one_slot_of_one_round_stop_the_node() {
    let mut acceptor = acceptor();
    acceptor.asked(phase2a(SLOT, vote(1, "a")));
    acceptor.asked(phase2a(SLOT, vote(1, "b")));
}

#[test]
pub(crate) fn phase_2_of_a_lower_round_is_refused_to_proxy_leader_and_leader() {
    let mut acceptor = acceptor();
    acceptor.asked(phase1a(2));
    let proxy = to_proxy(proxy_leader::In::Nack { round: round(2) });
    let leader = to_leader(leader::In::Nack { round: round(2) });
    assert_eq!(
        acceptor.asked(phase2a(SLOT, vote(1, "a"))),
        only(vec![], vec![(proxy, Some(0)), (leader, None)])
    );
}

#[test]
pub(crate) fn votes_that_replicas_keep_are_forgotten_and_released() {
    let mut acceptor = acceptor();
    acceptor.asked(phase2a(SLOT, vote(1, "a")));
    let kept = SLOT.next();
    let heartbeat = In::Heartbeat {
        round: round(1),
        kept,
    };
    let forgot = (encode_all(&Record::Forgot { below: kept }), false);
    assert_eq!(
        acceptor.asked(heartbeat.clone()),
        Asked {
            release_below: Some(kept.0),
            ..only(vec![forgot], vec![])
        }
    );
    assert_eq!(acceptor.asked(heartbeat), only(vec![], vec![]), "once");
    let forgotten = to_proxy(proxy_leader::In::Forgotten { below: kept });
    assert_eq!(
        acceptor.asked(phase2a(SLOT, vote(1, "a"))),
        only(vec![], vec![(forgotten, Some(0))])
    );
}

#[test]
fn a_heartbeat_of_a_lower_round_is_refused_and_nothing_is_forgotten() {
    let mut acceptor = acceptor();
    acceptor.asked(phase1a(2));
    let heartbeat = In::Heartbeat {
        round: round(1),
        kept: SLOT,
    };
    let nack = to_leader(leader::In::Nack { round: round(2) });
    assert_eq!(acceptor.asked(heartbeat), only(vec![], vec![(nack, None)]));
}

#[test]
fn a_reader_learns_the_watermark_behind_the_records_of_all_votes() {
    let mut acceptor = acceptor();
    acceptor.asked(phase2a(SLOT, vote(1, "a")));
    let from = ReaderId::Client { id: ClientId(0) };
    let answer = client::In::PreReadAck {
        from: ID,
        inquiry: 3,
        watermark: SLOT.next(),
        epoch: Epoch::default(),
    };
    let answer = Envelope::ToClients(Set::one(ClientId(0)), answer);
    assert_eq!(
        acceptor.asked(In::PreRead { from, inquiry: 3 }),
        only(vec![], vec![(answer, Some(0))])
    );
}

#[test]
fn the_replicas_of_its_node_get_the_value_that_was_chosen_in_the_round_of_its_vote() {
    let mut acceptor = acceptor();
    acceptor.asked(phase2a(SLOT, vote(1, "a")));
    let learn = |slot, count| In::Learn {
        slot,
        round: round(count),
        replier: ReplicaId(0),
    };
    let chosen = replica::In::Chosen {
        slot: SLOT,
        value: value("a"),
        replier: ReplicaId(0),
    };
    let chosen = Envelope::ToReplicas(Set::one(ReplicaId(1)), chosen);
    assert_eq!(
        acceptor.asked(learn(SLOT, 1)),
        only(vec![], vec![(chosen, None)])
    );
    for unknown in [learn(SLOT, 2), learn(Slot(9), 1)] {
        assert_eq!(acceptor.asked(unknown), only(vec![], vec![]));
    }
}

/// While fewer than f+1 replicas keep what is chosen, an acceptor forgets nothing: its memory is
/// bounded in bytes.
#[test]
fn an_acceptor_refuses_votes_when_it_remembers_four_gibibytes_of_values() {
    let mut acceptor = acceptor();
    // All values share the same 32 MiB.
    let payload = Bytes::from(vec![0; 32 << 20]);
    let value = Value {
        stamp: Timestamp(7),
        batch: batch(payload),
    };
    let large = |slot: u64| {
        let vote = Vote {
            round: round(1),
            value: value.clone(),
        };
        phase2a(Slot(slot), vote)
    };
    let mut voted = 0;
    while !acceptor.asked(large(voted)).sends.is_empty() {
        voted += 1;
    }
    assert_eq!(voted, 128);
    assert_eq!(
        acceptor.asked(large(200)),
        only(vec![], vec![]),
        "it is full"
    );
    // When replicas keep these slots there is room again.
    acceptor.tell(In::Heartbeat {
        round: round(1),
        kept: Slot(128),
    });
    assert_eq!(acceptor.asked(large(200)).sends.len(), 1);
}
