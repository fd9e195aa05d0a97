//! A leader that reaches no write quorum stops saying that it lives, and one that does goes on.

use crate::stage::{Stage, batch, elected};
use ionian_kernel::id::*;
use ionian_kernel::layout::{Layout, NodeId, numbered};
use ionian_kernel::time::Instant;
use ionian_protocols::multipaxos::leader::{In, Leader};
use ionian_protocols::multipaxos::message::Proposer;
use ionian_protocols::multipaxos::{Envelope, acceptor, client};

/// The leader of five servers.
fn leading(canary: Option<&'static str>) -> Stage<Leader> {
    let nodes: Vec<NodeId> = (0..5).map(NodeId).collect();
    let layout = Layout {
        f: 2,
        instances: numbered(vec![nodes; 8]),
        canary,
        ..Layout::default()
    };
    elected(layout, NodeId(0), 3)
}

/// Lets four seconds pass in which these acceptors answer; whether it leads then, and when it sent
/// its last heartbeat.
fn pass(leader: &mut Stage<Leader>, answer: &[u8]) -> (bool, u64) {
    let (end, mut heartbeat) = (Instant(leader.now.0 + 4_000_000), leader.now);
    while leader.now < end {
        for envelope in leader.timer() {
            match envelope {
                Envelope::ToAcceptors(_, acceptor::In::PreVote { .. }) => {
                    for from in answer.iter().copied().map(AcceptorId) {
                        leader.tell(In::PreVoteReply {
                            from,
                            gone: false,
                            promise: leader.role.round(),
                        });
                    }
                }
                Envelope::ToAcceptors(_, acceptor::In::Heartbeat { .. }) => heartbeat = leader.now,
                _ => {}
            }
        }
    }
    (leader.role.is_leading(), (end.0 - heartbeat.0) / 1_000_000)
}

fn propose(leader: &mut Stage<Leader>) -> Vec<Envelope> {
    leader.tell(In::Propose {
        proposer: Proposer::Client { id: ClientId(0) },
        near: Set::EMPTY,
        again: false,
        batch: batch("x"),
    })
}

#[test]
fn a_leader_without_a_write_quorum_stops() {
    let mut leader = leading(None);
    propose(&mut leader);
    assert_eq!(
        pass(&mut leader, &[0, 1]),
        (false, 2),
        "two of five acceptors answer"
    );
    let mut broken = leading(Some("alone"));
    propose(&mut broken);
    assert!(pass(&mut broken, &[0, 1]).0, "the canary shows nothing");
}

#[test]
fn one_with_a_write_quorum_goes_on() {
    let mut leader = leading(None);
    assert_eq!(
        pass(&mut leader, &[2, 3, 4]),
        (true, 0),
        "nothing is outstanding"
    );
    propose(&mut leader);
    assert_eq!(
        pass(&mut leader, &[0, 1, 4]),
        (true, 0),
        "three of five acceptors answer"
    );
}

/// It may have nothing to do because it hears nobody.
#[test]
fn one_without_work_stops_as_well() {
    for (canary, goes_on) in [(None, false), (Some("idle"), true)] {
        assert_eq!(pass(&mut leading(canary), &[0, 1]).0, goes_on, "{canary:?}");
    }
}

/// Without a write quorum nothing is proposed. Whether anybody leads, and whether it is told to
/// those that propose.
fn stands(canary: Option<&'static str>) -> (Stage<Leader>, Vec<Envelope>) {
    let mut leader = leading(canary);
    let round = leader.role.round().next_of(LeaderId(1), Epoch::default());
    let mut said = leader.tell(In::Nack { round });
    // It hears of that leader no more, and nobody answers when it stands.
    while leader.figure("queued") == 0 {
        said.extend(leader.timer());
        said.extend(propose(&mut leader));
    }
    (leader, said)
}

fn turned_away(said: &[Envelope]) -> bool {
    let told = |envelope: &Envelope| matches!(envelope, Envelope::ToClients(to, client::In::NotLeader { .. }) if *to == Set::one(ClientId(0)));
    said.iter().any(told)
}

#[test]
fn a_candidate_that_nobody_answers_turns_away_what_waits() {
    for (canary, is_told) in [(None, true), (Some("keeps-queue"), false)] {
        let (mut leader, _) = stands(canary);
        let (end, mut said) = (Instant(leader.now.0 + 4_000_000), Vec::new());
        while leader.now < end {
            said.extend(leader.timer());
        }
        assert_eq!(
            (turned_away(&said), leader.figure("queued") == 0),
            (is_told, is_told),
            "{canary:?}"
        );
        // Nor does anything wait from then on.
        assert_eq!(
            (
                turned_away(&propose(&mut leader)),
                leader.figure("queued") == 0
            ),
            (is_told, is_told),
            "{canary:?}"
        );
    }
}

#[test]
fn a_candidate_that_hears_the_leader_turns_away_what_waits() {
    for (canary, is_told) in [(None, true), (Some("keeps-queue"), false)] {
        let (mut leader, _) = stands(canary);
        let said = leader.tell(In::Heartbeat {
            round: leader.role.round(),
        });
        assert_eq!(
            (turned_away(&said), leader.figure("queued") == 0),
            (is_told, is_told),
            "{canary:?}"
        );
    }
}
