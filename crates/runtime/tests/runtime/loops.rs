//! Nodes with several event loops.

use crate::common::{Directory, eventually};
use crate::disk::{
    Load, SMALL, assert_exactly_once, options, start, three_with_snapshots, usage, wal,
    write_in_parallel,
};
use ionian_kernel::id::ClientId;
use ionian_kernel::layout::{Layout, NodeId};
use ionian_kernel::node::homes::spread;
use ionian_protocols::multipaxos::{MultiPaxos, kind};
use ionian_runtime::NodeStatus;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Every role on each of three nodes, which have this number of event loops.
fn three(loops: usize) -> Layout {
    let mut layout = three_with_snapshots(50);
    layout.options.loops = loops;
    layout
}

/// The roles on each of the other loops, without the number of the instance.
fn roles_of_loops(status: &NodeStatus) -> Vec<Vec<&str>> {
    let loops = status.role_loops.iter();
    loops
        .map(|it| {
            let roles = it.roles.iter();
            roles.map(|role| role.split(' ').next().unwrap()).collect()
        })
        .collect()
}

#[test]
fn executors_leave_the_main_loop_first_and_client_lanes_never() {
    let all = |kind| kind != kind::Relay;
    let loops = |count| spread::<MultiPaxos>(all, count);
    assert_eq!(loops(1), [0; 9]);
    assert_eq!(loops(2), [0, 0, 0, 0, 0, 0, 1, 0, 0]);
    assert_eq!(loops(3), [0, 2, 2, 2, 2, 2, 1, 2, 2]);
    assert_eq!(loops(4), [0, 2, 2, 2, 3, 3, 1, 3, 3]);
    assert_eq!(loops(8), [0, 2, 3, 4, 5, 6, 1, 7, 7]);
    // A node of a role without an executor.
    let acceptor = |kind| kind == kind::Acceptor;
    let alone = spread::<MultiPaxos>(acceptor, 2);
    assert_eq!(alone[usize::from(kind::Acceptor)], 1);
    assert_eq!(alone[usize::from(kind::Client)], 0);
}

#[test]
fn status_reports_the_load_and_the_roles_of_each_loop() {
    let data = Directory::new();
    let cluster = start::<MultiPaxos>(&three(3), options(&data, SMALL)).unwrap();
    let load = Load::default();
    (0..20).for_each(|_| _ = load.write(&cluster.client(), 10));
    let data = Directory::new();
    let one = start::<MultiPaxos>(&three(1), options(&data, SMALL)).unwrap();
    for node in 0..3 {
        let status = cluster.status(NodeId(node)).unwrap();
        let others = [
            "batcher",
            "read_batcher",
            "leader",
            "proxy_leader",
            "acceptor",
        ];
        let others = [&others[..], &["unbatcher", "relay"]].concat();
        assert_eq!(roles_of_loops(&status), [vec!["replica"], others]);
        for (number, it) in (1..).zip(&status.role_loops) {
            assert_eq!(it.number, number);
            assert!(
                it.cpu_us > 0 && it.pumps > 0 && it.messages_in > 0,
                "{it:?}"
            );
            assert_eq!(it.ignored, 0);
        }
        assert!(status.role_loops[1].messages_out > 0 && status.role_loops[1].records > 0);
        let names = |status: &NodeStatus| -> Vec<_> {
            let roles = status.roles.iter();
            roles.map(|role| (role.role.clone(), role.index)).collect()
        };
        let single = one.status(NodeId(node)).unwrap();
        assert_eq!(names(&status), names(&single), "all roles, in one order");
        assert!(single.role_loops.is_empty());
    }
}

/// The log does not depend on the loops of the node that wrote it.
#[test]
fn nodes_continue_with_another_number_of_loops_after_a_restart() {
    let (data, load) = (Directory::new(), Arc::new(Load::default()));
    let mut acknowledged = Vec::new();
    for (life, loops) in [1, 4, 2, 8, 1].into_iter().enumerate() {
        let mut cluster = start::<MultiPaxos>(&three(loops), options(&data, SMALL)).unwrap();
        let lane = ClientId(life as u8 % 3);
        assert_exactly_once(&cluster.client_on(lane), &acknowledged);
        acknowledged.extend(write_in_parallel(&cluster, 3, &load, 10, 500));
        if life % 2 == 0 {
            // As after a crash; in the other rounds all nodes stop in order, at the same time.
            (0..3).for_each(|node| cluster.kill(NodeId(node)).unwrap());
        }
    }
    let cluster = start::<MultiPaxos>(&three(3), options(&data, SMALL)).unwrap();
    assert_exactly_once(&cluster.client(), &acknowledged);
}

#[test]
fn a_node_with_four_loops_that_is_killed_repeatedly_returns_each_time() {
    let (data, load) = (Directory::new(), Arc::new(Load::default()));
    let mut cluster = start::<MultiPaxos>(&three(4), options(&data, SMALL)).unwrap();
    let writers: Vec<_> = [0, 1, 2, 0, 1, 2]
        .map(|lane| {
            let (client, load) = (cluster.client_on(ClientId(lane)), load.clone());
            std::thread::spawn(move || load.run(&client, 100))
        })
        .into();
    for life in 0..4 {
        let node = NodeId(life % 2);
        load.goes_on(100);
        cluster.kill(node).unwrap();
        load.goes_on(50);
        cluster.restart(node).unwrap();
    }
    load.goes_on(50);
    load.stop.store(true, Ordering::Relaxed);
    let acknowledged = writers.into_iter().map(|writer| writer.join().unwrap());
    let acknowledged: Vec<u64> = acknowledged.flatten().collect();
    assert_exactly_once(&cluster.client_on(ClientId(1)), &acknowledged);
}

/// Each loop writes its part of a checkpoint, and acceptors on a loop of their own hold the log
/// back until replicas have stored snapshots.
#[test]
fn the_log_of_several_loops_is_cut_and_no_write_is_lost() {
    let (data, load) = (Directory::new(), Arc::new(Load::default()));
    let mut acknowledged = Vec::new();
    for loops in [4, 2] {
        let cluster = start::<MultiPaxos>(&three(loops), options(&data, SMALL)).unwrap();
        assert_exactly_once(&cluster.client(), &acknowledged);
        for _ in 0..5 {
            acknowledged.extend(write_in_parallel(&cluster, 3, &load, 25, 4000));
            eventually("the logs are cut", || {
                (0..3).all(|node| usage(&wal(&data, node)) < 4 << 20)
            });
        }
        for node in 0..3 {
            let log = cluster.status(NodeId(node)).unwrap().log;
            assert!(log.checkpoints > 2 && log.snapshots > 1, "{log:?}");
        }
    }
    let cluster = start::<MultiPaxos>(&three(1), options(&data, SMALL)).unwrap();
    assert_exactly_once(&cluster.client(), &acknowledged);
}

#[test]
fn a_node_with_several_loops_drains_when_it_stops() {
    let data = Directory::new();
    let mut layout = three(3);
    // More than the test may take: a node that does not see that it has drained waits so long.
    layout.options.drain = std::time::Duration::from_secs(600);
    let mut cluster = start::<MultiPaxos>(&layout, options(&data, SMALL)).unwrap();
    let load = Load::default();
    for node in 0..2 {
        load.write(&cluster.client_on(ClientId(2)), 10);
        cluster.stop(NodeId(node)).unwrap();
        cluster.restart(NodeId(node)).unwrap();
    }
    load.write(&cluster.client_on(ClientId(2)), 10);
}
