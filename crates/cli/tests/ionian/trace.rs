//! `ionian trace` on clusters of real processes.

use crate::cluster::{Cluster, Directory, deployment, fails, run, text};
use crate::resp::{Client, Reply};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// The document that a command prints.
#[track_caller]
fn document(cluster: &Cluster, arguments: &[&str]) -> Value {
    let named = ["--json", "--data", &cluster.data()];
    let (command, words) = arguments.split_at(1);
    let output = run(&[&["trace"], command, &named, words].concat());
    let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{said}");
    serde_json::from_slice(&output.stdout).expect(&said)
}

fn sum(shares: &Value) -> u64 {
    let shares = shares.as_array().expect("a list").iter();
    shares
        .map(|share| share["us"].as_u64().expect("a time"))
        .sum()
}

/// What roles have done, by kind and stage.
fn stages(traced: &Value) -> BTreeSet<String> {
    let spans = traced["spans"].as_array().expect("a list").iter();
    let name = |of: &Value| of.as_str().expect("a name").to_owned();
    spans
        .map(|span| format!("{} {}", name(&span["at"]["role"]), name(&span["stage"])))
        .collect()
}

fn named(stages: &[&str]) -> BTreeSet<String> {
    stages.iter().map(|it| (*it).to_owned()).collect()
}

#[test]
fn a_traced_write_has_every_role_and_times_that_add_up() {
    for (preset, expected, read) in [
        ("colocated", BATCHED.to_vec(), BATCHED_READ),
        ("compartmentalized", PLAIN.to_vec(), PLAIN_READ),
        (
            "spaxos",
            [APART, &["unbatcher unbatch"]].concat(),
            BATCHED_READ,
        ),
        ("spaxos-compartmentalized", APART.to_vec(), PLAIN_READ),
    ] {
        let cluster = Cluster::start(preset, &[], &[]);
        let traced = document(&cluster, &["exec", "SET", "name", "Ionian"]);
        let told = format!("{preset}: {traced:#}");
        let mut found = stages(&traced);
        found.remove("acceptor learn");
        assert_eq!(found, named(&expected), "{told}");
        let spans = traced["spans"].as_array().expect("a list");
        // After the answer a replica that is late may have the slot repaired, by messages that name
        // no command.
        let answered = traced["command"]["answered_us"].as_u64();
        let on_the_path = |span: &&Value| span["began_us"].as_u64() <= answered;
        let roots = spans.iter().filter(on_the_path);
        let roots = roots.filter(|span| span["parent"].is_null());
        assert_eq!(roots.count(), 1, "not connected: {told}");
        assert_eq!(sum(&traced["shares"]), traced["took_us"], "{told}");
        assert!(!told.contains("Ionian"), "a value is shown: {told}");
        let traced = document(&cluster, &["exec", "GET", "name"]);
        assert_eq!(traced["reply"], "Ionian");
        let told = format!("{preset}: {traced:#}");
        assert_eq!(stages(&traced), named(read), "{told}");
        assert_eq!(sum(&traced["shares"]), traced["took_us"], "{told}");
    }
}

/// Longer than `slow_ms` below, and several times as long as a leader may be silent.
const STOPPED: Duration = Duration::from_millis(1500);

/// Writes while all but the first node are stopped. It may lead or not: no quorum votes without the
/// others.
fn slow_write(cluster: &Cluster, mut client: Client) {
    for node in [1, 2] {
        cluster.signal(node, Signal::SIGSTOP);
    }
    let write = std::thread::spawn(move || client.set("b", "slow"));
    std::thread::sleep(STOPPED);
    for node in [1, 2] {
        cluster.signal(node, Signal::SIGCONT);
    }
    write.join().expect("it is written");
}

#[test]
fn no_answer_is_an_error_and_no_empty_list() {
    let directory = Directory::new();
    let file = directory.path("down.toml");
    std::fs::write(&file, deployment("colocated", &[]).to_toml()).unwrap();
    let file = file.to_str().unwrap();
    for list in [["slow", "--config"], ["kept", "--config"]] {
        for more in [&[][..], &["--json"]] {
            let words = [&["trace"], &list[..], &[file], more].concat();
            fails(&words, 1, "no node has answered: node n0: ");
        }
    }
}

#[test]
fn a_slow_write_is_explained_by_the_role_that_waited() {
    let cluster = Cluster::start("baseline", &["options.slow_ms=50"], &[]);
    let recorded = run(&["trace", "record", "--data", &cluster.data()]);
    assert_eq!(
        recorded.status.code(),
        Some(0),
        "{}",
        text(&recorded.stderr)
    );
    let mut client = cluster.client(0);
    client.set("a", "quick");
    slow_write(&cluster, client);
    let slow = document(&cluster, &["slow"]);
    let all = slow.as_array().expect("a list");
    assert!(!all.is_empty() && all.len() <= 2, "{slow:#}");
    let traced = &all[0];
    assert_eq!(traced["command"]["name"], "set", "{slow:#}");
    assert!(traced["took_us"].as_u64() >= Some(50_000), "{slow:#}");
    assert_eq!(sum(&traced["shares"]), traced["took_us"], "{slow:#}");
    let shares = traced["shares"].as_array().expect("a list");
    let longest = shares.iter().max_by_key(|share| share["us"].as_u64());
    let stage = longest.expect("some")["stage"].as_str();
    assert_ne!(stage, Some("cluster"), "it is not explained: {slow:#}");
}

