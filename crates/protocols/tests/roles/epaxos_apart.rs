//! The roles of EPaxos that are apart (BPaxos): what a leader, a dependency node and an acceptor do
//! of the work that each of them does whole where they are paired.

use crate::epaxos_acceptor::{
    accept, accepted, ballot, command, decide, deps, pre_accept, prepare,
};
use crate::epaxos_acceptor::{payload, recorded, to_leader};
use crate::epaxos_leader::{RESEND, leader_of, nothing, propose, says};
use crate::epaxos_process::{kept, lives, of, space};
use crate::stage::{self, Stage, only};
use ionian_kernel::id::*;
use ionian_kernel::layout::{Layout, NodeId, Options, numbered};
use ionian_kernel::protocol::Protocol;
use ionian_kernel::role::Asked;
use ionian_kernel::wire::encode_all;
use ionian_protocols::epaxos::acceptor::{self, Acceptor, Record};
use ionian_protocols::epaxos::config::Config;
use ionian_protocols::epaxos::duty::Duty;
use ionian_protocols::epaxos::instance::{InstanceId, OWN};
use ionian_protocols::epaxos::leader::{self, Leader};
use ionian_protocols::epaxos::message::{Choice, Lives, Payload, Reach, Touched, Vote};
use ionian_protocols::epaxos::{EPaxos, Envelope, kind, proxy_leader};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A client, 5 leaders with proxy leaders, and 3 dependency nodes, 3 acceptors and 2 replicas.
pub(crate) fn apart(options: Options) -> Arc<Config> {
    let nodes = |first: u16, count: u16| (first..first + count).map(NodeId).collect();
    let instances = [(0, 1), (1, 5), (6, 3), (9, 2), (11, 3), (1, 5)];
    let layout = Layout {
        f: 1,
        instances: numbered(instances.map(|(first, count)| nodes(first, count)).into()),
        options,
        ..Layout::default()
    };
    EPaxos::configure(layout).expect("a deployment")
}

fn leader() -> Stage<Leader> {
    leader_of(false, Options::default(), apart)
}

/// What a leader proposes.
struct Proposed {
    id: InstanceId,
    payload: Payload,
    asked: AcceptorSet,
}

impl Proposed {
    fn of(asked: &Asked<Envelope>) -> Proposed {
        let Some((Envelope::ToDependencyNodes(to, message), _)) = asked.sends.first() else {
            panic!("it proposes nothing: {asked:?}");
        };
        let acceptor::In::PreAccept { id, payload, .. } = message.clone() else {
            panic!("it proposes nothing: {asked:?}");
        };
        let proposed = Proposed {
            id,
            payload,
            asked: *to,
        };
        assert_eq!(*asked, says(vec![proposed.pre_accept(*to)]));
        proposed
    }

    fn pre_accept(&self, to: AcceptorSet) -> Envelope {
        let message = acceptor::In::PreAccept {
            from: LeaderId(0),
            id: self.id,
            payload: self.payload.clone(),
            past: deps(&[]),
            fast: self.asked,
        };
        Envelope::ToDependencyNodes(to, message)
    }

    fn answer(&self, from: AcceptorId, lives: Lives, after: &[InstanceId]) -> leader::In {
        leader::In::PreAccepted {
            from,
            lives,
            id: self.id,
            deps: deps(after),
        }
    }

    /// The request to a proxy leader: by whom, and what it holds.
    fn handed(&self, asked: &Asked<Envelope>, after: &[InstanceId]) -> ProxyLeaderId {
        let [(Envelope::ToProxyLeaders(to, message), _)] = &asked.sends[..] else {
            panic!("it hands nothing over: {asked:?}");
        };
        let proxy_leader::In::Propose {
            id,
            choice,
            replier,
            ..
        } = message
        else {
            panic!("it hands nothing over: {asked:?}");
        };
        let expected = Choice::Command {
            payload: self.payload.clone(),
            deps: deps(after),
        };
        assert_eq!((*id, choice), (self.id, &expected));
        assert!(replier.is_some(), "a replica is to answer");
        to.iter().next().expect("one gets it")
    }
}

/// Two of three are asked, and no more is said before both have answered.
#[test]
pub(crate) fn a_leader_hands_over_what_a_majority_of_dependency_nodes_recorded() {
    let mut leader = leader();
    let (one, other) = (of(1, 1, 4), of(2, 1, 0));
    let proposed = Proposed::of(&leader.asked(propose("one")));
    let from: Vec<AcceptorId> = proposed.asked.iter().collect();
    assert_eq!(from.len(), 2);
    let answer = |from, after: &[InstanceId]| proposed.answer(from, Lives::default(), after);
    assert_eq!(leader.asked(answer(from[0], &[one])), nothing());
    // Not twice the same.
    assert_eq!(leader.asked(answer(from[0], &[one])), nothing());
    let asked = leader.asked(answer(from[1], &[other]));
    let proxy = proposed.handed(&asked, &[one, other]);
    // An answer that comes now is too late: the value is fixed.
    let third = (0..3).map(AcceptorId).find(|id| !from.contains(id));
    let third = third.expect("one of three");
    assert_eq!(leader.asked(answer(third, &[of(3, 1, 1)])), nothing());
    let again = leader.waited(RESEND);
    let next = proposed.handed(&again, &[one, other]);
    assert_ne!(next, proxy, "another proxy leader is asked");
    let chosen = leader::In::Chosen {
        from: next,
        id: proposed.id,
    };
    assert_eq!(leader.asked(chosen), nothing());
    assert_eq!((leader.figure("in_flight"), leader.figure("slow")), (0, 1));
}

