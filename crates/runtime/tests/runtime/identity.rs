//! Peers refuse a node whose data was deleted or exchanged, and admit a new node.

use crate::common;
use crate::common::{
    DEADLINE, Directory, Running, Toy, bind, eventually, layout, no_machine, settings, start,
    start_with,
};
use bytes::Bytes;
use ionian_kernel::client::{Operation, Refusal, Reply, Request};
use ionian_kernel::id::ClientId;
use ionian_kernel::layout::{Layout, NodeId};
use ionian_runtime::in_process::cluster::ClusterOptions;
use ionian_runtime::status::PeerState;
use ionian_runtime::{
    Addressee, Application, Cluster, Durability, NodeSettings, QueryError, request_drain,
};
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

fn three() -> Layout {
    layout(&[0, 1, 2], &[0, 1, 2])
}

fn options(data: &Directory, durability: Durability) -> ClusterOptions {
    ClusterOptions {
        durability,
        ..ClusterOptions::on_disk(&data.0)
    }
}

fn cluster(data: &Directory, durability: Durability) -> Cluster<Toy> {
    Cluster::start_with(three(), no_machine, options(data, durability)).unwrap()
}

/// Waits until every node takes part and is connected with both others.
fn wait_until_whole(cluster: &Cluster<Toy>) {
    eventually("all are connected", || {
        (0..3).all(|node| {
            let status = cluster.status(NodeId(node)).unwrap();
            status.takes_part
                && status
                    .peers
                    .iter()
                    .all(|peer| peer.state == PeerState::Connected)
        })
    });
}

fn node_directory(data: &Directory, node: u16) -> PathBuf {
    data.0.join(format!("n{node}"))
}

/// Checks that the node ends by itself with the reason.
fn assert_refused(cluster: &mut Cluster<Toy>, node: u16) {
    eventually("the node ends", || cluster.status(NodeId(node)).is_err());
    let error = cluster.stop(NodeId(node)).unwrap_err().to_string();
    for part in [
        " refuses this node: node 'n",
        &format!("node 'n{node}' is known here by the data directory "),
        "its data was deleted or exchanged",
        &format!("ionian member replace n{node} NEW --address HOST:PORT"),
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
}

/// Checks that the other two nodes are connected with each other and were not harmed.
fn assert_unharmed(cluster: &Cluster<Toy>, gone: u16) {
    for node in (0..3).filter(|node| *node != gone) {
        let status = cluster.status(NodeId(node)).unwrap();
        let connected = status
            .peers
            .iter()
            .filter(|peer| peer.state == PeerState::Connected);
        assert_eq!(
            connected.map(|peer| peer.node).collect::<Vec<_>>(),
            [3 - gone - node]
        );
        let client = cluster.client_on(ClientId(node as u8));
        let one = format!("@{}", 3 - gone - node);
        assert!(client.write_blocking(one).is_ok());
    }
}

#[test]
fn node_with_an_emptied_directory_is_refused_by_peers_that_dial_and_are_dialled() {
    for durability in [Durability::Disk, Durability::Memory] {
        for emptied in 0..3 {
            let data = Directory::new();
            let mut cluster = cluster(&data, durability);
            wait_until_whole(&cluster);
            cluster.kill(NodeId(emptied)).unwrap();
            fs::remove_dir_all(node_directory(&data, emptied)).unwrap();
            cluster.restart(NodeId(emptied)).unwrap();
            assert_refused(&mut cluster, emptied);
            assert_unharmed(&cluster, emptied);
            // Another attempt does not help.
            cluster.restart(NodeId(emptied)).unwrap();
            assert_refused(&mut cluster, emptied);
        }
    }
}

#[test]
fn all_nodes_of_a_cluster_can_be_killed_and_restarted() {
    let data = Directory::new();
    for _ in 0..3 {
        let mut cluster = cluster(&data, Durability::Disk);
        wait_until_whole(&cluster);
        (0..3).for_each(|node| cluster.kill(NodeId(node)).unwrap());
    }
}

#[test]
fn node_with_a_foreign_directory_stops_and_the_others_continue() {
    let (data, foreign) = (Directory::new(), Directory::new());
    wait_until_whole(&cluster(&foreign, Durability::Disk));
    for exchanged in 0..3 {
        let mut cluster = cluster(&data, Durability::Disk);
        wait_until_whole(&cluster);
        cluster.kill(NodeId(exchanged)).unwrap();
        let (own, aside) = (node_directory(&data, exchanged), data.0.join("aside"));
        fs::rename(&own, &aside).unwrap();
        copy(&node_directory(&foreign, exchanged), &own);
        cluster.restart(NodeId(exchanged)).unwrap();
        // It contradicts the others, and they contradict it: it stops because they are the
        // majority.
        assert_refused(&mut cluster, exchanged);
        assert_unharmed(&cluster, exchanged);
        // With its own directory it is accepted.
        fs::remove_dir_all(&own).unwrap();
        fs::rename(&aside, &own).unwrap();
        cluster.restart(NodeId(exchanged)).unwrap();
        wait_until_whole(&cluster);
    }
}

#[test]
fn nodes_with_exchanged_directories_are_refused_at_the_start() {
    let data = Directory::new();
    wait_until_whole(&cluster(&data, Durability::Disk));
    let [one, two, aside] = ["n1", "n2", "aside"].map(|name| data.0.join(name));
    fs::rename(&one, &aside).unwrap();
    fs::rename(&two, &one).unwrap();
    fs::rename(&aside, &two).unwrap();
    let refused = Cluster::<Toy>::start_with(three(), no_machine, options(&data, Durability::Disk));
    let error = refused.err().unwrap().to_string();
    assert!(
        error.contains("n1/identity is not a file of this node: it belongs to node 'n2'"),
        "{error}"
    );
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (source, target) = (
            entry.as_ref().unwrap().path(),
            to.join(entry.unwrap().file_name()),
        );
        match source.is_dir() {
            true => copy(&source, &target),
            false => assert!(fs::copy(source, target).is_ok()),
        }
    }
}

