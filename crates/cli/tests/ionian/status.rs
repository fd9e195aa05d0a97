//! `ionian status` as a health check.

use crate::cluster::{
    Cluster, Directory, deployment, eventually, fails, run, text, unfolded, works,
};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread::spawn;

/// Asks with these flags; gives the exit code and the document.
fn asked(cluster: &Cluster, flags: &[&str]) -> (Option<i32>, Value) {
    let output = run(&[&["status", "--json", "--data", &cluster.data()], flags].concat());
    let document = serde_json::from_slice(&output.stdout);
    (
        output.status.code(),
        document.unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr))),
    )
}

fn strings(value: &Value) -> String {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|line| format!("{}\n", line["text"].as_str().unwrap()))
        .collect()
}

#[test]
fn status_reports_health_by_exit_code_and_failure_tolerance() {
    let cluster = Cluster::start(
        "colocated",
        &["options.patience_ms=1500"],
        &["--no-restart"],
    );
    let (code, healthy) = asked(&cluster, &["--wait", "--probe"]);
    assert_eq!(
        (code, &healthy["health"]),
        (Some(0), &"healthy".into()),
        "{healthy}"
    );
    assert_eq!(
        (&healthy["failure_tolerance"], &healthy["troubles"]),
        (&1.into(), &Value::Array(vec![]))
    );
    assert_eq!(healthy["tolerance_by_role"]["acceptor"], 1);
    assert_eq!(
        healthy["tolerance_by_role"]["replica"], 2,
        "two replicas may go, were it for them alone"
    );
    let probed: Vec<_> = healthy["probe_ms"]
        .as_object()
        .unwrap()
        .keys()
        .cloned()
        .collect();
    assert_eq!(probed, ["n0", "n1", "n2"]);

    // `bench/peers` finds the leader by its role's `leads`, and its gateway here.
    let leader = cluster.leader();
    let gateway = format!("127.0.0.1:{}", cluster.gateways()[leader]);
    assert_eq!(healthy["nodes"][leader]["gateway"], gateway);

    // Not the leader, so that no election is under way in between.
    let (dead, paused) = ((leader + 1) % 3, (leader + 2) % 3);
    cluster.signal(dead, Signal::SIGKILL);
    let (code, degraded) = eventually("the dead node is missed", || {
        let (code, document) = asked(&cluster, &["--probe"]);
        (code != Some(0)).then_some((code, document))
    });
    assert_eq!(
        (code, &degraded["health"]),
        (Some(3), &"degraded".into()),
        "{degraded}"
    );
    assert_eq!(degraded["failure_tolerance"], 0);
    let name = &cluster.deployment.nodes[dead].name;
    assert!(
        strings(&degraded["troubles"]).contains(&format!("node {name} does not answer")),
        "{degraded}"
    );

    // The paused leader still claims to lead, but no node can follow it.
    cluster.signal(paused, Signal::SIGSTOP);
    let (code, gone) = asked(&cluster, &[]);
    assert_eq!(
        (code, &gone["health"]),
        (Some(1), &"not_serving".into()),
        "{gone}"
    );
    assert_eq!(gone["failure_tolerance"], Value::Null);
    let why = strings(&gone["not_served"]);
    assert!(
        why.contains("writes, for want of a write quorum: 1 of 3 acceptors answer"),
        "{why}"
    );
    let advise = ["advise", "--seconds", "1", "--data", &cluster.data()];
    fails(
        &advise,
        1,
        "does not serve all that it should, see `ionian status`: writes,",
    );
    let shown = text(&run(&["status", "--data", &cluster.data()]).stdout);
    assert!(
        shown.contains("health: NOT SERVING\n") && !shown.contains("leader: leader"),
        "{shown}"
    );
    assert!(
        shown.contains("no answer within 3s"),
        "a paused node is not said to be down: {shown}"
    );

    cluster.signal(paused, Signal::SIGCONT);
    let (code, back) = eventually("it serves again", || {
        let (code, document) = asked(&cluster, &["--probe"]);
        (code == Some(3)).then_some((code, document))
    });
    assert_eq!(
        (code, back["not_served"].as_array().map(Vec::len)),
        (Some(3), Some(0)),
        "{back}"
    );
}

