//! The proxy leader of EPaxos, where the roles are apart: whom it asks for votes, what it passes on
//! when it has them, and when it gives up.

use crate::epaxos_acceptor::command;
use crate::epaxos_apart::apart;
use crate::epaxos_leader::{RESEND, nothing, says};
use crate::epaxos_process::of;
use crate::stage::{self, Stage, batch};
use ionian_kernel::id::*;
use ionian_kernel::layout::{NodeId, Options};
use ionian_kernel::role::Asked;
use ionian_kernel::time::Timestamp;
use ionian_protocols::epaxos::instance::{InstanceId, OWN};
use ionian_protocols::epaxos::message::{Choice, Payload, Replier};
use ionian_protocols::epaxos::proxy_leader::{In, ProxyLeader};
use ionian_protocols::epaxos::{Envelope, acceptor, kind, leader, replica};
use ionian_replication::batch::Value;

const REPLIER: Replier = Some(ReplicaId(1));

fn proxy_leader() -> Stage<ProxyLeader> {
    let options = Options {
        resend_after: RESEND,
        ..Options::default()
    };
    let birth = stage::birth(kind::ProxyLeader, 2, NodeId(3));
    Stage::new(apart(options), &birth, ProxyLeader::new)
}

fn ids(acceptors: &[u8]) -> AcceptorSet {
    acceptors.iter().copied().map(AcceptorId).collect()
}

fn propose(id: InstanceId, choice: &Choice) -> In {
    In::Propose {
        from: LeaderId(4),
        id,
        choice: choice.clone(),
        holders: ids(&[0, 2]),
        replier: REPLIER,
    }
}

fn request(id: InstanceId, choice: &Choice, to: AcceptorSet) -> Asked<Envelope> {
    let message = acceptor::In::Accept {
        from: LeaderId(4),
        proxy: Some(ProxyLeaderId(2)),
        id,
        ballot: OWN,
        choice: choice.clone(),
    };
    says(vec![Envelope::ToAcceptors(to, message)])
}

/// It is handed this, and asks these.
fn handed(proxy: &mut Stage<ProxyLeader>, id: InstanceId, choice: &Choice) -> AcceptorSet {
    let asked = proxy.asked(propose(id, choice));
    let Some((Envelope::ToAcceptors(to, _), _)) = asked.sends.first() else {
        panic!("it asks for no votes: {asked:?}");
    };
    assert_eq!(asked, request(id, choice, *to));
    *to
}

fn vote(from: u8, id: InstanceId) -> In {
    let from = AcceptorId(from);
    In::Accepted { from, id }
}

/// Dependency nodes that have the command receive its dependencies only.
#[test]
pub(crate) fn the_votes_of_a_majority_decide_and_all_learn() {
    let mut proxy = proxy_leader();
    let (id, choice) = (of(4, 1, 9), command(&[of(0, 1, 3)]));
    let to = handed(&mut proxy, id, &choice);
    assert_eq!(to.len(), 2, "a majority of three");
    // It is under way.
    assert_eq!(proxy.asked(propose(id, &choice)), nothing());
    assert_eq!(proxy.asked(vote(1, id)), nothing());
    assert_eq!(proxy.asked(vote(1, id)), nothing(), "a vote counts once");
    assert_eq!(proxy.asked(vote(9, id)), nothing(), "no acceptor");
    let commit = |to, learned| {
        let replier = REPLIER;
        let message = acceptor::In::Commit {
            id,
            learned,
            replier,
        };
        Envelope::ToDependencyNodes(to, message)
    };
    let committed = replica::In::Committed {
        id,
        choice: choice.clone(),
        replier: REPLIER,
    };
    let chosen = leader::In::Chosen {
        from: ProxyLeaderId(2),
        id,
    };
    let expected = says(vec![
        commit(ids(&[0, 2]), choice.brief()),
        commit(ids(&[1]), choice.clone().into()),
        Envelope::ToReplicas((0..2).map(ReplicaId).collect(), committed),
        Envelope::ToLeaders(Set::one(LeaderId(4)), chosen),
    ]);
    assert_eq!(proxy.asked(vote(2, id)), expected);
    assert_eq!(proxy.asked(vote(0, id)), nothing(), "it is over");
    assert_eq!(
        proxy.figure("in_flight") + proxy.figure("in_flight_bytes"),
        0
    );
}

/// Later and later, until it forgets the instance: its leader hands it over again.
#[test]
fn acceptors_that_have_not_voted_are_asked_again_four_times() {
    let mut proxy = proxy_leader();
    let (id, choice) = (of(4, 1, 9), command(&[]));
    handed(&mut proxy, id, &choice);
    assert_eq!(proxy.asked(vote(1, id)), nothing());
    let again = || request(id, &choice, ids(&[0, 2]));
    for wait in [1, 2, 4, 8] {
        for _ in 1..wait {
            assert_eq!(proxy.waited(RESEND), nothing());
        }
        assert_eq!(proxy.waited(RESEND), again());
    }
    for _ in 0..16 {
        assert_eq!(proxy.waited(RESEND), nothing());
    }
    assert_eq!(
        proxy.figure("in_flight") + proxy.figure("in_flight_bytes"),
        0
    );
    assert_eq!(proxy.asked(vote(0, id)), nothing());
    handed(&mut proxy, id, &choice);
}

/// One always has room, however large it is.
#[test]
fn what_exceeds_256_mib_is_dropped() {
    let mut proxy = proxy_leader();
    let large = |bytes: usize| {
        let (stamp, batch) = (Timestamp(1), batch(vec![0; bytes]));
        let value = Value { stamp, batch };
        Choice::Command {
            payload: Payload::new(value, Default::default()),
            deps: Default::default(),
        }
    };
    let (first, second) = (large(257 << 20), large(1));
    handed(&mut proxy, of(4, 1, 0), &first);
    assert_eq!(proxy.asked(propose(of(4, 1, 1), &second)), nothing());
    assert_eq!((proxy.figure("in_flight"), proxy.figure("dropped")), (1, 1));
}
