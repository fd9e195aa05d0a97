//! The rules of an acceptor of EPaxos (Atlas, EuroSys 2020, algorithms 1 and 2): it answers a
//! command once, keeps two ballots for each instance, and decides for its leader only while it has
//! promised no other ballot. All that it asks of its driver is compared.

use crate::servers::value;
use crate::stage::{self, Stage, only};
use ionian_kernel::id::*;
use ionian_kernel::layout::{Layout, NodeId, numbered};
use ionian_kernel::machine::Footprint;
use ionian_kernel::protocol::Protocol;
use ionian_kernel::role::Asked;
use ionian_kernel::wire::encode_all;
use ionian_protocols::epaxos::acceptor::{Acceptor, In, Record};
use ionian_protocols::epaxos::instance::{Ballot, Deps, InstanceId, OWN, Space};
use ionian_protocols::epaxos::message::{
    Choice, EPOCH, Evidence, Learned, Lives, Payload, PreAccepted, Vote,
};
use ionian_protocols::epaxos::{EPaxos, Envelope, kind, leader, replica};

/// The acceptor under test, on node 1, in its first life.
pub(crate) const ID: AcceptorId = AcceptorId(1);

fn after(records: Vec<Record>, amnesiac: bool) -> Stage<Acceptor> {
    let nodes: Vec<NodeId> = (0..3).map(NodeId).collect();
    let layout = Layout {
        f: 1,
        instances: numbered(vec![nodes; 4]),
        ..Layout::default()
    };
    let config = EPaxos::configure(layout).expect("a deployment");
    let mut birth = stage::birth(kind::Acceptor, ID.0, NodeId(1));
    birth.amnesiac = amnesiac;
    Stage::after(config, &birth, records, Acceptor::new)
}

fn acceptor() -> Stage<Acceptor> {
    after(Vec::new(), false)
}

fn id(leader: u8, number: u64) -> InstanceId {
    let (leader, life) = (LeaderId(leader), 1);
    InstanceId::new(Space { leader, life }, number)
}

/// The `count`-th ballot of the recoveries of a leader.
pub(crate) fn ballot(count: u64, leader: u8) -> Ballot {
    Ballot::new(EPOCH, count, LeaderId(leader))
}

/// A command that writes key 7.
pub(crate) fn payload() -> Payload {
    let footprint = Footprint {
        writes: vec![7],
        ..Footprint::default()
    };
    Payload::new(value(100, "seven"), footprint)
}

pub(crate) fn deps(ids: &[InstanceId]) -> Deps {
    Deps::new(ids.iter().copied(), [])
}

pub(crate) fn command(ids: &[InstanceId]) -> Choice {
    let (payload, deps) = (payload(), deps(ids));
    Choice::Command { payload, deps }
}

fn fast() -> AcceptorSet {
    Set::one(AcceptorId(0)).or(Set::one(ID))
}

pub(crate) fn pre_accept(id: InstanceId, past: &[InstanceId]) -> In {
    In::PreAccept {
        from: id.space.leader,
        id,
        payload: payload(),
        past: deps(past),
        fast: fast(),
    }
}

pub(crate) fn accept(from: u8, id: InstanceId, ballot: Ballot, choice: Choice) -> In {
    let from = LeaderId(from);
    In::Accept {
        from,
        proxy: None,
        id,
        ballot,
        choice,
    }
}

pub(crate) fn prepare(id: InstanceId, ballot: Ballot) -> In {
    let (from, life) = (ballot.leader(), 1);
    In::Prepare {
        from,
        id,
        ballot,
        life,
    }
}

pub(crate) fn decide(id: InstanceId, on: &[InstanceId]) -> In {
    let deps = deps(on);
    In::Decide { id, deps }
}

pub(crate) fn to_leader(leader: u8, message: leader::In) -> Envelope {
    Envelope::ToLeaders(Set::one(LeaderId(leader)), message)
}

/// It sends this to a leader, behind these records.
fn says(leader: u8, records: &[Record], message: leader::In) -> Asked<Envelope> {
    let records: Vec<_> = records
        .iter()
        .map(|record| (encode_all(record), false))
        .collect();
    let behind = Some(records.len());
    only(records, vec![(to_leader(leader, message), behind)])
}

fn answer(id: InstanceId, on: &[InstanceId]) -> leader::In {
    leader::In::PreAccepted {
        from: ID,
        lives: Lives::default(),
        id,
        deps: deps(on),
    }
}

