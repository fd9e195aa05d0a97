//! The commands that start no node, and those that query a cluster.

use crate::cluster::{
    Cluster, Directory, Nodes, deployment, eventually, fails, free_port, ionian, run, text, works,
};
use crate::resp::{Client, Reply};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

#[test]
fn config_init_writes_what_config_check_accepts() {
    let directory = Directory::new();
    let file = directory.path("ionian.toml");
    let path = file.to_str().unwrap();
    for line in works(&["config", "presets"]).lines() {
        let preset = line.split_whitespace().next().unwrap();
        works(&["config", "init", "--preset", preset, "--force", path]);
        let summary = works(&["config", "check", path]);
        assert!(
            summary.contains("clients connect to 127.0.0.1:7379"),
            "{summary}"
        );
    }
    works(&[
        "config",
        "init",
        "--preset",
        "compartmentalized",
        "--force",
        path,
    ]);
    let summary = works(&["config", "check", path]);
    assert!(
        summary
            .contains("4 acceptors in a 2x2 grid: a row reads (2 acceptors), a column writes (2)"),
        "{summary}"
    );
    assert!(
        summary.contains("10 proxy_leader  on proxy-leader-0 proxy-leader-1"),
        "{summary}"
    );

    fails(&["config", "init", path], 1, "--force");
    assert_eq!(
        works(&["config", "init", "-"]),
        works(&["config", "init", "--preset", "colocated", "-"])
    );
    fails(
        &["config", "init", "--preset", "none", "-"],
        2,
        "available: colocated",
    );
    fails(
        &["config", "init", "--set", "nonsense", "-"],
        2,
        "must be key=value",
    );
}

#[test]
fn config_check_explains_what_is_wrong() {
    let directory = Directory::new();
    let file = directory.path("wrong.toml");
    let path = file.to_str().unwrap();
    let good = works(&["config", "init", "-"]);
    let grid = "quorums = \"grid 1x3\"";
    for (from, to, says) in [
        (
            "f = 1",
            "f = 2",
            "wrong.toml: this is not a deployment of multipaxos: 3 acceptors in majorities tolerate f=1",
        ),
        (
            "quorums = \"majority\"",
            grid,
            "a 1x3 grid tolerates f=0, not f=1: rows and columns must be at least f+1 = 2",
        ),
        (
            "\"replica\"",
            "\"replika\"",
            "\"replika\": must be roles of multipaxos",
        ),
        ("f = 1", "g = 1", "unknown key g"),
        (
            "[options]",
            "[options]\nbatch_commands = 0",
            "options.batch_commands = 0",
        ),
    ] {
        fs::write(&file, good.replace(from, to)).unwrap();
        let output = run(&["config", "check", path]);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{to}: {error}");
        assert!(error.contains(says), "{to}: {error}");
    }
    fails(&["config", "check", "/nowhere.toml"], 1, "cannot be read");
    fails(
        &["node", "n7", "--config", path, "--data", "/nowhere"],
        1,
        "",
    );
}

#[test]
fn config_check_summarizes_the_network() {
    let directory = Directory::new();
    let file = directory.path("far.toml");
    let path = file.to_str().unwrap();
    let checked = |changes: &[&str]| {
        let sets = changes
            .iter()
            .flat_map(|change| ["--set", change])
            .collect::<Vec<_>>();
        works(&["config", "init", "--force", path]);
        works(&[&["config", "check", path], &sets[..]].concat())
    };
    assert!(!checked(&[]).contains("network"));
    assert!(
        checked(&["network.delay_ms=50"])
            .contains("\n! [network] has no effect: no node has a site")
    );
    let one = checked(&["network.delay_ms=50", "node.n0.site=A"]);
    assert!(one.contains("every node that has a site is at A"), "{one}");
    let two = checked(&["network.delay_ms=50", "node.n0.site=A", "node.n1.site=B"]);
    assert!(
        two.contains("from A to B and back: 50 ms each way\n"),
        "{two}"
    );
}

