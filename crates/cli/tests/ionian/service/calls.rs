//! The unit allows each system call that a node makes.

use super::{NODE, unit};
use crate::cluster::{Nodes, deployment, eventually, ionian};
use crate::common::{Directory, text};
use crate::resp::Client;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// What systemd calls a group of calls, with the names in it: calls and further groups.
fn groups() -> Option<BTreeMap<String, Vec<String>>> {
    let mut command = Command::new("systemd-analyze");
    let output = command.args(["syscall-filter", "--no-pager"]).output();
    let Ok(output) = output else {
        eprintln!("not checked: systemd-analyze is not installed");
        return None;
    };
    let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut name = String::new();
    for line in text(&output.stdout).lines() {
        match line.strip_prefix("    ") {
            Some(member) if !member.starts_with('#') => {
                groups.entry(name.clone()).or_default().push(member.into());
            }
            Some(_) => {}
            None => name = line.to_owned(),
        }
    }
    Some(groups)
}

/// The calls of a group.
fn calls(name: &str, groups: &BTreeMap<String, Vec<String>>) -> BTreeSet<String> {
    if !name.starts_with('@') {
        return [name.to_owned()].into();
    }
    let members = groups.get(name).unwrap_or_else(|| panic!("no {name}"));
    members.iter().flat_map(|it| calls(it, groups)).collect()
}

/// The calls that a unit allows: what its filters add, one after the other, and what they remove.
fn allowed(unit: &str, groups: &BTreeMap<String, Vec<String>>) -> BTreeSet<String> {
    let mut allowed = BTreeSet::new();
    let filters = unit
        .lines()
        .filter_map(|it| it.strip_prefix("SystemCallFilter="));
    for filter in filters {
        let names = filter.trim_start_matches('~').split_whitespace();
        let calls = names.flat_map(|it| calls(it, groups));
        match filter.starts_with('~') {
            true => calls.for_each(|it| _ = allowed.remove(&it)),
            false => allowed.extend(calls),
        }
    }
    allowed
}

/// The calls in a summary of `strace -c`, once it is complete.
fn summary(file: &Path) -> Option<BTreeSet<String>> {
    let text = fs::read_to_string(file).ok()?;
    let lines = text.lines().filter(|it| !it.starts_with("----"));
    let last = |line: &str| Some(line.split_whitespace().last()?.to_owned());
    let mut calls: BTreeSet<String> = lines.filter_map(last).collect();
    // The last line, and the head of the column.
    (calls.remove("total") && calls.remove("syscall")).then_some(calls)
}

/// Whether strace is here, and may trace.
fn can_trace(directory: &Directory) -> bool {
    let mut command = Command::new("strace");
    command.args(["-c", "-o"]).arg(directory.path("probe"));
    let can = command.arg("true").stderr(Stdio::null()).status();
    let can = can.is_ok_and(|it| it.success());
    if !can {
        eprintln!("not checked: strace is not installed, or may not trace");
    }
    can
}

/// Starts a node. With a file its calls are counted there: the child is the node all the same.
fn start(directory: &Directory, name: &str, counted: Option<&Path>) -> Child {
    let program = env!("CARGO_BIN_EXE_ionian");
    let mut command = match counted {
        None => ionian(),
        Some(file) => {
            let mut command = Command::new("strace");
            command.args(["-D", "-f", "-c", "-o"]).arg(file);
            command.arg(program);
            command
        }
    };
    command
        .args(["node", name, "--config"])
        .arg(directory.path("cluster.toml"))
        .arg("--data")
        .arg(directory.path(name))
        .arg("--http=127.0.0.1:0")
        .stderr(Stdio::null());
    command.spawn().unwrap()
}

#[test]
fn the_unit_allows_each_call_of_a_node_under_load() {
    let Some(groups) = groups() else { return };
    let allowed = allowed(&unit(NODE), &groups);
    let has = |name: &str| allowed.contains(name);
    assert!(has("openat") && !has("mount") && !has("setpriority"));

    let directory = Directory::new();
    if !can_trace(&directory) {
        return;
    }
    let deployment = deployment("colocated", &[]);
    fs::write(directory.path("cluster.toml"), deployment.to_toml()).unwrap();
    let file = directory.path("calls");
    let counted = start(&directory, "n0", Some(&file));
    let id = Pid::from_raw(counted.id() as i32);
    let mut nodes = Nodes(vec![counted]);
    let others = ["n1", "n2"].map(|name| start(&directory, name, None));
    nodes.0.extend(others);
    let gateway = deployment.nodes[0].gateway.as_ref().unwrap();
    let port = gateway.rsplit_once(':').unwrap().1.parse().unwrap();
    let mut client = eventually("the node takes clients", || Client::try_connect(port).ok());
    for number in 0..300 {
        let key = format!("k{number}");
        client.set(&key, &"v".repeat(number * 100));
        assert!(client.get(&key).is_some());
    }
    // It reads its certificates again, writes a backup, and drains.
    kill(id, Signal::SIGHUP).unwrap();
    fs::create_dir(directory.path("backup")).unwrap();
    let backup = ionian()
        .args(["snapshot", "save", "--data"])
        .arg(directory.path("n0"))
        .arg("--into")
        .arg(directory.path("backup"))
        .args(["--keep", "1"])
        .output()
        .unwrap();
    assert!(backup.status.success(), "{}", text(&backup.stderr));
    kill(id, Signal::SIGTERM).unwrap();
    let status = eventually("the node stops", || nodes.0[0].try_wait().unwrap());
    assert_eq!(status.code(), Some(0));
    let made = eventually("its calls are counted", || summary(&file));
    assert!(made.contains("fdatasync"), "{made:?}");
    let refused: Vec<_> = made.difference(&allowed).collect();
    assert!(refused.is_empty(), "the unit refuses {refused:?}");
}