fn answered(on: &[InstanceId]) -> PreAccepted {
    PreAccepted {
        payload: payload(),
        deps: deps(on),
        fast: fast(),
    }
}

pub(crate) fn recorded(at: u64, id: InstanceId, on: &[InstanceId]) -> Record {
    let answer = answered(on);
    Record::PreAccepted { at, id, answer }
}

fn refusal(id: InstanceId, promised: Ballot) -> leader::In {
    leader::In::Refused {
        from: ID,
        id,
        promised,
    }
}

fn promise(id: InstanceId, ballot: Ballot, evidence: Evidence) -> leader::In {
    leader::In::Prepared {
        from: ID,
        lives: Lives::default(),
        id,
        ballot,
        asked_in: 1,
        evidence: Box::new(evidence),
    }
}

pub(crate) fn accepted(id: InstanceId, ballot: Ballot) -> leader::In {
    leader::In::Accepted {
        from: ID,
        id,
        ballot,
    }
}

#[test]
pub(crate) fn an_answer_names_the_past_and_what_conflicts_and_stays_the_same() {
    let mut acceptor = acceptor();
    let (first, second, past) = (id(0, 0), id(2, 0), id(2, 9));
    let asked = acceptor.asked(pre_accept(first, &[]));
    assert_eq!(
        asked,
        says(0, &[recorded(0, first, &[])], answer(first, &[]))
    );
    let both = [first, past];
    let asked = acceptor.asked(pre_accept(second, &[past]));
    let expected = says(2, &[recorded(1, second, &both)], answer(second, &both));
    assert_eq!(asked, expected);
    // Asked again, it does not name what came later, and records nothing.
    let asked = acceptor.asked(pre_accept(first, &[]));
    assert_eq!(asked, says(0, &[], answer(first, &[])));
}

#[test]
fn a_command_that_comes_after_a_promise_is_not_recorded() {
    let mut acceptor = acceptor();
    let (id, high) = (id(0, 0), ballot(1, 2));
    acceptor.asked(prepare(id, high));
    let asked = acceptor.asked(pre_accept(id, &[]));
    assert_eq!(asked, says(0, &[], refusal(id, high)));
    let asked = acceptor.asked(accept(0, id, OWN, command(&[])));
    assert_eq!(asked, says(0, &[], refusal(id, high)));
}

#[test]
pub(crate) fn a_decision_is_recorded_and_a_repeated_one_is_not() {
    let mut acceptor = acceptor();
    let id = id(1, 0);
    acceptor.asked(pre_accept(id, &[]));
    let (at, learned) = (1, Learned::Deps { deps: deps(&[]) });
    let decided = Record::Decided { at, id, learned };
    let asked = acceptor.asked(decide(id, &[]));
    assert_eq!(asked, says(1, &[decided], leader::In::Decided { id }));
    let asked = acceptor.asked(decide(id, &[]));
    assert_eq!(asked, says(1, &[], leader::In::Decided { id }));
    // Who asks for a promise learns the decision, and no promise is recorded.
    let evidence = Evidence {
        decided: Some(command(&[])),
        ..Evidence::default()
    };
    let asked = acceptor.asked(prepare(id, ballot(1, 2)));
    let expected = promise(id, ballot(1, 2), evidence);
    assert_eq!(asked, says(2, &[], expected));
}

/// Case 3 of a recovery takes it that this acceptor decides nothing more in ballot 0.
#[test]
pub(crate) fn a_decision_after_a_promise_is_refused() {
    let mut acceptor = acceptor();
    let (id, high) = (id(1, 0), ballot(1, 2));
    acceptor.asked(pre_accept(id, &[]));
    acceptor.asked(prepare(id, high));
    let asked = acceptor.asked(decide(id, &[]));
    assert_eq!(asked, says(1, &[], refusal(id, high)));
}

/// It is not this acceptor that testifies for the leader of another node.
#[test]
fn a_decision_of_another_leader_is_ignored() {
    let mut acceptor = acceptor();
    let id = id(0, 0);
    acceptor.asked(pre_accept(id, &[]));
    assert_eq!(acceptor.asked(decide(id, &[])), only(vec![], vec![]));
}