#[test]
fn all_dependency_nodes_are_asked_when_one_is_silent() {
    let mut leader = leader();
    let proposed = Proposed::of(&leader.asked(propose("one")));
    let from = proposed.asked.iter().next().expect("two");
    leader.asked(proposed.answer(from, Lives::default(), &[]));
    let silent: AcceptorSet = (0..3).map(AcceptorId).filter(|id| *id != from).collect();
    assert_eq!(
        leader.waited(RESEND),
        says(vec![proposed.pre_accept(silent)])
    );
}

/// Lives of dependency nodes and of acceptors are counted apart, though both have number 1.
#[test]
fn an_answer_of_an_earlier_life_of_a_dependency_node_does_not_count() {
    let mut leader = leader();
    let proposed = Proposed::of(&leader.asked(propose("one")));
    let from: Vec<AcceptorId> = proposed.asked.iter().collect();
    leader.asked(proposed.answer(from[0], Lives::default(), &[]));
    let begin = |duty, life| leader::In::Begin {
        from: from[0],
        duty,
        life,
    };
    let boundary = |life| acceptor::In::Boundary {
        life,
        space: space(0, 2),
        below: 1,
    };
    // Another one with the same number, which votes.
    let votes = Envelope::ToAcceptors(Set::one(from[0]), boundary(9));
    assert_eq!(
        leader.asked(begin(Duty::Votes {}, 9)),
        says(vec![votes.clone()])
    );
    let records = Envelope::ToDependencyNodes(Set::one(from[0]), boundary(2));
    assert_eq!(
        leader.asked(begin(Duty::Records {}, 2)),
        says(vec![records])
    );
    // No role of this deployment does both.
    assert_eq!(leader.asked(begin(Duty::All {}, 2)), nothing());
    let second = proposed.answer(from[1], Lives::default(), &[]);
    assert_eq!(leader.asked(second), nothing(), "one answer is left");
    let again = proposed.answer(from[0], lives(from[0].0, 2), &[]);
    proposed.handed(&leader.asked(again), &[]);
}

fn role(kind: u8, records: Vec<Record>) -> Stage<Acceptor> {
    let (config, birth) = (
        apart(Options::default()),
        stage::birth(kind, 1, NodeId(if kind == kind::Acceptor { 7 } else { 12 })),
    );
    Stage::after(config, &birth, records, Acceptor::new)
}

fn behind(records: &[Record], send: Envelope) -> Asked<Envelope> {
    let encoded = records.iter().map(|record| (encode_all(record), false));
    only(encoded.collect(), vec![(send, Some(records.len()))])
}

/// Its vote goes to the proxy leader that asked, and to a leader in a recovery.
#[test]
fn an_acceptor_votes_and_records_no_command() {
    let mut acceptor = role(kind::Acceptor, Vec::new());
    let (id, proxy) = (of(0, 1, 3), ProxyLeaderId(2));
    let read = acceptor::In::PreRead {
        from: ReplicaId(0),
        inquiry: 1,
        touched: Touched(payload().footprint.clone()),
    };
    assert_eq!(acceptor.asked(pre_accept(id, &[])), nothing());
    assert_eq!(acceptor.asked(read), nothing());
    assert_eq!(acceptor.figure("stale"), 2);
    let choice = command(&[of(1, 1, 0)]);
    let ask = |ballot| acceptor::In::Accept {
        from: LeaderId(0),
        proxy: Some(proxy),
        id,
        ballot,
        choice: choice.clone(),
    };
    let vote = |ballot| Vote {
        ballot,
        choice: choice.clone(),
    };
    let voted = proxy_leader::In::Accepted {
        from: AcceptorId(1),
        id,
    };
    let voted = Envelope::ToProxyLeaders(Set::one(proxy), voted);
    let record = Record::Voted {
        at: 0,
        id,
        vote: vote(OWN),
    };
    assert_eq!(acceptor.asked(ask(OWN)), behind(&[record], voted.clone()));
    assert_eq!(acceptor.asked(ask(OWN)), behind(&[], voted));
    // It depends on what it has not voted for: it finds no dependencies of its own.
    assert_eq!(acceptor.figure("index"), 0);
    let higher = ballot(1, 3);
    let record = Record::Voted {
        at: 1,
        id,
        vote: vote(higher),
    };
    let voted = to_leader(0, accepted(id, higher));
    assert_eq!(acceptor.asked(ask(higher)), behind(&[record], voted));
}