#[test]
fn status_wait_retries_the_first_node() {
    let mut cluster = Cluster::start("colocated", &["durability=disk"], &[]);
    let address = cluster.deployment.nodes[0].address.clone();
    cluster.kill_all();
    let down = run(&["status", "--at", &address]);
    assert_eq!(down.status.code(), Some(1), "{down:?}");
    let up = std::thread::spawn(move || {
        cluster.start_again(&[]);
        cluster
    });
    let waited = run(&["status", "--wait", "--timeout", "60", "--at", &address]);
    assert_eq!(waited.status.code(), Some(0), "{waited:?}");
    drop(up.join().unwrap());
    let down = run(&["status", "--wait", "--timeout", "1", "--at", &address]);
    assert_eq!(down.status.code(), Some(1), "{down:?}");
    assert!(
        text(&down.stderr).contains(&format!("no node answers at {address}")),
        "{down:?}"
    );
}

#[test]
fn status_counts_parts_of_the_log_and_payloads() {
    for preset in ["mencius", "spaxos"] {
        let cluster = Cluster::start(preset, &["options.patience_ms=1500"], &["--no-restart"]);
        let (code, healthy) = asked(&cluster, &["--wait", "--probe"]);
        assert_eq!(
            (code, &healthy["failure_tolerance"]),
            (Some(0), &1.into()),
            "{preset}: {healthy}"
        );
        for node in [1, 2] {
            cluster.signal(node, Signal::SIGKILL);
        }
        let (code, gone) = eventually("both are missed", || {
            let (code, document) = asked(&cluster, &[]);
            (document["nodes_up"] == 1).then_some((code, document))
        });
        assert_eq!(code, Some(1), "{preset}: {gone}");
        let role = if preset == "spaxos" {
            "stabilizer"
        } else {
            "acceptor"
        };
        assert!(
            strings(&gone["not_served"]).contains(role),
            "{preset}: {gone}"
        );
    }
}

#[test]
fn status_shows_the_event_loops_of_nodes_that_have_several() {
    let cluster = Cluster::start("colocated", &["options.loops=2"], &[]);
    cluster.client(0).set("k", "v");
    let (code, healthy) = asked(&cluster, &["--wait", "--probe"]);
    assert_eq!(code, Some(0), "{healthy}");
    let status = &healthy["nodes"][1]["status"];
    assert_eq!(status["role_loops"][0]["roles"][0], "replica 1");
    let data = cluster.data();
    let short = text(&run(&["status", "--data", &data]).stdout);
    assert!(!short.contains("replica"), "{short}");
    let width = short.lines().map(|line| line.chars().count()).max();
    assert!(width <= Some(100) && short.lines().count() == 8, "{short}");
    assert!(short.contains(", level 18; 3 of 3 nodes answer"), "{short}");
    let shown = text(&run(&["status", "--roles", "--data", &data]).stdout);
    assert!(!shown.contains("=0 "), "{shown}");
    let rows = shown.lines().skip_while(|line| !line.starts_with("loop "));
    let rows: Vec<Vec<&str>> = rows.map(|row| row.split_whitespace().collect()).collect();
    assert_eq!(
        rows[0],
        [
            "loop", "node", "cpu", "load", "in", "out", "records", "roles"
        ]
    );
    for (node, rows) in rows[1..7].chunks(2).enumerate() {
        let name = format!("n{node}");
        assert_eq!(rows[0][..2], ["0", name.as_str()], "{shown}");
        assert_eq!(rows[1][..2], ["1", name.as_str()], "{shown}");
        assert!(
            rows[1].ends_with(&["replica", &node.to_string()]),
            "{shown}"
        );
    }
    // A node that drains hands over what its loops have, and the others serve.
    let drained = run(&["drain", "n0", "--data", &cluster.data()]);
    assert_eq!(drained.status.code(), Some(0), "{drained:?}");
    cluster.client(1).set("k", "w");
}

