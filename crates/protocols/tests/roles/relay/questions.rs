//! A relay that carries what leaders and readers ask: heartbeats, phase 1, watermarks.

use super::*;
use ionian_protocols::multipaxos::message::{ReaderId, Votes};
use ionian_protocols::multipaxos::{client, read_batcher};
use ionian_protocols::pigpaxos::message::{Beat, Promises, Watermarks};

const CLOCK: Timestamp = Timestamp(9);

fn phase1a(members: &[u8], count: u64) -> relay::In {
    relay::In::Phase1a {
        members: set(members),
        patience: PATIENCE,
        round: round(count),
        start: Slot(3),
        end: Slot::MAX,
    }
}

fn vote_in(slot: u64, count: u64, payload: impl Into<bytes::Bytes>) -> (Slot, Vote) {
    let value = Value {
        stamp: Timestamp(7),
        batch: batch(payload),
    };
    let round = round(count);
    (Slot(slot), Vote { round, value })
}

fn page(votes: &[(Slot, Vote)], (forgotten, watermark): (u64, u64)) -> Votes {
    Votes {
        start: Slot(3),
        end: Slot::MAX,
        next: Slot::MAX,
        votes: votes.to_vec(),
        forgotten: Slot(forgotten),
        watermark: Slot(watermark),
    }
}

fn phase1b(from: u8, count: u64, votes: Votes) -> relay::In {
    relay::In::Phase1b {
        from: AcceptorId(from),
        round: round(count),
        votes: Box::new(votes),
        clock: CLOCK,
    }
}

fn promises(promised: &[u8], missing: &[u8], count: u64, votes: Votes) -> Envelope {
    let promised = promised.iter().map(|from| (AcceptorId(*from), CLOCK));
    let promises = Promises {
        promised: promised.collect(),
        votes,
        missing: set(missing),
    };
    let message = leader::In::Promises {
        from: RelayId(1),
        round: round(count),
        promises: Box::new(promises),
    };
    Envelope::ToLeaders(Set::one(LeaderId(0)), message)
}

fn asks_phase1(members: &[u8], count: u64) -> Envelope {
    let message = acceptor::In::RelayedPhase1a {
        from: RelayId(1),
        round: round(count),
        start: Slot(3),
        end: Slot::MAX,
    };
    Envelope::ToAcceptors(set(members), message)
}

/// As in s1: of each slot the vote of the highest round, whichever acceptor answers first.
#[test]
pub(crate) fn promises_of_several_acceptors_have_the_vote_of_the_highest_round_in_each_slot() {
    let one = page(&[vote_in(4, 1, "old"), vote_in(6, 3, "new")], (2, 7));
    let other = page(&[vote_in(4, 2, "new"), vote_in(6, 1, "old")], (3, 9));
    let merged = page(&[vote_in(4, 2, "new"), vote_in(6, 3, "new")], (3, 9));
    for (first, second) in [(1, 2), (2, 1)] {
        let mut relay = relay_with(5, &[]);
        let asked = relay.asked(phase1a(&[1, 2], 4));
        assert_eq!(asked, only(vec![asks_phase1(&[1, 2], 4)]));
        let answers = [(1, one.clone()), (2, other.clone())];
        let answer = |from: u8| answers[usize::from(from) - 1].1.clone();
        assert_eq!(relay.asked(phase1b(first, 4, answer(first))), only(vec![]));
        let told = relay.asked(phase1b(second, 4, answer(second)));
        let all = promises(&[first, second], &[], 4, merged.clone());
        assert_eq!(told, only(vec![all]));
        let again = relay.asked(phase1b(first, 4, answer(first)));
        assert_eq!(again, only(vec![]), "it is answered");
    }
}

/// What one of them has forgotten is chosen (s2): the leader proposes nothing there.
#[test]
pub(crate) fn a_relay_reports_the_most_that_any_acceptor_has_forgotten() {
    let mut relay = relay_with(5, &[]);
    relay.asked(phase1a(&[1, 2], 4));
    relay.asked(phase1b(1, 4, page(&[], (2, 7))));
    let told = relay.asked(phase1b(2, 4, page(&[], (5, 6))));
    let merged = page(&[], (5, 7));
    assert_eq!(told, only(vec![promises(&[1, 2], &[], 4, merged)]));
}

