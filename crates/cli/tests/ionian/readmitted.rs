//! Nodes whose data is lost, and that an operator readmits.

use crate::cluster::{Cluster, eventually, run, text, works};
use crate::resp::Reply;
use nix::sys::signal::Signal;
use std::fs;
use std::path::PathBuf;

fn of_node(cluster: &Cluster, node: usize) -> PathBuf {
    cluster.directory.path(&format!("data/nodes/n{node}"))
}

/// The output of `up` about a node, once it contains these words.
fn said(cluster: &Cluster, node: usize, words: &[&str]) -> String {
    let begin = format!("node n{node} ");
    eventually(&format!("the output contains {words:?}"), || {
        let stderr = cluster.stderr();
        let mut lines = stderr.lines().filter(|line| line.starts_with(&begin));
        lines
            .find(|line| words.iter().all(|word| line.contains(word)))
            .map(str::to_owned)
    })
}

/// A node loses its data, which is kept elsewhere, and is refused. Gives the id of what is lost.
fn lose(cluster: &Cluster, node: usize, aside: &PathBuf) -> String {
    fs::create_dir_all(aside.parent().unwrap()).unwrap();
    fs::rename(of_node(cluster, node), aside).unwrap();
    cluster.signal(node, Signal::SIGKILL);
    let words = ["is known here by the data directory ", "--lost "];
    let refusal = said(cluster, node, &words);
    let id = refusal.split("--lost ").nth(1).unwrap();
    id.split(' ').next().unwrap().to_owned()
}

fn readmit(name: &str, lost: &str, data: &str) -> (bool, String) {
    let output = run(&["member", "readmit", name, "--lost", lost, "--data", data]);
    (output.status.success(), text(&output.stderr))
}

/// Its process may run, to be refused.
fn is_readmitted(cluster: &Cluster, node: usize, lost: &str) {
    let name = format!("n{node}");
    eventually("it is readmitted", || {
        readmit(&name, lost, &cluster.data()).0.then_some(())
    });
    cluster.wait_until_whole();
}

fn incr(cluster: &Cluster, gateway: usize) -> Reply {
    let mut client = cluster.client(gateway);
    client.call(&["INCR", "counter"]).unwrap()
}

/// Its leader begins no former instance again, and its acceptor contradicts nothing: the counters
/// are exact. It then has all that it needs to do without another node.
#[test]
fn an_epaxos_node_that_has_lost_its_data_takes_part_again_when_an_operator_says_so() {
    let mut cluster = Cluster::start("epaxos", &[], &[]);
    (0..20).for_each(|turn| {
        assert_eq!(incr(&cluster, turn % 3), Reply::Integer(turn as i64 + 1));
    });
    let there = cluster.directory.path("there");
    let lost = lose(&cluster, 0, &there.join("nodes/n0"));
    let root = cluster.data();
    let wrong = "\"n0\" is no id of a data directory, which has 32 hexadecimal digits";
    for (name, lost, data, why) in [
        ("n0", "n0", &root[..], wrong),
        (
            "n0",
            &format!("0{lost}"),
            &root,
            " is no id of a data directory",
        ),
        ("n1", &lost, &root, " in use by another process"),
        (
            "n0",
            &lost,
            there.to_str().unwrap(),
            "it has the data of a node, which is not lost",
        ),
        ("n0", &lost, "nowhere", "has no directory of a node \"n0\""),
    ] {
        eventually(why, || {
            let (works, error) = readmit(name, lost, data);
            assert!(!works);
            error.contains(why).then_some(())
        });
    }
    is_readmitted(&cluster, 0, &lost);
    let name = format!("node 'n0' has lost its data directory {lost} and is back without it");
    for node in ["n1", "n2"] {
        let log = fs::read_to_string(cluster.directory.path(&format!("data/logs/{node}.log")));
        assert!(log.unwrap().contains(&name), "{node}: {name}");
    }
    cluster.signal(1, Signal::SIGSTOP);
    (20..40).for_each(|turn| {
        assert_eq!(
            incr(&cluster, turn % 2 * 2),
            Reply::Integer(turn as i64 + 1)
        );
    });
    cluster.signal(1, Signal::SIGCONT);
    // What was lost may turn up again. No node accepts it any more.
    cluster.signal(0, Signal::SIGSTOP);
    fs::rename(of_node(&cluster, 0), cluster.directory.path("new")).unwrap();
    fs::rename(there.join("nodes/n0"), of_node(&cluster, 0)).unwrap();
    cluster.signal(0, Signal::SIGKILL);
    said(
        &cluster,
        0,
        &["node 'n0' is known here by the data directory ffffffffffffff01"],
    );
    cluster.stop(Signal::SIGTERM);
}

/// No instance leads to the state that the cluster was founded with: only a snapshot has it.
#[test]
fn all_nodes_of_a_restored_epaxos_cluster_lose_their_data_one_after_the_other() {
    let file = {
        let cluster = Cluster::start("epaxos", &[], &[]);
        cluster.client(0).set("before", "founding");
        let file = cluster.directory.path("s.snapshot");
        let file = file.to_str().unwrap();
        works(&["snapshot", "save", "--data", &cluster.data(), file]);
        let kept = std::env::temp_dir().join(format!("ionian-readmitted-{}", std::process::id()));
        fs::copy(file, &kept).unwrap();
        kept
    };
    let mut cluster = crate::snapshot::restore("epaxos", file.to_str().unwrap());
    fs::remove_file(file).unwrap();
    cluster.client(0).set("after", "founding");
    assert_eq!(incr(&cluster, 0), Reply::Integer(1));
    for (turn, node) in [2, 1, 0].into_iter().enumerate() {
        let lost = lose(
            &cluster,
            node,
            &cluster.directory.path(&format!("lost/{node}")),
        );
        is_readmitted(&cluster, node, &lost);
        assert_eq!(incr(&cluster, node), Reply::Integer(turn as i64 + 2));
        for key in ["before", "after"] {
            assert_eq!(cluster.client(node).get(key), Some("founding".into()));
        }
    }
    // All that they know of each other is on the new disks.
    cluster.kill_all();
    cluster.start_again(&[]);
    assert_eq!(incr(&cluster, 1), Reply::Integer(5));
    assert_eq!(cluster.client(2).get("before"), Some("founding".into()));
    cluster.stop(Signal::SIGTERM);
}

#[test]
fn where_members_can_change_a_node_without_its_data_is_replaced() {
    let cluster = Cluster::start("colocated", &[], &[]);
    fs::remove_dir_all(of_node(&cluster, 0)).unwrap();
    cluster.signal(0, Signal::SIGKILL);
    said(&cluster, 0, &["its data was deleted or exchanged"]);
    eventually("the directory is not in use", || {
        let (_, error) = readmit("n0", &"0".repeat(32), &cluster.data());
        let why = "replace n0 by a node of another name (ionian member replace)";
        error.contains(why).then_some(())
    });
}