#[test]
fn bad_usage_has_an_exit_code_of_its_own() {
    for arguments in [
        &["frobnicate"][..],
        &["up", "--durability", "paper"],
        &["exec"],
    ] {
        fails(arguments, 2, "--help");
    }
    assert!(works(&["--version"]).starts_with("ionian "));
    assert!(works(&["up", "--help"]).contains("Examples:"));
    fails(&["snapshot", "save", "-"], 2, "written to a file");
    fails(
        &["snapshot", "salvage", "/nowhere", "--output", "-"],
        2,
        "written to a file",
    );
    fails(
        &["up", "a.toml", "--config", "b.toml"],
        2,
        "cannot be used with",
    );
    let version = works(&["--version"]);
    assert!(
        version.contains("supports levels ") && version.contains("backup format "),
        "{version}"
    );
    fails(&["status", "--data", "/nowhere"], 1, "holds no deployment");
    fails(
        &["exec", "--at", "127.0.0.1:1", "GET", "k"],
        1,
        "no gateway can be reached",
    );
    fails(
        &["exec", "--at", "127.0.0.1:1", "GET", "k", "--at", "h:1"],
        1,
        "--at was sent as a part of the command: options come before it: no gateway",
    );
    fails(
        &["trace", "exec", "GET", "k", "--data", "d"],
        1,
        "--data was sent as a part of the command: options come before it: ",
    );
    fails(
        &["exec", "--data", "/nowhere", "GET", "k"],
        1,
        "/nowhere holds no deployment",
    );
    fails(
        &["exec", "--at", "foo", "GET", "k"],
        2,
        "ionian: --at \"foo\": must be the HOST:PORT of a gateway\n",
    );
    let unknown = run(&["exec", "--at", "no.such.host.invalid:7", "GET", "k"]);
    let (code, said) = (unknown.status.code(), text(&unknown.stderr));
    let names = said.matches("no.such.host.invalid").count();
    assert_eq!((code, names), (Some(1), 1), "{said}");
}

