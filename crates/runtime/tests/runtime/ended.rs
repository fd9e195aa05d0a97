//! Commands that end the process without a panic: the next processes say which.

use crate::common::{Directory, at_last};
use crate::poison::{Fragile, directory, leave_out, three};
use bytes::Bytes;
use ionian_kernel::layout::NodeId;
use ionian_kernel::machine::{NotARead, RestoreError, StateMachine};
use ionian_kernel::time::Timestamp;
use ionian_protocols::multipaxos::MultiPaxos;
use ionian_runtime::storage::executing::unfinished;
use ionian_runtime::storage::skips::CommandName;
use ionian_runtime::{Cluster, ClusterOptions};
use std::path::PathBuf;

/// A machine whose process ends without a word on `boom`.
#[derive(Default)]
struct Fatal(Fragile);

impl StateMachine for Fatal {
    fn apply(&mut self, now: Timestamp, command: &[u8], reply: &mut Vec<u8>) {
        if command == b"boom" {
            std::process::abort();
        }
        self.0.apply(now, command, reply);
    }
    fn read(&self, now: Timestamp, query: &[u8], reply: &mut Vec<u8>) -> Result<(), NotARead> {
        self.0.read(now, query, reply)
    }
    fn snapshot(&self, out: &mut Vec<u8>) {
        self.0.snapshot(out);
    }
    fn restore(&mut self, snapshot: &[u8]) -> Result<(), RestoreError> {
        self.0.restore(snapshot)
    }
}

/// What the second process writes, in [`DATA`].
const WRITES: &str = "IONIAN_TEST_WRITES";
const DATA: &str = "IONIAN_TEST_DATA";

/// Not a test: the process that ends in the next test. All nodes of a cluster are in it.
#[test]
fn helper_that_is_ended_by_a_command() {
    let (Ok(data), Ok(writes)) = (std::env::var(DATA), std::env::var(WRITES)) else {
        return;
    };
    let (fatal, data) = (|| Box::new(Fatal::default()) as _, PathBuf::from(data));
    let options = ClusterOptions::on_disk(&data);
    let cluster = Cluster::<MultiPaxos>::start_with(three(), fatal, options).unwrap();
    for word in writes.split(' ').map(str::to_owned) {
        let answer = at_last(|| cluster.client().write_blocking(word.clone()));
        println!("\nanswer {}", text(&answer));
    }
    let left = (0..3).map(|node| cluster.status(NodeId(node)).unwrap().unfinished);
    assert_eq!(left.flatten().collect::<Vec<_>>(), []);
}

fn text(bytes: &Bytes) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs the process above; returns its answers, if it has not ended before all were there.
fn process(data: &Directory, writes: &str) -> Option<Vec<String>> {
    let name = "ended::helper_that_is_ended_by_a_command";
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(DATA, &data.0)
        .env(WRITES, writes)
        .output()
        .unwrap();
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    let answers = lines
        .lines()
        .filter_map(|line| line.strip_prefix("answer "));
    let answers = answers.map(str::to_owned).collect();
    output.status.success().then_some(answers)
}

/// The names of what the nodes were executing, and how often they ended.
fn unfinished_of(data: &Directory) -> Vec<(CommandName, u32)> {
    let nodes = (0..3).map(|node| unfinished(&directory(data, node)).unwrap());
    let all = nodes.flatten().map(|it| (it.command, it.ends));
    all.collect()
}

/// No panic says what the command is: the process is gone.
#[test]
fn a_command_that_ends_the_process_is_named_and_can_be_left_out() {
    let data = Directory::new();
    let answered = |writes: &str, lines: &[&str]| {
        let lines = lines.iter().map(|line| (*line).to_owned()).collect();
        assert_eq!(process(&data, writes), Some(lines), "{writes}");
    };
    answered("one.", &["one."]);
    assert_eq!(unfinished_of(&data), []);
    assert_eq!(process(&data, "boom"), None);
    // From now on commands are noted, and it is in the log.
    for _ in 0..2 {
        assert_eq!(process(&data, "two."), None);
    }
    let named = unfinished_of(&data);
    let (command, _) = named[0];
    assert!(named.iter().all(|it| it.0 == command), "{named:?}");
    // Two nodes may have come so far at the same time.
    assert!(named.iter().map(|it| it.1).sum::<u32>() >= 2, "{named:?}");
    leave_out(&data, 0..3, command);
    answered("two.", &["one.two."]);
    assert_eq!(unfinished_of(&data), []);
}
