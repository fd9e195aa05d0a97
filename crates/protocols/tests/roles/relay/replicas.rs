//! A replica in a deployment with many nodes.

use super::*;
use ionian_protocols::multipaxos::replica::{In, Replica};

/// Replica 1, on node 1.
fn replica_with(nodes: usize, options: &[(&'static str, u64)]) -> Stage<Replica> {
    let config = MultiPaxos::configure(layout(nodes, options)).expect("a deployment");
    let mut replica = Stage::new(config, &birth(kind::Replica, 1, NodeId(1)), Replica::new);
    // Its first report to the leaders.
    replica.timer();
    replica
}

fn chosen(slot: u64) -> In {
    In::Chosen {
        slot: Slot(slot),
        value: Value::default(),
        replier: ReplicaId(0),
    }
}

/// 8.2: for readers. In other deployments it costs nothing.
#[test]
fn a_replica_tells_the_acceptor_of_its_node_how_far_it_is_if_reads_go_where_that_is_enough() {
    let executed = |slot| {
        let executed = Slot(slot);
        Envelope::ToAcceptors(set(&[1]), acceptor::In::Executed { executed })
    };
    let mut replica = replica_with(5, &[("read_at_executed", 1)]);
    assert_eq!(replica.asked(chosen(0)), only(vec![executed(1)]));
    assert_eq!(
        replica.asked(chosen(2)),
        only(vec![]),
        "a hole is before it"
    );
    assert_eq!(replica.asked(chosen(1)), only(vec![executed(3)]));
    assert_eq!(replica_with(5, &[]).asked(chosen(0)), only(vec![]));
}

/// Each report goes to all leaders: with 25 of each, all reports together would be a large part of
/// what a node handles.
#[test]
fn a_replica_reports_less_often_to_many_leaders() {
    for (nodes, slots, micros) in [(5, 64, 10_000), (25, 256, 40_000)] {
        let mut replica = replica_with(nodes, &[]);
        let reported = (0..).find(|slot| !replica.asked(chosen(*slot)).sends.is_empty());
        assert_eq!(reported, Some(slots - 1));
        replica.asked(chosen(slots));
        let before = replica.now;
        let told = replica.woken();
        let [(Envelope::ToLeaders(to, leader::In::Executed { executed, .. }), _)] = &told.sends[..]
        else {
            panic!("{told:?}")
        };
        assert_eq!((*to, *executed), (Set::first(nodes), Slot(slots + 1)));
        assert_eq!(replica.now.since(before), Duration::from_micros(micros));
    }
}
