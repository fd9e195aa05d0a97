//! Failing disks and deleted data: the node reports the reason and exits with code 1, and the
//! others continue.

use crate::cluster::{
    Cluster, Directory, Nodes, deployment, eventually, ionian, run, run_node, text,
};
use crate::resp::{Client, Reply};
use nix::sys::signal::Signal;
use std::fs;
use std::io::Read;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// Writes each key once, through every gateway but the first. Returns the acknowledged keys.
fn write(cluster: &Cluster, keys: std::ops::Range<u32>, bytes: usize) -> Vec<String> {
    let mut clients: Vec<Client> = (1..3).map(|gateway| cluster.client(gateway)).collect();
    let value = "v".repeat(bytes);
    let keys = keys.map(|key| format!("k{key}"));
    let mut acknowledged = Vec::new();
    for (turn, key) in keys.enumerate() {
        match clients[turn % 2].call(&["SET", &key, &value]).unwrap() {
            Reply::Status(_) => acknowledged.push(key),
            // The node that stopped may have been the leader.
            Reply::Error(error) => assert!(error.starts_with("TRYAGAIN"), "{error}"),
            other => panic!("{other:?}"),
        }
    }
    acknowledged
}

fn assert_there(cluster: &Cluster, gateway: usize, keys: &[String], bytes: usize) {
    let mut client = cluster.client(gateway);
    for key in keys {
        assert_eq!(
            client.get(key).map(|value| value.len()),
            Some(bytes),
            "{key}"
        );
    }
}

fn of_node(cluster: &Cluster, path: &str) -> PathBuf {
    cluster.directory.path("data/nodes/n0").join(path)
}

/// The output of `up` about the first node, once it contains these words.
fn said(cluster: &Cluster, words: &[&str]) -> String {
    eventually(&format!("the output contains {words:?}"), || {
        let stderr = cluster.stderr();
        let mut lines = stderr.lines().filter(|line| line.starts_with("node n0 "));
        lines
            .find(|line| words.iter().all(|word| line.contains(word)))
            .map(str::to_owned)
    })
}

/// Stops the first node and starts it again, within a limit of the shell.
fn first_node_with(cluster: &Cluster, limit: &str) -> Child {
    cluster.signal(0, Signal::SIGTERM);
    eventually("it has stopped", || cluster.pid(0).is_none().then_some(()));
    let data = cluster.data();
    let config = format!("{data}/deployment.toml");
    let limit = format!("{limit} && exec \"$@\"");
    Command::new("sh")
        .args(["-c", &limit, "sh", env!("CARGO_BIN_EXE_ionian")])
        .args(["node", "n0", "--data", &data, "--config", &config])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Idle connections on both ports take all that they are given, and leave what the node needs.
#[test]
fn a_node_with_few_open_files_keeps_those_that_it_needs() {
    let cluster = Cluster::start("colocated", &[], &["--no-restart"]);
    // It ends with the test, whatever happens.
    let mut node = Nodes(vec![first_node_with(&cluster, "ulimit -n 528")]);
    cluster.wait_until_whole();
    let mut client = cluster.client(0);
    let idle =
        |port: u16, count| (0..count).map(move |_: u32| TcpStream::connect(("127.0.0.1", port)));
    let (_, port) = cluster.deployment.nodes[0]
        .address
        .rsplit_once(':')
        .unwrap();
    let peers: Vec<_> = idle(port.parse().unwrap(), 100).collect();
    let mut clients: Vec<_> = idle(cluster.gateways()[0], 500)
        .map(Result::unwrap)
        .collect();
    let mut answer = String::new();
    clients[60].read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "-ERR max number of clients reached\r\n");
    // More than two segments of the log.
    let written = write(&cluster, 0..900, 50_000);
    assert_eq!(client.get(&written[899]).map(|it| it.len()), Some(50_000));
    assert!(node.0[0].try_wait().unwrap().is_none());
    drop((peers, clients));
    let mut node = node.0.pop().unwrap();
    node.kill().unwrap();
    let said = text(&node.wait_with_output().unwrap().stderr);
    assert!(
        said.contains("open files leaves room for 54 clients"),
        "{said}"
    );
}

