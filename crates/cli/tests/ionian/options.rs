//! `ionian options` on clusters of real processes.

use crate::cluster::{Cluster, eventually, run, text};
use crate::failures::Writer;
use ionian_kernel::level::Level;
use nix::sys::signal::Signal;
use std::process::Output;

fn options(cluster: &Cluster, arguments: &[&str]) -> Output {
    run(&[&["options"], arguments, &["--data", &cluster.data()]].concat())
}

fn upgrade(cluster: &Cluster, command: &str) -> Output {
    run(&["upgrade", command, "--data", &cluster.data()])
}

#[track_caller]
fn done(output: &Output) -> String {
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}

#[track_caller]
fn refused(output: &Output, code: i32, says: &str) {
    let said = text(&output.stderr);
    assert_eq!(
        (output.status.code(), said.contains(says)),
        (Some(code), true),
        "{said}"
    );
}

/// The words of an option's line in the list.
fn listed(cluster: &Cluster, key: &str) -> String {
    let list = done(&options(cluster, &["list"]));
    let line = list
        .lines()
        .find(|line| line.split_whitespace().next() == Some(key))
        .expect("it is listed");
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn options_and_the_level_change_under_load_and_survive_restarts() {
    let common = [
        "set",
        "heartbeat_ms=50",
        "election_timeout_ms=250",
        "window_slots=64",
        "retained_slots=4096",
        "batch_commands=20",
        "session_expiry_s=60",
    ];
    for (preset, own) in [
        ("colocated", None),
        ("mencius", Some("revoke_slots=1000")),
        ("spaxos", Some("stale_bytes=1000")),
    ] {
        let set: Vec<&str> = common.into_iter().chain(own).collect();
        let mut cluster = Cluster::start(preset, &["options.batch_commands=10", "level=17"], &[]);
        let writer = Writer::start(cluster.gateways()[0], "k");
        writer.go_on(50);
        let said = done(&options(&cluster, &set));
        assert!(said.starts_with("epoch 1 begins\n"), "{preset}: {said}");
        assert!(
            said.contains("options.batch_commands = 20 (was 10)\n"),
            "{preset}: {said}"
        );
        assert!(
            said.ends_with("done: the cluster is in epoch 1\n"),
            "{preset}: {said}"
        );
        writer.go_on(50);
        assert!(
            done(&options(&cluster, &set)).contains("have these values already (epoch 1)"),
            "{preset}"
        );
        // Every node has applied the change and logged it.
        for node in &cluster.deployment.nodes {
            let log = cluster
                .directory
                .path(&format!("data/logs/{}.log", node.name));
            eventually("each node follows", || {
                let log = std::fs::read_to_string(&log).unwrap();
                (log.contains("epoch 1: options.window_slots = 64")
                    && log.contains("options.batch_commands = 20"))
                .then_some(())
            });
        }
        let (now, next) = (Level::FIRST, Level(Level::FIRST.0 + 1));
        let said = done(&upgrade(&cluster, "status"));
        assert!(
            said.contains(&format!("level {now}, epoch 1\n"))
                && said.contains(&format!(
                    "finalize` raises the level to {}\n",
                    Level::LATEST
                )),
            "{preset}: {said}"
        );
        let said = done(&upgrade(&cluster, "finalize"));
        assert!(
            said.starts_with(&format!("epoch 2 begins: level {next}\n")),
            "{preset}: {said}"
        );
        writer.go_on(50);
        // One node is killed, and the new timers detect it if it led. Then all nodes are killed.
        cluster.signal(1, Signal::SIGKILL);
        writer.go_on(50);
        let keys = writer.finish();
        cluster.wait_until_whole();
        cluster.kill_all();
        cluster.start_again(&[]);
        let said = done(&upgrade(&cluster, "finalize"));
        assert!(
            said.starts_with("nothing to do"),
            "the level is kept: {preset}: {said}"
        );
        assert!(
            listed(&cluster, "window_slots")
                .starts_with("window_slots 64 default 8192 set for all nodes"),
            "{preset}"
        );
        assert!(
            listed(&cluster, "batch_commands").starts_with("batch_commands 20 "),
            "{preset}"
        );
        assert!(
            listed(&cluster, "batch_bytes").contains("per node, from its start"),
            "{preset}"
        );
        let mut client = cluster.client(1);
        for key in &keys {
            assert_eq!(client.get(key).as_ref(), Some(key), "{preset}");
        }
        cluster.stop(Signal::SIGTERM);
    }
}

#[test]
fn refused_options_name_the_alternative() {
    let mut cluster = Cluster::start("colocated", &[], &[]);
    refused(
        &options(&cluster, &["set", "heartbeat=50"]),
        2,
        "unknown key options.heartbeat",
    );
    refused(
        &options(&cluster, &["set", "heartbeat_ms=0"]),
        2,
        "a whole number from 1 to",
    );
    refused(
        &options(&cluster, &["set", "heartbeat_ms=1000"]),
        2,
        "at least twice options.heartbeat_ms = 1000",
    );
    refused(
        &options(&cluster, &["set", "patience_ms=100"]),
        2,
        "Restart one node after the other with --set",
    );
    refused(&options(&cluster, &["set"]), 2, "KEY=VALUE");
    assert!(
        listed(&cluster, "patience_ms")
            .contains("cannot change while the cluster runs: the gateway")
    );
    cluster.stop(Signal::SIGTERM);
    // Where `ionian up` cannot help, its error names the command that can.
    let data = cluster.data();
    let up = run(&[
        "up",
        "--data",
        &data,
        "--set",
        "options.heartbeat_ms=50",
        "--set",
        "options.window_slots=9",
    ]);
    refused(
        &up,
        1,
        &format!("ionian options set window_slots=9 heartbeat_ms=50 --data {data}"),
    );
    let plain = Cluster::start("unreplicated", &["level=17"], &[]);
    refused(
        &options(&plain, &["set", "heartbeat_ms=50"]),
        1,
        "stop it, change its file, and start it again",
    );
    refused(
        &upgrade(&plain, "finalize"),
        1,
        "an unreplicated cluster cannot be changed while it runs",
    );
}
