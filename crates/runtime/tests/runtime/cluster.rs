//! Whole clusters in one process.

use crate::common::{Directory, Toy, eventually, layout, no_machine, text};
use ionian_kernel::client::{ReadLevel, Refusal};
use ionian_kernel::id::ClientId;
use ionian_kernel::layout::NodeId;
use ionian_runtime::in_process::cluster::{ClusterError, ClusterOptions};
use ionian_runtime::status::{PeerState, RoleStatus};
use ionian_runtime::{Cluster, NodeStatus};
use std::time::Duration;

fn role<'a>(status: &'a NodeStatus, role: &str, index: u8) -> &'a RoleStatus {
    let role = status
        .roles
        .iter()
        .find(|found| found.role == role && found.index == index);
    role.unwrap_or_else(|| panic!("no such role in {status:?}"))
}

fn figure(status: &NodeStatus, kind: &str, index: u8, name: &str) -> u64 {
    role(status, kind, index).metrics[name]
}

#[test]
fn a_request_goes_to_another_node_and_its_reply_comes_back() {
    // No message is sent twice here, so this also shows that messages sent before the connection
    // exists are not lost.
    let cluster = Cluster::<Toy>::start(layout(&[0], &[1]), no_machine).unwrap();
    assert_eq!(
        text(cluster.client().write_blocking("hello").unwrap()),
        "0:hello;"
    );
    let read = cluster.client().read_blocking("there", ReadLevel::Eventual);
    assert_eq!(text(read.unwrap()), "0:there;");
}

#[test]
fn first_messages_reach_peers_that_dial_and_peers_that_are_dialled() {
    for _ in 0..10 {
        // Node 1 dials node 0 and waits to be dialled by node 2.
        let cluster = Cluster::<Toy>::start(layout(&[1], &[0, 2]), no_machine).unwrap();
        assert_eq!(
            text(cluster.client().write_blocking("x").unwrap()),
            "0:x;1:x;"
        );
    }
}

#[test]
fn one_message_reaches_several_instances_on_this_and_other_nodes() {
    // Of echo's instances 0, 3 and 4 are on the lane's node, 1 and 5 on node 1, 2 on node 2.
    let cluster = Cluster::<Toy>::start(layout(&[0], &[0, 1, 2, 0, 0, 1]), no_machine).unwrap();
    let client = cluster.client();
    assert_eq!(
        text(client.write_blocking("a").unwrap()),
        "0:a;1:a;2:a;3:a;4:a;5:a;"
    );
    assert_eq!(text(client.write_blocking("@5").unwrap()), "5:@5;");
    let statuses: Vec<_> = (0..3)
        .map(|node| cluster.status(NodeId(node)).unwrap())
        .collect();
    for (index, node, asked) in [
        (0, 0, 1),
        (1, 1, 1),
        (2, 2, 1),
        (3, 0, 1),
        (4, 0, 1),
        (5, 1, 2),
    ] {
        assert_eq!(
            figure(&statuses[node], "echo", index, "asked"),
            asked,
            "instance {index}"
        );
    }
    // Node 1 received one frame for two instances, and then one more.
    assert_eq!(statuses[1].peers[0].frames_in, 2);
    assert_eq!(statuses[0].event_loop.messages_out, 3);
}

