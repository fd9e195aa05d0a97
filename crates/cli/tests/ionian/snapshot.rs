//! Backups: saved under load, restored into a new cluster, salvaged from the directories of failed
//! nodes.

mod chain;
mod each_protocol;
mod levels;
mod series;

use crate::cluster::{
    Cluster, Directory, Nodes, deployment, eventually, free_port, ionian, run, run_node, text,
    works,
};
use crate::resp::{Client, Reply};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

const DISK: &[&str] = &[
    "durability=disk",
    "cluster=old",
    "options.snapshot_slots=40",
];

/// Runs a command that must fail; returns its one-line error.
fn refused(code: i32, arguments: &[&str]) -> String {
    let output = run(arguments);
    let why = text(&output.stderr);
    assert_eq!(
        (output.status.code(), why.lines().count()),
        (Some(code), 1),
        "{arguments:?}: {why}"
    );
    why
}

fn inspect(file: &str) -> Value {
    serde_json::from_str(&works(&["snapshot", "inspect", file, "--json"])).unwrap()
}

fn set(client: &mut Client, number: u64) {
    let (key, value) = (format!("key:{number}"), format!("value {number}"));
    assert_eq!(
        client.call(&["SET", &key, &value]).unwrap(),
        Reply::Status("OK".into())
    );
}

/// Checks that the first `count` keys exist.
fn assert_has(cluster: &Cluster, count: u64) {
    let mut client = cluster.client(0);
    for number in 0..count {
        let reply = client.call(&["GET", &format!("key:{number}")]).unwrap();
        assert_eq!(
            reply,
            Reply::Bulk(Some(format!("value {number}"))),
            "of {count}"
        );
    }
}

/// The path of a file in the cluster's directory.
fn at(directory: &Directory, name: &str) -> String {
    directory.path(name).to_str().unwrap().to_owned()
}

/// Starts a new cluster from a snapshot.
pub(crate) fn restore(preset: &str, file: &str) -> Cluster {
    let directory = Directory::new();
    let deployment = deployment(preset, &["durability=disk", "cluster=new"]);
    fs::write(directory.path("given.toml"), deployment.to_toml()).unwrap();
    let (config, data) = (at(&directory, "given.toml"), at(&directory, "data"));
    // One node after the other, as on separate machines.
    for node in &deployment.nodes {
        let said = works(&[
            "snapshot", "restore", file, "--config", &config, "--data", &data, "--node", &node.name,
        ]);
        assert_eq!(
            said.contains("Start no node of cluster new before the directories"),
            deployment.nodes.len() > 1,
            "{said}"
        );
    }
    let mode = |path: &str| {
        let path = directory.path("data").join(path);
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    };
    let node = format!("nodes/{}", deployment.nodes[0].name);
    let inner = ["wal", "snapshots"].map(|it| format!("{node}/{it}"));
    for path in ["", "nodes", &node, &inner[0], &inner[1]] {
        assert_eq!(mode(path), 0o700, "{path}");
    }
    let again = refused(
        1,
        &[
            "snapshot", "restore", file, "--config", &config, "--data", &data,
        ],
    );
    let used = format!("{} is not empty", deployment.nodes[0].name);
    assert!(again.contains(&used), "{again}");
    Cluster::start_in(directory, deployment)
}

/// A replica stores more than the state machine: which instances it has executed.
#[test]
fn a_stopped_epaxos_node_is_copied_and_not_salvaged() {
    let mut cluster = Cluster::start("epaxos", DISK, &[]);
    let mut client = cluster.client(0);
    (0..100).for_each(|number| set(&mut client, number));
    cluster.wait_until_whole();
    cluster.stop(Signal::SIGTERM);
    let (node, file) = (
        cluster.data() + "/nodes/n0",
        at(&cluster.directory, "saved"),
    );
    let why = refused(1, &["snapshot", "salvage", &node, "--output", &file]);
    assert!(why.contains("ionian snapshot save --stopped"), "{why}");
    works(&["snapshot", "save", &file, "--stopped", &node]);
    let keys = inspect(&file)["keys"].as_u64().unwrap();
    assert!((1..=100).contains(&keys), "{keys}");
    assert_eq!(inspect(&node)["keys"], keys);
    assert_has(&restore("epaxos", &file), keys);
}

#[test]
fn save_needs_a_read_quorum_or_allow_stale() {
    save_needs_a_read_quorum("colocated", &[], true);
}

#[test]
fn save_of_p_smr_needs_a_majority_or_allow_stale() {
    save_needs_a_read_quorum("p-smr", &[], false);
}

