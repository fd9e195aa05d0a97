//! The rules of a proxy leader (compartmentalization, section 3.1), one test each. All that it asks
//! of its driver is compared.

use crate::stage::{self, Stage, batch, with_acceptors};
use ionian_kernel::id::*;
use ionian_kernel::protocol::Protocol;
use ionian_kernel::role::Asked;
use ionian_kernel::time::{Duration, Timestamp};
use ionian_protocols::multipaxos::message::Proposer;
use ionian_protocols::multipaxos::proxy_leader::{In, ProxyLeader};
use ionian_protocols::multipaxos::{
    Envelope, MultiPaxos, acceptor, batcher, kind, leader, replica,
};
use ionian_replication::batch::Value;

const SLOT: Slot = Slot(5);
const REPLIER: ReplicaId = ReplicaId(1);
const BATCHER: Proposer = Proposer::Batcher {
    id: BatcherId(0),
    number: 4,
};

/// Three acceptors in majorities and two replicas, each on a node of its own.
fn proxy() -> Stage<ProxyLeader> {
    let config = MultiPaxos::configure(with_acceptors(&[0, 1, 2])).expect("a deployment");
    let mut proxy = Stage::alone(config, kind::ProxyLeader, ProxyLeader::new);
    // Its first report to the leaders.
    proxy.timer();
    proxy
}

/// The `count`-th round of leader 1.
fn round(count: u64) -> Round {
    Round::new(Epoch::default(), count, LeaderId(1))
}

fn value() -> Value {
    Value {
        stamp: Timestamp(7),
        batch: batch("a"),
    }
}

fn phase2a(count: u64, proposer: Proposer) -> In {
    In::Phase2a {
        slot: SLOT,
        round: round(count),
        value: value(),
        proposer,
        replier: REPLIER,
    }
}

fn phase2b(from: AcceptorId, count: u64) -> In {
    In::Phase2b {
        from,
        slot: SLOT,
        round: round(count),
    }
}

/// These messages, none behind a record, and nothing else: a proxy leader keeps nothing.
fn only(sends: Vec<Envelope>) -> Asked<Envelope> {
    let sends = sends.into_iter().map(|one| (one, Some(0)));
    stage::only(Vec::new(), sends.collect())
}

fn asks(acceptors: AcceptorSet, count: u64) -> Envelope {
    let message = acceptor::In::Phase2a {
        from: ProxyLeaderId(0),
        slot: SLOT,
        round: round(count),
        value: value(),
    };
    Envelope::ToAcceptors(acceptors, message)
}

fn chosen() -> Envelope {
    let message = replica::In::Chosen {
        slot: SLOT,
        value: value(),
        replier: REPLIER,
    };
    Envelope::ToReplicas(Set::first(2), message)
}

/// Has it ask for votes in a round: the acceptors that it asked, and the one that it did not.
fn begun(proxy: &mut Stage<ProxyLeader>, count: u64, proposer: Proposer) -> [AcceptorId; 3] {
    let asked = proxy.asked(phase2a(count, proposer));
    let Some((Envelope::ToAcceptors(quorum, _), _)) = asked.sends.first().cloned() else {
        panic!("{asked:?}")
    };
    assert_eq!(asked, only(vec![asks(quorum, count)]));
    let spare = AcceptorSet::first(3).without(quorum);
    let order: Vec<AcceptorId> = quorum.iter().chain(spare.iter()).collect();
    assert_eq!((quorum.len(), order.len()), (2, 3));
    [order[0], order[1], order[2]]
}

#[test]
fn it_asks_one_write_quorum_first() {
    begun(&mut proxy(), 1, Proposer::Leader {});
}

#[test]
fn a_value_is_chosen_when_a_write_quorum_has_voted_and_all_replicas_get_it_once() {
    let mut proxy = proxy();
    let [one, other, spare] = begun(&mut proxy, 1, Proposer::Leader {});
    assert_eq!(proxy.asked(phase2b(one, 1)), only(vec![]));
    assert_eq!(proxy.asked(phase2b(other, 1)), only(vec![chosen()]));
    assert_eq!(proxy.asked(phase2b(spare, 1)), only(vec![]));
}