#[test]
fn a_slow_write_that_was_not_recorded_is_explained_by_what_other_nodes_waited_for() {
    let cluster = Cluster::start("baseline", &["options.slow_ms=50"], &[]);
    let mut client = cluster.client(0);
    client.set("a", "quick");
    slow_write(&cluster, client);
    let slow = document(&cluster, &["slow"]);
    let traced = &slow[0];
    assert_eq!(traced["command"]["name"], "set", "{slow:#}");
    assert_eq!(traced["spans"], json!([]), "nothing is recorded: {slow:#}");
    let took = traced["took_us"].as_u64().expect("a time");
    let delays = traced["delays"].as_array().expect("a list");
    for node in ["n1", "n2"] {
        let of_node = delays.iter().filter(|it| it["node"] == node);
        // The signal comes between two runs of the event loop, within one, or within a sync.
        // Between runs the time counts from when a role was due: a leader is to be heard by then.
        let kinds = ["late", "run", "disk"].map(|kind| json!(kind));
        let stopped: u64 = of_node
            .filter(|it| kinds.contains(&it["delay"]["what"]))
            .filter_map(|it| it["us"].as_u64())
            .sum();
        assert!(
            stopped > took / 4,
            "{node}: {stopped} of {took} us: {slow:#}"
        );
    }
    let shown = run(&["trace", "slow", "--data", &cluster.data()]);
    let shown = text(&shown.stdout);
    assert!(shown.contains("Meanwhile nodes waited"), "{shown}");
}

#[test]
fn a_sample_is_kept_and_clients_trace_what_they_want() {
    // In the second, most nodes do not see which commands a slot has.
    for preset in ["baseline", "spaxos-batched"] {
        assert_samples(preset);
    }
}

fn assert_samples(preset: &str) {
    let cluster = Cluster::start(preset, &["options.trace_one_in=4"], &[]);
    let mut client = cluster.client(0);
    (0..40).for_each(|number| client.set("a", &number.to_string()));
    let sample = document(&cluster, &["kept", "--count", "100"]);
    let sample = sample.as_array().expect("a list");
    assert!((1..30).contains(&sample.len()), "{} of 40", sample.len());
    for traced in sample {
        let waited = traced["shares"].as_array().expect("a list").iter();
        let stages: Vec<_> = waited.filter_map(|share| share["stage"].as_str()).collect();
        assert!(stages.contains(&"sync"), "{traced:#}");
    }
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let refused = client.call(&["CLIENT", "TRACE", "yes"]).expect("a reply");
    assert!(matches!(refused, Reply::Error(_)), "{refused:?}");
    client.call(&["CLIENT", "TRACE", parent]).expect("a reply");
    client.set("b", "traced");
    client.call(&["CLIENT", "TRACE", "OFF"]).expect("a reply");
    let kept = document(&cluster, &["kept", "--count", "100"]);
    let all = kept.as_array().expect("a list").iter();
    let mine = all.filter(|traced| traced["command"]["parent"] == parent);
    assert_eq!(mine.count(), 1, "{kept:#}");
}

const PLAIN: &[&str] = &[
    "acceptor sync",
    "client answers",
    "client submit",
    "leader propose",
    "proxy_leader chosen",
    "proxy_leader phase2a",
    "replica execute",
];

/// The payload goes its own way.
const APART: &[&str] = &[
    "acceptor sync",
    "client answers",
    "client submit",
    "disseminator batch.wait",
    "disseminator stored",
    "leader propose",
    "proxy_leader chosen",
    "proxy_leader phase2a",
    "replica execute",
    "stabilizer deliver",
    "stabilizer store",
];

const PLAIN_READ: &[&str] = &[
    "acceptor inquire",
    "client answers",
    "client inquired",
    "client submit",
    "replica read",
];

const BATCHED_READ: &[&str] = &[
    "acceptor inquire",
    "client answers",
    "client submit",
    "read_batcher batch.wait",
    "read_batcher inquired",
    "replica read",
    "unbatcher unbatch",
];

const BATCHED: &[&str] = &[
    "acceptor sync",
    "batcher batch.wait",
    "client answers",
    "client submit",
    "leader propose",
    "proxy_leader chosen",
    "proxy_leader phase2a",
    "replica execute",
    "unbatcher unbatch",
];
