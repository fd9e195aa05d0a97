//! An acceptor that is asked by a relay.

use super::*;
use ionian_protocols::multipaxos::client;
use ionian_protocols::multipaxos::message::{ReaderId, Votes};
use ionian_protocols::pigpaxos::message::Watermarks;

fn acceptor() -> Stage<Acceptor> {
    let config = MultiPaxos::configure(layout(5, &[])).expect("a deployment");
    Stage::new(config, &birth(kind::Acceptor, 1, NodeId(1)), Acceptor::new)
}

fn relayed_phase2a(count: u64, chosen: Vec<Run>) -> acceptor::In {
    acceptor::In::RelayedPhase2a {
        from: Requester::Relay { id: RelayId(3) },
        slot: SLOT,
        round: round(count),
        value: value(),
        chosen: chosen.into(),
    }
}

fn promised(count: u64) -> (Vec<u8>, bool) {
    (
        encode_all(&Record::Promised {
            round: round(count),
        }),
        true,
    )
}

fn voted(slot: Slot, count: u64) -> (Vec<u8>, bool) {
    let vote = Vote {
        round: round(count),
        value: value(),
    };
    (encode_all(&Record::Voted { slot, vote }), false)
}

fn vote_for_relay(count: u64) -> Envelope {
    let message = relay::In::Phase2b {
        from: AcceptorId(1),
        slot: SLOT,
        round: round(count),
    };
    Envelope::ToRelays(Set::one(RelayId(3)), message)
}

fn handed_on(slot: Slot) -> Envelope {
    let message = replica::In::Chosen {
        slot,
        value: value(),
        replier: ReplicaId(2),
    };
    Envelope::ToReplicas(Set::one(ReplicaId(1)), message)
}

/// A vote for a relay waits for its record like any other.
#[test]
fn an_acceptor_answers_the_relay_that_asked_when_its_vote_is_on_disk() {
    let asked = acceptor().asked(relayed_phase2a(1, vec![]));
    let records = vec![promised(1), voted(SLOT, 1)];
    assert_eq!(
        asked,
        stage::only(records, vec![(vote_for_relay(1), Some(2))])
    );
}

#[test]
fn an_acceptor_hands_on_what_a_request_says_is_chosen() {
    let mut acceptor = acceptor();
    acceptor.asked(relayed_phase2a(1, vec![]));
    let told = acceptor.asked(acceptor::In::LearnSlots {
        round: round(1),
        chosen: Box::new([run(SLOT.0, 1)]),
    });
    assert_eq!(told, stage::only(vec![], vec![(handed_on(SLOT), None)]));
}

/// Its vote of another round is not what is chosen.
#[test]
pub(crate) fn a_vote_of_another_round_is_not_handed_on() {
    let mut acceptor = acceptor();
    acceptor.asked(relayed_phase2a(1, vec![]));
    let told = acceptor.asked(acceptor::In::LearnSlots {
        round: round(2),
        chosen: Box::new([run(SLOT.0, 1)]),
    });
    assert_eq!(told, only(vec![]));
    let voted_now = acceptor.asked(relayed_phase2a(2, vec![]));
    let last = voted_now.sends.last().cloned();
    assert_eq!(last, Some((handed_on(SLOT), None)), "{voted_now:?}");
}

#[test]
fn what_is_chosen_before_it_votes_is_handed_on_when_it_does() {
    let mut acceptor = acceptor();
    let early = acceptor.asked(acceptor::In::LearnSlots {
        round: round(1),
        chosen: Box::new([run(SLOT.0, 1)]),
    });
    assert_eq!(early, only(vec![]));
    let asked = acceptor.asked(relayed_phase2a(1, vec![]));
    let sends = vec![(vote_for_relay(1), Some(2)), (handed_on(SLOT), None)];
    assert_eq!(asked, stage::only(vec![promised(1), voted(SLOT, 1)], sends));
}

/// Defect s10: phase 1 reports what is chosen like any other vote.
#[test]
fn s10_votes_that_are_known_to_be_chosen_are_told_in_phase_1() {
    let mut acceptor = acceptor();
    acceptor.asked(relayed_phase2a(1, vec![]));
    acceptor.asked(acceptor::In::LearnSlots {
        round: round(1),
        chosen: Box::new([run(SLOT.0, 1)]),
    });
    let asked = acceptor.asked(acceptor::In::Phase1a {
        from: LeaderId(0),
        round: round(2),
        start: Slot(0),
        end: Slot::MAX,
    });
    let [(Envelope::ToLeaders(_, leader::In::Phase1b { votes, .. }), Some(1))] = &asked.sends[..]
    else {
        panic!("{asked:?}")
    };
    let (round, value) = (round(1), value());
    assert_eq!(votes.votes, [(SLOT, Vote { round, value })]);
}

