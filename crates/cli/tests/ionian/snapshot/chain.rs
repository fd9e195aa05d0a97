//! Backups of CRAQ: which nodes are in the chain decides what was acknowledged, and beside the
//! chain there is the log of the master.

use super::{DISK, at, inspect, refused, set};
use crate::cluster::{Cluster, Nodes, eventually, ionian, run, works};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::process::Stdio;

/// What the roles of this kind report under this name, node by node.
fn reported(cluster: &Cluster, kind: &str, of: fn(&Value) -> &Value) -> Vec<u64> {
    let status = cluster.status();
    let nodes = status["nodes"].as_array().unwrap().iter();
    let roles = nodes.filter_map(|node| node["status"]["roles"].as_array());
    let those = roles.flatten().filter(|role| role["role"] == kind);
    those.filter_map(|role| of(role).as_u64()).collect()
}

#[test]
fn a_node_that_was_removed_from_the_chain_does_not_tell_what_was_acknowledged() {
    let cluster = Cluster::start("craq", DISK, &["--no-restart"]);
    let data = cluster.data();
    let mut client = cluster.client(0);
    (0..30).for_each(|number| set(&mut client, number));
    cluster.signal(2, Signal::SIGKILL);
    eventually("it is removed", || {
        let members = reported(&cluster, "chain_node", |role| &role["metrics"]["members"]);
        (members == [2, 2]).then_some(())
    });
    (30..60).for_each(|number| set(&mut client, number));
    // The two that are left are the whole chain.
    let whole = at(&cluster.directory, "whole");
    works(&["snapshot", "save", &whole, "--data", &data]);
    let head = inspect(&whole);
    assert_eq!(
        (head["keys"].as_u64(), head["complete"].as_bool()),
        (Some(60), Some(true))
    );

    cluster.signal(0, Signal::SIGSTOP);
    cluster.signal(1, Signal::SIGSTOP);
    let config = at(&cluster.directory, "given.toml");
    let mut node = ionian();
    node.args(["node", "n2", "--config", &config, "--data", &data]);
    node.stdout(Stdio::null()).stderr(Stdio::null());
    let _node = Nodes(vec![node.spawn().unwrap()]);
    eventually("it answers, and takes itself for a member", || {
        let places = reported(&cluster, "chain_node", |role| &role["metrics"]["place"]);
        (places == [3]).then_some(())
    });
    let stale = at(&cluster.directory, "stale");
    let why = refused(1, &["snapshot", "save", &stale, "--data", &data]);
    assert!(
        why.contains("to know what was acknowledged: n0: ") && why.contains("--allow-stale"),
        "{why}"
    );
    works(&["snapshot", "save", &stale, "--data", &data, "--allow-stale"]);
    let head = inspect(&stale);
    assert!(head["keys"].as_u64().unwrap() <= 30, "{head}");
    assert_eq!(head["complete"].as_bool(), Some(false));
}

#[test]
fn a_backup_has_the_data_where_the_log_of_the_master_is_longer() {
    let cluster = Cluster::start("craq", DISK, &[]);
    let data = cluster.data();
    set(&mut cluster.client(0), 0);
    eventually("the log of the master is longer", || {
        // The probe writes; on a busy machine the nodes may not be healthy at once.
        run(&["status", "--probe", "--data", &data]);
        let executed = |kind| reported(&cluster, kind, |role| &role["executed"]).into_iter();
        let (least, most) = (executed("chain_node").min(), executed("chain_node").max());
        (least == most && executed("master").min() > most).then_some(())
    });
    let file = at(&cluster.directory, "saved");
    works(&["snapshot", "save", &file, "--data", &data]);
    let head = inspect(&file);
    assert_eq!(
        (head["keys"].as_u64(), head["complete"].as_bool()),
        (Some(1), Some(true))
    );
    // Nor is it mistaken for the data where it is not known what was acknowledged.
    cluster.signal(1, Signal::SIGSTOP);
    cluster.signal(2, Signal::SIGSTOP);
    let stale = at(&cluster.directory, "stale");
    works(&["snapshot", "save", &stale, "--data", &data, "--allow-stale"]);
    let head = inspect(&stale);
    assert_eq!(
        (head["keys"].as_u64(), head["complete"].as_bool()),
        (Some(1), Some(false))
    );
}
