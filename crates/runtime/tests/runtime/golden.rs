//! Data directories as released programs left them, with everything that is in one: a node starts
//! on them, and writes what it writes anew as it was. Like the golden messages of
//! `crates/protocols/tests/wire`, a file is never written again; a level adds its own.
//!
//! `ionian up` of the first release made them (commit 68bf4c0e): node n0 of a cluster of three with
//! a few keys, with durability `disk`, and with `memory` after a change of an option; `ionian log
//! skip` made the list of skipped commands. A file with the suffix `.txt` is a list of what is not
//! zero in a binary one: its length, and offsets with bytes in hexadecimal.

use crate::common::{DEADLINE, Directory, Running, bind, start_as};
use crate::greeting::Greeting;
use bytes::Bytes;
use ionian_deployment::Configuration;
use ionian_kernel::id::{SessionId, Slot};
use ionian_kernel::level::Level;
use ionian_kernel::machine::{RestoreError, StateMachine};
use ionian_kernel::protocol::{Protocol, any};
use ionian_kernel::time::Timestamp;
use ionian_machines::kv::{Command, Compound, Kv};
use ionian_protocols::multipaxos::MultiPaxos;
use ionian_replication::executor::Executor;
use ionian_runtime::status::RoleStatus;
use ionian_runtime::storage::membership_file;
use ionian_runtime::storage::offline::{SkipList, StoppedNode};
use ionian_runtime::storage::skips::Skips;
use ionian_runtime::{Identity, NodeSettings, NodeStatus};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

const FIRST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/runtime/golden/17");

/// The bytes of a binary file.
fn unpacked(text: &str) -> Vec<u8> {
    let mut lines = text.lines();
    let length = lines.next().expect("a length").parse();
    let mut bytes = vec![0; length.expect("a number")];
    for line in lines {
        let (offset, digits) = line.split_once(' ').expect("an offset");
        let offset: usize = offset.parse().expect("a number");
        for at in 0..digits.len() / 2 {
            let byte = u8::from_str_radix(&digits[2 * at..2 * at + 2], 16);
            bytes[offset + at] = byte.expect("two digits");
        }
    }
    bytes
}

fn unpack(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        match name.strip_suffix(".txt") {
            _ if path.is_dir() => unpack(&path, &to.join(name)),
            Some(name) => {
                let text = fs::read_to_string(&path).unwrap();
                fs::write(to.join(name), unpacked(&text)).unwrap();
            }
            None => drop(fs::copy(&path, to.join(name)).unwrap()),
        }
    }
}

/// A copy of a data directory.
fn directory(name: &str) -> Directory {
    let directory = Directory::new();
    unpack(&Path::new(FIRST).join(name), &directory.0);
    directory
}

/// Checks that these files are what they were.
fn are_as_before(data: &Directory, name: &str, files: &[&str]) {
    for file in files {
        let before = fs::read_to_string(Path::new(FIRST).join(name).join(file)).unwrap();
        let now = fs::read_to_string(data.0.join(file)).unwrap();
        assert_eq!(now, before, "{name}/{file}");
    }
}

fn membership(data: &Directory) -> Configuration {
    let stored = membership_file::stored(&data.0).unwrap();
    stored.expect("there is a file")
}

/// The keys of a file, without those of the texts in it.
fn keys(file: &str) -> Vec<&str> {
    let outside = file.split("\"\"\"").step_by(2).flat_map(str::lines);
    let lines = outside.filter(|line| !line.starts_with('#'));
    let keys = lines.filter_map(|line| line.split_once(" = "));
    keys.map(|(key, _)| key).collect()
}

/// Checks that a membership says what it said, by the same keys. Its comments may be others, and
/// the text of a deployment names every option that there is.
fn has_membership_of(data: &Directory, name: &str) {
    let before = membership(&directory(name));
    assert_eq!(membership(data), before, "{name}");
    let file = Path::new(FIRST).join(name).join("membership.toml");
    let text = fs::read_to_string(file).unwrap();
    assert_eq!(keys(&before.to_toml()), keys(&text), "{name}");
}

/// Starts the node of a directory, without its peers.
fn start(data: &Directory) -> (Running, Identity) {
    let known = membership(data);
    let mut settings = NodeSettings::new(any::<MultiPaxos>(), known, "n0", Some(&data.0)).unwrap();
    let listener = bind();
    settings.address = listener.local_addr().unwrap();
    settings.listener = Some(listener);
    for address in settings.peers.values_mut() {
        "127.0.0.1:1".clone_into(address);
    }
    let identity = settings.identity.clone();
    let machine = || Box::<Kv>::default() as Box<dyn StateMachine>;
    let node = start_as::<MultiPaxos>(settings, machine, |_| Box::new(()));
    (node, identity)
}

/// Runs the node of a directory until it has recovered what is there.
fn runs(data: &Directory, check: impl Fn(&NodeStatus)) {
    let (node, _) = start(data);
    check(&node.status());
    node.stop().unwrap();
}

