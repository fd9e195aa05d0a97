//! Every error text.

use ionian_deployment::{Deployment, Durability, MACHINES, PresetOptions, settings};

const KINDS: &[&str] = &["client", "leader", "acceptor"];

/// A file in which each line can be replaced.
const GOOD: &[&str] = &[
    r#"cluster = "c""#,
    r#"protocol = "multipaxos""#,
    r#"machine = "kv""#,
    r#"f = 1"#,
    r#"quorums = "majority""#,
    r#"durability = "memory""#,
    r#"[options]"#,
    r#"batch_commands = 1"#,
    r#"[[node]]"#,
    r#"name = "a""#,
    r#"address = "host:1""#,
    r#"roles = ["client", "leader"]"#,
    r#"[[node]]"#,
    r#"name = "b""#,
    r#"address = "host:2""#,
    r#"gateway = "host:3""#,
    r#"roles = ["acceptor"]"#,
];

fn parse(text: &str) -> Result<Deployment, String> {
    Deployment::parse(text).map_err(|error| error.to_string())
}

/// Parses the valid file with line `number`, from 1, replaced.
fn with_line(number: usize, line: &str) -> Result<Deployment, String> {
    let mut lines = GOOD.to_vec();
    lines[number - 1] = line;
    parse(&lines.join("\n"))
}

fn good() -> Deployment {
    parse(&GOOD.join("\n")).unwrap()
}

#[track_caller]
fn refused(number: usize, line: &str, error: &str) {
    assert_eq!(with_line(number, line).unwrap_err(), error);
}

#[test]
fn not_toml() {
    refused(
        4,
        "f 1",
        "line 4, column 3: not TOML: key with no value, expected `=`",
    );
    refused(5, "f = 2", "line 5, column 1: not TOML: duplicate key");
    // What newcomers write.
    let said = with_line(10, "name = n1   # mine").unwrap_err();
    assert!(
        said.starts_with("line 10, column 8: not TOML: ")
            && said.ends_with("; text is in quotes: name = \"n1\""),
        "{said}"
    );
    let said = with_line(11, "address = 10.0.0.1:7400").unwrap_err();
    assert!(
        said.ends_with("; text is in quotes: address = \"10.0.0.1:7400\""),
        "{said}"
    );
    let mut lines = GOOD.to_vec();
    (lines[8], lines[12]) = ("[node]", "[node]");
    let said = parse(&lines.join("\n")).unwrap_err();
    let hint = "; each node has a table of its own, begun with [[node]]";
    assert!(
        said.starts_with("line 13, column 2: not TOML: duplicate key") && said.ends_with(hint),
        "{said}"
    );
}

#[test]
fn unknown_keys() {
    let known = "available: cluster, protocol, machine, f, quorums, durability, level, options, network, node";
    refused(
        5,
        "quorum = \"majority\"",
        &format!("line 5, column 1: unknown key quorum (did you mean quorums?); {known}"),
    );
    refused(
        7,
        "[option]",
        &format!("line 7, column 2: unknown key option (did you mean options?); {known}"),
    );
    let keys: Vec<&str> = settings("multipaxos").map(|it| it.key).collect();
    assert!(
        keys.starts_with(&["batch_commands", "batch_bytes"]),
        "{keys:?}"
    );
    let known = format!("available: {}", keys.join(", "));
    refused(
        8,
        "heartbeat = 1",
        &format!(
            "line 8, column 1: unknown key options.heartbeat (did you mean heartbeat_ms?); {known}"
        ),
    );
    // Of another protocol.
    refused(
        8,
        "skip_slots = 1",
        &format!("line 8, column 1: unknown key options.skip_slots; {known}"),
    );
    let of_mencius = good().with_overrides(&["protocol=mencius", "options.skip_slots=1"]);
    let back = of_mencius.unwrap().with_overrides(&["protocol=multipaxos"]);
    assert_eq!(
        back.unwrap_err().to_string(),
        format!("unknown key options.skip_slots; {known}")
    );
    let known = "available: name, id, address, listen, gateway, gateway_listen, site, roles";
    refused(
        16,
        "  port = 1",
        &format!("line 16, column 3: unknown key node.b.port; {known}"),
    );
}

