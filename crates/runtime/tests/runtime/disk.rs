//! Durability "disk": acknowledged commands survive the end of all nodes, and are executed exactly
//! once.

use crate::common;
use crate::common::{Directory, at_last, eventually};
use bytes::Bytes;
use ionian_kernel::client::ReadLevel;
use ionian_kernel::id::ClientId;
use ionian_kernel::layout::{Layout, NodeId, numbered};
use ionian_kernel::machine::{NotARead, RestoreError, StateMachine};
use ionian_kernel::protocol::Protocol;
use ionian_kernel::time::Timestamp;
use ionian_protocols::multipaxos::MultiPaxos;
use ionian_protocols::unreplicated::Unreplicated;
use ionian_runtime::in_process::cluster::{ClusterError, ClusterOptions};
use ionian_runtime::{Client, Cluster, DiskOptions, Durability};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Counts the executions of each command. The first eight bytes of a command are its name.
#[derive(Default)]
pub(crate) struct Counter(BTreeMap<u64, u64>);

impl StateMachine for Counter {
    fn apply(&mut self, _: Timestamp, command: &[u8], reply: &mut Vec<u8>) {
        let name = u64::from_le_bytes(command[..8].try_into().unwrap());
        let count = self.0.entry(name).or_default();
        *count += 1;
        reply.extend_from_slice(&count.to_le_bytes());
    }

    fn read(&self, _: Timestamp, _: &[u8], reply: &mut Vec<u8>) -> Result<(), NotARead> {
        self.snapshot(reply);
        Ok(())
    }

    fn snapshot(&self, out: &mut Vec<u8>) {
        for word in self.0.iter().flat_map(|(name, count)| [name, count]) {
            out.extend_from_slice(&word.to_le_bytes());
        }
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), RestoreError> {
        self.0 = decode(snapshot);
        Ok(())
    }
}

fn decode(counts: &[u8]) -> BTreeMap<u64, u64> {
    let (words, rest) = counts.as_chunks::<8>();
    assert!(rest.is_empty());
    words
        .chunks_exact(2)
        .map(|pair| (u64::from_le_bytes(pair[0]), u64::from_le_bytes(pair[1])))
        .collect()
}

pub(crate) fn options(data: &Directory, disk: DiskOptions) -> ClusterOptions {
    ClusterOptions {
        disk,
        ..ClusterOptions::on_disk(&data.0)
    }
}

/// Files so small that a test fills several.
pub(crate) const SMALL: DiskOptions = DiskOptions {
    checkpoint_bytes: 128 << 10,
    segment_bytes: 64 << 10,
};

pub(crate) fn start<P: Protocol>(
    layout: &Layout,
    options: ClusterOptions,
) -> Result<Cluster<P>, ClusterError> {
    Cluster::start_with(layout.clone(), || Box::new(Counter::default()), options)
}