/// A file size limit stands for a full disk.
#[test]
fn a_node_whose_log_cannot_grow_stops_with_a_reason_and_the_others_continue() {
    let cluster = Cluster::start("colocated", &[], &["--no-restart"]);
    let mut acknowledged = write(&cluster, 0..20, 100);
    // Blocks of 512 or 1024 bytes, depending on the shell: 4 or 8 MiB, less than one segment of the
    // log.
    let limited = first_node_with(&cluster, "ulimit -f 8192");
    // Larger than the limit in any case, through the log of each node.
    let mut waiting = Some(std::thread::spawn(move || {
        limited.wait_with_output().unwrap()
    }));
    let mut next = 20;
    while !waiting.as_ref().unwrap().is_finished() {
        assert!(next < 5000, "300 MB were written, and the node runs");
        acknowledged.extend(write(&cluster, next..next + 20, 60_000));
        next += 20;
    }
    let output = waiting.take().unwrap().join().unwrap();
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    let last = error.lines().last().unwrap();
    assert!(
        last.starts_with("ionian: cannot write to ") && last.contains("n0/wal/"),
        "{last}"
    );
    assert!(last.contains("File too large"), "{last}");
    acknowledged.extend(write(&cluster, next..next + 20, 100));
    // Restarted without the limit the node has all its data.
    let (data, config) = (cluster.data(), cluster.data() + "/deployment.toml");
    let flags = ["node", "n0", "--data", &data, "--config", &config];
    let mut again = ionian().args(flags).stderr(Stdio::null()).spawn().unwrap();
    cluster.wait_until_whole();
    let (small, large): (Vec<_>, Vec<_>) = acknowledged.into_iter().partition(|key| {
        let key: u32 = key[1..].parse().unwrap();
        !(20..next).contains(&key)
    });
    assert_there(&cluster, 0, &small, 100);
    assert_there(&cluster, 0, &large, 60_000);
    again.kill().unwrap();
    again.wait().unwrap();
}

#[test]
fn a_node_stops_until_its_snapshot_can_be_written() {
    let mut cluster = Cluster::start("colocated", &["options.snapshot_slots=20"], &[]);
    let snapshots = of_node(&cluster, "snapshots");
    fs::remove_dir_all(&snapshots).unwrap();
    fs::write(&snapshots, "in the way").unwrap();
    let mut acknowledged = write(&cluster, 0..200, 10);
    said(
        &cluster,
        &[
            "has ended with exit code 1: ionian: cannot ",
            "n0/snapshots",
            "; restarting in 0.",
        ],
    );
    // It restarts, reports the reason once, and waits longer each time.
    said(
        &cluster,
        &[
            "node n0 has ended for the same reason",
            "; restarting in 1.6 s",
        ],
    );
    acknowledged.extend(write(&cluster, 200..220, 10));
    assert!(cluster.pids().len() >= 2, "the others run");
    fs::remove_file(&snapshots).unwrap();
    cluster.wait_until_whole();
    assert_there(&cluster, 0, &acknowledged, 10);
    cluster.stop(Signal::SIGTERM);
}