#[test]
fn missing_keys() {
    refused(
        1,
        "",
        "cluster is missing: it must be the name of the cluster",
    );
    refused(
        2,
        "",
        "protocol is missing: it must be the protocol, such as \"multipaxos\"",
    );
    refused(
        3,
        "",
        "machine is missing: it must be the state machine, such as \"kv\"",
    );
    refused(4, "", "f is missing: it must be how many nodes may fail");
    assert_eq!(
        parse(&GOOD[..8].join("\n")).unwrap_err(),
        "node is missing: it must be one [[node]] table for each node"
    );
    refused(
        14,
        "",
        "line 13, column 1: node[1].name is missing: it must be the name of the node",
    );
    refused(
        15,
        "",
        "line 13, column 1: node.b.address is missing: it must be host:port where other nodes connect",
    );
}

#[test]
fn the_default_durability_is_disk() {
    assert_eq!(good().durability, Durability::Memory);
    assert_eq!(with_line(6, "").unwrap().durability, Durability::Disk);
}

#[test]
fn wrong_values() {
    let name = "must be 1 to 64 letters, digits, '-' and '_' in quotes";
    refused(
        1,
        "cluster = \"my cluster\"",
        &format!("line 1, column 11: cluster = \"my cluster\": {name}"),
    );
    refused(
        1,
        "cluster = 1",
        &format!("line 1, column 11: cluster = 1: {name}"),
    );
    refused(
        3,
        "machine = []",
        &format!("line 3, column 11: machine = []: {name}"),
    );
    refused(
        10,
        "name = \"\"",
        &format!("line 10, column 8: node[0].name = \"\": {name}"),
    );
    refused(
        2,
        "protocol = \"raft\"",
        "line 2, column 12: protocol = \"raft\": must be \"multipaxos\" or \"mencius\" or \"spaxos\" or \"epaxos\" or \"unreplicated\" or \"psmr\" or \"craq\" or \"scalog\"",
    );
    for value in ["32", "-1", "1.0", "\"1\"", "0xffffffffffffffffff"] {
        let error = format!("line 4, column 5: f = {value}: must be a whole number from 0 to 31");
        refused(4, &format!("f = {value}"), &error);
    }
    refused(
        5,
        "quorums = \"grid 2\"",
        "line 5, column 11: quorums = \"grid 2\": must be \"majority\", \"grid RxC\" (rows x columns, such as \
         \"grid 2x3\", at most 64 acceptors), \"groups N\" (N from 1 to 64) or \"counts R/W\" (any R \
         read, any W write)",
    );
    refused(
        6,
        "durability = 1",
        "line 6, column 14: durability = 1: must be \"disk\" or \"memory\"",
    );
    refused(
        8,
        "batch_commands = 0",
        "line 8, column 18: options.batch_commands = 0: must be a whole number from 1 to 65536",
    );
    let endpoint = "must be host:port with a port from 1 to 65535, such as \"127.0.0.1:7400\"";
    refused(
        11,
        "address = \"host\"",
        &format!("line 11, column 11: node.a.address = \"host\": {endpoint}"),
    );
    refused(
        16,
        "gateway = \"host:0\"",
        &format!("line 16, column 11: node.b.gateway = \"host:0\": {endpoint}"),
    );
    refused(
        11,
        "address = \"0.0.0.0:1\"",
        "line 11, column 11: node.a.address = \"0.0.0.0:1\": must be an address that other nodes can connect to, not a \
         wildcard",
    );
    let roles = "must be a list of roles, such as [\"leader\", \"acceptor*2\", \"replica:5\"], with 1 to 64 of each, numbered 0 to 63";
    refused(
        12,
        "roles = \"leader\"",
        &format!("line 12, column 9: node.a.roles = \"leader\": {roles}"),
    );
    refused(
        12,
        "roles = [\"a\", \"b*0\"]",
        &format!("line 12, column 15: node.a.roles = \"b*0\": {roles}"),
    );
    refused(
        12,
        "roles = [\"a\",\n\"b*65\"]",
        &format!("line 13, column 1: node.a.roles = \"b*65\": {roles}"),
    );
    refused(
        12,
        "roles = [1]",
        &format!("line 12, column 10: node.a.roles = 1: {roles}"),
    );
    let long = "x".repeat(100);
    let shown = "x".repeat(59);
    refused(
        1,
        &format!("cluster = \"{long}\""),
        &format!("line 1, column 11: cluster = \"{shown}...: {name}"),
    );
}