/// Of the slots beyond, one of the acceptors has not told its votes yet.
#[test]
pub(crate) fn a_page_of_several_acceptors_ends_where_the_first_of_theirs_ends() {
    let mut relay = relay_with(5, &[]);
    relay.asked(phase1a(&[1, 2], 4));
    let (low, high) = (vote_in(4, 1, "a"), vote_in(8, 1, "b"));
    let cut = |next| Votes {
        next: Slot(next),
        ..page(std::slice::from_ref(&low), (0, 9))
    };
    relay.asked(phase1b(1, 4, cut(6)));
    let told = relay.asked(phase1b(2, 4, page(&[low.clone(), high], (0, 9))));
    assert_eq!(told, only(vec![promises(&[1, 2], &[], 4, cut(6))]));
}

/// What lies beyond is asked for next: no message grows with the number of acceptors.
#[test]
fn a_page_of_several_acceptors_is_no_longer_than_one_of_one() {
    let mut relay = relay_with(5, &[]);
    relay.asked(phase1a(&[1, 2], 4));
    let large = || vec![b'x'; 400 << 10];
    let (odd, even) = ([3, 5, 7], [4, 6, 8]);
    let votes = |slots: [u64; 3]| slots.map(|slot| vote_in(slot, 1, large()));
    relay.asked(phase1b(1, 4, page(&votes(odd), (0, 9))));
    let told = relay.asked(phase1b(2, 4, page(&votes(even), (0, 9))));
    let merged = Votes {
        next: Slot(5),
        ..page(&[3, 4].map(|slot| vote_in(slot, 1, large())), (0, 9))
    };
    assert_eq!(told, only(vec![promises(&[1, 2], &[], 4, merged)]));
}

#[test]
fn promises_of_another_round_or_of_other_slots_are_not_added() {
    let mut relay = relay_with(5, &[]);
    relay.asked(phase1a(&[1], 4));
    let nothing = page(&[], (0, 0));
    assert_eq!(relay.asked(phase1b(1, 3, nothing.clone())), only(vec![]));
    let of_one_slot = Votes {
        end: Slot(4),
        ..nothing.clone()
    };
    assert_eq!(relay.asked(phase1b(1, 4, of_one_slot)), only(vec![]));
    assert_eq!(
        relay.asked(phase1b(2, 4, nothing.clone())),
        only(vec![]),
        "of no member"
    );
    let told = relay.asked(phase1b(1, 4, nothing.clone()));
    assert_eq!(told, only(vec![promises(&[1], &[], 4, nothing)]));
}

#[test]
fn promises_that_come_late_are_passed_on_one_by_one_while_the_leader_waits() {
    let mut relay = relay_with(5, &[]);
    relay.asked(phase1a(&[1, 2, 3], 4));
    let nothing = page(&[], (0, 0));
    relay.asked(phase1b(2, 4, nothing.clone()));
    let before = relay.now;
    let early = promises(&[2], &[1, 3], 4, nothing.clone());
    assert_eq!(relay.woken(), only(vec![early]));
    assert_eq!(relay.now.since(before), Duration::from_micros(PATIENCE / 4));
    let late = relay.asked(phase1b(1, 4, nothing.clone()));
    assert_eq!(late, only(vec![promises(&[1], &[], 4, nothing.clone())]));
    assert_eq!(relay.woken(), only(vec![]));
    let after = relay.asked(phase1b(3, 4, nothing));
    assert_eq!(after, only(vec![]), "it is forgotten");
    assert_eq!(relay.role.next_timer(), None);
}

/// 3.2: the promises of others would only look like enough.
#[test]
pub(crate) fn a_refusal_ends_phase_1_and_the_other_promises_are_not_reported() {
    let mut relay = relay_with(5, &[]);
    relay.asked(phase1a(&[1, 2], 4));
    relay.asked(phase1b(1, 4, page(&[], (0, 0))));
    let nack = leader::In::Nack { round: round(5) };
    let refused = relay.asked(relay::In::Nack { round: round(5) });
    let told = vec![Envelope::ToLeaders(Set::one(LeaderId(0)), nack)];
    assert_eq!(refused, only(told));
    let rest = relay.asked(phase1b(2, 4, page(&[], (0, 0))));
    assert_eq!(rest, only(vec![]));
    assert_eq!(relay.role.next_timer(), None, "nothing is left to wait for");
}

