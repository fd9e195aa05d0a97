//! Sites and distances between them in deployment files.

use ionian_deployment::{Configuration, Deployment, Link, Network, PresetOptions};
use ionian_kernel::layout::NodeId;
use std::time::Duration;

const HEAD: &str = r#"cluster = "c"
protocol = "multipaxos"
machine = "kv"
f = 1
"#;
const NODES: &str = r#"
[[node]]
name = "a"
address = "host:1"
site = "A"
roles = ["client", "leader"]
[[node]]
name = "b"
address = "host:2"
site = "B"
roles = ["acceptor"]
[[node]]
name = "c"
address = "host:3"
roles = ["acceptor"]
"#;

/// Reads a file whose line 5 is the first of `network`.
fn parse(network: &str) -> Result<Deployment, String> {
    Deployment::parse(&format!("{HEAD}{network}{NODES}")).map_err(|error| error.to_string())
}

#[track_caller]
fn refused(network: &str, error: &str) {
    assert_eq!(parse(network).unwrap_err(), error);
}

#[test]
fn a_network_survives_writing_and_reading() {
    let deployment = parse(
        "[network]\ndelay_ms = 50\nmbps = 20\n[[network.link]]\nbetween = [\"B\", \"A\"]\nmbps = 5",
    )
    .unwrap();
    let link = Link {
        between: ["B", "A"].map(str::to_owned),
        delay_ms: None,
        mbps: Some(5),
    };
    assert_eq!(
        deployment.network,
        Some(Network {
            delay_ms: 50,
            mbps: Some(20),
            links: vec![link]
        })
    );
    assert_eq!(deployment.nodes[1].site.as_deref(), Some("B"));
    assert_eq!(Deployment::parse(&deployment.to_toml()), Ok(deployment));
    let plain = parse("").unwrap();
    assert_eq!(
        (plain.network.clone(), Deployment::parse(&plain.to_toml())),
        (None, Ok(plain))
    );
}

#[test]
fn the_example_in_every_file_can_be_uncommented() {
    let text = parse("").unwrap().to_toml();
    let (_, example) = text.split_once("# [network]").unwrap();
    let example: String = example
        .lines()
        .skip(1)
        .take_while(|line| !line.is_empty())
        .map(|line| line[..].replace("# ", "") + "\n")
        .collect();
    let network = parse(&format!("[network]\n{example}"))
        .unwrap()
        .network
        .unwrap();
    assert_eq!(
        (network.delay_ms, network.mbps, network.links.len()),
        (50, Some(20), 1)
    );
}

#[test]
fn every_mistake_is_named() {
    refused(
        "network = 1",
        "line 5, column 11: network = 1: must be a table, begun with [network]",
    );
    refused(
        "[network]\ndelay = 1",
        "line 6, column 1: unknown key network.delay; available: delay_ms, mbps, link",
    );
    refused(
        "[network]\ndelay_ms = 60001",
        "line 6, column 12: network.delay_ms = 60001: must be a whole number from 0 to 60000",
    );
    refused(
        "[network]\nmbps = 0",
        "line 6, column 8: network.mbps = 0: must be a whole number from 1 to 100000",
    );
    refused(
        "[network]\nlink = 1",
        "line 6, column 8: network.link = 1: must be tables, each begun with [[network.link]]",
    );
    refused(
        "[[network.link]]\ndelay_ms = 1",
        "line 5, column 1: network.link[0].between is missing: it must be the two sites",
    );
    let between = "must be two different sites, such as [\"A\", \"B\"]";
    for value in ["[\"A\"]", "[\"A\", \"A\"]", "1"] {
        let error = format!("line 6, column 11: network.link[0].between = {value}: {between}");
        refused(&format!("[[network.link]]\nbetween = {value}"), &error);
    }
    refused(
        "[[network.link]]\nbetween = [\"A\", \"C\"]",
        "network.link[0].between = \"C\": must be sites of nodes, which are A, B",
    );
    refused(
        "[[network.link]]\nbetween = [\"A\", \"B\"]\n[[network.link]]\nbetween = [\"B\", \"A\"]",
        "network.link[1].between = \"A, B\": already used by network.link[0].between",
    );
}

#[test]
fn flags_set_and_unset_the_network() {
    let deployment = parse("")
        .unwrap()
        .with_overrides(&["network.delay_ms=3", "network.mbps=4", "node.c.site=C"])
        .unwrap();
    assert_eq!(
        deployment.network,
        Some(Network {
            delay_ms: 3,
            mbps: Some(4),
            links: vec![]
        })
    );
    assert_eq!(deployment.nodes[2].site.as_deref(), Some("C"));
    let again = deployment
        .with_overrides(&["network=", "node.c.site="])
        .unwrap();
    assert_eq!(again, parse("").unwrap());
}

#[test]
fn nodes_may_have_different_networks() {
    let near = parse("").unwrap();
    let far = near.clone().apart(50);
    assert_eq!(near.digest(), far.digest());
    let mut known = near.clone();
    known.take_local(&far);
    assert_eq!(known, far);
}

#[test]
fn a_deployment_can_be_taken_apart() {
    let preset = Deployment::preset("colocated", &PresetOptions::default())
        .unwrap()
        .apart(50);
    let sites: Vec<_> = preset
        .nodes
        .iter()
        .map(|node| node.site.as_deref().unwrap())
        .collect();
    assert_eq!(sites, ["A", "B", "C"]);
    let distances = Configuration::founded(preset).distances(NodeId(1));
    assert_eq!(
        distances.keys().copied().collect::<Vec<_>>(),
        [NodeId(0), NodeId(2)]
    );
    assert!(
        distances
            .values()
            .all(|distance| distance.delay == Duration::from_millis(50))
    );
}
