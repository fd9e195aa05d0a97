//! A whole cluster moves: each node is replaced by a new one while clients write.

use super::{done, local, member};
use crate::cluster::{Cluster, free_port};
use crate::failures::Writer;
use crate::resp::Client;

/// At the end not one stabilizer, acceptor or replica is left that was there at the beginning: what
/// was acknowledged before is where the new ones took it over.
#[test]
fn all_nodes_of_spaxos_are_replaced_one_after_another_under_load() {
    let cluster = Cluster::start("spaxos", &["durability=disk"], &[]);
    let mut gateways = cluster.gateways();
    let large = "x".repeat(100_000);
    let mut keys = Vec::new();
    let rounds = [("a", "n0", "m0"), ("b", "n1", "m1"), ("c", "n2", "m2")];
    for (place, (prefix, old, new)) in rounds.into_iter().enumerate() {
        // The client of a node that stays.
        let stays = gateways[(place + 1) % 3];
        Client::connect(stays).set(&format!("large-{prefix}"), &large);
        let writer = Writer::start(stays, prefix);
        writer.go_on(20);
        let (address, gateway) = (local(free_port()), free_port());
        let replace = [
            "replace",
            old,
            new,
            "--address",
            &address,
            "--gateway",
            &local(gateway),
        ];
        let said = done(&member(&cluster, &replace));
        let epoch = 2 * (place + 1);
        assert!(
            said.ends_with(&format!("done: the cluster is in epoch {epoch}\n")),
            "{said}"
        );
        writer.go_on(20);
        keys.extend(writer.finish());
        gateways[place] = gateway;
    }
    let names: Vec<_> = cluster.status()["nodes"]
        .as_array()
        .expect("a list of nodes")
        .iter()
        .map(|node| node["name"].clone())
        .collect();
    assert_eq!(names, ["m0", "m1", "m2"]);
    for gateway in gateways {
        let mut client = Client::connect(gateway);
        for key in &keys {
            assert_eq!(client.get(key).as_ref(), Some(key));
        }
        for prefix in ["a", "b", "c"] {
            assert_eq!(client.get(&format!("large-{prefix}")), Some(large.clone()));
        }
    }
}
