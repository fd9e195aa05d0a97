//! Nodes that join a cluster under `ionian up`, which starts them.

use super::{done, local, member};
use crate::cluster::{Cluster, eventually, free_port, works};
use nix::sys::signal::Signal;
use std::net::TcpListener;

#[test]
fn up_starts_a_joining_node_when_its_port_is_free() {
    for is_gateway in [false, true] {
        let cluster = Cluster::start("colocated", &[], &[]);
        let (address, gateway) = (local(free_port()), local(free_port()));
        let in_use = if is_gateway { &gateway } else { &address };
        let taken = TcpListener::bind(in_use).unwrap();
        let add = [
            "add",
            "n3",
            "--address",
            &address,
            "--gateway",
            &gateway,
            "--roles",
            "acceptor,replica",
        ];
        let begun = member(&cluster, &[&add[..], &["--no-wait"]].concat());
        assert_eq!(done(&begun), "epoch 1 begins\n");
        let (_, port) = in_use.rsplit_once(':').unwrap();
        let says =
            format!("node n3 has joined the cluster and waits to start: port {port} is in use");
        let said = eventually("it is reported", || {
            Some(cluster.stderr()).filter(|said| said.ends_with('\n') && said.contains(&says))
        });
        assert!(said.contains("`ionian member abandon`"), "{said}");
        assert!(
            !said.contains("--listen") && !said.contains("--node-port"),
            "{said}"
        );
        drop(taken);
        let said = done(&member(&cluster, &add));
        assert!(
            said.ends_with("done: the cluster is in epoch 2\n"),
            "{said}"
        );
        let said = cluster.stderr();
        assert_eq!(said.matches(&says).count(), 1, "{said}");
        assert!(
            said.contains("node n3 has joined the cluster and starts"),
            "{said}"
        );
    }
}

/// The second node of the name is added before the process of the first has ended.
#[test]
fn up_starts_a_node_with_the_name_of_one_that_left() {
    let mut cluster = Cluster::start("colocated", &[], &[]);
    let add = |cluster: &Cluster, name: &str, flags: &[&str]| {
        let address = local(free_port());
        let arguments = ["add", name, "--address", &address, "--roles"];
        done(&member(cluster, &[&arguments[..], flags].concat()));
    };
    add(&cluster, "n3", &["acceptor,replica"]);
    done(&member(&cluster, &["remove", "n3"]));
    add(&cluster, "n3", &["acceptor,replica"]);
    cluster.client(0).set("k", "v");
    // A founding node, which does not start from the founding deployment any more.
    done(&member(&cluster, &["remove", "n1"]));
    let gateway = local(free_port());
    add(
        &cluster,
        "n1",
        &["leader,acceptor,replica", "--gateway", &gateway],
    );
    let said = cluster.stderr();
    for name in ["n1", "n3"] {
        let says = format!(
            "node {name} is new and has the name of a node that has left, whose data is in "
        );
        assert_eq!(said.matches(&says).count(), 1, "{said}");
        let left = format!("node {name} has left the cluster");
        assert_eq!(said.matches(&left).count(), 1, "{said}");
    }
    let kept = std::fs::read_dir(cluster.directory.path("data/nodes")).unwrap();
    let mut kept: Vec<String> = kept
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.contains(".left-"))
        .collect();
    kept.sort_unstable();
    assert_eq!(kept, ["n1.left-8", "n3.left-4"]);

    cluster.stop(Signal::SIGTERM);
    let shown = works(&["log", "show", "--data", &cluster.data()]);
    let said = |name: &str| shown.matches(&format!("node {name}: ")).count();
    assert_eq!(["n0", "n1", "n2", "n3"].map(said), [1; 4], "{shown}");

    // All members start again.
    let mut again = cluster.deployment.nodes.remove(1);
    again.gateway = Some(gateway);
    cluster.deployment.nodes.push(again);
    cluster.start_again(&[]);
    assert_eq!(cluster.client(2).get("k"), Some("v".into()));
    eventually("all are up", || {
        (cluster.status()["nodes_up"] == 4).then_some(())
    });
    let said = cluster.stderr();
    assert!(!said.contains("has left"), "{said}");
    cluster.stop(Signal::SIGTERM);
}