#[test]
fn wrong_tables() {
    let text = GOOD[..6].join("\n");
    assert_eq!(
        parse(&format!("{text}\noptions = 1")).unwrap_err(),
        "line 7, column 11: options = 1: must be a table, begun with [options]"
    );
    for node in ["1", "[1]", "{}"] {
        assert_eq!(
            parse(&format!("{text}\nnode = {node}")).unwrap_err(),
            format!("line 7, column 8: node = {node}: must be tables, each begun with [[node]]")
        );
    }
    assert_eq!(
        parse(&format!("{text}\nnode = []")).unwrap_err(),
        "node = 0 nodes: must be 1 to 1024 [[node]] tables"
    );
}

#[test]
fn deployments_whose_parts_do_not_fit_together_are_refused() {
    refused(
        14,
        "name = \"a\"",
        "node[1].name = \"a\": already used by node[0].name",
    );
    refused(
        15,
        "address = \"HOST:1\"",
        "node.b.address = \"HOST:1\": already used by node.a.address",
    );
    refused(
        16,
        "gateway = \"host:1\"",
        "node.b.gateway = \"host:1\": already used by node.a.address",
    );
    refused(
        16,
        "gateway = \"0.0.0.0:2\"",
        "node.b.gateway = \"0.0.0.0:2\": already used by node.b.address",
    );
    refused(
        12,
        "roles = []",
        "node.a.roles = []: must be a list with at least one role, or the node must have a gateway",
    );
    refused(
        8,
        "heartbeat_ms = 300",
        "options.election_timeout_ms = 400: must be at least twice options.heartbeat_ms = 300",
    );
    refused(
        8,
        "session_expiry_s = 5",
        "options.session_expiry_s = 5: must be longer than options.patience_ms = 5000",
    );
}

#[test]
fn no_layout() {
    let layout = |deployment: Deployment| deployment.layout(KINDS).unwrap_err().to_string();
    assert!(good().layout(KINDS).is_ok());
    assert_eq!(
        layout(with_line(12, "roles = [\"client\", \"learner\"]").unwrap()),
        "node.a.roles = \"learner\": must be roles of multipaxos, which are client, leader, acceptor"
    );
    assert_eq!(
        layout(with_line(12, "roles = [\"client\", \"acceptor*64\"]").unwrap()),
        "node.b.roles = \"acceptor\": instance number 65 of this role, at most 64 are allowed"
    );
    let no_client = good()
        .with_overrides(&["node.a.roles=leader", "node.b.gateway="])
        .unwrap();
    assert_eq!(
        layout(no_client),
        "no client anywhere: at least one node must have a gateway or the role \"client\""
    );
    let mut changed = good();
    changed.nodes[1].name = "a".to_owned();
    assert_eq!(
        layout(changed),
        "node[1].name = \"a\": already used by node[0].name"
    );
}

#[test]
fn unknown_names_are_refused() {
    assert_eq!(
        good().place("x").unwrap_err().to_string(),
        "unknown node \"x\"; available: a, b"
    );
    let own = with_line(3, "machine = \"mine\"").unwrap();
    assert_eq!(own.check_machine(&["mine"]), Ok(()));
    assert_eq!(
        own.check_machine(MACHINES).unwrap_err().to_string(),
        "machine = \"mine\": must be \"kv\" or \"nothing\""
    );
    assert_eq!(
        Deployment::preset("x", &PresetOptions::default())
            .unwrap_err()
            .to_string(),
        "unknown preset \"x\"; available: colocated, baseline, compartmentalized, batched, pigpaxos, pigpaxos-25, pigpaxos-wan, smr, sp-smr, mencius, mencius-wan, mencius-compartmentalized, mencius-batched, spaxos, \
            spaxos-compartmentalized, spaxos-batched, epaxos, epaxos-5, \
            epaxos-compartmentalized, unreplicated, unreplicated-batched, no-rep, p-smr, p-smr-compartmentalized, craq, craq-6, scalog, scalog-compartmentalized"
    );
}

#[test]
fn presets_with_invalid_addresses_are_refused() {
    let refused = |options| {
        Deployment::preset("colocated", &options)
            .unwrap_err()
            .to_string()
    };
    let endpoint = "must be host:port with a port from 1 to 65535, such as \"127.0.0.1:7400\"";
    assert_eq!(
        refused(PresetOptions {
            first_node_port: 65534,
            ..PresetOptions::default()
        }),
        format!("node.n2.address = \"127.0.0.1:65536\": {endpoint}")
    );
    assert_eq!(
        refused(PresetOptions {
            host: "a\"b".to_owned(),
            ..PresetOptions::default()
        }),
        format!("node.n0.address = 'a\"b:17400': {endpoint}")
    );
    assert_eq!(
        refused(PresetOptions {
            first_gateway_port: 17399,
            ..PresetOptions::default()
        }),
        "node.n1.gateway = \"127.0.0.1:17400\": already used by node.n0.address"
    );
}

