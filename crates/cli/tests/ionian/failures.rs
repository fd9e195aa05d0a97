//! Nodes that crash, and nodes that pause, while clients write.

use crate::cluster::{Cluster, eventually};
use crate::resp::{Client, Reply};
use nix::sys::signal::Signal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

/// Writes `PREFIX0`, `PREFIX1`, ... one after the other until it is stopped.
pub(crate) struct Writer {
    acknowledged: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    /// Returns the keys of all acknowledged writes.
    thread: JoinHandle<Vec<String>>,
}

impl Writer {
    pub(crate) fn start(port: u16, prefix: &'static str) -> Writer {
        let acknowledged = Arc::new(AtomicU64::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let (count, stopped) = (acknowledged.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            let mut keys = Vec::new();
            let mut client = Client::connect(port);
            for number in 0.. {
                if stopped.load(Ordering::Relaxed) {
                    break;
                }
                let key = format!("{prefix}{number}");
                match client
                    .call(&["SET", &key, &key])
                    .expect("the gateway lives")
                {
                    Reply::Status(_) => {
                        keys.push(key);
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                    Reply::Error(error) => assert!(error.starts_with("TRYAGAIN"), "{error}"),
                    other => panic!("{other:?}"),
                }
            }
            keys
        });
        Writer {
            acknowledged,
            stop,
            thread,
        }
    }

    /// Waits for `more` acknowledged writes.
    pub(crate) fn go_on(&self, more: u64) {
        let goal = self.acknowledged.load(Ordering::Relaxed) + more;
        eventually("writes are acknowledged", || {
            (self.acknowledged.load(Ordering::Relaxed) >= goal).then_some(())
        });
    }

    pub(crate) fn finish(self) -> Vec<String> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

#[test]
fn acknowledged_writes_survive_successive_node_failures_on_disk() {
    nodes_die_one_after_another("colocated", "durability=disk");
}

#[test]
fn acknowledged_writes_survive_successive_node_failures_in_memory() {
    nodes_die_one_after_another("colocated", "durability=memory");
}

#[test]
fn acknowledged_writes_survive_successive_node_failures_with_spaxos() {
    nodes_die_one_after_another("spaxos", "durability=disk");
    nodes_die_one_after_another("spaxos", "durability=memory");
}

#[test]
fn acknowledged_writes_survive_successive_node_failures_without_a_leader() {
    nodes_are_killed_in_turn("epaxos", "durability=disk");
    nodes_are_killed_in_turn("epaxos", "durability=memory");
    nodes_are_killed_in_turn("epaxos-5", "durability=disk");
}

/// No node leads, so each is the same to clients: each is killed while clients of two others write,
/// one of them to keys of its own, both to one counter.
fn nodes_are_killed_in_turn(preset: &str, durability: &str) {
    let cluster = Cluster::start(preset, &[durability], &[]);
    let nodes = cluster.deployment.nodes.len();
    let mut counted = 0;
    for victim in 0..nodes {
        let writer = Writer::start(cluster.gateways()[(victim + 1) % nodes], "k");
        let mut counter = cluster.client((victim + 2) % nodes);
        let mut count = |times: i64| {
            for _ in 0..times {
                counted += 1;
                let reply = counter.call(&["INCR", "counter"]).unwrap();
                assert_eq!(reply, Reply::Integer(counted), "{preset}");
            }
        };
        writer.go_on(20);
        count(20);
        let before = cluster.pid(victim);
        cluster.signal(victim, Signal::SIGKILL);
        writer.go_on(20);
        count(20);
        eventually("the node restarts", || {
            cluster.pid(victim).filter(|pid| Some(*pid) != before)
        });
        cluster.wait_until_whole_under_load();
        writer.go_on(20);
        let keys = writer.finish();
        cluster.wait_until_whole();
        let mut client = cluster.client(victim);
        for key in &keys {
            assert_eq!(client.get(key).as_ref(), Some(key), "{preset}");
        }
    }
    let total = cluster.client(0).get("counter");
    assert_eq!(total, Some(counted.to_string()), "{preset}");
}

#[test]
fn a_node_of_each_role_can_fail_under_load() {
    for (preset, roles, settings) in [
        ("spaxos-compartmentalized", 6, &[][..]),
        ("spaxos-batched", 6, &[]),
        ("epaxos-compartmentalized", 4, &["durability=disk"]),
        ("epaxos-compartmentalized", 4, &["durability=memory"]),
    ] {
        let cluster = Cluster::start(preset, settings, &[]);
        let writer = Writer::start(cluster.gateways()[0], "k");
        let first_of_its_kind = |name: &str| name.ends_with("-0") && !name.starts_with("gateway");
        let nodes = cluster.deployment.nodes.iter().enumerate();
        let victims: Vec<usize> = nodes
            .filter(|(_, node)| first_of_its_kind(&node.name))
            .map(|(place, _)| place)
            .collect();
        assert!(victims.len() >= roles, "{victims:?}");
        for victim in victims {
            let before = cluster.pid(victim);
            writer.go_on(20);
            cluster.signal(victim, Signal::SIGKILL);
            writer.go_on(20);
            eventually("the node restarts", || {
                cluster.pid(victim).filter(|pid| Some(*pid) != before)
            });
            cluster.wait_until_whole_under_load();
        }
        let keys = writer.finish();
        let mut client = cluster.client(1);
        for key in &keys {
            assert_eq!(client.get(key).as_ref(), Some(key), "{preset}");
        }
    }
}

fn nodes_die_one_after_another(preset: &str, durability: &str) {
    let cluster = Cluster::start(preset, &[durability], &[]);
    let mut keys = Vec::new();
    // Kills the leader's node, then, after its return, the node of the new leader, and finally a
    // follower.
    for (prefix, kills_leader) in [("a", true), ("b", true), ("c", false)] {
        let leader = cluster.leader();
        let victim = if kills_leader {
            leader
        } else {
            (leader + 1) % 3
        };
        let writer = Writer::start(cluster.gateways()[(victim + 1) % 3], prefix);
        writer.go_on(50);
        let before = cluster.pid(victim);
        cluster.signal(victim, Signal::SIGKILL);
        writer.go_on(50);
        eventually("the node restarts", || {
            cluster.pid(victim).filter(|pid| Some(*pid) != before)
        });
        cluster.wait_until_whole_under_load();
        writer.go_on(50);
        keys.extend(writer.finish());
        cluster.wait_until_whole();
        assert!(
            cluster
                .stderr()
                .contains("was killed by signal 9 (SIGKILL); restarting in")
        );
        // Through the node that was killed.
        let mut client = cluster.client(victim);
        for key in &keys {
            assert_eq!(client.get(key).as_ref(), Some(key));
        }
    }
}

#[test]
fn without_a_majority_clients_get_an_error() {
    let cluster = Cluster::start(
        "colocated",
        &["options.patience_ms=1500"],
        &["--no-restart"],
    );
    cluster.client(0).set("k", "v");
    cluster.signal(1, Signal::SIGKILL);
    cluster.signal(2, Signal::SIGKILL);
    let mut client = cluster.client(0);
    for command in [&["SET", "k", "w"][..], &["GET", "k"]] {
        // The client waits for a limited time only.
        let reply = client.call(command).unwrap();
        assert!(
            matches!(&reply, Reply::Error(error) if error.starts_with("TRYAGAIN")),
            "{command:?}: {reply:?}"
        );
    }
    // Eventual reads are served without a majority.
    client.call(&["IONIAN", "CONSISTENCY", "EVENTUAL"]).unwrap();
    assert_eq!(client.get("k"), Some("v".into()));
}

#[test]
fn service_resumes_when_a_majority_is_back() {
    let cluster = Cluster::start("colocated", &["options.patience_ms=1500"], &[]);
    cluster.client(0).set("k", "v");
    let leader = cluster.leader();
    let (asleep, other) = ((leader + 1) % 3, (leader + 2) % 3);
    // Two nodes pause, one of them the leader; then the other one continues.
    cluster.signal(leader, Signal::SIGSTOP);
    cluster.signal(asleep, Signal::SIGSTOP);
    let mut client = cluster.client(other);
    assert!(matches!(
        client.call(&["SET", "k", "w"]).unwrap(),
        Reply::Error(_)
    ));
    cluster.signal(asleep, Signal::SIGCONT);
    eventually("writes are taken again", || {
        matches!(client.call(&["SET", "k", "x"]).unwrap(), Reply::Status(_)).then_some(())
    });
    // The former leader must find out that it no longer leads.
    cluster.signal(leader, Signal::SIGCONT);
    let mut late = cluster.client(leader);
    let seen = eventually("the late one serves", || {
        match late.call(&["GET", "k"]).unwrap() {
            Reply::Bulk(value) => value,
            _ => None,
        }
    });
    assert_eq!(seen, "x");
    cluster.wait_until_whole();
}
