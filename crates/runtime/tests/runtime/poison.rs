//! A command on which the state machine panics: every replica stops and reports the command, and
//! the operator can have it left out.

use crate::common;
use crate::common::{Directory, at_last, eventually};
use bytes::Bytes;
use ionian_kernel::client::{ReadLevel, Refusal};
use ionian_kernel::id::{SessionId, Slot};
use ionian_kernel::layout::{Address, Layout, NodeId, numbered};
use ionian_kernel::machine::{Footprint, NotARead, RestoreError, StateMachine};
use ionian_kernel::protocol::Protocol;
use ionian_kernel::time::{Duration, Timestamp};
use ionian_machines::kv::{Command, Compound, Kv};
use ionian_protocols::multipaxos::{MultiPaxos, kind};
use ionian_protocols::psmr::PSmr;
use ionian_protocols::unreplicated::Unreplicated;
use ionian_replication::executor::Executor;
use ionian_runtime::in_process::cluster::ClusterError;
use ionian_runtime::storage::machine_failure::MachineFailure;
use ionian_runtime::storage::offline::{ExecutedIn, NewNode, SkipError, SkipList};
use ionian_runtime::storage::skips::{CommandName, Skips};
use ionian_runtime::{Cluster, ClusterOptions, NodeError, query_snapshot};
use std::path::PathBuf;

/// Stores commands, and panics on `boom` when it has stored half of it.
#[derive(Default)]
pub(crate) struct Fragile(pub(crate) Vec<u8>);

impl StateMachine for Fragile {
    fn apply(&mut self, _: Timestamp, command: &[u8], reply: &mut Vec<u8>) {
        let (first, second) = command.split_at(command.len() / 2);
        self.0.extend_from_slice(first);
        assert_ne!(command, b"boom", "it went\nboom");
        self.0.extend_from_slice(second);
        reply.extend_from_slice(&self.0);
    }
    fn read(&self, _: Timestamp, query: &[u8], reply: &mut Vec<u8>) -> Result<(), NotARead> {
        reply.extend_from_slice(b"half of an answer");
        assert_ne!(query, b"boom", "no answer to that");
        reply.clear();
        reply.extend_from_slice(&self.0);
        Ok(())
    }
    fn snapshot(&self, out: &mut Vec<u8>) {
        assert_ne!(self.0, b"picture", "it cannot be drawn");
        out.extend_from_slice(&self.0);
    }
    fn restore(&mut self, snapshot: &[u8]) -> Result<(), RestoreError> {
        assert_ne!(snapshot, b"frame", "it cannot be restored");
        self.0 = snapshot.to_vec();
        Ok(())
    }
}

/// Replicas and acceptors on nodes 0 to 2, everything else on 3 and 4: whichever replica fails
/// first, the others receive the command too.
fn apart() -> Layout {
    common::bind();
    let place = |role: u8| match role {
        kind::Acceptor | kind::Replica => (0..3).map(NodeId).collect(),
        _ => (3..5).map(NodeId).collect(),
    };
    let instances = (0..MultiPaxos::KINDS.len() as u8).map(place).collect();
    Layout {
        f: 1,
        instances: numbered(instances),
        ..Layout::default()
    }
}

/// One instance of every role on each of three nodes.
pub(crate) fn three() -> Layout {
    common::bind();
    let instances = MultiPaxos::KINDS
        .iter()
        .map(|_| (0..3).map(NodeId).collect())
        .collect();
    Layout {
        f: 1,
        instances: numbered(instances),
        ..Layout::default()
    }
}

fn start<P: Protocol>(layout: &Layout, data: &Directory) -> Result<Cluster<P>, ClusterError> {
    Cluster::start_with(
        layout.clone(),
        || Box::new(Fragile::default()),
        ClusterOptions::on_disk(&data.0),
    )
}

pub(crate) fn directory(data: &Directory, node: u16) -> PathBuf {
    data.0.join(format!("n{node}"))
}

/// Waits until the node has ended by itself, and returns why.
fn failure_of<P: Protocol>(cluster: &mut Cluster<P>, node: u16) -> (MachineFailure, String) {
    eventually("the node ends", || cluster.status(NodeId(node)).is_err());
    let error = cluster
        .stop(NodeId(node))
        .expect_err("a node whose machine panicked");
    let text = error.to_string();
    match error {
        NodeError::Machine { failure, file } => {
            assert_eq!(file, Some(directory_of(&text)));
            (*failure, text)
        }
        other => panic!("{other}"),
    }
}

/// The file that the error names.
fn directory_of(text: &str) -> PathBuf {
    let (_, rest) = text.split_once("See ").unwrap();
    rest.split_once(", and docs/operations.md")
        .unwrap()
        .0
        .into()
}

