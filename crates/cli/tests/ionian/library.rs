//! The library's example `tally`, a user-defined service on three nodes in separate processes, and
//! the commands of this program on its cluster. It covers docs/library.md and its promises about
//! failures. [`orders`] is the example with a front for HTTP.

mod orders;

use crate::cluster::{Directory, LIMIT, deployment, eventually, free_port, run, text, works};
use ionian_deployment::Deployment;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Cargo builds the examples for the tests of this crate (see `Cargo.toml`), but not if a single
/// test target is selected.
fn example(name: &str) -> Command {
    let beside = Path::new(env!("CARGO_BIN_EXE_ionian"))
        .with_file_name("examples")
        .join(format!("{name}-under-test"));
    assert!(
        beside.exists(),
        "{} is not built: cargo build -p ionian-cli --examples",
        beside.display()
    );
    Command::new(beside)
}

/// A process of the example, killed on drop.
struct Node {
    child: Child,
    log: PathBuf,
}

impl Node {
    fn start(directory: &Directory, name: &str, arguments: &[&str], data: &str) -> Node {
        Self::start_of("tally", directory, name, arguments, data)
    }

    /// A node of another example.
    fn start_of(
        program: &str,
        directory: &Directory,
        name: &str,
        arguments: &[&str],
        data: &str,
    ) -> Node {
        let log = directory.path(&format!("{name}-{data}.log"));
        let child = example(program)
            .arg(name)
            .args(arguments)
            .arg("--data")
            .arg(directory.path(data))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(
                File::options()
                    .create(true)
                    .append(true)
                    .open(&log)
                    .unwrap(),
            )
            .spawn()
            .unwrap();
        Node { child, log }
    }

    /// Like `kill -9`.
    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!(
                "{}:\n{}",
                self.log.display(),
                fs::read_to_string(&self.log).unwrap_or_default()
            );
        }
    }
}

/// Sends one line to a node's front end and returns its answer.
fn ask(deployment: &Deployment, place: usize, line: &str) -> Option<String> {
    let stream = TcpStream::connect(deployment.nodes[place].gateway.as_ref()?).ok()?;
    stream.set_read_timeout(Some(LIMIT)).ok()?;
    (&stream).write_all(format!("{line}\n").as_bytes()).ok()?;
    let mut answer = String::new();
    BufReader::new(&stream).read_line(&mut answer).ok()?;
    (!answer.is_empty() && !answer.starts_with("error: the cluster"))
        .then(|| answer.trim_end().to_owned())
}

/// Like [`ask`], but repeats until the cluster answers: only for commands that may execute more
/// than once.
fn eventually_answers(deployment: &Deployment, place: usize, line: &str) -> String {
    eventually(line, || ask(deployment, place, line))
}

/// Adds once: a missing answer fails the test.
fn add(deployment: &Deployment, place: usize, name: &str, amount: i64, expected: i64) {
    let answer = ask(deployment, place, &format!("add {name} {amount}"));
    assert_eq!(
        answer,
        Some(expected.to_string()),
        "add {name} {amount} at node {place}"
    );
}

/// Three nodes of a deployment on free ports, and its file.
fn three(directory: &Directory, cluster: &str) -> (Deployment, String) {
    three_of("tally", directory, cluster)
}

/// The same with another machine.
fn three_of(machine: &str, directory: &Directory, cluster: &str) -> (Deployment, String) {
    let deployment = deployment(
        "colocated",
        &[&format!("machine={machine}"), &format!("cluster={cluster}")],
    );
    let file = directory.path(&format!("{cluster}.toml"));
    fs::write(&file, deployment.to_toml()).unwrap();
    (deployment, file.to_str().unwrap().to_owned())
}

