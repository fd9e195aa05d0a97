//! Nodes that join a cluster under `ionian up`, which starts them.

use super::{done, local, member};
use crate::cluster::{Cluster, eventually, free_port};
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