#[test]
fn a_dependency_node_records_commands_and_never_votes() {
    let mut node = role(kind::DependencyNode, Vec::new());
    let id = of(0, 1, 3);
    for message in [
        accept(0, id, OWN, command(&[])),
        prepare(id, ballot(1, 2)),
        decide(id, &[]),
    ] {
        assert_eq!(node.asked(message), nothing());
    }
    assert_eq!(node.figure("stale"), 3);
    let answer = leader::In::PreAccepted {
        from: AcceptorId(1),
        lives: Lives::default(),
        id,
        deps: deps(&[]),
    };
    let record = recorded(0, id, &[]);
    let expected = behind(&[record], to_leader(0, answer.clone()));
    assert_eq!(node.asked(pre_accept(id, &[])), expected);
    // e27: a request that comes again has the same answer, whatever was recorded since then.
    node.asked(pre_accept(of(2, 1, 0), &[]));
    let again = node.asked(pre_accept(id, &[]));
    assert_eq!(again, behind(&[], to_leader(0, answer)));
}

/// It has told another one that this life of the leader is over: a proxy leader may still have an
/// instance of it. What it has voted for it has told too.
#[test]
pub(crate) fn an_acceptor_gives_no_first_vote_in_ballot_0_to_a_life_that_is_over() {
    let mut acceptor = role(kind::Acceptor, Vec::new());
    let before = of(0, 1, 0);
    acceptor.asked(accept(0, before, OWN, command(&[])));
    let copy = acceptor::In::Copy {
        from: AcceptorId(0),
        life: 2,
        spaces: vec![space(0, 2)],
        first: InstanceId::default(),
    };
    let asked = acceptor.asked(copy);
    let [(Envelope::ToAcceptors(to, acceptor::In::Copied { .. }), _)] = &asked.sends[..] else {
        panic!("it gives no copy: {asked:?}");
    };
    assert_eq!(*to, Set::one(AcceptorId(0)));
    let late = of(0, 1, 1);
    let request = accept(0, late, OWN, command(&[]));
    assert_eq!(acceptor.asked(request), nothing());
    let again = acceptor.asked(accept(0, before, OWN, command(&[])));
    assert_eq!(again, behind(&[], to_leader(0, accepted(before, OWN))));
    // A recovery has asked a quorum for promises, and may go on.
    let recovered = acceptor.asked(accept(3, late, ballot(1, 3), Choice::Noop {}));
    let voted = to_leader(3, accepted(late, ballot(1, 3)));
    assert_eq!(recovered.sends, vec![(voted, Some(1))]);
}

/// The replica that told the others that it keeps an instance may be gone.
#[test]
fn a_node_that_asks_for_what_another_one_has_forgotten_learns_that_replicas_keep_it() {
    let reach = |below| Reach {
        space: space(0, 1),
        below,
    };
    let mut node = role(kind::DependencyNode, Vec::new());
    for from in [0, 1] {
        node.asked(acceptor::In::Kept {
            from: ReplicaId(from),
            reaches: vec![reach(4)],
        });
    }
    let ask = |number| acceptor::In::Ask {
        from: AcceptorId(0),
        duty: Duty::Records {},
        ids: vec![of(0, 1, number)],
    };
    assert_eq!(node.asked(ask(4)), nothing());
    let forgotten = || acceptor::In::Forgotten {
        reaches: vec![reach(4)],
    };
    let told = Envelope::ToDependencyNodes(Set::one(AcceptorId(0)), forgotten());
    assert_eq!(node.asked(ask(3)), says(vec![told]));
    let mut other = role(kind::DependencyNode, Vec::new());
    other.asked(pre_accept(of(0, 1, 3), &[]));
    assert_eq!(other.figure("undecided"), 1);
    let record = Record::Kept {
        next: 1,
        reaches: vec![reach(4)],
    };
    let asked = other.asked(forgotten());
    assert_eq!(asked.records, vec![(encode_all(&record), false)]);
    assert_eq!(other.figure("undecided"), 0);
    assert_eq!(other.asked(forgotten()).records, vec![]);
}

/// An acceptor alone may have heard it: those that tell it may be gone before they tell others.
#[test]
fn a_dependency_node_asks_acceptors_as_well_for_what_stays_undecided() {
    let mut node = role(kind::DependencyNode, Vec::new());
    node.asked(pre_accept(of(0, 1, 3), &[]));
    let asked = acceptor::In::Ask {
        from: AcceptorId(1),
        duty: Duty::Records {},
        ids: vec![of(0, 1, 3)],
    };
    let mut left = BTreeSet::from([0, 1, 2]);
    for _ in 0..200 {
        for sent in node.timer() {
            if let Envelope::ToAcceptors(to, message) = sent {
                assert_eq!(message, asked);
                left.retain(|acceptor| !to.contains(AcceptorId(*acceptor)));
            }
        }
    }
    assert_eq!(left, BTreeSet::new());
}

/// Numbers of records that were dropped are not used again: what was dropped may be found again
/// after a crash.
#[test]
fn the_number_of_the_next_record_outlives_what_replicas_keep() {
    let mut node = role(kind::DependencyNode, vec![kept(7)]);
    let asked = node.asked(pre_accept(of(0, 1, 3), &[]));
    let record = recorded(7, of(0, 1, 3), &[]);
    assert_eq!(asked.records, vec![(encode_all(&record), false)]);
}