#[test]
fn each_lane_is_served_by_its_node_with_many_calls_open() {
    let cluster = Cluster::<Toy>::start(layout(&[0, 1, 2], &[0, 1, 2]), no_machine).unwrap();
    let threads: Vec<_> = (0..6)
        .map(|thread| {
            let client = cluster.client();
            assert_eq!(client.lane(), Some(ClientId(thread % 3)));
            std::thread::spawn(move || {
                for turn in 0..200 {
                    let payload = format!("{thread}.{turn}");
                    let expected = format!("0:{payload};1:{payload};2:{payload};");
                    assert_eq!(text(client.write_blocking(payload).unwrap()), expected);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn calls_from_one_task_overlap_and_coalesce() {
    let cluster = Cluster::<Toy>::start(layout(&[0], &[1]), no_machine).unwrap();
    let client = cluster.client();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    client.write_blocking("warm").unwrap();
    runtime.block_on(async {
        let mut calls = tokio::task::JoinSet::new();
        for turn in 0..10_000u32 {
            let client = client.clone();
            calls.spawn(async move { (turn, client.write(turn.to_string()).await) });
        }
        let mut answered = 0;
        while let Some(call) = calls.join_next().await {
            let (turn, reply) = call.unwrap();
            assert_eq!(text(reply.unwrap()), format!("0:{turn};"));
            answered += 1;
        }
        assert_eq!(answered, 10_000);
    });
    let peer = cluster.status(NodeId(0)).unwrap().peers[0].clone();
    assert_eq!(peer.frames_out, 10_001);
    assert!(
        peer.writes < 2_500,
        "{} writes for 10000 messages",
        peer.writes
    );
}

#[test]
fn large_messages_arrive_and_too_large_ones_are_dropped() {
    let cluster = Cluster::<Toy>::start(layout(&[0], &[1]), no_machine).unwrap();
    let client = cluster.client();
    client.write_blocking("warm").unwrap();
    for size in [40_000, 70_000, 1 << 20, 20 << 20] {
        let payload = vec![b'z'; size];
        let reply = client.write_blocking(payload.clone()).unwrap();
        assert!(
            reply[..2] == *b"0:" && reply[2..reply.len() - 1] == payload,
            "{size} bytes"
        );
    }
    let lost = client.clone();
    std::thread::spawn(move || lost.write_blocking(vec![b'z'; 65 << 20]));
    eventually("the message is dropped", || {
        cluster.status(NodeId(0)).unwrap().peers[0].dropped == 1
    });
    assert_eq!(text(client.write_blocking("still").unwrap()), "0:still;");
    assert_eq!(cluster.status(NodeId(0)).unwrap().peers[0].connections, 1);
}

#[test]
fn lane_of_a_killed_node_is_unavailable_and_its_open_calls_end() {
    let mut cluster = Cluster::<Toy>::start(layout(&[0, 1], &[1]), no_machine).unwrap();
    let here = cluster.client_on(ClientId(0));
    assert_eq!(text(here.write_blocking("x").unwrap()), "0:x;");
    cluster.kill(NodeId(1)).unwrap();
    assert_eq!(
        cluster.client_on(ClientId(1)).write_blocking("x"),
        Err(Refusal::Unavailable)
    );
    assert!(matches!(
        cluster.restart(NodeId(1)),
        Err(ClusterError::NoData(NodeId(1)))
    ));
    // This call gets no answer.
    let waiting = std::thread::spawn(move || here.write_blocking("y"));
    eventually("the call is open", || {
        figure(&cluster.status(NodeId(0)).unwrap(), "client", 0, "open") == 1
    });
    cluster.stop(NodeId(0)).unwrap();
    assert_eq!(waiting.join().unwrap(), Err(Refusal::Unknown));
}

#[test]
fn a_restarted_node_reconnects_to_peers_that_dial_and_peers_that_are_dialled() {
    for down in [0, 1] {
        let data = Directory::new();
        let mut layout = layout(&[0, 1], &[0, 1]);
        // The timeout is so long that no request is sent twice on a slow disk.
        layout.options.resend_after = Duration::from_secs(2);
        let options = ClusterOptions {
            data: Some(data.0.clone()),
            ..ClusterOptions::in_memory()
        };
        let mut cluster = Cluster::<Toy>::start_with(layout, no_machine, options).unwrap();
        let other = cluster.client_on(ClientId(1 - down));
        assert_eq!(text(other.write_blocking("keep").unwrap()), "0:1;1:1;");
        let status = cluster.status(NodeId(down.into())).unwrap();
        assert_eq!(role(&status, "echo", down).remembers, Some(true));
        assert!(matches!(
            cluster.restart(NodeId(down.into())),
            Err(ClusterError::Running(_))
        ));

        cluster.kill(NodeId(down.into())).unwrap();
        let state = || cluster.status(NodeId((1 - down).into())).unwrap().peers[0].state;
        eventually("the loss is noticed", || state() == PeerState::Disconnected);
        cluster.restart(NodeId(down.into())).unwrap();
        // Its vital record survived, and it knows that it ran before.
        assert_eq!(text(other.write_blocking("keep").unwrap()), "0:2;1:2;");
        let status = cluster.status(NodeId(down.into())).unwrap();
        assert_eq!(role(&status, "echo", down).remembers, Some(false));
        assert!(status.amnesiac);
        assert_eq!(figure(&status, "echo", down, "durable"), 2);
        assert_eq!(status.event_loop.syncs, 1);
        assert_eq!(
            cluster.status(NodeId((1 - down).into())).unwrap().peers[0].connections,
            2
        );
        assert_eq!(
            text(
                cluster
                    .client_on(ClientId(down))
                    .write_blocking("x")
                    .unwrap()
            ),
            "0:x;1:x;"
        );
    }
}

#[test]
fn event_loops_of_an_idle_cluster_do_not_run() {
    let cluster = Cluster::<Toy>::start(layout(&[0], &[0, 1]), no_machine).unwrap();
    let client = cluster.client();
    client.write_blocking("a").unwrap();
    let pumps = |node| cluster.status(NodeId(node)).unwrap().event_loop.pumps;
    let before = [pumps(0), pumps(1)];
    // Tools ask the nodes, connect to them and send garbage, but no role receives a message.
    for node in 0..2 {
        for _ in 0..20 {
            pumps(node);
            drop(std::net::TcpStream::connect(cluster.address(NodeId(node))).unwrap());
        }
    }
    assert_eq!(
        [pumps(0), pumps(1)],
        before,
        "a node ran though nothing had happened"
    );
    // A single request: node 0 takes in the request and later the answer, node 1 the question.
    client.write_blocking("a").unwrap();
    assert_eq!([pumps(0), pumps(1)], [before[0] + 2, before[1] + 1]);
}

#[test]
fn a_wrong_layout_is_refused_with_the_reason_of_the_protocol() {
    let refused = |layout| {
        Cluster::<Toy>::start(layout, no_machine)
            .err()
            .unwrap()
            .to_string()
    };
    let mut wrong = layout(&[0], &[0]);
    wrong.instances.pop();
    assert_eq!(refused(wrong), "a toy has 2 kinds of roles, not 1");
    assert_eq!(refused(layout(&[], &[0])), "the layout has no client lane");
}