#[test]
fn a_heartbeat_is_passed_on_to_those_it_names_and_the_leader_hears_of_the_relay() {
    let mut relay = relay_with(5, &[]);
    let (round, executed, kept, keep) = (round(2), Slot(8), Slot(5), Slot(0));
    let beat = Beat {
        leaders: Set::one(LeaderId(3)),
        acceptors: set(&[1, 3]),
        replicas: Set::one(ReplicaId(1)),
        round,
        executed,
        kept,
        keep,
        time: CLOCK,
    };
    let passed_on = relay.asked(relay::In::Heartbeat {
        from: LeaderId(0),
        beat: Box::new(beat),
    });
    let to_replica = replica::In::Heartbeat {
        round,
        executed,
        keep,
        time: CLOCK,
    };
    let lives = leader::In::Relayed { from: RelayId(1) };
    let expected = vec![
        Envelope::ToLeaders(Set::one(LeaderId(3)), leader::In::Heartbeat { round }),
        Envelope::ToAcceptors(set(&[1, 3]), acceptor::In::Heartbeat { round, kept }),
        Envelope::ToReplicas(Set::one(ReplicaId(1)), to_replica),
        Envelope::ToLeaders(Set::one(LeaderId(0)), lives),
    ];
    assert_eq!(passed_on, only(expected));
}

const READER: ReaderId = ReaderId::Client { id: ClientId(4) };

fn pre_read(reader: ReaderId, members: &[u8]) -> relay::In {
    relay::In::PreRead {
        from: reader,
        members: set(members),
        patience: PATIENCE,
        inquiry: 6,
    }
}

fn pre_read_ack(from: u8, reader: ReaderId, watermark: u64, epoch: u32) -> relay::In {
    relay::In::PreReadAck {
        from: AcceptorId(from),
        reader,
        inquiry: 6,
        watermark: Slot(watermark),
        epoch: Epoch(epoch),
        executed: Slot(10 + u64::from(from)),
    }
}

/// Acceptor 3 or 1 may be the only one that has voted for what the read must see.
#[test]
pub(crate) fn a_reader_gets_the_largest_watermark_and_the_names() {
    let batcher = ReaderId::ReadBatcher {
        id: ReadBatcherId(4),
    };
    for (reader, first, last) in [(READER, 20, 30), (batcher, 30, 20)] {
        let mut relay = relay_with(5, &[]);
        let asked = relay.asked(pre_read(reader, &[1, 3]));
        let ask = acceptor::In::RelayedPreRead {
            from: RelayId(1),
            reader,
            inquiry: 6,
        };
        assert_eq!(asked, only(vec![Envelope::ToAcceptors(set(&[1, 3]), ask)]));
        let early = relay.asked(pre_read_ack(3, reader, first, 2));
        assert_eq!(early, only(vec![]));
        let watermarks = Box::new(Watermarks {
            relay: Some(RelayId(1)),
            inquiry: 6,
            answered: set(&[1, 3]),
            watermark: Slot(30),
            epoch: Epoch(2),
            ahead: AcceptorId(3),
            executed: Slot(13),
            missing: AcceptorSet::EMPTY,
        });
        let told = match reader {
            ReaderId::Client { id } => {
                Envelope::ToClients(Set::one(id), client::In::Watermarks { watermarks })
            }
            ReaderId::ReadBatcher { id } => {
                let message = read_batcher::In::Watermarks { watermarks };
                Envelope::ToReadBatchers(Set::one(id), message)
            }
        };
        assert_eq!(
            relay.asked(pre_read_ack(1, reader, last, 2)),
            only(vec![told])
        );
    }
}

#[test]
fn a_relay_names_the_acceptors_that_leave_a_reader_unanswered() {
    let mut relay = relay_with(5, &[]);
    relay.asked(pre_read(READER, &[1, 3]));
    relay.asked(pre_read_ack(3, READER, 20, 0));
    let told = relay.woken();
    let [(Envelope::ToClients(_, client::In::Watermarks { watermarks }), _)] = &told.sends[..]
    else {
        panic!("{told:?}")
    };
    let Watermarks {
        answered, missing, ..
    } = **watermarks;
    assert_eq!((answered, missing), (set(&[3]), set(&[1])));
}