/// Three nodes that are started one by one.
struct Places {
    data: Directory,
    listeners: Vec<Option<TcpListener>>,
    peers: Vec<SocketAddr>,
}

impl Places {
    fn new() -> Self {
        let listeners: Vec<_> = (0..3).map(|_| bind()).collect();
        let peers = listeners
            .iter()
            .map(|listener| listener.local_addr().unwrap())
            .collect();
        Places {
            data: Directory::new(),
            listeners: listeners.into_iter().map(Some).collect(),
            peers,
        }
    }

    fn settings(&mut self, node: u16) -> NodeSettings {
        let address = self.peers[node as usize];
        let listener = self.listeners[node as usize]
            .take()
            .unwrap_or_else(|| TcpListener::bind(address).unwrap());
        let mut settings = settings(node, listener, &self.peers, &three());
        settings.durability = Durability::Disk;
        settings.data = Some(node_directory(&self.data, node));
        settings
    }

    fn start(&mut self, node: u16) -> Running {
        start(self.settings(node))
    }
}

#[test]
fn new_node_waits_until_a_majority_of_the_others_accepts_it() {
    let mut places = Places::new();
    // A request that comes too early is refused, it does not wait without end.
    struct Eager(std::sync::mpsc::Sender<Reply>);
    impl Application for Eager {
        fn on_reply(&mut self, _: ClientId, reply: Reply) {
            self.0.send(reply).unwrap();
        }
    }
    let (send, replies) = std::sync::mpsc::channel();
    let mut impatient = places.settings(0);
    impatient.layout.options.lane.patience = ionian_kernel::time::Duration::from_millis(50);
    let zero = start_with(impatient, move |handle| {
        let payload = Bytes::from_static(b"@0");
        handle.submit(
            ClientId(0),
            Request {
                token: 7,
                operation: Operation::Write,
                payload,
            },
        );
        Box::new(Eager(send))
    });
    let reply = replies.recv_timeout(common::DEADLINE).unwrap();
    assert_eq!((reply.token, reply.outcome), (7, Err(Refusal::Unavailable)));
    let one = places.start(1);
    let connected =
        |node: &Running, peer: usize| node.status().peers[peer].state == PeerState::Connected;
    eventually("they are connected", || {
        connected(&zero, 0) && connected(&one, 0)
    });
    assert!(!zero.status().takes_part && !one.status().takes_part);
    // A node that has not taken part is still new when it starts again.
    one.stop().unwrap();
    let one = places.start(1);
    eventually("they are connected again", || {
        connected(&zero, 0) && connected(&one, 0)
    });
    assert!(!one.status().takes_part);
    let two = places.start(2);
    eventually("all take part", || {
        [&zero, &one, &two]
            .iter()
            .all(|node| node.status().takes_part)
    });
    // From then on no node waits for another.
    for node in [zero, one, two] {
        node.stop().unwrap();
    }
    assert!(places.start(1).status().takes_part);
}

