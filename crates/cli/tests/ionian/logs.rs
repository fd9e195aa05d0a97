//! What a running node logs, and standard error that takes no lines.

use crate::cluster::{Cluster, Directory, Nodes, deployment, eventually, ionian, run, run_node};
use crate::resp::{Client, Reply};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::io::Write;
use std::process::Stdio;

#[test]
fn the_log_reports_elections_snapshots_and_connections() {
    let mut cluster = Cluster::start(
        "colocated",
        &["durability=disk", "options.snapshot_slots=16"],
        &[],
    );
    let paths: Vec<_> = (0..3)
        .map(|node| cluster.directory.path(&format!("data/logs/n{node}.log")))
        .collect();
    let tells_one = |nodes: &[usize], texts: &[&str]| {
        let holds = |node: &&usize| {
            let log = std::fs::read_to_string(&paths[**node]).unwrap();
            texts.iter().any(|text| log.contains(text))
        };
        eventually(texts[0], || nodes.iter().find(holds).copied())
    };
    let tells = |nodes: &[usize], text: &str| tells_one(nodes, &[text]);
    let first = tells(&[0, 1, 2], "leads, in round");
    let others: Vec<usize> = (0..3).filter(|node| *node != first).collect();
    for number in 0..40 {
        cluster.client(others[0]).set("k", &number.to_string());
    }
    for node in 0..3 {
        tells(&[node], "of this node's state ");
    }
    // The leader pauses, another leads, and the old one learns it.
    cluster.signal(first, Signal::SIGSTOP);
    tells(&others, "leads, in round");
    cluster.signal(first, Signal::SIGCONT);
    tells(&[first], "leads no longer");
    cluster.signal(first, Signal::SIGKILL);
    // Which message appears depends on what was in flight.
    let ends = [
        format!("node {first} has closed the connection"),
        format!("the connection to node {first} broke"),
    ];
    tells_one(&others, &[&ends[0], &ends[1]]);
    cluster.stop(Signal::SIGTERM);
}

/// Starts a single node with this value of `RUST_LOG`, waits until it serves, and then stops it.
fn run_single(directory: &Directory, selected: &str, log: impl Into<Stdio>) {
    let file = directory.path("cluster.toml");
    let deployment = deployment("unreplicated", &[]);
    fs::write(&file, deployment.to_toml()).unwrap();
    let command = ["node", &deployment.nodes[0].name, "--data"];
    let node = ionian()
        .args(command)
        .arg(directory.path("data"))
        .arg("--config")
        .arg(&file)
        .env("RUST_LOG", selected)
        .stderr(log)
        .spawn()
        .unwrap();
    let mut node = Nodes(vec![node]);
    let gateway = deployment.nodes[0].gateway.as_ref().unwrap();
    let port = gateway.rsplit_once(':').unwrap().1.parse().unwrap();
    eventually("it serves", || {
        let answered = Client::try_connect(port).ok()?.call(&["SET", "k", "v"]);
        answered
            .is_ok_and(|it| it == Reply::Status("OK".into()))
            .then_some(())
    });
    kill(Pid::from_raw(node.0[0].id() as i32), Signal::SIGTERM).unwrap();
    let status = eventually("it ends", || node.0[0].try_wait().unwrap());
    assert!(status.success(), "{status}");
}

/// The log of a single node from its start to its stop with this value of `RUST_LOG`.
fn logged(selected: &str) -> String {
    let directory = Directory::new();
    let log = directory.path("log");
    run_single(&directory, selected, fs::File::create(&log).unwrap());
    fs::read_to_string(log).unwrap()
}

#[test]
fn rust_log_selects_levels_and_parts_of_the_program() {
    let (start, drain) = ("INFO ionian::node: node server-0", "INFO ionian_runtime::");
    for (selected, has_start, has_drain) in [
        ("info", true, true),
        ("warn", false, false),
        ("warn,ionian_runtime=info", false, true),
        ("info,ionian::node=warn", false, true),
        // Invalid, so it has the same effect as an unset variable.
        ("ionian=loud", true, true),
    ] {
        let log = logged(selected);
        assert_eq!(log.contains(start), has_start, "{selected}: {log}");
        assert_eq!(log.contains(drain), has_drain, "{selected}: {log}");
        assert!(!log.contains("DEBUG"), "{selected}: {log}");
    }
}

