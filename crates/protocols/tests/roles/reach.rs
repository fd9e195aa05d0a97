//! A leader that reaches no write quorum stops saying that it lives, and one that does goes on.

use crate::stage::{Stage, batch, elected};
use ionian_kernel::id::*;
use ionian_kernel::layout::{Layout, NodeId, numbered};
use ionian_kernel::time::Instant;
use ionian_protocols::multipaxos::leader::{In, Leader};
use ionian_protocols::multipaxos::message::Proposer;
use ionian_protocols::multipaxos::{Envelope, acceptor, client};

/// The leader of five servers.
fn leading() -> Stage<Leader> {
    let nodes: Vec<NodeId> = (0..5).map(NodeId).collect();
    let layout = Layout {
        f: 2,
        instances: numbered(vec![nodes; 8]),
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
pub(crate) fn a_leader_without_a_write_quorum_stops() {
    let mut leader = leading();
    propose(&mut leader);
    assert_eq!(
        pass(&mut leader, &[0, 1]),
        (false, 2),
        "two of five acceptors answer"
    );
}

#[test]
fn one_with_a_write_quorum_goes_on() {
    let mut leader = leading();
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

/// It may have nothing to do because it hears no other node.
#[test]
pub(crate) fn one_without_work_stops_as_well() {
    assert!(!pass(&mut leading(), &[0, 1]).0);
}

/// Without a write quorum nothing is proposed. Whether any node leads, and whether it is asked to
/// those that propose.
fn stands() -> (Stage<Leader>, Vec<Envelope>) {
    let mut leader = leading();
    let round = leader.role.round().next_of(LeaderId(1), Epoch::default());
    let mut said = leader.tell(In::Nack { round });
    // It hears of that leader no more, and no acceptor answers when it stands.
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
pub(crate) fn a_candidate_that_gets_no_answer_turns_away_what_waits() {
    let (mut leader, _) = stands();
    let (end, mut said) = (Instant(leader.now.0 + 4_000_000), Vec::new());
    while leader.now < end {
        said.extend(leader.timer());
    }
    assert_eq!((turned_away(&said), leader.figure("queued")), (true, 0));
    // From then on nothing waits.
    let said = propose(&mut leader);
    assert_eq!((turned_away(&said), leader.figure("queued")), (true, 0));
}

#[test]
pub(crate) fn a_candidate_that_hears_the_leader_turns_away_what_waits() {
    let (mut leader, _) = stands();
    let said = leader.tell(In::Heartbeat {
        round: leader.role.round(),
    });
    assert_eq!((turned_away(&said), leader.figure("queued")), (true, 0));
}