/// Introduces node 2, with its data directory, and waits until it is accepted.
fn introduce(node: &Running, identity: Identity, directory: u128) {
    let greeting = Greeting {
        identity,
        sender: 2,
        name: "n2",
        ..Greeting::default()
    };
    let mut bytes = greeting.bytes();
    // Without a directory, and with an empty list of skipped commands, it ends with five zeros.
    bytes.truncate(bytes.len() - 5);
    bytes.push(1);
    bytes.extend(directory.to_le_bytes());
    bytes.extend([0; 4]);
    let length = (bytes.len() - 13) as u16;
    bytes[11..13].copy_from_slice(&length.to_le_bytes());
    let mut stream = TcpStream::connect(node.address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.write_all(&bytes).unwrap();
    let mut head = [0; 13];
    stream.read_exact(&mut head).unwrap();
    assert_eq!(head[10], 0, "it is accepted");
}

#[test]
fn an_identity_of_the_first_release_is_written_as_it_was() {
    // By hand: the same file before the node knew the directory of node 2.
    let data = directory("disk");
    fs::remove_file(data.0.join("skips")).unwrap();
    fs::copy(
        Path::new(FIRST).join("one-peer/identity"),
        data.0.join("identity"),
    )
    .unwrap();
    let (node, identity) = start(&data);
    introduce(&node, identity, 0x7031_262c_0229_3b00_1f2e_7d01_93a0_cf2f);
    node.stop().unwrap();
    are_as_before(&data, "disk", &["identity"]);
}

fn role<'a>(status: &'a NodeStatus, name: &str) -> &'a RoleStatus {
    let role = status.roles.iter().find(|role| role.role == name);
    role.expect("it is here")
}

#[test]
fn a_node_runs_on_the_directory_of_the_first_release() {
    let data = directory("disk");
    // The snapshot has what is before slot 20, the log has the votes from there on.
    runs(&data, |status| {
        assert!(status.takes_part && !status.amnesiac && status.epoch == 0);
        let (acceptor, replica) = (role(status, "acceptor"), role(status, "replica"));
        let votes = ["forgotten", "votes"].map(|metric| acceptor.metrics[metric]);
        assert_eq!((votes, acceptor.voted), ([20, 11], Some(31)));
        assert_eq!((replica.executed, replica.stored), (Some(20), Some(20)));
    });
    has_membership_of(&data, "disk");
}

#[test]
fn a_node_with_vital_records_runs_on_the_directory_of_the_first_release() {
    let data = directory("memory");
    runs(&data, |status| {
        assert!(status.takes_part && status.amnesiac && status.epoch == 1);
    });
    has_membership_of(&data, "memory");
}

#[test]
fn a_membership_of_the_first_release_is_read() {
    for (name, epoch, heartbeat) in [("disk", 0, 100), ("memory", 1, 60)] {
        let known = membership(&directory(name));
        assert_eq!(
            (known.epoch().0, known.membership.level),
            (epoch, Level::FIRST)
        );
        let set = format!("heartbeat_ms = {heartbeat} ");
        assert!(known.deployment.to_toml().contains(&set), "{name}");
    }
}

fn one_log(_: &str, stored: &Bytes, stamp: Slot, id: SessionId) -> Result<Slot, RestoreError> {
    MultiPaxos::executed_in(stored, stamp, id)
}

#[test]
fn skipped_commands_of_the_first_release_are_written_as_they_were() {
    let data = directory("disk");
    let commands: Vec<_> = Skips::stored(&data.0).unwrap().commands().collect();
    let names: Vec<_> = commands.iter().map(ToString::to_string).collect();
    assert_eq!(names, ["70/3:5/00c0ffee00c0ffee"]);
    for leave_out in [false, true] {
        let change = SkipList::changed(&data.0, commands[0], leave_out, one_log);
        assert!(change.unwrap().write().unwrap());
        let now = Skips::stored(&data.0).unwrap().commands().count();
        assert_eq!(now, usize::from(leave_out));
    }
    are_as_before(&data, "disk", &["skips"]);
}

#[test]
fn a_stored_snapshot_of_the_first_release_is_restored_and_written_as_it_was() {
    let data = directory("disk");
    let node = StoppedNode::open(&data.0).unwrap();
    assert_eq!((node.cluster(), node.name()), ("golden", "n0"));
    let stored = node.snapshots("replica").unwrap();
    let [stored] = &stored[..] else {
        panic!("{} snapshots", stored.len());
    };
    assert_eq!((stored.stamp, stored.rejected.is_none()), (20, true));
    let mut executor = Executor::new(Box::<Kv>::default(), Duration::from_secs(600));
    executor.restore(&stored.snapshot).unwrap();
    assert_eq!(executor.snapshot(), stored.snapshot);
    let words = ["MGET", "key:0", "key:10", "key:24"].map(Bytes::from);
    let command = Command::parse(&words).unwrap();
    let mut reply = Vec::new();
    let query = Compound::Pipeline(vec![command]).encode();
    let kv = executor.machine_mut();
    kv.read(Timestamp(0), &query, &mut reply).unwrap();
    let text = String::from_utf8(reply).unwrap();
    assert_eq!(text, "*3\r\n$6\r\nvalue0\r\n$7\r\nvalue10\r\n$-1\r\n");
}
