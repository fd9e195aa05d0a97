//! A node is replaced by one with another name at the same addresses.

use super::{done, member, refused};
use crate::cluster::{Cluster, eventually, run, run_node, text};
use crate::failures::Writer;
use crate::resp::Client;
use nix::sys::signal::{Signal, kill};

/// Where other nodes, and where clients find it.
fn addresses_of_n1(cluster: &Cluster) -> (String, String) {
    let n1 = &cluster.deployment.nodes[1];
    let gateway = n1.gateway.clone().expect("a gateway");
    (n1.address.clone(), gateway)
}

/// A machine gets a new disk, or a pod an empty volume: the new node has another name only, and
/// the addresses of the old one, which must have stopped.
#[test]
fn a_node_is_replaced_by_one_with_its_addresses() {
    let cluster = Cluster::start("colocated", &["durability=disk"], &["--no-restart"]);
    let (address, gateway) = addresses_of_n1(&cluster);
    let to = ["--address", &address, "--gateway", &gateway];
    let replace = [&["replace", "n1", "n3"], &to[..]].concat();
    let (code, said) = refused(&member(&cluster, &replace));
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("node n1 runs, and n3 is to have its address. Stop n1 first"),
        "{said}"
    );
    let writer = Writer::start(cluster.gateways()[0], "k");
    writer.go_on(20);
    cluster.signal(1, Signal::SIGKILL);
    let said = done(&member(&cluster, &replace));
    assert!(
        said.ends_with("done: the cluster is in epoch 2\n"),
        "{said}"
    );
    writer.go_on(20);
    let keys = writer.finish();
    // A file that knows only the node before it does not hide the one that has its address now.
    let given = cluster.directory.path("given.toml");
    let given = given.to_str().expect("a path");
    let again = [&["member", "replace", "n3", "n4"], &to[..]].concat();
    let (code, said) = refused(&run(&[&again[..], &["--config", given]].concat()));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("node n3 runs, and n4 is to have"), "{said}");
    // What comes back with the old name and data finds its ports taken.
    let (code, said) = run_node(&["n1", "--config", given, "--data", &cluster.data()]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("in use"), "{said}");
    let mut client = Client::connect(cluster.gateways()[1]);
    for key in &keys {
        assert_eq!(client.get(key).as_ref(), Some(key));
    }
    let listed = done(&member(&cluster, &["list"]));
    assert!(listed.contains("n3") && !listed.contains("n1"), "{listed}");
    // A file of now has nothing to be told, though it does not say of which epoch it is.
    let present = cluster.directory.path("present.toml");
    std::fs::write(&present, done(&member(&cluster, &["list", "--toml"]))).expect("a file");
    for (file, is_stale) in [(present.to_str().expect("a path"), false), (given, true)] {
        let status = run(&["status", "--config", file]);
        let said = text(&status.stderr);
        assert_eq!(said.contains("has changed"), is_stale, "{file}: {said}");
    }
}

/// `ionian up` starts a killed node again, until it knows that a new one waits for its ports.
#[test]
fn up_does_not_start_a_node_again_whose_addresses_a_new_one_waits_for() {
    let cluster = Cluster::start("colocated", &["durability=disk"], &[]);
    let (address, gateway) = addresses_of_n1(&cluster);
    let replace = [
        "replace",
        "n1",
        "n3",
        "--address",
        &address,
        "--gateway",
        &gateway,
        "--no-wait",
    ];
    let kill_n1 = || cluster.pid(1).map(|pid| kill(pid, Signal::SIGKILL));
    eventually("the change begins while n1 is down", || {
        kill_n1();
        (member(&cluster, &replace).status.code() == Some(0)).then_some(())
    });
    eventually("n3 takes the place of n1", || {
        kill_n1();
        let status = cluster.status();
        let names = status["nodes"].as_array()?.iter().map(|it| &it["name"]);
        (names.eq(["n0", "n2", "n3"]) && status["changing"] == false).then_some(())
    });
    eventually("n1 is given up", || {
        let said = cluster.stderr();
        said.contains("node n1 is not started again").then_some(())
    });
    Client::connect(cluster.gateways()[1]).set("k", "v");
}