/// A protocol with one log: its snapshots are stamped with how far that is executed.
fn one_log(_: &str, _: &Bytes, stamp: Slot, _: SessionId) -> Result<Slot, RestoreError> {
    Ok(stamp)
}

pub(crate) fn leave_out(
    data: &Directory,
    nodes: impl IntoIterator<Item = u16>,
    command: CommandName,
) {
    for node in nodes {
        assert!(
            SkipList::changed(&directory(data, node), command, true, one_log)
                .unwrap()
                .write()
                .unwrap()
        );
    }
}

/// The state of a node's replica, in bytes, after it has executed everything below `at`.
fn state(cluster: &Cluster<MultiPaxos>, node: u16, at: u64) -> Bytes {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut snapshot = query_snapshot(cluster.address(NodeId(node)), Some(at))
            .await
            .unwrap();
        assert_eq!(snapshot.stamp(), at);
        let mut whole = Vec::new();
        while let Some(piece) = snapshot.next().await.unwrap() {
            whole.extend_from_slice(&piece);
        }
        whole.into()
    })
}

fn executed(cluster: &Cluster<MultiPaxos>, node: u16) -> u64 {
    let status = cluster.status(NodeId(node)).unwrap();
    status
        .roles
        .iter()
        .find(|role| role.role == "replica")
        .unwrap()
        .executed
        .unwrap()
}

#[test]
fn replicas_stop_on_a_poisonous_command_and_continue_when_all_leave_it_out() {
    stop_on_a_poisonous_command_and_continue_without_it(&apart());
}

#[test]
fn replicas_on_other_event_loops_stop_on_a_poisonous_command_and_continue_too() {
    let mut layout = apart();
    layout.options.loops = 2;
    stop_on_a_poisonous_command_and_continue_without_it(&layout);
}

fn stop_on_a_poisonous_command_and_continue_without_it(layout: &Layout) {
    let data = Directory::new();
    let mut cluster = start::<MultiPaxos>(layout, &data).unwrap();
    assert_eq!(at_last(|| cluster.client().write_blocking("one.")), "one.");
    let client = cluster.client();
    let answer = std::thread::spawn(move || client.write_blocking("boom"));
    let mut failures = Vec::new();
    for node in 0..3 {
        let (failure, text) = failure_of(&mut cluster, node);
        let command = failure.command.expect("it was a command");
        let start = format!(
            "the state machine panicked executing a command, in slot {}: {command}, ",
            command.slot.0
        );
        assert!(text.starts_with(&start), "{text}");
        assert!(
            text.contains(&format!("digest {:016x}, 4 bytes: ", command.digest)),
            "{text}"
        );
        assert!(
            text.contains("it went boom") && text.lines().count() == 1,
            "{text}"
        );
        assert_eq!(failure.bytes, "626f6f6d");
        assert_eq!(
            MachineFailure::stored(&directory(&data, node))
                .unwrap()
                .unwrap(),
            failure
        );
        failures.push(command);
    }
    assert!(
        failures.iter().all(|command| *command == failures[0]),
        "{failures:?}"
    );
    // The command was not acknowledged.
    assert_eq!(answer.join().unwrap(), Err(Refusal::Unknown));

    // It is in the log: it stops every replica again.
    for node in 0..3 {
        cluster.restart(NodeId(node)).unwrap();
    }
    // Which replica is first is chance, and the others may need it to learn what is in the log.
    let mut ended = None;
    eventually("a node ends again", || {
        ended = (0..3).find(|node| cluster.status(NodeId(*node)).is_err());
        ended.is_some()
    });
    assert_eq!(
        failure_of(&mut cluster, ended.unwrap()).0.command,
        Some(failures[0])
    );
    drop(cluster);

    leave_out(&data, 0..5, failures[0]);
    let cluster = start::<MultiPaxos>(layout, &data).unwrap();
    // Nothing is left of the half-executed command.
    assert_eq!(
        at_last(|| cluster.client().write_blocking("two.")),
        "one.two."
    );
    let at = executed(&cluster, 0)
        .max(executed(&cluster, 1))
        .max(executed(&cluster, 2));
    let states: Vec<Bytes> = (0..3).map(|node| state(&cluster, node, at)).collect();
    assert!(states.iter().all(|state| *state == states[0]), "{states:?}");
}