#[test]
fn two_votes_of_one_acceptor_count_once() {
    let mut proxy = proxy();
    let [one, other, _] = begun(&mut proxy, 1, Proposer::Leader {});
    proxy.asked(phase2b(one, 1));
    assert_eq!(proxy.asked(phase2b(one, 1)), only(vec![]));
    assert_eq!(proxy.asked(phase2b(other, 1)), only(vec![chosen()]));
}

#[test]
fn votes_of_another_round_do_not_count() {
    let mut proxy = proxy();
    let [one, other, _] = begun(&mut proxy, 2, Proposer::Leader {});
    proxy.asked(phase2b(one, 2));
    for count in [1, 3] {
        assert_eq!(proxy.asked(phase2b(other, count)), only(vec![]));
    }
    assert_eq!(proxy.asked(phase2b(other, 2)), only(vec![chosen()]));
}

#[test]
fn the_batcher_learns_that_its_batch_is_chosen() {
    let mut proxy = proxy();
    let [one, other, _] = begun(&mut proxy, 1, BATCHER);
    proxy.asked(phase2b(one, 1));
    let told = batcher::In::BatchesChosen { numbers: vec![4] };
    let told = Envelope::ToBatchers(Set::one(BatcherId(0)), told);
    assert_eq!(proxy.asked(phase2b(other, 1)), only(vec![chosen(), told]));
}

#[test]
fn a_slot_that_is_asked_for_already_is_not_asked_for_again() {
    let mut proxy = proxy();
    begun(&mut proxy, 1, Proposer::Leader {});
    assert_eq!(proxy.asked(phase2a(1, Proposer::Leader {})), only(vec![]));
}

#[test]
fn an_acceptor_that_does_not_vote_in_time_is_replaced_and_no_value_is_sent_twice() {
    let mut proxy = proxy();
    let [one, _, spare] = begun(&mut proxy, 1, Proposer::Leader {});
    proxy.asked(phase2b(one, 1));
    let again = asks(Set::one(spare), 1);
    assert_eq!(proxy.timer(), vec![again]);
    assert_eq!(proxy.asked(phase2b(spare, 1)), only(vec![chosen()]));
}

#[test]
fn without_work_no_acceptor_is_reported_as_suspected_for_long() {
    let mut proxy = proxy();
    let [one, _, spare] = begun(&mut proxy, 1, Proposer::Leader {});
    proxy.asked(phase2b(one, 1));
    proxy.timer();
    proxy.asked(phase2b(spare, 1));
    assert_eq!(proxy.figure("suspected_acceptors"), 1);
    let idle_since = proxy.now;
    while proxy.now.since(idle_since) <= Duration::from_secs(11) {
        proxy.timer();
    }
    assert_eq!(proxy.figure("suspected_acceptors"), 0);
}

#[test]
fn a_higher_round_ends_what_is_under_way() {
    let nack = In::Nack { round: round(2) };
    for higher in [nack, phase2a(2, Proposer::Leader {})] {
        let mut proxy = proxy();
        let [one, other, _] = begun(&mut proxy, 1, Proposer::Leader {});
        proxy.asked(higher);
        for from in [one, other] {
            assert_eq!(proxy.asked(phase2b(from, 1)), only(vec![]));
        }
    }
}

#[test]
fn the_leader_of_an_old_round_is_refused() {
    let mut proxy = proxy();
    begun(&mut proxy, 2, Proposer::Leader {});
    let nack = leader::In::Nack { round: round(2) };
    let nack = Envelope::ToLeaders(Set::one(LeaderId(1)), nack);
    assert_eq!(
        proxy.asked(phase2a(1, Proposer::Leader {})),
        only(vec![nack])
    );
}

#[test]
fn slots_that_acceptors_have_forgotten_are_dropped() {
    let mut proxy = proxy();
    let [one, other, _] = begun(&mut proxy, 1, Proposer::Leader {});
    let forgotten = In::Forgotten { below: SLOT.next() };
    assert_eq!(proxy.asked(forgotten), only(vec![]));
    for from in [one, other] {
        assert_eq!(proxy.asked(phase2b(from, 1)), only(vec![]));
    }
}