#[test]
fn emptied_nodes_do_not_take_part_while_the_node_that_knows_them_is_down() {
    let mut places = Places::new();
    let nodes = [0, 1, 2].map(|node| places.start(node));
    eventually("all take part", || {
        nodes.iter().all(|node| node.status().takes_part)
    });
    let [zero, one, two] = nodes;
    for node in [zero, one, two] {
        node.stop().unwrap();
    }
    // Two of three nodes have lost everything: together they must not be treated as a new cluster.
    for emptied in [1, 2] {
        fs::remove_dir_all(node_directory(&places.data, emptied)).unwrap();
    }
    let (one, two) = (places.start(1), places.start(2));
    eventually("they have met", || {
        [&one, &two]
            .iter()
            .all(|it| it.status().peers[1].state == PeerState::Connected)
    });
    assert!(!one.status().takes_part && !two.status().takes_part);
    let zero = places.start(0);
    for node in [one, two] {
        let error = node.join().unwrap_err().to_string();
        assert!(
            error.starts_with("node 0 refuses this node: node 'n"),
            "{error}"
        );
    }
    zero.stop().unwrap();
}

#[test]
fn damaged_or_missing_identity_file_stops_the_node() {
    let mut places = Places::new();
    let nodes = [0, 1, 2].map(|node| places.start(node));
    eventually("all take part", || {
        nodes.iter().all(|node| node.status().takes_part)
    });
    drop(nodes);
    let file = node_directory(&places.data, 1).join("identity");
    let good = fs::read(&file).unwrap();
    for at in 0..good.len() - 1 {
        let mut bad = good.clone();
        bad[at] ^= 0x01;
        fs::write(&file, &bad).unwrap();
        let error = places.start(1).join().unwrap_err().to_string();
        assert!(
            error.contains("identity") && error.contains("damaged at byte 0"),
            "byte {at}: {error}"
        );
        assert!(fs::read(&file).unwrap() == bad, "the evidence was changed");
    }
    fs::remove_file(&file).unwrap();
    let error = places.start(1).join().unwrap_err().to_string();
    assert!(
        error.contains("n1/identity is missing, though") && error.contains("n1/wal shows"),
        "{error}"
    );
    fs::write(&file, good).unwrap();
    assert!(places.start(1).status().takes_part);
}

/// At the address of a node that was replaced or moved there may be another one.
#[test]
fn a_request_to_drain_another_node_is_refused() {
    let listener = bind();
    let peers = [listener.local_addr().unwrap()];
    let node = start(settings(0, listener, &peers, &layout(&[0], &[0])));
    let (address, own) = (node.address, std::process::id());
    let drain = |cluster: &str, node: &str, process| {
        let addressee = Addressee {
            cluster: cluster.into(),
            node: node.into(),
            process,
        };
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
            .block_on(request_drain(address, &addressee, true, DEADLINE))
    };
    for (cluster, name, process, reason) in [
        ("red", "n0", None, ", not node n0 of cluster red".to_owned()),
        (
            "blue",
            "n1",
            None,
            ", not node n1 of cluster blue".to_owned(),
        ),
        (
            "red",
            "n0",
            Some(own),
            ", not node n0 of cluster red".to_owned(),
        ),
        (
            "blue",
            "n0",
            Some(1),
            format!(" in process {own}, not in process 1"),
        ),
    ] {
        match drain(cluster, name, process) {
            Err(QueryError::Refused(text)) => {
                assert_eq!(text, format!("this is node n0 of cluster blue{reason}"));
            }
            other => panic!("{cluster} {name} {process:?}: {other:?}"),
        }
        assert_eq!(node.status().drains, None, "{cluster} {name} {process:?}");
        // The audit log has that the caller may, and that nothing came of it.
        let end =
            format!("\"drain\" \"begin\" \"refused\" \"this is node n0 of cluster blue{reason}\"");
        assert!(node.logged(&[&end]) > 0, "{end}");
    }
    assert_eq!(node.logged(&["\"drain\" \"begin\" \"permitted\""]), 4);
    assert!(node.logged(&["refused a connection from", "not in process 1"]) == 1);
    for process in [None, Some(own)] {
        assert!(drain("blue", "n0", process).unwrap().drains.is_some());
    }
    node.stop().unwrap();
}