#[test]
fn nodes_that_leave_out_different_commands_refuse_each_other() {
    let (data, layout) = (Directory::new(), three());
    let cluster = start::<MultiPaxos>(&layout, &data).unwrap();
    assert_eq!(at_last(|| cluster.client().write_blocking("one.")), "one.");
    drop(cluster);
    let name = "1000/7:0/00000000000000ab";
    leave_out(&data, 0..2, name.parse().unwrap());
    let cluster = start::<MultiPaxos>(&layout, &data).unwrap();
    // The other two serve.
    eventually("two of three serve", || {
        cluster.client().write_blocking("two.").is_ok()
    });
    let mut refusal = None;
    eventually("the third is refused", || {
        let peers = cluster.status(NodeId(2)).unwrap().peers;
        assert!(
            peers
                .iter()
                .all(|peer| peer.state != ionian_runtime::status::PeerState::Connected),
            "{peers:?}"
        );
        refusal = peers.iter().find_map(|peer| peer.refusal.clone());
        refusal.is_some()
    });
    let refusal = refusal.unwrap();
    assert!(
        refusal.contains(&format!(
            "commands left out by this node: {name}; by yours: none."
        )),
        "{refusal}"
    );
    assert!(
        refusal.contains("`ionian log skip COMMAND --data DIR`"),
        "{refusal}"
    );
    drop(cluster);
    leave_out(&data, [2], name.parse().unwrap());
    let cluster = start::<MultiPaxos>(&layout, &data).unwrap();
    eventually("the third takes part", || {
        let peers = cluster.status(NodeId(2)).unwrap().peers;
        peers
            .iter()
            .all(|peer| peer.state == ionian_runtime::status::PeerState::Connected)
    });
}

#[test]
fn query_on_which_the_machine_panics_fails_and_the_node_continues() {
    let layout = three();
    let mut cluster =
        Cluster::<MultiPaxos>::start(layout, || Box::new(Fragile::default())).unwrap();
    at_last(|| cluster.client().write_blocking("one."));
    for _ in 0..3 {
        let answer = cluster
            .client()
            .read_blocking("boom", ReadLevel::Linearizable);
        assert_eq!(answer, Err(Refusal::Failed));
    }
    assert_eq!(
        cluster
            .client()
            .read_blocking("", ReadLevel::Linearizable)
            .unwrap(),
        "one."
    );
    let counted = |node| {
        let status = cluster.status(NodeId(node)).unwrap();
        status
            .roles
            .iter()
            .filter_map(|role| role.metrics.get("failed_reads").copied())
            .sum::<u64>()
    };
    assert_eq!((0..3).map(counted).sum::<u64>(), 3);
    for node in 0..3 {
        cluster.stop(NodeId(node)).unwrap();
    }
}

/// Cannot say what `boom` touches, and fails to answer it.
#[derive(Default)]
struct Unsure(Kv);

impl StateMachine for Unsure {
    ionian_kernel::delegate!(0: apply snapshot freeze restore parts next_deadline needs work);
    fn read(&self, now: Timestamp, query: &[u8], reply: &mut Vec<u8>) -> Result<(), NotARead> {
        assert_ne!(query, b"boom", "no answer to that");
        self.0.read(now, query, reply)
    }
    fn footprint(&self, command: &[u8], footprint: &mut Footprint) {
        assert_ne!(command, b"boom", "it may be anything");
        self.0.footprint(command, footprint);
    }
}

/// The client's node asks what a command touches, and so do replicas, about what is in the log of
/// g_all.
#[test]
fn a_command_of_which_the_machine_cannot_say_what_it_touches_may_touch_everything() {
    let set = |value: &str| {
        let words = ["SET", "key", value].map(|word| Bytes::from(word.to_owned()));
        let command = Command::parse(&words).expect("a command of the store");
        Compound::Pipeline(vec![command]).encode()
    };
    let cluster = Cluster::<PSmr>::start(three(), || Box::<Unsure>::default()).unwrap();
    at_last(|| cluster.client().write_blocking(set("one")));
    let _ = at_last(|| cluster.client().write_blocking("boom"));
    for _ in 0..3 {
        let answer = cluster
            .client()
            .read_blocking("boom", ReadLevel::Linearizable);
        assert_eq!(answer, Err(Refusal::Failed));
    }
    at_last(|| cluster.client().write_blocking(set("two")));
    assert!((0..3).all(|node| cluster.status(NodeId(node)).is_ok()));
}

#[test]
fn panic_while_taking_a_snapshot_stops_the_node() {
    let (data, mut layout) = (Directory::new(), three());
    layout.options.snapshot_slots = 1;
    let mut cluster = start::<MultiPaxos>(&layout, &data).unwrap();
    // Whether it is answered depends on which replica is first.
    let _ = cluster.client().write_blocking("picture");
    let mut text = None;
    eventually("a node ends", || {
        let ended = (0..3).find(|node| cluster.status(NodeId(*node)).is_err());
        text = ended.map(|node| failure_of(&mut cluster, node).1);
        text.is_some()
    });
    let text = text.unwrap();
    assert!(text.starts_with(
        "the state machine panicked writing a snapshot of its state, after a command in slot "
    ));
    assert!(text.contains("it cannot be drawn"), "{text}");
}