/// The node that acknowledges is gone before others have heard that anything is decided.
#[test]
fn save_of_epaxos_needs_a_majority_or_allow_stale() {
    let far = [
        "network.delay_ms=60",
        "node.n0.site=A",
        "node.n1.site=B",
        "node.n2.site=C",
    ];
    save_needs_a_read_quorum("epaxos", &far, false);
}

fn save_needs_a_read_quorum(preset: &str, more: &[&str], is_salvaged: bool) {
    let cluster = Cluster::start(preset, &[DISK, more].concat(), &["--no-restart"]);
    let mut client = cluster.client(1);
    (0..10).for_each(|number| set(&mut client, number));
    if more.is_empty() {
        cluster.wait_until_whole();
    }
    cluster.signal(1, Signal::SIGKILL);
    let (one, two) = (at(&cluster.directory, "one"), at(&cluster.directory, "two"));
    eventually("the node is gone", || {
        cluster.pid(1).is_none().then_some(())
    });
    works(&["snapshot", "save", &one, "--data", &cluster.data()]);
    assert_eq!(
        (
            inspect(&one)["keys"].as_u64(),
            inspect(&one)["complete"].as_bool()
        ),
        (Some(10), Some(true))
    );
    cluster.signal(2, Signal::SIGKILL);
    eventually("the node is gone", || {
        cluster.pid(2).is_none().then_some(())
    });
    let why = refused(1, &["snapshot", "save", &two, "--data", &cluster.data()]);
    assert!(
        why.contains("too few acceptors answer") && why.contains("--allow-stale"),
        "{why}"
    );
    assert_eq!(
        why.contains("ionian snapshot salvage"),
        is_salvaged,
        "{why}"
    );
    works(&[
        "snapshot",
        "save",
        &two,
        "--data",
        &cluster.data(),
        "--allow-stale",
    ]);
    let (keys, complete) = (&inspect(&two)["keys"], &inspect(&two)["complete"]);
    // The last node that is left may not have executed the last write where links are long.
    let least = if more.is_empty() { 10 } else { 0 };
    assert!((least..=10).contains(&keys.as_u64().unwrap()), "{keys}");
    assert_eq!(complete.as_bool(), Some(false));
}

#[test]
fn a_new_cluster_starts_from_a_salvaged_snapshot() {
    is_salvaged("colocated", 120);
}

#[test]
fn a_new_spaxos_cluster_starts_from_a_salvaged_snapshot() {
    is_salvaged("spaxos", 120);
}

/// Two slots of three are skipped.
#[test]
fn a_new_mencius_cluster_starts_from_a_salvaged_snapshot() {
    is_salvaged("mencius", 360);
}

/// A later node has its name and the number of its acceptor, but not its votes.
#[test]
fn a_former_node_does_not_count_in_a_salvage() {
    let mut cluster = Cluster::start("colocated", DISK, &[]);
    let data = cluster.data();
    let add = || {
        let address = format!("127.0.0.1:{}", free_port());
        works(&[
            "member",
            "add",
            "n3",
            "--address",
            &address,
            "--roles",
            "acceptor,replica",
            "--quorums",
            "counts 2/3",
            "--data",
            &data,
        ]);
    };
    add();
    works(&[
        "member",
        "remove",
        "n3",
        "--quorums",
        "majority",
        "--data",
        &data,
    ]);
    add();
    let mut client = cluster.client(0);
    (0..100).for_each(|number| set(&mut client, number));
    (0..3).for_each(|place| cluster.signal(place, Signal::SIGSTOP));
    cluster.kill_all();

    let [n1, new, old] = ["n1", "n3", "n3.left-4"].map(|name| format!("{data}/nodes/{name}"));
    let salvage = |one: &str, other: &str, output: &str| {
        let output = at(&cluster.directory, output);
        works(&["snapshot", "salvage", one, other, "--output", &output])
    };
    let said = salvage(&n1, &new, "new");
    assert!(said.contains("contains every acknowledged write"), "{said}");
    let said = salvage(&n1, &old, "old");
    assert!(said.contains("Possibly lost"), "{said}");
    let both = at(&cluster.directory, "both");
    let why = refused(1, &["snapshot", "salvage", &new, &old, "--output", &both]);
    assert!(why.contains("are both directories of a node n3"), "{why}");
}

