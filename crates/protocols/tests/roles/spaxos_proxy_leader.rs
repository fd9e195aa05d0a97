//! The rules of a proxy leader of S-Paxos (compartmentalization, section 7.2): "the leader gets the
//! id chosen in a particular log entry and informs one of the stabilizers". All that it asks of its
//! driver is compared.

use crate::spaxos_servers::*;
use crate::stage::{Stage, birth};
use ionian_kernel::id::*;
use ionian_kernel::layout::{NodeId, Options};
use ionian_kernel::time::{Duration, Timestamp};
use ionian_protocols::multipaxos;
use ionian_protocols::multipaxos::message::Proposer;
use ionian_protocols::spaxos::config::Config;
use ionian_protocols::spaxos::id::{DisseminatorId, PayloadNumber, StabilizerId};
use ionian_protocols::spaxos::proxy_leader::{In, ProxyLeader};
use ionian_protocols::spaxos::{Envelope, disseminator, kind, replica, stabilizer};
use ionian_replication::batch::{Batch, Value};

const SLOT: Slot = Slot(5);

fn proxy(config: Config) -> Stage<ProxyLeader> {
    let birth = birth(kind::ProxyLeader, 0, NodeId(99));
    let mut proxy = Stage::new(config, &birth, ProxyLeader::new);
    // Its first report to the leaders.
    proxy.timer();
    proxy
}

fn ordering(message: multipaxos::proxy_leader::In) -> In {
    In::Ordering { message }
}

/// Gets this value chosen: all that it asks of its driver when the vote that decides comes.
fn chosen(
    proxy: &mut Stage<ProxyLeader>,
    value: Value,
    proposer: Proposer,
) -> Vec<(Envelope, Option<usize>)> {
    let phase2a = multipaxos::proxy_leader::In::Phase2a {
        slot: SLOT,
        round: round(1),
        value,
        proposer,
        replier: ReplicaId(1),
    };
    proxy.asked(ordering(phase2a));
    let vote = |from| {
        ordering(multipaxos::proxy_leader::In::Phase2b {
            from: AcceptorId(from),
            slot: SLOT,
            round: round(1),
        })
    };
    assert_eq!(proxy.asked(vote(0)), only(vec![]));
    let asked = proxy.asked(vote(1));
    assert_eq!(
        asked,
        only(asked.sends.iter().map(|(one, _)| one.clone()).collect())
    );
    asked.sends
}

/// Payload 7 of disseminator 1.
const BY: Proposer = Proposer::Batcher {
    id: BatcherId(1),
    number: 7,
};

fn hands_over(stabilizer: StabilizerId, replicas: Set<ReplicaId>) -> (Envelope, Option<usize>) {
    let message = stabilizer::In::Chosen {
        slot: SLOT,
        value: referred(7, 1000),
        replier: ReplicaId(1),
        replicas,
    };
    (
        Envelope::ToStabilizers(Set::one(stabilizer), message),
        Some(0),
    )
}

/// Its payload is chosen in a slot below the next one.
fn told() -> (Envelope, Option<usize>) {
    let message = disseminator::In::Chosen {
        numbers: vec![PayloadNumber(7)],
        below: SLOT.next(),
    };
    (
        Envelope::ToDisseminators(Set::one(DisseminatorId(1)), message),
        Some(0),
    )
}

/// The stabilizer that is to hand the payload to all replicas.
fn informed(sends: &[(Envelope, Option<usize>)]) -> StabilizerId {
    let [(Envelope::ToStabilizers(to, _), _), _] = sends else {
        panic!("{sends:?}")
    };
    let one = to.iter().next().expect("a stabilizer");
    assert_eq!(sends, [hands_over(one, Set::first(2)), told()]);
    one
}

#[test]
fn one_stabilizer_that_stores_the_payload_tells_all_replicas_and_its_disseminator_learns_it() {
    for seed in 0..20 {
        let birth = ionian_kernel::protocol::Birth {
            seed,
            ..birth(kind::ProxyLeader, 0, NodeId(99))
        };
        let mut proxy = Stage::new(apart(0, Options::default()), &birth, ProxyLeader::new);
        let one = informed(&chosen(&mut proxy, referred(7, 1000), BY));
        assert!(
            stabilizers(&[0, 1]).contains(one),
            "{one:?} does not store it"
        );
    }
}

#[test]
fn a_value_without_a_payload_goes_to_the_replicas_itself() {
    let mut proxy = proxy(apart(0, Options::default()));
    let noop = Value {
        stamp: Timestamp(1000),
        batch: Batch::default(),
    };
    let message = replica::In::Chosen {
        slot: SLOT,
        value: noop.clone(),
        replier: ReplicaId(1),
    };
    let expected = Envelope::ToReplicas(Set::first(2), message);
    let sends = chosen(&mut proxy, noop, Proposer::Leader {});
    assert_eq!(sends, [(expected, Some(0))]);
}

#[test]
fn a_stabilizer_that_sends_no_heartbeats_is_not_informed() {
    let mut proxy = proxy(apart(0, Options::default()));
    for _ in 0..20 {
        proxy.waited(Duration::from_millis(50));
        assert_eq!(
            proxy.asked(In::StabilizerAlive {
                from: StabilizerId(2)
            }),
            only(vec![])
        );
    }
    let one = informed(&chosen(&mut proxy, referred(7, 1000), BY));
    assert_eq!(one, StabilizerId(2), "the others do not answer");
}

/// As published, where every server has both: no payload is sent a second time.
#[test]
fn a_replica_beside_a_stabilizer_is_told_by_that_one() {
    let mut proxy = proxy(together());
    let sends = chosen(&mut proxy, referred(7, 1000), BY);
    let beside = [0, 1, 2].map(|index| hands_over(StabilizerId(index), Set::one(ReplicaId(index))));
    assert_eq!(sends, [&beside[..], &[told()]].concat());
}
