//! The presets: each has the documented roles, and survives writing and reading.

use ionian_deployment::{DEFAULT_PRESET, Deployment, Durability, PresetOptions, presets, settings};
use ionian_kernel::id::AcceptorId;
use ionian_kernel::layout::{Layout, NodeId, Places};
use ionian_kernel::protocol::Protocol;
use ionian_kernel::quorum_spec::QuorumSpec;
use ionian_protocols::multipaxos::MultiPaxos;
use ionian_protocols::registry;
use ionian_replication::quorum::QuorumSystem;
use std::collections::BTreeSet;

fn preset(name: &str) -> Deployment {
    Deployment::preset(name, &PresetOptions::default()).unwrap()
}

fn layout(deployment: &Deployment) -> Layout {
    let protocol = registry::description(&deployment.protocol).unwrap();
    deployment.layout(protocol.kinds).unwrap()
}

/// The names of the nodes of each kind's instances.
fn places(deployment: &Deployment) -> Vec<String> {
    let name = |node: NodeId| deployment.nodes[usize::from(node.0)].name.clone();
    let line = |places: &Places| {
        places
            .iter()
            .map(|(_, node)| name(node))
            .collect::<Vec<_>>()
            .join(" ")
    };
    let mut lines: Vec<_> = layout(deployment).instances.iter().map(line).collect();
    // Most have no relays, the last kind of the protocols that can have them.
    if registry::description(&deployment.protocol)
        .is_some_and(|it| it.kinds.last() == Some(&"relay"))
    {
        lines.pop_if(|relays| relays.is_empty());
    }
    lines
}

fn gateways(deployment: &Deployment) -> Vec<String> {
    let line =
        |node: &ionian_deployment::Node| Some(format!("{} {}", node.name, node.gateway.as_ref()?));
    deployment.nodes.iter().filter_map(line).collect()
}

#[test]
fn every_preset_survives_writing_and_reading() {
    for (protocol, named) in presets() {
        let name = named.name;
        let deployment = preset(name);
        let text = deployment.to_toml();
        assert_eq!(Deployment::parse(&text).unwrap(), deployment, "{name}");
        assert!(
            text.starts_with("# A deployment of Ionian"),
            "{name}: the file explains itself"
        );
        assert_eq!(deployment.protocol, protocol.name);
        assert_eq!(deployment.durability, Durability::Disk);
    }
}

#[test]
fn stated_settings_survive_writing_and_reading() {
    let overrides = [
        "options.batch_commands=10",
        "options.heartbeat_ms=100",
        "node.n1.gateway=",
        "node.n2.roles=acceptor*2",
    ];
    let deployment = preset("colocated").with_overrides(&overrides).unwrap();
    let text = deployment.to_toml();
    assert_eq!(Deployment::parse(&text).unwrap(), deployment);
    assert!(text.contains("\nbatch_commands = 10 ") && text.contains("\nheartbeat_ms = 100 "));
    assert!(
        text.contains("\n# batch_bytes = 262144 "),
        "defaults are shown, commented out"
    );
}