#[test]
fn a_directory_that_cannot_be_written_is_named() {
    let directory = Directory::new();
    let file = directory.path("given.toml");
    fs::write(&file, deployment("colocated", &[]).to_toml()).unwrap();
    let data = directory.path("data");
    fs::create_dir_all(data.join("nodes")).unwrap();
    let place = data.join("nodes/n0");
    let refused = |says: &str| {
        let (file, data) = (file.to_str().unwrap(), data.to_str().unwrap());
        let output = run(&["node", "n0", "--config", file, "--data", data]);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{error}");
        let last = error.lines().last().unwrap();
        assert!(
            last.starts_with("ionian: cannot ") && last.contains("nodes/n0") && last.contains(says),
            "{last}"
        );
    };
    fs::write(&place, "a file where a directory should be").unwrap();
    refused("cannot create the directory");
    fs::remove_file(&place).unwrap();
    fs::create_dir(&place).unwrap();
    let mut permissions = fs::metadata(&place).unwrap().permissions();
    permissions.set_readonly(true);
    fs::set_permissions(&place, permissions).unwrap();
    // Root may write everywhere, so this part of the test does not apply.
    if fs::write(place.join("probe"), "").is_err() {
        refused("Permission denied");
    }
    // Restore the permissions so that the directory can be removed.
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_node_without_its_data_is_refused_and_the_others_continue() {
    let mut cluster = Cluster::start("colocated", &[], &[]);
    let mut acknowledged = write(&cluster, 0..20, 10);
    fs::remove_dir_all(of_node(&cluster, "")).unwrap();
    cluster.signal(0, Signal::SIGKILL);
    let refusal = said(
        &cluster,
        &[
            "has ended with exit code 1: ionian: node ",
            "; restarting in 0.",
        ],
    );
    for words in [
        "refuses this node: node 'n0' is known here by the data directory ",
        "its data was deleted or exchanged",
        "ionian member replace n0 NEW --address HOST:PORT",
    ] {
        assert!(refusal.contains(words), "{refusal}");
    }
    // For the same reason, or because another node refuses it.
    said(&cluster, &["node n0 has ended", "; restarting in 0.8 s"]);
    acknowledged.extend(write(&cluster, 20..40, 10));
    assert_there(&cluster, 1, &acknowledged, 10);
    assert_there(&cluster, 2, &acknowledged, 10);
    cluster.stop(Signal::SIGTERM);
}

/// The segments of the first node's log.
fn segments(cluster: &Cluster) -> Vec<PathBuf> {
    let paths = fs::read_dir(of_node(cluster, "wal"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut segments: Vec<PathBuf> = paths
        .filter(|path| {
            path.file_name()
                .unwrap()
                .to_string_lossy()
                .starts_with("00")
        })
        .collect();
    segments.sort();
    segments
}

/// Damages the last of several segments. A process that reads them must not continue without the
/// lost part.
fn damage(kind: &str, segments: &[PathBuf]) {
    let last = segments.last().unwrap();
    let mut content = fs::read(last).unwrap();
    let used = content.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    match kind {
        "first" => return fs::remove_file(&segments[0]).unwrap(),
        "last" => return fs::remove_file(last).unwrap(),
        "extent" => return fs::remove_file(last.with_file_name("extent")).unwrap(),
        "cut" => content.truncate(used / 2),
        "zeros" => content[used / 2..].fill(0),
        "bit" => content[used - 1] ^= 1,
        other => panic!("{other}"),
    }
    fs::write(last, content).unwrap();
}

#[test]
fn a_truncated_log_is_refused_at_the_next_start() {
    let mut cluster = Cluster::start("colocated", &[], &[]);
    let acknowledged = write(&cluster, 0..60, 60_000);
    cluster.stop(Signal::SIGTERM);
    let (log, kept) = (of_node(&cluster, "wal"), of_node(&cluster, "kept"));
    fs::rename(&log, &kept).unwrap();
    let config = cluster.directory.path("data/deployment.toml");
    for kind in ["first", "last", "extent", "cut", "zeros", "bit"] {
        fs::create_dir(&log).unwrap();
        for entry in fs::read_dir(&kept).unwrap() {
            let path = entry.unwrap().path();
            fs::copy(&path, log.join(path.file_name().unwrap())).unwrap();
        }
        let segments = segments(&cluster);
        assert!(segments.len() > 1, "{segments:?}");
        damage(kind, &segments);
        let (code, error) = run_node(&[
            "n0",
            "--config",
            config.to_str().unwrap(),
            "--data",
            &cluster.data(),
        ]);
        assert_eq!(code, Some(1), "{kind}: {error}");
        let last = error.lines().last().unwrap();
        assert!(
            last.starts_with("ionian: ") && last.contains("n0/wal/"),
            "{kind}: {last}"
        );
        assert!(
            last.contains("A crash cannot have done this"),
            "{kind}: {last}"
        );
        assert!(last.contains("ionian member replace"), "{kind}: {last}");
        fs::remove_dir_all(&log).unwrap();
    }
    fs::rename(&kept, &log).unwrap();
    cluster.start_again(&[]);
    cluster.wait_until_whole();
    assert_there(&cluster, 0, &acknowledged, 60_000);
    cluster.stop(Signal::SIGTERM);
}