/// Where each node has a machine of its own, the gateways were not compared.
#[test]
fn one_gateway_address_of_two_nodes_is_refused() {
    let gateways = |gateway: &str, more: &[&str]| {
        let set = ["node.a.gateway=", "node.b.gateway="].map(|key| format!("{key}{gateway}"));
        let mut set = set.to_vec();
        set.push("node.b.address=other:2".to_owned());
        set.extend(more.iter().map(|text| (*text).to_owned()));
        good()
            .with_overrides(&set)
            .map_err(|error| error.to_string())
    };
    let said = gateways("10.0.0.1:7379", &[]).unwrap_err();
    assert_eq!(
        said,
        "node.b.gateway = \"10.0.0.1:7379\": already used by node.a.gateway"
    );
    // Each machine has these for itself.
    for own in [
        "0.0.0.0:7379",
        "127.0.0.1:7379",
        "localhost:7379",
        "[::1]:7379",
    ] {
        gateways(own, &[]).unwrap();
    }
    // Something between clients and nodes has the address.
    let behind = [
        "node.a.gateway_listen=host:7380",
        "node.b.gateway_listen=other:7380",
    ];
    gateways("clients.example:7379", &behind).unwrap();
}

#[test]
fn overrides() {
    let set = |text: &str| {
        good()
            .with_overrides(&[text])
            .map_err(|error| error.to_string())
    };
    let changed = set(" options.batch_delay_us = 7 ").unwrap();
    assert_eq!(changed.options.stated("batch_delay_us"), Some(7));
    assert_eq!(set("f=2").unwrap().f, 2);
    assert_eq!(set("cluster=12").unwrap().cluster, "12");
    assert_eq!(set("node.b.gateway=").unwrap().nodes[1].gateway, None);
    assert_eq!(
        set("node.b.address=there:9").unwrap().nodes[1].address,
        "there:9"
    );
    assert_eq!(
        set("node.a.roles=client,acceptor*2").unwrap().nodes[0].roles[1].to_string(),
        "acceptor*2"
    );
    assert!(
        good()
            .with_overrides(&[
                "options.heartbeat_ms=300",
                "options.election_timeout_ms=900"
            ])
            .is_ok()
    );

    for (text, error) in [
        (
            "f",
            "override \"f\": must be key=value, such as options.batch_commands=10",
        ),
        ("f=x", "f = \"x\": must be a whole number from 0 to 31"),
        ("f=99", "f = 99: must be a whole number from 0 to 31"),
        ("f=", "f = \"\": must be a whole number from 0 to 31"),
        (
            "options.in_flight=0",
            "options.in_flight = 0: must be a whole number from 1 to 16384",
        ),
        (
            "options=1",
            "options = 1: must be a table, begun with [options]",
        ),
        ("node.x.gateway=", "unknown node \"x\"; available: a, b"),
        (
            "node.a.gate=",
            "unknown key node.a.gate; available: name, id, address, listen, gateway, gateway_listen, site, roles",
        ),
        (
            "x=1",
            "unknown key x; available: cluster, protocol, machine, f, quorums, durability, level, options, network, node",
        ),
        (
            "node.a.roles=leader,",
            "node.a.roles = \"\": must be a list of roles, such as [\"leader\", \"acceptor*2\", \"replica:5\"], with 1 to 64 of each, numbered 0 to 63",
        ),
        (
            "node.a.name=b",
            "node[1].name = \"b\": already used by node[0].name",
        ),
    ] {
        assert_eq!(set(text).unwrap_err(), error);
    }
}

#[test]
fn files() {
    let folder = std::env::temp_dir().join(format!("ionian-deployment-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("cluster.toml");
    let load = || Deployment::load(&path).map_err(|error| error.to_string());
    let shown = path.display();

    assert_eq!(
        load().unwrap_err(),
        format!("{shown}: cannot be read: No such file or directory (os error 2)")
    );
    std::fs::write(&path, "f = 1\nx = 1").unwrap();
    let known = "cluster, protocol, machine, f, quorums, durability, level, options, network, node";
    assert_eq!(
        load().unwrap_err(),
        format!("{shown}: line 2, column 1: unknown key x; available: {known}")
    );
    std::fs::write(&path, good().to_toml()).unwrap();
    assert_eq!(load(), Ok(good()));

    std::fs::remove_dir_all(&folder).unwrap();
}