#[test]
fn every_option_can_be_taken_out_of_its_comment() {
    let text = preset("colocated").to_toml();
    // The rest is an example for another table.
    let (options, nodes) = text.split_once("\n# For tests and demonstrations").unwrap();
    let (_, nodes) = nodes.split_once("\n\n").unwrap();
    let text = format!("{options}\n{nodes}");
    let stated: String = text
        .lines()
        .map(|line| match line.strip_prefix("# ") {
            Some(rest) if rest.split('#').next().unwrap().contains(" = ") => format!("{rest}\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    let deployment = Deployment::parse(&stated).unwrap();
    assert!(settings("multipaxos").all(|setting| deployment.options.stated(setting.key).is_some()));
    assert_eq!(
        deployment.digest(),
        preset("colocated").digest(),
        "stating a default changes nothing"
    );
}

#[test]
fn a_written_preset_has_nodes_last_and_no_long_lines() {
    let text = preset("unreplicated").to_toml();
    let nodes = "\n[[node]]\nname = \"server-0\"\naddress = \"127.0.0.1:17400\"\ngateway = \"127.0.0.1:7379\"\n\
        roles = [\"client\", \"server\"]\n";
    assert!(text.ends_with(nodes), "{text}");
    assert!(text.lines().all(|line| line.len() <= 120), "{text}");
}

#[test]
fn the_list_of_presets_is_complete() {
    let names: BTreeSet<_> = presets().map(|(_, preset)| preset.name).collect();
    assert_eq!(names.len(), 28);
    assert!(names.contains(DEFAULT_PRESET));
    for (_, listed) in presets() {
        let (name, about) = (listed.name, listed.about);
        assert!(
            preset(name).nodes.len() == 1
                || about.contains(&format!(" {} nodes", preset(name).nodes.len()))
        );
    }
}

#[test]
fn colocated_has_every_role_on_each_of_three_nodes() {
    let deployment = preset("colocated");
    assert_eq!(places(&deployment), ["n0 n1 n2"; 8]);
    assert_eq!(
        gateways(&deployment),
        [
            "n0 127.0.0.1:7379",
            "n1 127.0.0.1:7380",
            "n2 127.0.0.1:7381"
        ]
    );
    assert_eq!(
        (deployment.f, deployment.quorums),
        (1, QuorumSpec::Majority)
    );
    let addresses: Vec<_> = deployment
        .nodes
        .iter()
        .map(|node| node.address.as_str())
        .collect();
    assert_eq!(
        addresses,
        ["127.0.0.1:17400", "127.0.0.1:17401", "127.0.0.1:17402"]
    );
}

/// PigPaxos, figures 9 to 11: every node has every role, a relay beside each acceptor.
#[test]
fn pigpaxos_has_a_relay_on_each_node() {
    for (name, nodes, f, groups) in [
        ("pigpaxos", 5, 2, 1),
        ("pigpaxos-25", 25, 12, 3),
        ("pigpaxos-wan", 15, 7, 3),
    ] {
        let deployment = preset(name);
        let places = places(&deployment);
        let (relays, acceptors) = (places.last(), &places[5]);
        assert_eq!((deployment.nodes.len(), deployment.f), (nodes, f));
        assert_eq!(relays, Some(acceptors), "{name}");
        assert_eq!(acceptors.split(' ').count(), nodes);
        let stated = deployment.layout(MultiPaxos::KINDS).unwrap().options.own;
        let stated = stated.get("relay_groups").copied().unwrap_or(1);
        assert_eq!(stated, groups);
    }
}

#[test]
fn baseline_has_nothing_but_plain_multipaxos() {
    let deployment = preset("baseline");
    let every = "n0 n1 n2";
    assert_eq!(
        places(&deployment),
        [every, "", "", every, every, every, every, ""]
    );
    assert_eq!(gateways(&deployment).len(), 3);
    assert_eq!(
        (deployment.f, deployment.quorums),
        (1, QuorumSpec::Majority)
    );
}

#[test]
fn compartmentalized_is_the_papers_unbatched_deployment() {
    let deployment = preset("compartmentalized");
    let proxies: Vec<_> = (0..10)
        .map(|index| format!("proxy-leader-{index}"))
        .collect();
    assert_eq!(
        places(&deployment),
        [
            "gateway-0 gateway-1",
            "",
            "",
            "leader-0 leader-1",
            &proxies.join(" "),
            "acceptor-0-0 acceptor-0-1 acceptor-1-0 acceptor-1-1",
            "replica-0 replica-1 replica-2 replica-3",
            "",
        ]
    );
    assert_eq!(deployment.nodes.len(), 22);
    assert_eq!(
        (deployment.f, deployment.quorums),
        (
            1,
            QuorumSpec::Grid {
                rows: 2,
                columns: 2
            }
        )
    );
    assert_eq!(
        gateways(&deployment),
        ["gateway-0 127.0.0.1:7379", "gateway-1 127.0.0.1:7380"]
    );
}

#[test]
fn batched_is_the_papers_batched_deployment() {
    let deployment = preset("batched");
    assert_eq!(
        places(&deployment),
        [
            "gateway-0 gateway-1",
            "batcher-0 batcher-1",
            "batcher-0 batcher-1",
            "leader-0 leader-1",
            "proxy-leader-0 proxy-leader-1 proxy-leader-2",
            "acceptor-0 acceptor-1 acceptor-2",
            "replica-0 replica-1",
            "unbatcher-0 unbatcher-1 unbatcher-2",
        ]
    );
    assert_eq!(deployment.nodes.len(), 17);
    assert_eq!(
        (deployment.f, deployment.quorums),
        (1, QuorumSpec::Majority)
    );
    assert_eq!(gateways(&deployment).len(), 2);
}

#[test]
fn spaxos_has_every_role_on_each_of_three_nodes() {
    let deployment = preset("spaxos");
    let every = "n0 n1 n2";
    assert_eq!(
        places(&deployment),
        [
            every, "", every, every, every, every, every, every, every, every
        ]
    );
    assert_eq!(
        (deployment.f, deployment.quorums),
        (1, QuorumSpec::Majority)
    );
}

#[test]
fn spaxos_compartmentalized_has_grids_and_a_payload_for_each_command() {
    let deployment = preset("spaxos-compartmentalized");
    let places = places(&deployment);
    assert_eq!(places[2], "disseminator-0 disseminator-1 disseminator-2");
    assert_eq!(
        places[7],
        "stabilizer-0-0 stabilizer-0-1 stabilizer-0-2 stabilizer-1-0 stabilizer-1-1 stabilizer-1-2"
    );
    assert_eq!([&places[1], &places[3], &places[9]], ["", "", ""]);
    assert_eq!(
        (deployment.f, deployment.quorums),
        (
            1,
            QuorumSpec::Grid {
                rows: 2,
                columns: 3
            }
        )
    );
    assert_eq!(layout(&deployment).options.batch_commands, 1);
}

#[test]
fn spaxos_batched_has_batchers_and_unbatchers() {
    let deployment = preset("spaxos-batched");
    let places = places(&deployment);
    assert_eq!(
        (places[1].as_str(), places[3].as_str()),
        ("batcher-0 batcher-1", "batcher-0 batcher-1")
    );
    assert_eq!(
        (places[2].as_str(), places[7].as_str()),
        (
            "disseminator-0 disseminator-1",
            "stabilizer-0 stabilizer-1 stabilizer-2"
        )
    );
    assert_eq!(places[9], "unbatcher-0 unbatcher-1 unbatcher-2");
    assert_eq!(
        (deployment.f, deployment.quorums),
        (1, QuorumSpec::Majority)
    );
}

/// Compartmentalization, section 8.7.
#[test]
fn scalog_has_three_shards_of_two_servers_and_five_replicas() {
    let deployment = preset("scalog");
    let numbered = |name: &str, count: usize| {
        let names = (0..count).map(|index| format!("{name}-{index}"));
        names.collect::<Vec<_>>().join(" ")
    };
    let expected = [
        "gateway-0 gateway-1",
        &numbered("server", 6),
        "aggregator-0 leader-0 leader-1",
        "",
        "leader-0 leader-1",
        "leader-0 leader-1",
        &numbered("acceptor", 3),
        &numbered("replica", 5),
        "",
    ];
    assert_eq!(places(&deployment), expected);
    assert_eq!((deployment.nodes.len(), deployment.f), (19, 1));
    assert_eq!(gateways(&deployment).len(), 2);
}

#[test]
fn scalog_compartmentalized_has_unbatchers_that_answer_for_two_replicas() {
    let deployment = preset("scalog-compartmentalized");
    let places = places(&deployment);
    assert_eq!(places[1].split(' ').count(), 8);
    let unbatchers = "unbatcher-0 unbatcher-1 unbatcher-2 unbatcher-3";
    assert_eq!(
        [&places[7], &places[8]],
        ["replica-0 replica-1", unbatchers]
    );
    assert_eq!((deployment.nodes.len(), deployment.f), (22, 1));
}

#[test]
fn unreplicated_is_one_server() {
    let deployment = preset("unreplicated");
    assert_eq!(places(&deployment), ["server-0", "", "server-0", ""]);
    assert_eq!(
        (deployment.protocol.as_str(), deployment.f),
        ("unreplicated", 0)
    );
    assert_eq!(gateways(&deployment), ["server-0 127.0.0.1:7379"]);

    let deployment = preset("unreplicated-batched");
    assert_eq!(
        places(&deployment),
        [
            "gateway-0",
            "batcher-0 batcher-1",
            "server-0",
            "unbatcher-0 unbatcher-1"
        ]
    );
    assert_eq!(
        (deployment.protocol.as_str(), deployment.f),
        ("unreplicated", 0)
    );
    assert_eq!(gateways(&deployment), ["gateway-0 127.0.0.1:7379"]);
}

#[test]
fn the_acceptors_of_every_multipaxos_preset_make_a_quorum_system() {
    for (_, named) in presets() {
        let name = named.name;
        let deployment = preset(name);
        let layout = layout(&deployment);
        if deployment.protocol == "multipaxos" {
            assert!(
                QuorumSystem::new(layout.quorums, layout.all::<AcceptorId>(5), layout.f).is_ok(),
                "{name}"
            );
        }
    }
}

#[test]
fn preset_options_set_the_addresses() {
    let options = PresetOptions {
        host: "localhost".to_owned(),
        gateway_host: "0.0.0.0".to_owned(),
        first_node_port: 9000,
        first_gateway_port: 8000,
        cluster: "test".to_owned(),
        ..PresetOptions::default()
    };
    let deployment = Deployment::preset("colocated", &options).unwrap();
    assert_eq!(deployment.cluster, "test");
    assert_eq!(deployment.nodes[2].address, "localhost:9002");
    assert_eq!(deployment.nodes[2].gateway.as_deref(), Some("0.0.0.0:8002"));
}

#[test]
fn a_gateway_adds_one_client_and_repeated_roles_are_instances() {
    let text = r#"
        cluster = "c"
        protocol = "multipaxos"
        machine = "kv"
        f = 1
        quorums = "groups 2"
        durability = "disk"
        options.session_expiry_s = 60
        [[node]]
        name = "a"
        address = "a:1"
        gateway = "0.0.0.0:7379"
        [[node]]
        name = "b"
        address = "b:1"
        gateway = "0.0.0.0:7379"
        roles = ["acceptor", "client*2", "acceptor*2"]
    "#;
    let deployment = Deployment::parse(text).unwrap();
    assert_eq!(
        places(&deployment),
        ["a b b", "", "", "", "", "b b b", "", ""]
    );
    let layout = layout(&deployment);
    assert_eq!(
        (layout.f, layout.quorums),
        (1, QuorumSpec::Groups { groups: 2 })
    );
    assert_eq!(
        layout.options.session_expiry,
        std::time::Duration::from_secs(60)
    );
    assert_eq!(deployment.place("b"), Ok(1));
    assert_eq!(deployment.durability, Durability::Disk);
}

#[test]
fn a_preset_of_like_nodes_has_any_number_of_them_on_any_machines() {
    let preset = |name, nodes, hosts: &[&str]| {
        let options = PresetOptions {
            nodes,
            hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
            ..PresetOptions::default()
        };
        Deployment::preset(name, &options).map_err(|error| error.to_string())
    };
    let five = preset("colocated", Some(5), &[]).unwrap();
    assert_eq!((five.nodes.len(), five.f), (5, 2));
    let hosts = ["a.example", "10.0.0.2", "[::1]"];
    let three = preset("mencius", None, &hosts).unwrap();
    assert_eq!((three.nodes.len(), three.f), (3, 1));
    assert_eq!(three.nodes[1].address, "10.0.0.2:17400");
    assert_eq!(three.nodes[2].gateway.as_deref(), Some("[::1]:7379"));
    assert_eq!(preset("colocated", None, &["a"]).unwrap().f, 0);
    let said = preset("compartmentalized", Some(4), &[]).unwrap_err();
    assert!(
        said.contains(" nodes, not 4: only presets whose nodes"),
        "{said}"
    );
}