#[test]
fn the_last_line_of_a_node_that_stops_has_the_form_of_the_others() {
    let directory = Directory::new();
    let (file, taken) = (directory.path("given.toml"), directory.path("data"));
    fs::write(&file, deployment("colocated", &[]).to_toml()).unwrap();
    fs::write(&taken, "a file in place of the directory").unwrap();
    let words = [
        "n0",
        "--config",
        file.to_str().unwrap(),
        "--data",
        taken.to_str().unwrap(),
    ];
    let (code, log) = run_node(&[&words[..], &["--log-format", "json"]].concat());
    assert_eq!(code, Some(1), "{log}");
    let last: serde_json::Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
    assert_eq!(
        (&last["id"], &last["level"]),
        (&"E0112".into(), &"ERROR".into()),
        "{last}"
    );
    let (code, log) = run_node(&words);
    assert!(
        code == Some(1) && log.lines().last().unwrap().starts_with("ionian: "),
        "{log}"
    );
}

/// Every reason at the start, every form of lines, and every state of what reads them.
#[test]
fn a_node_that_cannot_run_ends_with_a_failure_whatever_reads_its_log() {
    let directory = Directory::new();
    let path = |name: &str| directory.path(name).to_str().unwrap().to_owned();
    let [file, wrong, used, data] = ["given.toml", "wrong.toml", "used", "data"].map(path);
    fs::write(&file, deployment("colocated", &[]).to_toml()).unwrap();
    fs::write(&wrong, "f = 1").unwrap();
    fs::write(&used, "a file in place of the directory").unwrap();
    let good = ["--config", &file, "--data", &data];
    let cases: [(&str, Vec<&str>, i32, &str); 7] = [
        ("n9", good.to_vec(), 2, "n0, n1, n2"),
        (
            "n0",
            vec!["--config", &wrong, "--data", &data],
            1,
            "missing",
        ),
        ("n0", vec!["--config", "/none", "--data", &data], 1, "/none"),
        ("n0", vec!["--config", &file, "--data", &used], 1, &used),
        ("n0", [&good[..], &["--tls", "/none"]].concat(), 1, "--tls"),
        (
            "n0",
            [&good[..], &["--audit", "/none/a"]].concat(),
            1,
            "/none/a",
        ),
        ("n0", vec!["--join", "no", "--data", &data], 2, "HOST:PORT"),
    ];
    for (name, flags, code, says) in cases {
        for format in ["text", "json"] {
            let arguments = [&[name, "--log-format", format], &flags[..]].concat();
            let (ended, log) = run_node(&arguments);
            assert_eq!(ended, Some(code), "{arguments:?}: {log}");
            assert!(log.contains(says), "{arguments:?}: {log}");
            let (unread, mut full) = std::io::pipe().unwrap();
            full.write_all(&[b'x'; 64 << 10]).unwrap();
            let (closed, broken) = std::io::pipe().unwrap();
            drop(closed);
            for log in [full, broken] {
                let mut node = ionian();
                node.arg("node").args(&arguments).stderr(log);
                let mut node = Nodes(vec![node.spawn().unwrap()]);
                let ended = eventually("it ends", || node.0[0].try_wait().unwrap());
                assert_eq!(ended.code(), Some(code), "{arguments:?}");
            }
            drop(unread);
        }
    }
}

#[test]
fn a_node_serves_and_stops_though_no_process_reads_its_log() {
    let (_unread, mut log) = std::io::pipe().unwrap();
    // As much as a pipe of Linux takes.
    log.write_all(&[b'x'; 64 << 10]).unwrap();
    run_single(&Directory::new(), "trace", log);
}

#[test]
fn a_closed_standard_error_changes_no_exit_code() {
    let directory = Directory::new();
    let file = directory.path("given.toml");
    let file = file.to_str().unwrap();
    // No node of it runs.
    fs::write(file, deployment("colocated", &[]).to_toml()).unwrap();
    for arguments in [
        &["status", "--config", file][..],
        &["status", "--data", "/nowhere"],
        &["member", "list", "--config", file],
        &["exec", "--config", file, "GET", "k"],
        &["trace", "exec", "--config", file, "GET", "k"],
        &["config", "check", "/nowhere"],
        &["config", "init", "--set", "f=x", "-"],
        &["frobnicate"],
    ] {
        let open = run(arguments).status.code();
        let (reader, closed) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = ionian();
        command.args(arguments).stdout(Stdio::null()).stderr(closed);
        assert_eq!(command.status().unwrap().code(), open, "{arguments:?}");
    }
}
