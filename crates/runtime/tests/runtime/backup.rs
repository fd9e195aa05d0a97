//! Snapshots of running nodes for operators.

use crate::common;
use crate::common::{Toy, layout, no_machine};
use bytes::Bytes;
use ionian_kernel::layout::{Layout, NodeId, numbered};
use ionian_kernel::machine::{NotARead, RestoreError, StateMachine};
use ionian_kernel::protocol::Protocol;
use ionian_kernel::time::Timestamp;
use ionian_protocols::multipaxos::MultiPaxos;
use ionian_replication::executor::Executor;
use ionian_runtime::{Cluster, QueryError, RemoteSnapshot, query_snapshot};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Stores every command, of one byte each, as its state.
#[derive(Default)]
struct Tape(Arc<Mutex<Vec<u8>>>);

impl StateMachine for Tape {
    fn apply(&mut self, _: Timestamp, command: &[u8], _: &mut Vec<u8>) {
        self.0.lock().unwrap().extend_from_slice(command);
    }
    fn read(&self, _: Timestamp, _: &[u8], _: &mut Vec<u8>) -> Result<(), NotARead> {
        Err(NotARead)
    }
    fn snapshot(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0.lock().unwrap());
    }
    fn restore(&mut self, snapshot: &[u8]) -> Result<(), RestoreError> {
        *self.0.lock().unwrap() = snapshot.to_vec();
        Ok(())
    }
}

/// The state of the machine in a snapshot.
fn taped(snapshot: &Bytes) -> Vec<u8> {
    let tape = Arc::default();
    let mut executor = Executor::new(Box::new(Tape(Arc::clone(&tape))), Duration::from_secs(600));
    executor.restore(snapshot).unwrap();
    tape.lock().unwrap().clone()
}

fn three() -> Layout {
    // Starts the watchdog.
    common::bind();
    let instances = numbered(
        MultiPaxos::KINDS
            .iter()
            .map(|_| (0..3).map(NodeId).collect())
            .collect(),
    );
    Layout {
        f: 1,
        instances,
        ..Layout::default()
    }
}

fn wait<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(work)
}

async fn receive(mut snapshot: RemoteSnapshot) -> Result<Bytes, QueryError> {
    let mut whole = Vec::new();
    while let Some(piece) = snapshot.next().await? {
        whole.extend_from_slice(&piece);
    }
    Ok(whole.into())
}

/// The highest vote watermark of all acceptors.
fn watermark(cluster: &Cluster<MultiPaxos>) -> u64 {
    let status = (0..3).map(|node| cluster.status(NodeId(node)).unwrap());
    let roles = status.flat_map(|status| status.roles);
    roles.filter_map(|role| role.voted).max().unwrap()
}

#[test]
fn every_node_sends_a_snapshot_with_everything_below_the_requested_slot() {
    sends_a_snapshot_with_everything_below_the_requested_slot(three());
}

#[test]
fn a_node_with_several_event_loops_sends_a_snapshot_as_well() {
    let mut layout = three();
    layout.options.loops = 3;
    sends_a_snapshot_with_everything_below_the_requested_slot(layout);
}

fn sends_a_snapshot_with_everything_below_the_requested_slot(layout: Layout) {
    let cluster = Cluster::<MultiPaxos>::start(layout, || Box::new(Tape::default())).unwrap();
    for number in 0..30u8 {
        cluster.client().write_blocking(vec![number]).unwrap();
        let at = watermark(&cluster);
        let address = cluster.address(NodeId(u16::from(number) % 3));
        let (stamp, snapshot) = wait(async {
            let snapshot = query_snapshot(address, Some(at)).await.unwrap();
            (snapshot.stamp(), receive(snapshot).await.unwrap())
        });
        assert!(stamp >= at);
        // Here each command waits for the answer to the one before, so they are in order.
        assert_eq!(taped(&snapshot), (0..=number).collect::<Vec<_>>());
    }
}

#[test]
fn a_node_that_lags_sends_its_snapshot_after_it_has_caught_up() {
    let cluster = Cluster::<MultiPaxos>::start(three(), || Box::new(Tape::default())).unwrap();
    cluster.client().write_blocking("a").unwrap();
    let (address, at) = (cluster.address(NodeId(1)), watermark(&cluster) + 5);
    std::thread::scope(|scope| {
        let asked = scope.spawn(move || {
            wait(async {
                let snapshot = query_snapshot(address, Some(at)).await.unwrap();
                (snapshot.stamp(), receive(snapshot).await.unwrap())
            })
        });
        // One slot each, at least.
        (0..20).for_each(|_| drop(cluster.client().write_blocking("b").unwrap()));
        let (stamp, snapshot) = asked.join().unwrap();
        assert!(
            stamp >= at && taped(&snapshot).starts_with(b"ab"),
            "{stamp} instead of {at}"
        );
    });
}

#[test]
fn a_node_sends_one_snapshot_at_a_time() {
    let mut layout = three();
    layout.options.snapshot_bytes_per_second = 1;
    let cluster = Cluster::<MultiPaxos>::start(layout, || Box::new(Tape::default())).unwrap();
    cluster.client().write_blocking("x").unwrap();
    wait(async {
        let first = query_snapshot(cluster.address(NodeId(0)), Some(1))
            .await
            .unwrap();
        let second = query_snapshot(cluster.address(NodeId(0)), Some(1))
            .await
            .unwrap_err()
            .to_string();
        assert!(
            second.ends_with(
                "this node is sending a snapshot already: ask another node, or try later"
            ),
            "{second}"
        );
        query_snapshot(cluster.address(NodeId(1)), Some(1))
            .await
            .unwrap();
        drop(first);
    });
}

#[test]
fn a_node_without_state_refuses_to_send_a_snapshot() {
    let cluster = Cluster::<Toy>::start(layout(&[0], &[1]), no_machine).unwrap();
    let refused = wait(query_snapshot(cluster.address(NodeId(1)), Some(0))).unwrap_err();
    assert!(matches!(&refused, QueryError::Refused { .. }), "{refused}");
    assert!(
        refused
            .to_string()
            .ends_with("no role on this node keeps the state"),
        "{refused}"
    );
}