/// `kept`: in which slot more than 100 commands are executed.
fn is_salvaged(preset: &str, kept: u64) {
    let mut cluster = Cluster::start(preset, DISK, &[]);
    let mut client = cluster.client(0);
    (0..200).for_each(|number| set(&mut client, number));
    let nodes = ["n0", "n1", "n2"].map(|name| format!("{}/nodes/{name}", cluster.data()));
    let running = refused(
        1,
        &[
            "snapshot",
            "salvage",
            &nodes[0],
            "--output",
            &at(&cluster.directory, "no"),
        ],
    );
    assert!(
        running.contains("is in use by another process"),
        "{running}"
    );
    let stored: Vec<u64> = eventually("every replica has stored something", || {
        let stored = |node: &Value| {
            let roles = node["status"]["roles"].as_array()?.iter();
            roles
                .filter(|role| role["role"] == "replica")
                .map(|role| role["stored"].as_u64())
                .next()?
        };
        let nodes = cluster.status()["nodes"].as_array().unwrap().clone();
        let enough = |node| stored(node).filter(|stored| *stored > kept);
        nodes.iter().map(enough).collect()
    });
    // The one with the latest snapshot comes last: another one may lack slots that its acceptor has
    // forgotten, because these two have stored them.
    let mut order = [0, 1, 2];
    order.sort_by_key(|node: &usize| stored[*node]);
    let [n0, n1, n2] = order.map(|node| nodes[node].clone());
    // Like a power failure: what remains is what had been synced.
    (0..3).for_each(|place| cluster.signal(place, Signal::SIGSTOP));
    cluster.kill_all();

    // With a quorum nothing is lost.
    let (config, all) = (
        at(&cluster.directory, "given.toml"),
        at(&cluster.directory, "all"),
    );
    let said = works(&[
        "snapshot", "salvage", &n0, &n1, "--config", &config, "--output", &all,
    ]);
    assert!(said.contains("contains every acknowledged write"), "{said}");
    assert_eq!(
        (
            inspect(&all)["keys"].as_u64(),
            inspect(&all)["complete"].as_bool()
        ),
        (Some(200), Some(true))
    );

    // With one node of three: its snapshot and its acceptor's votes, up to the first gap.
    let one = at(&cluster.directory, "one");
    let said = works(&["snapshot", "salvage", &n2, "--output", &one]);
    assert!(
        said.contains("Possibly lost") && said.contains("Possibly added"),
        "{said}"
    );
    let stored = inspect(&n2)["keys"].as_u64().unwrap();
    let keys = inspect(&one)["keys"].as_u64().unwrap();
    assert!(
        stored > 100 && (stored..=200).contains(&keys),
        "{stored} stored, {keys} salvaged"
    );
    let past = at(&cluster.directory, "past");
    works(&[
        "snapshot",
        "salvage",
        &n2,
        "--past-holes",
        "--output",
        &past,
    ]);
    assert!((keys..=200).contains(&inspect(&past)["keys"].as_u64().unwrap()));
    let copy = at(&cluster.directory, "copy");
    works(&["snapshot", "save", &copy, "--stopped", &n2]);
    assert_eq!(inspect(&copy)["keys"], stored);

    let new = restore(preset, &one);
    assert_has(&new, keys);
    // Salvage has not changed the directories: the old cluster still starts.
    cluster.start_again(&[]);
    assert_has(&cluster, 200);
}

