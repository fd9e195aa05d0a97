//! Names of nodes that do not exist, in every command that takes one.

use crate::cluster::{Cluster, deployment, fails, run, text, works};
use crate::manual::all_commands;
use std::fs;

/// The arguments that take a name, with their commands. Those of `NAMED` name nodes that there must
/// be; a command that gets such an argument needs a case below.
const NAMED: &[&str] = &[
    "drain <NODE>",
    "member readmit <NODE>",
    "member remove <NODE>",
    "member replace <OLD>",
    "node <NODE>",
    "snapshot restore --node <NODE>",
];
const OTHERS: &[&str] = &[
    "certs client <NAME>",
    "config init --preset <NAME>",
    "exec --user <NAME>",
    "member add <NAME>",
    "member replace <NEW>",
    "node --http-host <NAME>",
    "plan --protocol <NAME>",
    "trace exec --user <NAME>",
    "up --preset <NAME>",
];

#[test]
fn every_argument_that_names_a_node_is_known_to_the_test_below() {
    let mut found = Vec::new();
    for (words, help) in all_commands() {
        let lines = help.lines().map(str::trim_start);
        let lines = lines.filter(|line| line.starts_with(['-', '<']));
        for line in lines {
            let mut words_of = line.split_whitespace().take(3);
            let is_name = |word: &&str| ["<NAME>", "<NODE>", "<OLD>", "<NEW>"].contains(word);
            let Some(name) = words_of.find(is_name) else {
                continue;
            };
            let flag = line.split_whitespace().find(|word| word.starts_with("--"));
            let words = words.iter().map(String::as_str).chain(flag).chain([name]);
            found.push(words.collect::<Vec<_>>().join(" "));
        }
    }
    found.sort_unstable();
    let mut known = [NAMED, OTHERS].concat();
    known.sort_unstable();
    assert_eq!(found, known);
}

#[test]
fn every_command_refuses_an_unknown_node_and_lists_the_known_ones() {
    let cluster = Cluster::start("colocated", &[], &[]);
    let data = cluster.data();
    let path = |name: &str| cluster.directory.path(name).to_str().unwrap().to_owned();
    let [file, other, snapshot, none] = ["given.toml", "other.toml", "s", "none"].map(path);
    works(&["snapshot", "save", &snapshot, "--data", &data]);
    let next = deployment("colocated", &["cluster=next"]);
    fs::write(&other, next.to_toml()).unwrap();
    let (gateway, set) = ("127.0.0.1:1", "node.n9.gateway=127.0.0.1:1");
    let at = ["--address", "127.0.0.1:2", "--gateway", gateway];
    let replace = ["member", "replace", "n9"];
    let n2 = &cluster.deployment.nodes[2];
    let at_n2 = ["--address", &n2.address, "--gateway", gateway];
    let cases: &[Vec<&str>] = &[
        vec!["drain", "n9", "--data", &data],
        vec!["drain", "n9", "--undo", "--data", &data],
        vec!["member", "readmit", "n9", "--lost", "0", "--data", &data],
        vec!["member", "remove", "n9", "--data", &data],
        [&replace[..], &["n3"], &at, &["--data", &data]].concat(),
        // A member that is at another address.
        [&replace[..], &["n2"], &at, &["--data", &data]].concat(),
        [&replace[..], &["n2"], &at_n2, &["--data", &data]].concat(),
        vec!["node", "n9", "--config", &file, "--data", &none],
        vec![
            "node", "n0", "--config", &file, "--data", &none, "--set", set,
        ],
        vec!["up", "--set", set, "--data", &none],
        vec!["config", "check", &file, "--set", set],
        vec!["config", "init", "--set", set, "-"],
        vec![
            "snapshot", "restore", &snapshot, "--config", &other, "--data", &none, "--node", "n9",
        ],
    ];
    for arguments in cases {
        let output = run(arguments);
        let error = text(&output.stderr);
        let code = output.status.code();
        assert!(matches!(code, Some(1 | 2)), "{arguments:?}: {output:?}");
        let names = ["n9", "n0, n1, n2"].map(|name| error.contains(name));
        assert_eq!(names, [true; 2], "{arguments:?}: {error}");
    }
    // None of them has changed anything.
    let listed = works(&["member", "list", "--data", &data]);
    assert!(
        !listed.contains("n3") && listed.contains("epoch 0"),
        "{listed}"
    );
    assert!(!fs::exists(none).unwrap());
}

#[test]
fn the_directory_of_one_node_is_no_data_directory_for_nodes() {
    let cluster = Cluster::start("colocated", &[], &[]);
    let path = |name: &str| cluster.directory.path(name).to_str().unwrap().to_owned();
    let [file, other, snapshot] = ["given.toml", "other.toml", "s"].map(path);
    works(&["snapshot", "save", &snapshot, "--data", &cluster.data()]);
    let next = deployment("colocated", &["cluster=next"]);
    fs::write(&other, next.to_toml()).unwrap();
    let of_n0 = path("data/nodes/n0");
    let restore = ["snapshot", "restore", &snapshot, "--config", &other];
    for command in [
        &["node", "n1", "--config", &file][..],
        &["node", "n0", "--config", &file],
        &["node", "n1", "--join", &cluster.deployment.nodes[2].address],
        &["up"],
        &["up", &file],
        &restore,
    ] {
        let says = "this is the directory of node n0 alone; name the data directory";
        fails(&[command, &["--data", &of_n0]].concat(), 2, says);
    }
    for inside in ["nodes", "run", "logs"] {
        assert!(!fs::exists(path(&format!("data/nodes/n0/{inside}"))).unwrap());
    }
}