/// One instance of every role on each of three nodes.
fn three() -> Layout {
    // Starts the watchdog.
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

/// As [`three`], with a snapshot after this number of slots.
pub(crate) fn three_with_snapshots(slots: usize) -> Layout {
    let mut layout = three();
    layout.options.snapshot_slots = slots;
    layout
}

fn command(name: u64, bytes: usize) -> Bytes {
    let mut command = name.to_le_bytes().to_vec();
    command.resize(8 + bytes, 0);
    command.into()
}

fn counts(client: &Client) -> BTreeMap<u64, u64> {
    decode(&at_last(|| {
        client.read_blocking(Bytes::new(), ReadLevel::Linearizable)
    }))
}

/// Names commands. A command that was refused is never sent again under its name, because it may
/// have been executed.
#[derive(Default)]
pub(crate) struct Load {
    next: AtomicU64,
    acknowledged: AtomicU64,
    pub(crate) stop: AtomicBool,
}

impl Load {
    pub(crate) fn write(&self, client: &Client, bytes: usize) -> u64 {
        at_last(|| {
            let name = self.next.fetch_add(1, Ordering::Relaxed);
            let reply = client.write_blocking(command(name, bytes))?;
            assert_eq!(
                reply[..],
                1u64.to_le_bytes(),
                "command {name} was executed before"
            );
            self.acknowledged.fetch_add(1, Ordering::Relaxed);
            Ok(name)
        })
    }

    /// Waits until this number of commands more are acknowledged.
    pub(crate) fn goes_on(&self, count: u64) {
        let acknowledged = || self.acknowledged.load(Ordering::Relaxed);
        let before = acknowledged();
        eventually("commands are acknowledged", || {
            acknowledged() >= before + count
        });
    }

    /// Writes until `stop` is set. Returns the names of the acknowledged commands.
    pub(crate) fn run(&self, client: &Client, bytes: usize) -> Vec<u64> {
        let mut acknowledged = Vec::new();
        while !self.stop.load(Ordering::Relaxed) {
            acknowledged.push(self.write(client, bytes));
        }
        acknowledged
    }
}

pub(crate) fn assert_exactly_once(client: &Client, acknowledged: &[u64]) {
    let counts = counts(client);
    for name in acknowledged {
        assert!(
            counts.contains_key(name),
            "command {name} was acknowledged and is lost"
        );
    }
    let twice: Vec<_> = counts.iter().filter(|(_, count)| **count != 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
}

pub(crate) fn wal(data: &Directory, node: u16) -> PathBuf {
    data.0.join(format!("n{node}/wal"))
}

/// The number of bytes in all files below `path`.
pub(crate) fn usage(path: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(path) else {
        return 0;
    };
    let size = |path: PathBuf| match path.is_dir() {
        true => usage(&path),
        // The file may be gone already.
        false => path.metadata().map_or(0, |file| file.len()),
    };
    entries.map(|entry| size(entry.unwrap().path())).sum()
}

/// Writes from several threads at once, some of them from each node.
pub(crate) fn write_in_parallel(
    cluster: &Cluster<MultiPaxos>,
    lanes: u8,
    load: &Arc<Load>,
    each: usize,
    bytes: usize,
) -> Vec<u64> {
    let writer = |lane| {
        let (client, load) = (cluster.client_on(ClientId(lane % lanes)), load.clone());
        std::thread::spawn(move || {
            (0..each)
                .map(|_| load.write(&client, bytes))
                .collect::<Vec<_>>()
        })
    };
    let threads: Vec<_> = (0..12).map(writer).collect();
    threads
        .into_iter()
        .flat_map(|thread| thread.join().unwrap())
        .collect()
}

#[test]
fn a_cluster_whose_nodes_all_ended_continues_where_it_was() {
    let (data, load) = (Directory::new(), Arc::new(Load::default()));
    let mut acknowledged = Vec::new();
    for life in 0..3 {
        let mut cluster =
            start::<MultiPaxos>(&three(), options(&data, DiskOptions::default())).unwrap();
        assert_exactly_once(&cluster.client_on(ClientId(life)), &acknowledged);
        acknowledged.extend(write_in_parallel(&cluster, 3, &load, 10, 10));
        assert_exactly_once(&cluster.client(), &acknowledged);
        let status = cluster.status(NodeId(0)).unwrap();
        assert!(!status.amnesiac, "on disk nothing is forgotten");
        assert_eq!(status.log.durability, "disk");
        assert!(
            status.log.syncs > 0 && status.log.position > 0,
            "{:?}",
            status.log
        );
        if life == 1 {
            // As after a crash; in the other rounds all nodes stop in order, at the same time.
            (0..3).for_each(|node| cluster.kill(NodeId(node)).unwrap());
        }
    }
}

#[test]
fn an_unreplicated_server_keeps_acknowledged_writes() {
    let (data, load) = (Directory::new(), Load::default());
    let layout = Layout {
        instances: numbered(vec![vec![NodeId(0)]; Unreplicated::KINDS.len()]),
        ..Layout::default()
    };
    let mut acknowledged = Vec::new();
    for _ in 0..3 {
        let cluster =
            start::<Unreplicated>(&layout, options(&data, DiskOptions::default())).unwrap();
        assert_exactly_once(&cluster.client(), &acknowledged);
        acknowledged.extend((0..20).map(|_| load.write(&cluster.client(), 10)));
    }
}

#[test]
fn a_node_that_is_killed_repeatedly_returns_each_time() {
    let (data, load) = (Directory::new(), Arc::new(Load::default()));
    let layout = three_with_snapshots(200);
    let mut cluster = start::<MultiPaxos>(&layout, options(&data, SMALL)).unwrap();
    let writers: Vec<_> = [0, 1, 2, 0, 1, 2]
        .map(|lane| {
            let (client, load) = (cluster.client_on(ClientId(lane)), load.clone());
            std::thread::spawn(move || load.run(&client, 100))
        })
        .into();
    for life in 0..6 {
        let node = NodeId(if life < 4 { 1 } else { 0 });
        load.goes_on(100);
        cluster.kill(node).unwrap();
        // The others serve without it, and it must catch up.
        load.goes_on(50);
        cluster.restart(node).unwrap();
    }
    let client = cluster.client_on(ClientId(1));
    at_last(|| client.write_blocking(command(u64::MAX, 0)));
    load.stop.store(true, Ordering::Relaxed);
    let acknowledged: Vec<u64> = writers
        .into_iter()
        .flat_map(|writer| writer.join().unwrap())
        .collect();
    assert!(acknowledged.len() > 100, "{} writes", acknowledged.len());
    assert_exactly_once(&client, &acknowledged);
    drop(cluster);
    let cluster = start::<MultiPaxos>(&layout, options(&data, SMALL)).unwrap();
    assert_exactly_once(&cluster.client(), &acknowledged);
}

#[test]
fn disk_usage_is_bounded_and_no_write_is_lost() {
    let (data, load) = (Directory::new(), Arc::new(Load::default()));
    let layout = three_with_snapshots(50);
    let mut acknowledged = Vec::new();
    for _ in 0..2 {
        let cluster = start::<MultiPaxos>(&layout, options(&data, SMALL)).unwrap();
        assert_exactly_once(&cluster.client(), &acknowledged);
        let mut most = 0;
        for _ in 0..20 {
            acknowledged.extend(write_in_parallel(&cluster, 3, &load, 25, 4000));
            most = most.max((0..3).map(|node| usage(&wal(&data, node))).max().unwrap());
            // Replicas report what they retain ten times a second, and logs are cut then.
            eventually("the logs are cut", || {
                (0..3).all(|node| usage(&wal(&data, node)) < 8 << 20)
            });
        }
        // At least one acceptor received all 24 MB.
        assert!(most < 12 << 20, "a log has grown to {most} bytes");
        for node in 0..3 {
            let log = cluster.status(NodeId(node)).unwrap().log;
            println!("{log:?}");
            assert!(log.checkpoints > 5 && log.snapshots > 1, "{log:?}");
        }
        assert_exactly_once(&cluster.client(), &acknowledged);
    }
    let cluster = start::<MultiPaxos>(&layout, options(&data, SMALL)).unwrap();
    assert_exactly_once(&cluster.client(), &acknowledged);
}

/// It would begin with an empty state, and others count on what it has stored.
#[test]
fn a_node_whose_snapshots_were_deleted_does_not_run() {
    let (data, load) = (Directory::new(), Arc::new(Load::default()));
    let layout = three_with_snapshots(10);
    let snapshots = data.0.join("n1/snapshots");
    let newest = snapshots.join("replica-1");
    {
        let cluster = start::<MultiPaxos>(&layout, options(&data, SMALL)).unwrap();
        eventually("there are two snapshots", || {
            load.write(&cluster.client(), 10);
            newest.exists() && newest.with_extension("previous").exists()
        });
    }
    // One of the two is enough.
    std::fs::remove_file(&newest).unwrap();
    drop(start::<MultiPaxos>(&layout, options(&data, SMALL)).unwrap());
    std::fs::remove_dir_all(&snapshots).unwrap();
    let refused = start::<MultiPaxos>(&layout, options(&data, SMALL));
    let refused = refused.err().unwrap().to_string();
    let says = format!("{} is missing, though", newest.display());
    assert!(refused.contains(&says), "{refused}");
}

#[test]
fn a_node_with_a_damaged_snapshot_uses_the_one_before() {
    let (data, load) = (Directory::new(), Arc::new(Load::default()));
    let layout = three_with_snapshots(10);
    let newest = data.0.join("n1/snapshots/replica-1");
    let mut acknowledged = Vec::new();
    {
        let cluster = start::<MultiPaxos>(&layout, options(&data, SMALL)).unwrap();
        eventually("there are two snapshots", || {
            acknowledged.push(load.write(&cluster.client(), 10));
            newest.exists() && newest.with_extension("previous").exists()
        });
    }
    damage(&newest, usage_of(&newest) - 40);
    {
        let cluster = start::<MultiPaxos>(&layout, options(&data, SMALL)).unwrap();
        assert!(newest.with_extension("damaged").exists());
        acknowledged.push(load.write(&cluster.client_on(ClientId(1)), 10));
        assert_exactly_once(&cluster.client_on(ClientId(1)), &acknowledged);
    }
    // Without either snapshot the node does not run.
    for name in ["previous", ""] {
        let file = newest.with_extension(name);
        std::fs::write(file, "IONSNAPS, or what is left of one").unwrap();
    }
    let refused = start::<MultiPaxos>(&layout, options(&data, SMALL))
        .err()
        .unwrap()
        .to_string();
    assert!(
        refused.contains("replica-1") && refused.contains("is damaged at byte"),
        "{refused}"
    );
}

fn usage_of(file: &Path) -> u64 {
    file.metadata().unwrap().len()
}

fn damage(file: &Path, at: u64) {
    let mut content = std::fs::read(file).unwrap();
    content[at as usize] ^= 0x20;
    std::fs::write(file, content).unwrap();
}

#[test]
fn damage_in_the_middle_of_the_log_stops_the_node() {
    let (data, load) = (Directory::new(), Arc::new(Load::default()));
    let cluster = start::<MultiPaxos>(&three(), options(&data, DiskOptions::default())).unwrap();
    for _ in 0..20 {
        load.write(&cluster.client(), 500);
    }
    // A file with many records: damage to the last group of the log would look like a crash.
    let node = (0..3)
        .max_by_key(|node| cluster.status(NodeId(*node)).unwrap().log.position)
        .unwrap();
    drop(cluster);
    let mut segments: Vec<_> = std::fs::read_dir(wal(&data, node))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    segments.retain(|path| {
        !path
            .file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .starts_with("spare")
    });
    segments.sort();
    // The first record starts at byte 4096.
    damage(&segments[0], 4100);
    let before = std::fs::read(&segments[0]).unwrap();
    let refused = start::<MultiPaxos>(&three(), options(&data, DiskOptions::default()))
        .err()
        .unwrap()
        .to_string();
    let file = segments[0].display().to_string();
    assert!(
        refused.starts_with(&format!("node {node}: {file} is damaged at byte 4096")),
        "{refused}"
    );
    assert!(
        before == std::fs::read(&segments[0]).unwrap(),
        "the evidence was changed"
    );
}

#[test]
fn a_failing_disk_stops_its_node_and_the_others_continue() {
    let (data, load) = (Directory::new(), Arc::new(Load::default()));
    let mut cluster = start::<MultiPaxos>(&three(), options(&data, SMALL)).unwrap();
    let mut acknowledged = write_in_parallel(&cluster, 3, &load, 5, 10);
    // The log cannot create its next file.
    std::fs::remove_dir_all(wal(&data, 2)).unwrap();
    acknowledged.extend(write_in_parallel(&cluster, 2, &load, 20, 4000));
    eventually("the node ends", || cluster.status(NodeId(2)).is_err());
    let error = cluster.stop(NodeId(2)).unwrap_err().to_string();
    assert!(
        error.contains("cannot ") && error.contains("n2/wal"),
        "{error}"
    );
    acknowledged.push(load.write(&cluster.client_on(ClientId(0)), 10));
    assert_exactly_once(&cluster.client_on(ClientId(1)), &acknowledged);
    // Without its log it must not be treated as a new node.
    let _ = std::fs::remove_dir_all(wal(&data, 2));
    let refused = cluster.restart(NodeId(2)).unwrap_err().to_string();
    assert!(
        refused.contains("n2/wal is missing, though")
            && refused.contains("n2/identity shows that it existed"),
        "{refused}"
    );
}

#[test]
fn a_snapshot_that_cannot_be_written_stops_the_node() {
    let (data, load) = (Directory::new(), Arc::new(Load::default()));
    let layout = three_with_snapshots(10);
    let mut cluster = start::<MultiPaxos>(&layout, options(&data, SMALL)).unwrap();
    std::fs::remove_dir_all(data.0.join("n2/snapshots")).unwrap();
    eventually("the node ends", || {
        load.write(&cluster.client_on(ClientId(0)), 10);
        cluster.status(NodeId(2)).is_err()
    });
    let error = cluster.stop(NodeId(2)).unwrap_err().to_string();
    assert!(
        error.contains("cannot ") && error.contains("n2/snapshots"),
        "{error}"
    );
    load.write(&cluster.client_on(ClientId(1)), 10);
}

#[test]
fn data_directory_is_refused_with_the_other_durability() {
    let data = Directory::new();
    let with = |durability| ClusterOptions {
        durability,
        ..options(&data, SMALL)
    };
    drop(start::<MultiPaxos>(&three(), with(Durability::Memory)).unwrap());
    let refused = start::<MultiPaxos>(&three(), with(Durability::Disk))
        .err()
        .unwrap()
        .to_string();
    assert!(
        refused.contains("was used with durability \"memory\" and cannot be used with"),
        "{refused}"
    );
    let data = Directory::new();
    let with = |durability| ClusterOptions {
        durability,
        ..options(&data, SMALL)
    };
    drop(start::<MultiPaxos>(&three(), with(Durability::Disk)).unwrap());
    let refused = start::<MultiPaxos>(&three(), with(Durability::Memory))
        .err()
        .unwrap()
        .to_string();
    assert!(
        refused.contains("was used with durability \"disk\" and cannot be used with"),
        "{refused}"
    );
}
