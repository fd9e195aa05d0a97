//! Presets, each as `ionian up` starts it: a process for each node.

use crate::cluster::Cluster;
use crate::resp::Reply;
use ionian_deployment::presets;
use nix::sys::signal::Signal;
use std::collections::BTreeSet;

#[test]
fn every_protocol_serves_clients_and_stops_in_order() {
    let mut protocols = BTreeSet::new();
    let first = presets().filter(|(protocol, _)| protocols.insert(protocol.name));
    serve_clients_and_stop_in_order(first.map(|(_, preset)| preset.name));
}

#[test]
#[ignore = "takes a minute: `cargo xtask deep`"]
fn every_preset_serves_clients_and_stops_in_order() {
    serve_clients_and_stop_in_order(presets().map(|(_, preset)| preset.name));
}

fn serve_clients_and_stop_in_order(presets: impl Iterator<Item = &'static str>) {
    for preset in presets {
        let mut cluster = Cluster::start(preset, &[], &[]);
        let last = cluster.gateways().len() - 1;
        let (mut one, mut other) = (cluster.client(0), cluster.client(last));
        one.set("k", "v");
        assert_eq!(other.get("k"), Some("v".into()), "{preset}");
        assert_eq!(other.call(&["INCR", "n"]).unwrap(), Reply::Integer(1));
        assert_eq!(one.call(&["INCR", "n"]).unwrap(), Reply::Integer(2));
        let status = cluster.status();
        assert_eq!(
            status["nodes_up"],
            cluster.deployment.nodes.len(),
            "{preset}"
        );
        cluster.stop(Signal::SIGTERM);
    }
}
