//! A leader that speaks to acceptors through relays.

use super::*;
use ionian_protocols::multipaxos::leader::{In, Leader};
use ionian_protocols::multipaxos::message::Votes;
use ionian_protocols::pigpaxos::message::{Beat, Promises};

const ID: LeaderId = LeaderId(0);

/// Leader 0, on node 0, as a candidate, and what it has asked.
fn candidate(nodes: usize, options: &[(&'static str, u64)]) -> (Stage<Leader>, Asked<Envelope>) {
    let config = MultiPaxos::configure(layout(nodes, options)).expect("a deployment");
    let birth = birth(kind::Leader, 0, NodeId(0));
    let mut leader = Stage::new(config, &birth, Leader::new);
    let asked = leader.woken();
    (leader, asked)
}

/// The relay that got the only message to a relay, and that message.
fn to_relay(asked: &Asked<Envelope>) -> Option<(RelayId, relay::In)> {
    let mut relayed = asked
        .sends
        .iter()
        .filter_map(|(envelope, _)| match envelope {
            Envelope::ToRelays(to, message) => Some((to.iter().next()?, message.clone())),
            _ => None,
        });
    let first = relayed.next();
    assert!(relayed.next().is_none(), "{asked:?}");
    first
}

fn to_acceptors(asked: &Asked<Envelope>) -> Vec<(AcceptorSet, acceptor::In)> {
    let sent = asked
        .sends
        .iter()
        .filter_map(|(envelope, _)| match envelope {
            Envelope::ToAcceptors(to, message) => Some((*to, message.clone())),
            _ => None,
        });
    sent.collect()
}

/// An acceptor has not heard of a leader either.
fn gone(from: u8) -> In {
    In::PreVoteReply {
        from: AcceptorId(from),
        gone: true,
        promise: Round(0),
    }
}

fn nothing(start: u64) -> Votes {
    Votes {
        start: Slot(start),
        end: Slot::MAX,
        next: Slot::MAX,
        votes: Vec::new(),
        forgotten: Slot(0),
        watermark: Slot(0),
    }
}

fn promises(acceptors: &[u8], votes: Votes) -> In {
    let promised = acceptors.iter().map(|it| (AcceptorId(*it), Timestamp(0)));
    let promises = Promises {
        promised: promised.collect(),
        votes,
        missing: AcceptorSet::EMPTY,
    };
    In::Promises {
        from: RelayId(1),
        round: round(1),
        promises: Box::new(promises),
    }
}

/// Leader 0 in phase 1 of its first round, and what it has asked.
fn in_phase1(nodes: usize, options: &[(&'static str, u64)]) -> (Stage<Leader>, Asked<Envelope>) {
    let (mut leader, _) = candidate(nodes, options);
    let mut asked = only(vec![]);
    for from in 0..=nodes as u8 / 2 {
        asked = leader.asked(gone(from));
    }
    (leader, asked)
}

fn leading(nodes: usize, options: &[(&'static str, u64)]) -> (Stage<Leader>, Asked<Envelope>) {
    let (mut leader, _) = in_phase1(nodes, options);
    let all: Vec<u8> = (0..nodes as u8).collect();
    let led = leader.asked(promises(&all, nothing(0)));
    assert!(leader.role.is_leading());
    (leader, led)
}

/// It is to lead only where it reaches acceptors itself.
#[test]
fn a_candidate_asks_all_acceptors_without_relays() {
    let (_, asked) = candidate(5, &[]);
    let question = acceptor::In::PreVote { from: ID };
    assert_eq!(
        asked,
        only(vec![Envelope::ToAcceptors(Set::first(5), question)])
    );
}

#[test]
fn phase_1_goes_through_a_relay_and_then_without() {
    let (mut leader, asked) = in_phase1(5, &[]);
    let (_, message) = to_relay(&asked).expect("one relay");
    let relayed = relay::In::Phase1a {
        members: set(&[1, 2, 3, 4]),
        patience: PATIENCE,
        round: round(1),
        start: Slot(0),
        end: Slot::MAX,
    };
    assert_eq!(message, relayed);
    let question = acceptor::In::Phase1a {
        from: ID,
        round: round(1),
        start: Slot(0),
        end: Slot::MAX,
    };
    assert_eq!(to_acceptors(&asked), [(set(&[0]), question.clone())]);
    assert!(asked.sends.iter().all(|(_, fence)| *fence == Some(1)));
    leader.asked(promises(&[2], nothing(0)));
    let again = leader.waited(Duration::from_micros(PATIENCE));
    let missing = Envelope::ToAcceptors(set(&[0, 1, 3, 4]), question);
    assert_eq!(again, only(vec![missing]));
}

/// Names count, and not messages.
#[test]
pub(crate) fn a_leader_leads_when_a_read_quorum_has_promised_by_name() {
    let (mut leader, _) = in_phase1(5, &[]);
    for _ in 0..3 {
        leader.asked(promises(&[3, 4], nothing(0)));
        assert!(!leader.role.is_leading());
    }
    leader.asked(promises(&[4, 1], nothing(0)));
    assert!(leader.role.is_leading());
}

/// As in s2: what one acceptor of a group has forgotten is chosen, and the leader
/// proposes nothing there.
#[test]
pub(crate) fn a_leader_continues_above_what_any_acceptor_of_a_group_has_forgotten() {
    let (mut leader, _) = in_phase1(5, &[]);
    let told = Votes {
        forgotten: Slot(7),
        watermark: Slot(9),
        ..nothing(0)
    };
    leader.asked(promises(&[1, 2, 3], told));
    assert_eq!(leader.figure("next_slot"), 9);
}

#[test]
fn the_next_page_is_asked_of_all_that_have_told_the_one_before() {
    let (mut leader, _) = in_phase1(5, &[]);
    let first = Votes {
        next: Slot(4),
        ..nothing(0)
    };
    let asked = leader.asked(promises(&[1, 2, 4], first));
    let (_, message) = to_relay(&asked).expect("one relay");
    let next = relay::In::Phase1a {
        members: set(&[1, 2, 4]),
        patience: PATIENCE,
        round: round(1),
        start: Slot(4),
        end: Slot::MAX,
    };
    assert_eq!((message, asked.sends.len()), (next, 1));
    leader.asked(promises(&[1, 2, 4], nothing(4)));
    assert!(leader.role.is_leading());
}

/// The beats that relays get, and those that others get without one.
fn beats(asked: &Asked<Envelope>) -> (Vec<(RelayId, Beat)>, Vec<Envelope>) {
    let (mut relayed, mut direct) = (Vec::new(), Vec::new());
    for (envelope, _) in &asked.sends {
        match envelope {
            Envelope::ToRelays(to, relay::In::Heartbeat { from: ID, beat }) => {
                relayed.push((to.iter().next().expect("to one"), (**beat).clone()));
            }
            Envelope::ToLeaders(_, In::Heartbeat { .. })
            | Envelope::ToAcceptors(_, acceptor::In::Heartbeat { .. })
            | Envelope::ToReplicas(_, replica::In::Heartbeat { .. }) => {
                direct.push(envelope.clone());
            }
            _ => {}
        }
    }
    (relayed, direct)
}

/// A leader of 25 nodes sends as many messages for a heartbeat as it has groups.
#[test]
fn a_heartbeat_goes_to_one_relay_a_group_which_passes_it_on_to_all_roles_of_its_nodes() {
    let groups = &[("relay_groups", 3), ("relay_shuffle", 1)];
    let (_, led) = leading(25, groups);
    let (relayed, direct) = beats(&led);
    let nodes = |beat: &Beat| beat.acceptors.members();
    assert_eq!(relayed.len(), 3);
    for (relay, beat) in &relayed {
        assert!(beat.acceptors.contains(AcceptorId(relay.0)));
        assert_eq!(beat.leaders.members(), nodes(beat));
        assert_eq!(beat.replicas.members(), nodes(beat));
    }
    let all = relayed
        .iter()
        .fold(Members::EMPTY, |all, (_, beat)| all.or(nodes(beat)));
    assert_eq!(
        all,
        AcceptorSet::first(25)
            .without(Set::one(AcceptorId(0)))
            .members(),
        "all but the own node"
    );
    let own = |envelope: &Envelope| match envelope {
        Envelope::ToLeaders(to, _) => to.is_empty(),
        Envelope::ToAcceptors(to, _) => *to == set(&[0]),
        Envelope::ToReplicas(to, _) => *to == Set::one(ReplicaId(0)),
        _ => false,
    };
    assert!(direct.len() == 3 && direct.iter().all(own), "{direct:?}");
}

/// One that is down costs its group a heartbeat, and not the next one too.
#[test]
fn a_relay_that_does_not_answer_a_heartbeat_is_passed_over() {
    let (mut leader, led) = leading(5, &[]);
    let silent = beats(&led).0[0].0;
    let mut used = Vec::new();
    for _ in 0..8 {
        let asked = leader.waited(Duration::from_millis(100));
        for (relay, beat) in beats(&asked).0 {
            // A suspect gets what is for its own node, now and then.
            if beat.acceptors.len() > 1 {
                used.push(relay);
            }
            if relay != silent {
                leader.asked(In::Relayed { from: relay });
            }
        }
    }
    assert!(used.len() == 8 && !used.contains(&silent), "{used:?}");
}