#[test]
fn exec_and_status_ask_a_cluster() {
    let cluster = Cluster::start("unreplicated", &[], &[]);
    let data = cluster.data();
    let exec = |words: &[&str]| run(&[&["exec", "--data", &data], words].concat());
    assert_eq!(text(&exec(&["SET", "k", "a\nb"]).stdout), "OK\n");
    assert_eq!(text(&exec(&["GET", "k"]).stdout), "a\nb\n");
    assert_eq!(
        text(&exec(&["--consistency", "eventual", "STRLEN", "k"]).stdout),
        "3\n"
    );
    assert_eq!(text(&exec(&["MGET", "k", "none"]).stdout), "a\nb\n\n");
    let late = exec(&["GET", "k", "--data", &data]);
    let hint = "--data was sent as a part of the command: options come before it\n";
    assert_eq!(text(&late.stderr), hint, "{late:?}");
    let node = cluster.deployment.nodes[0].address.as_str();
    let says = format!("no reply from {node}, which must be a gateway's address");
    fails(&["exec", "--at", node, "PING"], 1, &says);
    let refused = exec(&["INCR", "k"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        text(&refused.stdout).starts_with("ERR value is not an integer"),
        "{refused:?}"
    );
    let shown = works(&["status", "--roles", "--data", &data]);
    assert!(
        shown.contains("1 of 1 nodes answer") && shown.contains("server 0  server-0"),
        "{shown}"
    );
    let status = cluster.status();
    assert_eq!(status["nodes"][0]["status"]["protocol"], "unreplicated");
    assert_eq!(status["nodes"][0]["up"], true);
}

#[test]
fn a_mistyped_flag_value_is_bad_usage() {
    let directory = Directory::new();
    let (file, data) = (directory.path("cluster.toml"), directory.path("data"));
    let (file, data) = (file.to_str().unwrap(), data.to_str().unwrap());
    fs::write(file, deployment("colocated", &[]).to_toml()).unwrap();
    for (arguments, said) in [
        (&["up", "--listen", "127.0.0.1:65535"][..], "65536"),
        (&["up", "--node-port", "65535"], "65536"),
        (
            &["up", "--config", file, "--listen", "127.0.0.1:65535"],
            "--listen 127.0.0.1:65535: ",
        ),
        (&["node", "n9", "--config", file], "n0, n1, n2"),
        (
            &["node", "n0", "--join", "abc"],
            "--join \"abc\": must be the HOST:PORT",
        ),
    ] {
        let output = run(&[arguments, &["--data", data]].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
        assert!(
            text(&output.stderr).contains(said),
            "{arguments:?}: {}",
            text(&output.stderr)
        );
    }
}

/// What a file cannot know: addresses of flags, and those at which nodes of one machine listen.
#[test]
fn one_address_for_two_things_is_refused_before_anything_starts() {
    let directory = Directory::new();
    let (file, data) = (directory.path("cluster.toml"), directory.path("data"));
    let (file, data) = (file.to_str().unwrap(), data.to_str().unwrap());
    let deployment = deployment("colocated", &[]);
    fs::write(file, deployment.to_toml()).unwrap();
    let node = &deployment.nodes[0];
    let (address, gateway) = (node.address.as_str(), node.gateway.as_deref().unwrap());
    let other = format!("127.0.0.1:{}", free_port());
    let all = format!("0.0.0.0:{}", other.rsplit_once(':').unwrap().1);
    let listen = format!("node.n1.listen={address}");
    let up = ["up", file, "--data", data];
    let start = ["node", "n0", "--config", file, "--data", data];
    for (command, flags, keys) in [
        (
            &up[..],
            &["--http", address][..],
            ["--http of node n0", "node.n0.address"],
        ),
        (
            &up,
            &["--http", gateway],
            ["--http of node n0", "node.n0.gateway"],
        ),
        (
            &up,
            &["--set", &listen],
            ["node.n1.listen", "node.n0.address"],
        ),
        (
            &start,
            &["--http", &other, "--listen", &other],
            ["--http", "--listen"],
        ),
        (
            &start,
            &["--http", &other, "--gateway-listen", &all],
            ["--http", "--gateway-listen"],
        ),
        (
            &start,
            &["--gateway-listen", address],
            ["--gateway-listen", "node.n0.address"],
        ),
        (
            &start,
            &["--listen", gateway],
            ["node.n0.gateway", "--listen"],
        ),
        (&start, &["--http", gateway], ["--http", "node.n0.gateway"]),
    ] {
        let output = run(&[command, flags].concat());
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {error}");
        let said = error.lines().last().unwrap();
        let begins = said.starts_with(&format!("ionian: {} = ", keys[0]));
        let ends = said.ends_with(&format!(": already used by {}", keys[1]));
        assert!(begins && ends, "{flags:?}: {error}");
    }
    assert!(!fs::exists(data).unwrap());
}

#[test]
fn a_missing_deployment_file_leaves_no_data_directory() {
    let directory = Directory::new();
    let data = directory.path("data");
    let output = run(&[
        "up",
        directory.path("none.toml").to_str().unwrap(),
        "--data",
        data.to_str().unwrap(),
    ]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(!data.exists());
}

#[test]
fn config_init_does_not_suggest_up_for_another_state_machine() {
    let directory = Directory::new();
    let file = directory.path("cluster.toml");
    let output = run(&[
        "config",
        "init",
        "--set",
        "machine=tally",
        file.to_str().unwrap(),
    ]);
    let said = text(&output.stdout);
    assert!(
        said.contains("its nodes need a program that contains the state machine \"tally\""),
        "{output:?}"
    );
    assert!(!said.contains("ionian up"), "{said}");
}

/// Scripts start background jobs with SIGINT ignored, so that a waiting command could not be
/// interrupted.
#[test]
fn ctrl_c_ends_a_waiting_command_even_if_sigint_was_ignored() {
    let directory = Directory::new();
    let file = directory.path("cluster.toml");
    // On free ports: a cluster that runs on the usual ones would end the wait.
    fs::write(&file, deployment("colocated", &[]).to_toml()).unwrap();
    let script = "trap '' INT; echo; exec \"$0\" status --wait --timeout 600 --config \"$1\"";
    let mut command = Command::new("sh");
    command.args([
        "-c",
        script,
        env!("CARGO_BIN_EXE_ionian"),
        file.to_str().unwrap(),
    ]);
    let mut waiting = Nodes(vec![command.stdout(Stdio::piped()).spawn().unwrap()]);
    let mut ignored = [0];
    waiting.0[0]
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut ignored)
        .unwrap();
    let status = eventually("it ends", || {
        kill(Pid::from_raw(waiting.0[0].id() as i32), Signal::SIGINT).unwrap();
        waiting.0[0].try_wait().unwrap()
    });
    assert_eq!(status.code(), Some(130));
}

#[test]
fn bad_values_are_named_with_what_is_allowed() {
    let long = "x".repeat(5000);
    let add = ["member", "add", "n3", "--address", "h:1", "--f", "-1"];
    let cases: &[(&[&str], &str)] = &[
        (&add, "-1 is not in 0..=31"),
        (
            &["status", "--wait", "--timeout", "-1"],
            "-1 is not in 0..=",
        ),
        (&["drain", "n1", "--timeout", "-1"], "-1 is not in 0..="),
        (
            &["up", "--set", "f=-1"],
            "f = \"-1\": must be a whole number from 0 to 31",
        ),
        (&["up", "--listen", "127.0.0.1"], "must be HOST:PORT"),
        (
            &["up", "src"],
            "src is a directory, and no deployment file; a data directory is named with --data",
        ),
        (
            &["up", "--data", "Cargo.toml"],
            "--data Cargo.toml: this is a file; a deployment file is named with --config",
        ),
        (&["status", "--data", "Cargo.toml"], "named with --config"),
        (
            &["exec", "--data", "Cargo.toml", "PING"],
            "named with --config",
        ),
        (
            &["config", "init", "--nodes", "0", "-"],
            "0 is not in 1..=1024",
        ),
        (
            &["config", "init", "--nodes", "3", "--hosts", "a,b", "-"],
            "3 nodes and 2 hosts: there must be one host for each node",
        ),
        (
            &["config", "init", "--set", "=1", "-"],
            "unknown key \"\"; available: cluster",
        ),
        (
            &["config", "init", "--set", &long, "-"],
            "x...\": must be key=value",
        ),
        (
            &["config", "init", "--preset", &long, "-"],
            "x...\"; available: colocated",
        ),
    ];
    for (arguments, says) in cases {
        fails(arguments, 2, says);
    }
    for (arguments, _) in &cases[cases.len() - 2..] {
        assert!(run(arguments).stderr.len() < 600, "it is shortened");
    }
}

#[test]
fn snapshot_save_names_a_missing_directory_before_it_asks_a_node() {
    let directory = Directory::new();
    let file = directory.path("missing/x.snapshot");
    let at = ["--at", "127.0.0.1:1"];
    fails(
        &[&["snapshot", "save", file.to_str().unwrap()], &at[..]].concat(),
        1,
        &format!(
            "there is no directory {}",
            directory.path("missing").display()
        ),
    );
}

#[test]
fn exec_names_the_status_if_no_gateway_serves() {
    let cluster = Cluster::start("colocated", &["durability=memory"], &[]);
    let data = cluster.data();
    for node in ["n0", "n1", "n2"] {
        works(&["drain", node, "--data", &data, "--force"]);
    }
    let says = "`ionian status` shows which nodes run, and which of them drain";
    fails(&["exec", "--data", &data, "GET", "k"], 1, says);
}

#[test]
fn exec_and_trace_log_in_and_find_gateways_in_a_file() {
    let cluster = Cluster::start("colocated", &[], &[]);
    let (data, password) = (cluster.data(), cluster.directory.path("password"));
    let config = cluster.directory.path("given.toml");
    let (config, path) = (config.to_str().unwrap(), password.to_str().unwrap());
    fs::write(&password, "secret\n").unwrap();
    let mode = |mode| fs::set_permissions(&password, fs::Permissions::from_mode(mode)).unwrap();
    mode(0o600);
    let rules = [
        "exec", "--data", &data, "ACL", "SETUSER", "eva", "on", ">secret", "~*", "+@all",
    ];
    assert_eq!(works(&rules), "OK\n");
    let whoami = [
        "--config",
        config,
        "--user",
        "eva",
        "--password-file",
        path,
        "ACL",
        "WHOAMI",
    ];
    assert_eq!(works(&[&["exec"], &whoami[..]].concat()), "eva\n");
    mode(0o640);
    let reason = "has mode 0640; only its owner may read it: chmod 0600";
    fails(&[&["exec"], &whoami[..]].concat(), 1, reason);
    mode(0o600);
    let set = [&["trace", "exec"], &whoami[..6], &["SET", "k", "v"]].concat();
    let traced = works(&set);
    assert!(traced.contains("replica"), "{traced}");
    let by_variable = ionian()
        .args(["exec", "--config", config, "--user", "eva", "ACL", "WHOAMI"])
        .env("IONIAN_PASSWORD", "secret")
        .output();
    assert_eq!(text(&by_variable.unwrap().stdout), "eva\n");
    fs::write(&password, "wrong").unwrap();
    fails(
        &[&["exec"], &whoami[..]].concat(),
        1,
        "the gateway refuses user eva: WRONGPASS",
    );
    let none = ["exec", "--config", config, "--user", "eva", "PING"];
    fails(
        &none,
        1,
        "--user needs --password-file FILE or the variable IONIAN_PASSWORD",
    );
    fails(
        &["exec", "--config", config, "--usr", "eva", "PING"],
        2,
        "--usr is no option here",
    );
}

#[test]
fn a_cluster_that_is_full_refuses_writes_until_there_is_room() {
    let mut cluster = Cluster::start("colocated", &["options.workers=2"], &[]);
    let limit = ["CONFIG", "SET", "maxmemory", "1mb"];
    assert_eq!(
        cluster.client(0).call(&limit).unwrap(),
        Reply::Status("OK".into())
    );
    let value = "v".repeat(50_000);
    let refused = |gateway: &mut Client, key: &str| match gateway.call(&["SET", key, &value]) {
        Ok(Reply::Error(error)) => error.starts_with("OOM ").then_some(()),
        _ => None,
    };
    let (mut writer, mut next) = (cluster.client(1), 0);
    eventually("it is full", || {
        next += 1;
        refused(&mut writer, &format!("k{next}"))
    });
    assert!(next > 20, "{next}");
    eventually("every gateway refuses", || {
        refused(&mut cluster.client(2), "other")
    });
    // A change that the log makes for the operator is no command of the machine.
    let data = cluster.data();
    works(&["options", "set", "heartbeat_ms=77", "--data", &data]);
    let listed = works(&["options", "list", "--data", &data]);
    let words: Vec<_> = listed.split_whitespace().collect();
    assert!(
        words.windows(2).any(|pair| pair == ["heartbeat_ms", "77"]),
        "{listed}"
    );
    assert!(refused(&mut writer, "other").is_some());
    cluster.kill_all();
    cluster.start_again(&[]);
    let mut client = cluster.client(0);
    eventually("it is full after a restart", || {
        refused(&mut client, "other")
    });
    let shown = eventually("the gateway knows the limit", || {
        let shown = client.call(&["CONFIG", "GET", "maxmemory"]).unwrap();
        (shown
            != Reply::Array(vec![
                Reply::Bulk(Some("maxmemory".into())),
                Reply::Bulk(Some("0".into())),
            ]))
        .then_some(shown)
    });
    assert_eq!(
        shown,
        Reply::Array(vec![
            Reply::Bulk(Some("maxmemory".into())),
            Reply::Bulk(Some((1 << 20).to_string())),
        ])
    );
    assert_eq!(
        client.call(&["FLUSHALL"]).unwrap(),
        Reply::Status("OK".into())
    );
    eventually("there is room", || {
        refused(&mut client, "other").is_none().then_some(())
    });
}