/// A read must find what a decision that a crash takes back would stand before.
#[test]
pub(crate) fn a_decision_takes_no_place_in_the_index_before_its_commit() {
    let mut acceptor = acceptor();
    let (before, own, reader) = (id(0, 0), id(1, 0), ReplicaId(2));
    acceptor.asked(pre_accept(before, &[]));
    acceptor.asked(pre_accept(own, &[]));
    acceptor.asked(decide(own, &[before]));
    let read = || In::PreRead {
        from: reader,
        inquiry: 5,
        touched: ionian_protocols::epaxos::message::Touched(Footprint {
            reads: vec![7],
            ..Footprint::default()
        }),
    };
    let sees = |ids: &[InstanceId]| {
        let message = replica::In::PreReadAck {
            from: ID,
            inquiry: 5,
            deps: deps(ids),
        };
        let to = Envelope::ToReplicas(Set::one(reader), message);
        only(vec![], vec![(to, None)])
    };
    assert_eq!(acceptor.asked(read()), sees(&[before, own]));
    let deps = deps(&[before]);
    acceptor.asked(In::Commit {
        id: own,
        learned: Learned::Deps { deps },
        replier: None,
    });
    assert_eq!(acceptor.asked(read()), sees(&[own]));
}

/// s4: in step 5 of the published flaw an acceptor with one ballot reports its noop as one of
/// ballot 3, and a command that was decided in ballot 2 is lost (Sutra 2019).
#[test]
pub(crate) fn s4_a_promise_leaves_the_ballot_of_a_vote_as_it_is() {
    let mut acceptor = acceptor();
    let id = id(0, 0);
    let [one, three, four] = [ballot(1, 1), ballot(3, 0), ballot(4, 2)];
    let promised = |at, ballot| Record::Promised { at, id, ballot };
    let asked = acceptor.asked(prepare(id, one));
    let expected = promise(id, one, Evidence::default());
    assert_eq!(asked, says(1, &[promised(0, one)], expected));

    let vote = Vote {
        ballot: one,
        choice: Choice::Noop {},
    };
    let asked = acceptor.asked(accept(1, id, one, Choice::Noop {}));
    let voted = Record::Voted {
        at: 1,
        id,
        vote: vote.clone(),
    };
    assert_eq!(
        asked,
        says(1, std::slice::from_ref(&voted), accepted(id, one))
    );

    let evidence = Evidence {
        vote: Some(vote),
        ..Evidence::default()
    };
    for (at, ballot) in [(2, three), (3, four)] {
        let asked = acceptor.asked(prepare(id, ballot));
        let expected = promise(id, ballot, evidence.clone());
        let expected = says(ballot.leader().0, &[promised(at, ballot)], expected);
        assert_eq!(asked, expected);
    }
    // A restart leaves both.
    let records = vec![promised(0, one), voted, promised(2, three)];
    let mut acceptor = after(records, false);
    let asked = acceptor.asked(prepare(id, ballot(2, 2)));
    assert_eq!(asked, says(2, &[], refusal(id, three)));
    let asked = acceptor.asked(prepare(id, four));
    let expected = promise(id, four, evidence);
    assert_eq!(asked, says(2, &[promised(3, four)], expected));
}

#[test]
fn a_vote_is_recorded_once_and_refused_below_a_promise() {
    let mut acceptor = acceptor();
    let (id, choice) = (id(0, 0), command(&[id(2, 3)]));
    let vote = Vote {
        ballot: OWN,
        choice: choice.clone(),
    };
    let asked = acceptor.asked(accept(0, id, OWN, choice.clone()));
    let voted = Record::Voted { at: 0, id, vote };
    assert_eq!(asked, says(0, &[voted], accepted(id, OWN)));
    let asked = acceptor.asked(accept(0, id, OWN, choice.clone()));
    assert_eq!(asked, says(0, &[], accepted(id, OWN)));
    acceptor.asked(prepare(id, ballot(2, 2)));
    let asked = acceptor.asked(accept(1, id, ballot(1, 1), choice));
    assert_eq!(asked, says(1, &[], refusal(id, ballot(2, 2))));
}

/// It cannot know what it has recorded, promised, voted for or decided.
#[test]
fn an_acceptor_that_lost_its_memory_answers_no_leader() {
    let mut acceptor = after(Vec::new(), true);
    let (own, silent) = (id(1, 0), only(vec![], vec![]));
    assert_eq!(acceptor.asked(pre_accept(own, &[])), silent);
    assert_eq!(acceptor.asked(accept(1, own, OWN, command(&[]))), silent);
    assert_eq!(acceptor.asked(prepare(own, ballot(1, 2))), silent);
    assert_eq!(acceptor.asked(decide(own, &[])), silent);
}