#[test]
fn command_on_which_an_unreplicated_server_panics_leaves_no_effect() {
    let data = Directory::new();
    common::bind();
    let instances = Unreplicated::KINDS
        .iter()
        .map(|_| vec![NodeId(0)])
        .collect();
    let layout = Layout {
        instances: numbered(instances),
        ..Layout::default()
    };
    let mut cluster = start::<Unreplicated>(&layout, &data).unwrap();
    at_last(|| cluster.client().write_blocking("one."));
    assert_eq!(
        cluster.client().write_blocking("boom"),
        Err(Refusal::Unknown)
    );
    assert!(failure_of(&mut cluster, 0).1.contains("it went boom"));
    cluster.restart(NodeId(0)).unwrap();
    // Nothing of it was on disk.
    assert_eq!(
        at_last(|| cluster.client().write_blocking("two.")),
        "one.two."
    );
}

#[test]
fn node_that_has_executed_a_command_refuses_to_leave_it_out() {
    let (data, mut layout) = (Directory::new(), three());
    layout.options.snapshot_slots = 1;
    let cluster = start::<MultiPaxos>(&layout, &data).unwrap();
    (0..5).for_each(|_| drop(at_last(|| cluster.client().write_blocking("x"))));
    eventually("a snapshot is stored", || {
        let status = cluster.status(NodeId(0)).unwrap();
        status
            .roles
            .iter()
            .any(|role| role.stored.is_some_and(|stored| stored > 2))
    });
    let path = directory(&data, 0);
    let early: CommandName = "1/1:0/00000000000000ab".parse().unwrap();
    let running = SkipList::changed(&path, early, true, one_log)
        .err()
        .unwrap()
        .to_string();
    assert!(
        running.ends_with("is in use by another process"),
        "{running}"
    );
    drop(cluster);
    let refused = SkipList::changed(&path, early, true, one_log)
        .err()
        .unwrap();
    assert!(
        matches!(refused, SkipError::Executed { slot: 1, .. }),
        "{refused}"
    );
    let late = CommandName {
        slot: Slot(1 << 40),
        ..early
    };
    assert!(
        SkipList::changed(&path, late, true, one_log)
            .unwrap()
            .write()
            .unwrap()
    );
    assert!(
        !SkipList::changed(&path, late, true, one_log)
            .unwrap()
            .write()
            .unwrap(),
        "it is there already"
    );
    assert_eq!(Skips::stored(&path).unwrap().to_string(), late.to_string());
    assert!(
        SkipList::changed(&path, late, false, one_log)
            .unwrap()
            .write()
            .unwrap()
    );
    assert_eq!(Skips::stored(&path).unwrap(), Skips::default());
    let nowhere = SkipList::changed(&data.0.join("nowhere"), late, true, one_log)
        .err()
        .unwrap()
        .to_string();
    assert!(nowhere.ends_with("there is no such directory"), "{nowhere}");
}

/// The logs of P-SMR advance apart: a snapshot says of each how far it is.
#[test]
fn what_a_node_has_executed_is_asked_of_the_log_of_the_command() {
    let changed = |stamp: u64, group: u64| {
        let data = Directory::new();
        let path = data.0.join("n0");
        let mut executor = Executor::new(Box::new(Fragile::default()), Duration::from_secs(60));
        let mut sessions = Vec::new();
        executor.put_sessions(&mut sessions);
        executor.set_cuts(Some(&vec![(Slot(group), Bytes::from(sessions))]));
        let made = NewNode {
            cluster: "c",
            protocol: PSmr::NAME,
            kinds: PSmr::KINDS,
            name: "n0",
            peers: Vec::new(),
            snapshots: vec![Address {
                kind: kind::Replica,
                index: 0,
            }],
            stamp,
            snapshot: &[executor.snapshot()],
            records: Vec::new(),
        };
        made.make(&path).unwrap();
        // Of group 0, where there is no other beside g_all.
        let command: CommandName = "7/1:0/00000000000000ab".parse().unwrap();
        let executed_in: ExecutedIn =
            |_, stored, stamp, session| PSmr::executed_in(stored, stamp, session);
        SkipList::changed(&path, command, true, executed_in).map(drop)
    };
    changed(100, 5).expect("g_all is further, the group is not");
    let refused = changed(3, 500).expect_err("the group is further");
    let executed = matches!(refused, SkipError::Executed { executed: 500, .. });
    assert!(executed, "{refused}");
}