/// Two of three replicas have lost their memory and copy a large state: the third must stay.
#[test]
fn nodes_without_the_state_count_as_failed_and_the_last_one_that_has_it_stays() {
    for preset in ["colocated", "epaxos"] {
        let overrides = [
            "durability=memory",
            "options.snapshot_mib_per_s=1",
            "options.retained_slots=16",
        ];
        let cluster = Cluster::start(preset, &overrides, &[]);
        let mut client = cluster.client(0);
        let value = "x".repeat(1 << 20);
        for key in 0..64 {
            client.set(&format!("k{key}"), &value);
        }
        let (code, before) = asked(&cluster, &["--wait"]);
        assert_eq!(code, Some(0), "{preset}: {before}");
        for node in [1, 2] {
            cluster.signal(node, Signal::SIGKILL);
            let name = format!("replica {node} on n{node} does not hold yet what is chosen");
            eventually("it copies the state", || {
                let (_, document) = asked(&cluster, &[]);
                let troubles = strings(&document["troubles"]);
                // The second acceptor is let in when one more replica has the state.
                let remembers = node == 2 || !troubles.contains("memory");
                let is_named = troubles.contains(&name);
                (remembers && is_named && document["nodes_up"] == 3).then_some(())
            });
        }
        let (code, document) = asked(&cluster, &[]);
        let found = (code, &document["failure_tolerance"]);
        assert_eq!(found, (Some(3), &0.into()), "{preset}: {document}");
        let why = "no node but n0 holds what is chosen";
        fails(&["drain", "n0", "--data", &cluster.data()], 1, why);
        works(&["drain", "n1", "--data", &cluster.data()]);
        if preset == "colocated" {
            let remove = ["member", "replace", "n0", "n3", "--address", "127.0.0.1:1"];
            let flags = ["--gateway", "127.0.0.1:2", "--data", &cluster.data()];
            fails(&[&remove[..], &flags].concat(), 1, why);
        }
    }
}

/// What another program does with a connection.
type Foreign = fn(TcpStream);

/// Whether its answer tells what it is.
const FOREIGN: &[(&str, Foreign, bool)] = &[
    ("closes", |_| {}, false),
    ("is silent", |it| drop(read_all(it)), false),
    (
        "speaks HTTP",
        |it| greet(it, b"HTTP/1.1 400 Bad Request\r\n\r\n"),
        true,
    ),
    ("waits", |it| greet(it, b"-ERR what\r\n"), true),
    ("is short", |it| end(it, b"-"), true),
    ("is like a node", |it| end(it, b"\x96ion"), true),
    ("speaks binary", |it| greet(it, &[7; 100]), true),
];

fn read_all(mut stream: TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    bytes
}

/// Says this, and no more.
fn end(mut stream: TcpStream, bytes: &[u8]) {
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    read_all(stream);
}

/// Says this, and waits.
fn greet(mut stream: TcpStream, bytes: &[u8]) {
    let _ = stream.write_all(bytes);
    read_all(stream);
}

/// A node that refuses runs, and whether its cluster serves is not known; a port that another
/// program has is that of a node that is down.
#[test]
fn another_program_at_the_port_of_a_node_is_no_node_that_refuses() {
    let directory = Directory::new();
    for (what, does, speaks) in FOREIGN {
        let deployment = deployment("colocated", &[]);
        let path = |name: &str| directory.path(name).to_str().unwrap().to_owned();
        let (file, certs) = (path("given.toml"), path(&format!("certs {what}")));
        fs::write(&file, deployment.to_toml()).unwrap();
        works(&["certs", "create", "--config", &file, "--out", &certs]);
        for node in &deployment.nodes {
            let listener = TcpListener::bind(&node.address).unwrap();
            spawn(move || {
                let streams = listener.incoming().map_while(Result::ok);
                streams.for_each(|stream| drop(spawn(|| does(stream))));
            });
        }
        let operator = format!("{certs}/operator");
        for flags in [&[][..], &["--tls", &operator]] {
            let output = run(&[&["status", "--config", &file], flags].concat());
            let (code, said) = (output.status.code(), unfolded(&output.stdout));
            assert_eq!(code, Some(1), "{what} {flags:?}: {said}");
            assert!(
                said.contains("health: NOT SERVING"),
                "{what} {flags:?}: {said}"
            );
            for node in &deployment.nodes {
                let down = format!("! node {} does not answer: {}: ", node.name, node.address);
                let line = said.lines().find(|line| line.starts_with(&down));
                let line = line.unwrap_or_else(|| panic!("{what} {flags:?}: {said}"));
                let names = line.contains("another program answers there");
                assert_eq!(names, *speaks, "{what} {flags:?}: {line}");
            }
        }
    }
}
