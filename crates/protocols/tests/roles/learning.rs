//! Where an acceptor and a replica live together, the value of a slot goes to their node once.

use crate::stage::{Stage, batch, birth};
use ionian_kernel::id::*;
use ionian_kernel::layout::{Layout, NodeId, Options, numbered};
use ionian_kernel::protocol::Protocol;
use ionian_kernel::time::Timestamp;
use ionian_protocols::multipaxos::acceptor::Acceptor;
use ionian_protocols::multipaxos::message::Proposer;
use ionian_protocols::multipaxos::proxy_leader::ProxyLeader;
use ionian_protocols::multipaxos::{Envelope, MultiPaxos, acceptor, kind, proxy_leader, replica};
use ionian_replication::batch::Value;

type Config = <MultiPaxos as Protocol>::Config;

/// A client, two leaders, two proxy leaders, three acceptors and three replicas. The first proxy
/// leader lives with the first acceptor, and each acceptor with a replica, or each alone.
fn config(together: bool, thrifty: bool) -> Config {
    let apart = [
        [0].as_slice(),
        &[],
        &[],
        &[1, 2],
        &[3, 4],
        &[5, 6, 7],
        &[8, 9, 10],
        &[],
    ];
    let mixed = [
        [0].as_slice(),
        &[],
        &[],
        &[1, 2],
        &[5, 4],
        &[5, 6, 7],
        &[5, 6, 7],
        &[],
    ];
    let places = |nodes: &[u16]| nodes.iter().map(|node| NodeId(*node)).collect();
    let instances = if together { mixed } else { apart }.map(places).to_vec();
    let options = Options {
        thrifty,
        ..Options::default()
    };
    let layout = Layout {
        f: 1,
        instances: numbered(instances),
        options,
        ..Layout::default()
    };
    MultiPaxos::configure(layout).expect("a deployment")
}

fn value() -> Value {
    Value {
        stamp: Timestamp(1),
        batch: batch("payload"),
    }
}

const ROUND: Round = Round(64);
const SLOT: Slot = Slot(5);

/// Whom a proxy leader tells of a slot for which two acceptors have voted, and others in an earlier
/// slot: replicas with the value, acceptors without.
fn told((together, thrifty): (bool, bool), earlier: &[u8], voters: [u8; 2]) -> (Vec<u8>, Vec<u8>) {
    let birth = birth(kind::ProxyLeader, 0, NodeId(if together { 5 } else { 3 }));
    let mut proxy = Stage::new(config(together, thrifty), &birth, ProxyLeader::new);
    let (proposer, replier) = (Proposer::Client { id: ClientId(0) }, ReplicaId(2));
    let phase2a = proxy_leader::In::Phase2a {
        slot: SLOT,
        round: ROUND,
        value: value(),
        proposer,
        replier,
    };
    proxy.tell(phase2a);
    let vote = |slot| {
        move |from: &u8| proxy_leader::In::Phase2b {
            from: AcceptorId(*from),
            slot,
            round: ROUND,
        }
    };
    let votes = earlier
        .iter()
        .map(vote(Slot(4)))
        .chain(voters.iter().map(vote(SLOT)));
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for envelope in votes.flat_map(|vote| proxy.tell(vote)) {
        match envelope {
            Envelope::ToReplicas(
                to,
                replica::In::Chosen {
                    slot: SLOT,
                    replier: ReplicaId(2),
                    ..
                },
            ) => {
                with.extend(to.iter().map(ReplicaId::index));
            }
            Envelope::ToAcceptors(
                to,
                acceptor::In::Learn {
                    slot: SLOT,
                    round: ROUND,
                    replier: ReplicaId(2),
                },
            ) => without.extend(to.iter().map(AcceptorId::index)),
            other => panic!("{other:?}"),
        }
    }
    (with, without)
}

#[test]
fn a_replica_is_told_through_the_acceptor_of_its_node_if_that_has_voted() {
    // The proxy leader's own node needs no network.
    assert_eq!(told((true, true), &[2], [0, 1]), (vec![0, 2], vec![1]));
    assert_eq!(told((true, true), &[], [1, 2]), (vec![0], vec![1, 2]));
    assert_eq!(told((false, true), &[], [0, 1]), (vec![0, 1, 2], vec![]));
    // All were asked at once: the third has the value, or does not vote these days.
    assert_eq!(told((true, false), &[2], [0, 1]), (vec![0], vec![1, 2]));
    assert_eq!(told((true, false), &[], [0, 1]), (vec![0, 2], vec![1]));
}

#[test]
fn an_acceptor_hands_over_the_value_of_its_vote_in_that_round_and_nothing_else() {
    let mut acceptor = Stage::new(
        config(true, true),
        &birth(kind::Acceptor, 1, NodeId(6)),
        Acceptor::new,
    );
    let from = ProxyLeaderId(0);
    acceptor.tell(acceptor::In::Phase2a {
        from,
        slot: SLOT,
        round: ROUND,
        value: value(),
    });
    let mut learn = |slot, round| {
        acceptor.tell(acceptor::In::Learn {
            slot,
            round,
            replier: ReplicaId(2),
        })
    };
    assert!(
        learn(Slot(4), ROUND).is_empty()
            && learn(SLOT, Round(63)).is_empty()
            && learn(SLOT, Round(65)).is_empty()
    );
    match &learn(SLOT, ROUND)[..] {
        [
            Envelope::ToReplicas(
                to,
                replica::In::Chosen {
                    slot,
                    value: chosen,
                    replier,
                },
            ),
        ] => {
            assert_eq!(
                (*to, *slot, *replier),
                (Set::one(ReplicaId(1)), SLOT, ReplicaId(2))
            );
            assert_eq!(*chosen, value());
        }
        other => panic!("{other:?}"),
    }
}
