use super::*;
use crate::epaxos::instance::{Ballot, Deps, InstanceId, OWN, Space};
use crate::epaxos::message::{EPOCH, Payload, Vote};
use ionian_kernel::id::{AcceptorSet, LeaderId};
use ionian_kernel::machine::Footprint;
use ionian_kernel::time::Timestamp;
use ionian_replication::batch::{Batch, Value};

/// The acceptor of the instance's leader.
const LEADER: AcceptorId = AcceptorId(0);

fn payload() -> Payload {
    let value = Value {
        stamp: Timestamp(1),
        batch: Batch::default(),
    };
    Payload::new(value, Footprint::default())
}

/// These numbers of a space of another leader.
fn deps(numbers: &[u64]) -> Deps {
    let (leader, life) = (LeaderId(9), 1);
    let id = |number: &u64| InstanceId::new(Space { leader, life }, *number);
    Deps::new(numbers.iter().map(id), [])
}

fn command(numbers: &[u64]) -> Choice {
    let (payload, deps) = (payload(), deps(numbers));
    Choice::Command { payload, deps }
}

fn nothing() -> Evidence {
    Evidence::default()
}

fn recorded(numbers: &[u64], fast: &[u8]) -> Evidence {
    let answer = PreAccepted {
        payload: payload(),
        deps: deps(numbers),
        fast: fast
            .iter()
            .map(|id| AcceptorId(*id))
            .collect::<AcceptorSet>(),
    };
    Evidence {
        pre_accepted: Some(answer),
        ..nothing()
    }
}

fn voted(count: u64, choice: Choice) -> Evidence {
    let ballot = match count {
        0 => OWN,
        _ => Ballot::new(EPOCH, count, LeaderId(1)),
    };
    Evidence {
        vote: Some(Vote { ballot, choice }),
        ..nothing()
    }
}

fn decided(choice: Choice) -> Evidence {
    Evidence {
        decided: Some(choice),
        ..nothing()
    }
}

/// What follows from these answers where n - f is `enough`.
fn verdict(enough: usize, answers: &[(u8, Evidence)]) -> Option<Verdict> {
    let answers = answers
        .iter()
        .map(|(id, known)| (AcceptorId(*id), known.clone()));
    judge(&answers.collect(), Some(LEADER), enough)
}

fn proposes(choice: Choice, case: Case) -> Option<Verdict> {
    Some(Verdict::Propose(choice, case))
}

fn noop(case: Case) -> Option<Verdict> {
    proposes(Choice::Noop {}, case)
}

#[test]
fn nothing_follows_from_fewer_than_n_minus_f_answers() {
    let fast = &[0, 1];
    assert_eq!(verdict(2, &[]), None);
    assert_eq!(verdict(2, &[(1, recorded(&[], fast))]), None);
    assert_eq!(verdict(2, &[(1, voted(3, command(&[])))]), None);
}

#[test]
fn case_1_one_decision_is_enough_and_stands_above_votes() {
    let stands = Some(Verdict::Decided(command(&[1])));
    assert_eq!(verdict(2, &[(2, decided(command(&[1])))]), stands);
    let answers = [(0, voted(7, Choice::Noop {})), (2, decided(command(&[1])))];
    assert_eq!(verdict(2, &answers), stands);
}

#[test]
fn case_2_the_vote_of_the_highest_ballot_is_proposed() {
    let answers = [
        (0, voted(0, command(&[1]))),
        (1, voted(4, Choice::Noop {})),
        (2, voted(2, command(&[2]))),
    ];
    assert_eq!(verdict(3, &answers), noop(Case::Voted));
    let answers = [(1, voted(0, command(&[1]))), (2, recorded(&[2], &[0, 2]))];
    assert_eq!(verdict(2, &answers), proposes(command(&[1]), Case::Voted));
    // It precedes case 3.
    let answers = [(0, nothing()), (1, voted(0, command(&[1])))];
    assert_eq!(verdict(2, &answers), proposes(command(&[1]), Case::Voted));
}

#[test]
fn case_3_a_leaders_acceptor_that_has_not_decided_makes_it_a_noop() {
    let fast = &[0, 1];
    let answers = [(0, recorded(&[], fast)), (1, recorded(&[1], fast))];
    assert_eq!(verdict(2, &answers), noop(Case::LeaderAnswers));
    let answers = [(0, nothing()), (1, recorded(&[1], fast))];
    assert_eq!(verdict(2, &answers), noop(Case::LeaderAnswers));
}

#[test]
fn case_4_what_no_acceptor_has_recorded_is_a_noop() {
    let answers = [(1, nothing()), (2, nothing())];
    assert_eq!(verdict(2, &answers), noop(Case::Unknown));
}

#[test]
fn case_5_a_member_of_the_fast_quorum_that_has_not_recorded_it_makes_it_a_noop() {
    // As a spare, acceptor 2 has recorded it; it is no member.
    let answers = [(1, nothing()), (2, recorded(&[1], &[0, 1]))];
    assert_eq!(verdict(2, &answers), noop(Case::FastQuorumBroken));
    let fast = &[0, 1, 2, 3];
    let answers = [
        (1, recorded(&[1], fast)),
        (2, nothing()),
        (4, recorded(&[1], fast)),
    ];
    assert_eq!(verdict(3, &answers), noop(Case::FastQuorumBroken));
}

/// A spare may name what came later: its answer was no part of a fast decision.
#[test]
fn case_6_the_union_over_the_fast_quorum_is_proposed_without_spares() {
    let answers = [(1, recorded(&[1], &[0, 1])), (2, recorded(&[2], &[0, 1]))];
    let may_be = |numbers: &[u64]| proposes(command(numbers), Case::MayBeDecided);
    assert_eq!(verdict(2, &answers), may_be(&[1]));
    // n = 5, f = 2. At most one member besides the leader's acceptor is not among the answers.
    let fast = &[0, 1, 2, 3];
    let answers = [
        (1, recorded(&[1, 2], fast)),
        (2, recorded(&[1, 3], fast)),
        (4, recorded(&[4], fast)),
    ];
    assert_eq!(verdict(3, &answers), may_be(&[1, 2, 3]));
}
