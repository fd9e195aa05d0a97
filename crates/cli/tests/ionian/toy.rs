//! The protocol `toy` (crates/protocols/tests/toy) came in through the registry alone: every
//! command works for it, or refuses it with the protocol's own reason.

use crate::cluster::{Cluster, Directory, deployment, fails, works};
use nix::sys::signal::Signal;
use std::fs;

const PRESET: &str = "toy-pair";

#[test]
fn its_preset_setting_and_errors_are_those_that_it_declares() {
    assert!(works(&["config", "presets"]).contains("a server and two gateways"));
    let directory = Directory::new();
    let file = directory.path("ionian.toml");
    let path = file.to_str().unwrap();
    works(&["config", "init", "--preset", PRESET, path]);
    let summary = works(&["config", "check", path]);
    assert!(summary.contains("1 oracle"), "{summary}");
    let written = fs::read_to_string(&file).unwrap();
    assert!(written.contains("toy_copies = 2"), "{written}");
    for (from, to, why) in [
        ("toy_copies = 2", "toy_copies = 9", "1 to 3"),
        ("toy_copies = 2", "skip_slots = 9", "skip_slots"),
        ("\"oracle\"", "\"oracel\"", "oracle"),
    ] {
        assert!(written.contains(from), "{from}: {written}");
        fs::write(&file, written.replace(from, to)).unwrap();
        fails(&["config", "check", path], 1, why);
    }
}

#[test]
fn it_serves_clients_is_shown_saved_and_restored_and_refuses_new_members() {
    let disk = &["durability=disk", "cluster=toys"];
    let mut cluster = Cluster::start(PRESET, disk, &[]);
    cluster.client(0).set("a", "1");
    cluster.client(1).set("b", "2");
    let data = cluster.data();
    let shown = works(&["status", "--roles", "--data", &data]);
    assert!(shown.contains("copied_answers"), "{shown}");
    let status = cluster.status();
    let roles = status["nodes"][0]["status"]["roles"].as_array().unwrap();
    let oracle = roles.iter().find(|role| role["role"] == "oracle").unwrap();
    let copied = &oracle["metrics"]["copied_answers"];
    assert!(copied.as_u64().is_some_and(|copied| copied > 0), "{oracle}");

    fails(
        &["member", "remove", "gateway-1", "--data", &data],
        1,
        "a toy stays as it was made",
    );
    fails(
        &["options", "set", "heartbeat_ms=50", "--data", &data],
        1,
        "a toy stays as it was made",
    );

    let file = cluster.directory.path("saved").display().to_string();
    works(&["snapshot", "save", &file, "--data", &data]);
    assert!(works(&["snapshot", "inspect", &file]).contains("toy"));
    cluster.kill_all();
    cluster.start_again(&[]);
    assert_eq!(cluster.client(1).get("a").as_deref(), Some("1"));
    cluster.stop(Signal::SIGTERM);
    let oracle = cluster.data() + "/nodes/oracle-0";
    let salvaged = cluster.directory.path("salvaged").display().to_string();
    fails(
        &["snapshot", "salvage", &oracle, "--output", &salvaged],
        1,
        "toy",
    );

    let directory = Directory::new();
    let restored = deployment(PRESET, &["durability=disk", "cluster=new"]);
    let config = directory.path("given.toml");
    fs::write(&config, restored.to_toml()).unwrap();
    let (config, data) = (config.display().to_string(), directory.path("data"));
    let data = data.to_str().unwrap();
    works(&[
        "snapshot", "restore", &file, "--config", &config, "--data", data,
    ]);
    let restored = Cluster::start_in(directory, restored);
    assert_eq!(restored.client(0).get("b").as_deref(), Some("2"));
}