#[test]
fn unusable_snapshots_are_refused_with_a_reason() {
    let mut cluster = Cluster::start("colocated", DISK, &[]);
    set(&mut cluster.client(0), 0);
    let file = at(&cluster.directory, "file");
    works(&["snapshot", "save", &file, "--data", &cluster.data()]);
    cluster.stop(Signal::SIGTERM);
    let (config, data) = (
        at(&cluster.directory, "given.toml"),
        at(&cluster.directory, "elsewhere"),
    );
    let restore = |file: &str, config: &str| {
        [
            "snapshot", "restore", file, "--config", config, "--data", &data,
        ]
        .map(str::to_owned)
        .to_vec()
    };
    let refused_restore = |code, file: &str, config: &str| {
        let arguments = restore(file, config);
        refused(
            code,
            &arguments.iter().map(String::as_str).collect::<Vec<_>>(),
        )
    };

    let same = refused_restore(2, &file, &config);
    assert!(
        same.contains("the name of the cluster of the snapshot, \"old\"")
            && same.contains("--same-name")
    );
    let memory = at(&cluster.directory, "memory.toml");
    fs::write(
        &memory,
        deployment("colocated", &["cluster=new", "durability=memory"]).to_toml(),
    )
    .unwrap();
    assert!(refused_restore(1, &file, &memory).contains("it must be \"disk\""));
    let other = at(&cluster.directory, "other.toml");
    let disk = deployment("colocated", &["cluster=new", "durability=disk"]);
    fs::write(&other, disk.to_toml()).unwrap();
    let into = cluster.data();
    let why = refused(
        1,
        &[
            "snapshot", "restore", &file, "--config", &other, "--data", &into,
        ],
    );
    assert!(why.contains("is of cluster old, "), "{why}");

    let bytes = fs::read(&file).unwrap();
    let broken = at(&cluster.directory, "broken");
    let mut flipped = bytes.clone();
    let middle = bytes.len() - 60;
    flipped[middle] ^= 4;
    for (content, word) in [
        (
            &b"no snapshot at all, but long enough to be one"[..],
            "is not a snapshot",
        ),
        (b"", "is not a snapshot"),
        (&bytes[..bytes.len() - 1], "is damaged at byte"),
        (&flipped, "is damaged at byte"),
    ] {
        fs::write(&broken, content).unwrap();
        assert!(
            refused(1, &["snapshot", "inspect", &broken]).contains(word),
            "{word}"
        );
        assert!(
            refused_restore(1, &broken, &config).contains(word),
            "{word}"
        );
    }
    assert!(
        !fs::exists(&data).unwrap(),
        "a refusal leaves nothing behind"
    );
    assert!(
        refused(1, &["snapshot", "inspect", &at(&cluster.directory, "none")])
            .contains("cannot open")
    );
    let stored = format!("{}/nodes/n0/snapshots/replica-0", cluster.data());
    if fs::exists(&stored).unwrap() {
        assert!(refused(1, &["snapshot", "inspect", &stored]).contains("not a backup"));
    }
    let whole = refused(
        1,
        &[
            "snapshot",
            "salvage",
            &cluster.data(),
            "--output",
            &broken.replace("broken", "x"),
        ],
    );
    assert!(
        whole.contains("is not the data directory of a node with durability \"disk\""),
        "{whole}"
    );
}

#[test]
fn nodes_restored_from_different_files_refuse_each_other() {
    let old = Cluster::start("colocated", DISK, &[]);
    let mut client = old.client(0);
    (0..10).for_each(|number| set(&mut client, number));
    let file = at(&old.directory, "saved");
    works(&["snapshot", "save", &file, "--data", &old.data()]);
    set(&mut client, 10);
    let other = at(&old.directory, "other");
    works(&["snapshot", "save", &other, "--data", &old.data()]);

    let directory = Directory::new();
    let deployment = deployment("colocated", &["durability=disk", "cluster=new"]);
    fs::write(directory.path("given.toml"), deployment.to_toml()).unwrap();
    let (config, data) = (at(&directory, "given.toml"), at(&directory, "data"));
    let place = directory.path("data/nodes/n2");
    let make = |node: &str, file: &str| {
        works(&[
            "snapshot", "restore", file, "--config", &config, "--data", &data, "--node", node,
        ])
    };
    let node = |name: &str| {
        let mut command = ionian();
        command.args(["node", name, "--config", &config, "--data", &data]);
        command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    };
    let refused = |says: &str| {
        let (code, error) = run_node(&["n2", "--config", &config, "--data", &data]);
        assert_eq!(code, Some(1), "{error}");
        assert!(error.lines().last().unwrap().contains(says), "{error}");
        fs::remove_dir_all(&place).unwrap();
    };
    make("n0", &file);
    make("n1", &file);
    let mut nodes = Nodes(vec![node("n0"), node("n1")]);
    // Empty, or restored from another file, and refused before it knows anything about n2.
    refused("was not restored from the same");
    make("n2", &other);
    refused("was not restored from the same");
    make("n2", &file);
    nodes.0.push(node("n2"));
    let gateway = |place: usize| {
        let gateway = deployment.nodes[place].gateway.as_ref().unwrap();
        gateway.rsplit_once(':').unwrap().1.parse::<u16>().unwrap()
    };
    eventually("the new cluster serves", || {
        std::net::TcpStream::connect(("127.0.0.1", gateway(2))).ok()?;
        let reply = Client::connect(gateway(2))
            .call(&["SET", "key:10", "value 10"])
            .ok()?;
        (reply == Reply::Status("OK".into())).then_some(())
    });
    // Its disk fails, and the node is restored from the same file again: without its votes since
    // then.
    let mut died = nodes.0.pop().unwrap();
    died.kill().unwrap();
    died.wait().unwrap();
    fs::remove_dir_all(&place).unwrap();
    make("n2", &file);
    refused("node 'n2' is known here by the data directory ");
    let mut client = Client::connect(gateway(1));
    for number in 0..11 {
        let reply = client.call(&["GET", &format!("key:{number}")]).unwrap();
        assert_eq!(reply, Reply::Bulk(Some(format!("value {number}"))));
    }
}