#[test]
fn a_user_defined_service_runs_on_three_nodes_and_works_with_all_commands() {
    let directory = Directory::new();
    let (deployment, file) = three(&directory, "tallies");
    let start = |name: &str| Node::start(&directory, name, &["--config", &file], "data");
    let mut nodes: Vec<Option<Node>> = ["n0", "n1", "n2"].map(|name| Some(start(name))).into();
    assert_eq!(eventually_answers(&deployment, 0, "get apples"), "0");

    add(&deployment, 0, "apples", 5, 5);
    add(&deployment, 1, "pears", 2, 2);
    assert_eq!(
        eventually_answers(&deployment, 2, "get apples"),
        "5",
        "a linearizable read at another node"
    );
    assert!(
        ask(&deployment, 0, "steal apples")
            .unwrap()
            .contains("available: add NAME AMOUNT")
    );

    // One node fails. Its acknowledged writes survive, and the others continue.
    nodes[0].take().unwrap().kill();
    eventually_answers(&deployment, 1, "get apples");
    add(&deployment, 1, "apples", 1, 6);

    // A backup, by a program that does not contain this state machine.
    let backup = directory.path("backup.snapshot");
    let backup = backup.to_str().unwrap();
    works(&["snapshot", "save", backup, "--config", &file]);
    let about = works(&["snapshot", "inspect", backup]);
    assert!(
        about.contains("replicating tally") && about.contains("sessions"),
        "{about}"
    );
    assert!(!about.contains("keys"), "{about}");
    add(&deployment, 2, "apples", 10, 16);

    // A node with another name and a new data directory replaces the failed one.
    let address = format!("127.0.0.1:{}", free_port());
    let gateway = format!("127.0.0.1:{}", free_port());
    let contact = deployment.nodes[1].address.as_str();
    let joining = Node::start(&directory, "n3", &["--join", contact], "data-n3");
    works(&[
        "member",
        "replace",
        "n0",
        "n3",
        "--address",
        &address,
        "--gateway",
        &gateway,
        "--config",
        &file,
    ]);
    let members = works(&["member", "list", "--config", &file, "--toml"]);
    assert!(
        members.contains(&address) && members.contains("machine = \"tally\""),
        "{members}"
    );
    let mut now = Deployment::parse(&members).unwrap();
    now.nodes.retain(|node| node.name == "n3");
    assert_eq!(
        eventually_answers(&now, 0, "get apples"),
        "16",
        "the new node answers"
    );
    add(&now, 0, "pears", 1, 3);
    // It stores the membership: after a kill and a restart it finds the others by it.
    joining.kill();
    let again = Node::start(&directory, "n3", &["--join", contact], "data-n3");
    assert_eq!(eventually_answers(&now, 0, "get pears"), "3");

    // All nodes fail at once, and the backup is restored into a new cluster.
    drop(again);
    nodes.clear();
    let (restored, new_file) = three(&directory, "tallies-2");
    let new_data = directory.path("data-2");
    works(&[
        "snapshot",
        "restore",
        backup,
        "--config",
        &new_file,
        "--data",
        new_data.to_str().unwrap(),
    ]);
    let start = |name: &str| Node::start(&directory, name, &["--config", &new_file], "data-2");
    let _nodes = ["n0", "n1", "n2"].map(start);
    assert_eq!(
        eventually_answers(&restored, 0, "get apples"),
        "6",
        "as it was when the backup was made"
    );
    assert_eq!(eventually_answers(&restored, 1, "get pears"), "2");
    add(&restored, 2, "apples", 1, 7);
}

#[test]
fn only_commands_that_need_the_state_machine_refuse_an_unknown_one() {
    let directory = Directory::new();
    let (_, file) = three(&directory, "tallies");
    works(&["config", "check", &file]);
    let data = directory.path("data");
    for arguments in [
        &["up", &file, "--data", data.to_str().unwrap()][..],
        &[
            "node",
            "n0",
            "--config",
            &file,
            "--data",
            data.to_str().unwrap(),
        ],
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let why = text(&output.stderr);
        assert!(
            why.contains("machine = \"tally\"") && why.contains("docs/library.md"),
            "{why}"
        );
    }
    // Only the key-value store answers Redis commands.
    let output = run(&[
        "up",
        "--preset",
        "colocated",
        "--set",
        "machine=nothing",
        "--data",
        data.to_str().unwrap(),
    ]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(
        text(&output.stderr).contains("machine = \"nothing\": node.n0 has a gateway"),
        "{}",
        text(&output.stderr)
    );
    // The reverse: the example does not run a node of the key-value store.
    let kv = deployment("colocated", &[]);
    fs::write(directory.path("kv.toml"), kv.to_toml()).unwrap();
    let output = example("tally")
        .args(["n0", "--config"])
        .arg(directory.path("kv.toml"))
        .arg("--data")
        .arg(&data)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let why = text(&output.stderr);
    assert!(why.contains("machine"), "{why}");
    assert!(
        why.lines()
            .last()
            .is_some_and(|line| line.starts_with("tally: ")),
        "an error for programmers: {why}"
    );
}