#[test]
fn an_acceptor_refuses_a_relay_of_an_old_round() {
    let mut acceptor = acceptor();
    acceptor.asked(relayed_phase2a(2, vec![]));
    let refused = acceptor.asked(relayed_phase2a(1, vec![]));
    let nack = relay::In::Nack { round: round(2) };
    let leaders = leader::In::Nack { round: round(2) };
    let sends = vec![
        (Envelope::ToRelays(Set::one(RelayId(3)), nack), Some(0)),
        (Envelope::ToLeaders(Set::one(LeaderId(0)), leaders), None),
    ];
    assert_eq!(refused, stage::only(vec![], sends));
}

fn votes_told(asked: u64) -> Votes {
    let (round, value) = (round(1), value());
    Votes {
        start: Slot(asked),
        end: Slot::MAX,
        next: Slot::MAX,
        votes: vec![(SLOT, Vote { round, value })],
        forgotten: Slot(0),
        watermark: SLOT.next(),
    }
}

fn relayed_phase1a(count: u64) -> acceptor::In {
    acceptor::In::RelayedPhase1a {
        from: RelayId(3),
        round: round(count),
        start: Slot(2),
        end: Slot::MAX,
    }
}

/// A promise for a relay waits for its record like any other (p6), and the leader does not get it
/// twice.
#[test]
fn an_acceptor_promises_to_the_relay_that_asked_when_its_promise_is_on_disk() {
    let mut acceptor = acceptor();
    acceptor.asked(relayed_phase2a(1, vec![]));
    let asked = acceptor.asked(relayed_phase1a(2));
    let message = relay::In::Phase1b {
        from: AcceptorId(1),
        round: round(2),
        votes: Box::new(votes_told(2)),
        clock: acceptor.now.timestamp(),
    };
    let sends = vec![(Envelope::ToRelays(Set::one(RelayId(3)), message), Some(1))];
    assert_eq!(asked, stage::only(vec![promised(2)], sends));
}

/// The relay does not wait for others then, and the leader may hear of it from either.
#[test]
fn an_acceptor_refuses_a_promise_to_the_leader_and_to_the_relay_that_asked() {
    let mut acceptor = acceptor();
    acceptor.asked(relayed_phase2a(2, vec![]));
    let refused = acceptor.asked(relayed_phase1a(1));
    let nack = relay::In::Nack { round: round(2) };
    let leaders = leader::In::Nack { round: round(2) };
    let sends = vec![
        (Envelope::ToLeaders(Set::one(LeaderId(0)), leaders), None),
        (Envelope::ToRelays(Set::one(RelayId(3)), nack), Some(0)),
    ];
    assert_eq!(refused, stage::only(vec![], sends));
}

#[test]
fn an_acceptor_answers_a_reader_through_the_relay_that_asked() {
    let mut acceptor = acceptor();
    acceptor.asked(relayed_phase2a(2, vec![]));
    let from = RelayId(3);
    let (reader, inquiry) = (ReaderId::Client { id: ClientId(2) }, 9);
    let asked = acceptor.asked(acceptor::In::RelayedPreRead {
        from,
        reader,
        inquiry,
    });
    let message = relay::In::PreReadAck {
        from: AcceptorId(1),
        reader,
        inquiry,
        watermark: SLOT.next(),
        epoch: Epoch(0),
        executed: Slot(0),
    };
    let sends = vec![(Envelope::ToRelays(Set::one(from), message), Some(0))];
    assert_eq!(asked, stage::only(vec![], sends));
}

/// A proxy leader that asks without a relay says what is chosen with the same message.
#[test]
fn an_acceptor_that_a_proxy_leader_asks_and_tells_what_is_chosen_answers_the_proxy_leader() {
    let asked = acceptor().asked(acceptor::In::RelayedPhase2a {
        from: PROXY,
        slot: SLOT,
        round: round(1),
        value: value(),
        chosen: Box::new([]),
    });
    let message = proxy_leader::In::Phase2b {
        from: AcceptorId(1),
        slot: SLOT,
        round: round(1),
    };
    let vote = Envelope::ToProxyLeaders(Set::one(ProxyLeaderId(0)), message);
    let records = vec![promised(1), voted(SLOT, 1)];
    assert_eq!(asked, stage::only(records, vec![(vote, Some(2))]));
}

/// 8.2: readers learn how far the replica of its node is, if that tells the acceptor.
#[test]
fn an_acceptor_tells_readers_how_far_the_replica_of_its_node_is() {
    let mut acceptor = acceptor();
    acceptor.asked(relayed_phase2a(1, vec![]));
    let executed = Slot(4);
    assert_eq!(
        acceptor.asked(acceptor::In::Executed { executed }),
        only(vec![])
    );
    let (from, inquiry) = (ReaderId::Client { id: ClientId(2) }, 9);
    let watermarks = Watermarks {
        relay: None,
        inquiry,
        answered: set(&[1]),
        watermark: SLOT.next(),
        epoch: Epoch(0),
        ahead: AcceptorId(1),
        executed,
        missing: AcceptorSet::EMPTY,
    };
    let message = client::In::Watermarks {
        watermarks: Box::new(watermarks),
    };
    let told = Envelope::ToClients(Set::one(ClientId(2)), message);
    let asked = acceptor.asked(acceptor::In::PreRead { from, inquiry });
    assert_eq!(asked, only(vec![told]));
}
