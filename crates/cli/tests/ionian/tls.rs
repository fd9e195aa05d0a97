//! A cluster with TLS, as its operator sees it.

use crate::cluster::{
    Cluster, Directory, LIMIT, deployment, eventually, fails, free_port, run, run_node, text, works,
};
use crate::resp::Client;
use crate::secured::Secured;
use ionian_runtime::node::unix_socket::SOCKET;
use ionian_tls::{Authority, Hosts, Kind, Name};
use nix::sys::signal::{Signal, kill};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt, symlink};

#[test]
fn cluster_of_up_with_tls_serves_those_who_have_a_certificate() {
    let mut cluster = Cluster::start("colocated", &[], &["--tls"]);
    let (data, node) = (cluster.data(), cluster.deployment.nodes[0].clone());
    let gateway = node.gateway.unwrap();
    let certificates = |owner: &str| format!("{data}/tls/{owner}");
    let (operator, monitor) = (certificates("operator"), certificates("monitor"));

    // Clients.
    assert_eq!(works(&["exec", "--data", &data, "SET", "k", "v"]), "OK\n");
    let get = ["exec", "--at", &gateway, "--tls", &monitor, "GET", "k"];
    assert_eq!(works(&get), "v\n");
    let mut plain = TcpStream::connect(&gateway).unwrap();
    plain.write_all(b"GET k\r\n").unwrap();
    let mut answer = String::new();
    plain.read_to_string(&mut answer).unwrap();
    let reason = "-ERR Protocol error: this port accepts only TLS connections\r\n";
    assert_eq!(answer, reason);

    // Operators: on the Unix socket, with a certificate, with one that does not suffice, without.
    assert_eq!(cluster.status()["nodes_up"], 3);
    let file = cluster.directory.path("saved");
    let save = |by: &[&str]| {
        let words = ["snapshot", "save", file.to_str().unwrap()];
        [&words[..], by]
            .concat()
            .iter()
            .map(|word| word.to_string())
            .collect::<Vec<_>>()
    };
    let address = node.address.clone();
    let refused = save(&["--at", &address, "--tls", &monitor]);
    let refused: Vec<&str> = refused.iter().map(String::as_str).collect();
    fails(
        &refused,
        1,
        "is of ionian://ionian/monitor/default; expected",
    );
    let permitted = save(&["--at", &address, "--tls", &operator]);
    works(&permitted.iter().map(String::as_str).collect::<Vec<_>>());
    fails(
        &["status", "--at", &address],
        1,
        "accepts only TLS connections",
    );
    let listed = works(&["certs", "status", "--data", &data]);
    assert!(
        listed.contains("n2: required, ionian://ionian/node/n2 until "),
        "{listed}"
    );
    assert!(
        listed.contains(": in use; trusted by n0 n1 n2; signed n0 n1 n2"),
        "{listed}"
    );

    // "I could not look" is not "it does not serve".
    let given = cluster.directory.path("given.toml");
    fs::write(&given, cluster.deployment.to_toml()).unwrap();
    let blind = run(&["status", "--wait", "--config", given.to_str().unwrap()]);
    let (shown, advice) = (text(&blind.stdout), text(&blind.stderr));
    assert_eq!(blind.status.code(), Some(4), "{shown}");
    assert!(
        shown.contains("health: UNKNOWN") && shown.contains("! node n1 refuses this command: "),
        "{shown}"
    );
    assert!(
        !shown.contains("not served") && advice.contains("(--tls DIR)"),
        "{shown}{advice}"
    );
    let probe = ["status", "--at", &address, "--tls", &monitor, "--probe"];
    fails(
        &probe,
        2,
        "--probe sends a command through the log: it needs",
    );
    // As on a machine with one of the nodes: the others do not answer without a certificate.
    let machine = cluster.directory.path("machine");
    fs::create_dir_all(machine.join("nodes")).unwrap();
    symlink(format!("{data}/nodes/n0"), machine.join("nodes/n0")).unwrap();
    let alone = ["status", "--data", machine.to_str().unwrap()];
    fails(
        &alone,
        3,
        "nodes with TLS answer only commands with the certificate",
    );
    let text = String::from_utf8(run(&alone).stdout).unwrap();
    assert!(
        text.contains("health: DEGRADED") && text.contains("1 of 3 nodes answer"),
        "{text}"
    );

    // Without the flag the directory still has its certificates.
    cluster.stop(Signal::SIGTERM);
    cluster.start_again(&[]);
    assert_eq!(works(&["exec", "--data", &data, "GET", "k"]), "v\n");
    assert!(fs::exists(format!("{data}/nodes/n0/{SOCKET}")).unwrap());

    // Other users of the machine see nothing of the data.
    let mode = |path: &str| {
        let path = cluster.directory.path("data").join(path);
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    };
    assert_eq!(["", "nodes/n0", "nodes/n0/wal"].map(mode), [0o700; 3]);
    let saved = fs::metadata(file).unwrap().permissions().mode();
    assert_eq!(saved & 0o777, 0o600);
}

/// Every command that asks nodes.
#[test]
fn commands_without_a_certificate_name_the_flag() {
    let cluster = Cluster::start("colocated", &[], &["--tls"]);
    let path = |name: &str| cluster.directory.path(name).to_str().unwrap().to_owned();
    let (file, saved) = (path("given.toml"), path("saved"));
    let node = cluster.deployment.nodes[0].address.as_str();
    for command in [
        &["status"][..],
        &["member", "list"],
        &["member", "remove", "n2"],
        &["member", "abandon"],
        &["options", "list"],
        &["options", "set", "heartbeat_ms=90"],
        &["upgrade", "status"],
        &["upgrade", "finalize"],
        &["drain", "n0"],
        &["snapshot", "save", &saved],
    ] {
        for cluster in [["--config", &file], ["--at", node]] {
            let output = run(&[command, &cluster].concat());
            let error = text(&output.stderr);
            assert!(
                matches!(output.status.code(), Some(1 | 4)),
                "{command:?}: {output:?}"
            );
            let last = error.lines().last().unwrap_or_default();
            let flag = "certificate of an operator or monitor (--tls DIR)";
            assert!(last.contains(flag), "{command:?} {cluster:?}: {error}");
            for misleading in ["Is it running?", "not the gateway's address"] {
                assert!(
                    !error.contains(misleading),
                    "{command:?} {cluster:?}: {error}"
                );
            }
        }
    }
}

/// A full disk may have left the file empty.
#[test]
fn up_names_an_authority_whose_certificate_cannot_be_read() {
    let mut cluster = Cluster::start("unreplicated", &[], &["--tls"]);
    cluster.stop(Signal::SIGTERM);
    let data = cluster.directory.path("data");
    let certificate = data.join("tls/ca.crt");
    let sound = fs::read(&certificate).unwrap();
    fs::write(&certificate, "").unwrap();
    let up = ["up", "--data", data.to_str().unwrap(), "--tls"];
    fails(&up, 1, "tls/ca.crt: the file is empty");
    fs::write(&certificate, sound).unwrap();
    cluster.start_again(&["--tls"]);
}

/// An operator may keep the key of the authority elsewhere.
#[test]
fn up_starts_with_a_certificate_that_ends_soon_and_no_key_to_renew_it() {
    let mut cluster = Cluster::start("colocated", &[], &["--tls"]);
    cluster.stop(Signal::SIGTERM);
    let tls = cluster.directory.path("data").join("tls");
    let authority = Authority::within(&tls, &|_| {}).unwrap();
    let name = Name {
        cluster: "ionian".into(),
        kind: Kind::Node,
        name: "n0".into(),
    };
    let addresses = vec!["127.0.0.1".parse().unwrap()];
    let hosts = Hosts {
        addresses,
        ..Hosts::default()
    };
    let issued = authority.issue(&name, &hosts, 2 * LIMIT).unwrap();
    fs::write(tls.join("nodes/n0/tls.crt"), issued.certificate).unwrap();
    fs::write(tls.join("nodes/n0/tls.key"), issued.key).unwrap();
    fs::remove_file(tls.join("ca.key")).unwrap();
    cluster.start_again(&["--tls"]);
    let said = cluster.stderr();
    let expected = "tls/nodes/n0: the certificate ends soon, or has ended, and ";
    assert!(said.contains(expected), "{said}");
    assert!(
        said.contains("tls/ca.key is not here to renew it"),
        "{said}"
    );
}

#[test]
fn certificates_of_a_deployment_are_made_once_and_only_their_owners_use_them() {
    let directory = Directory::new();
    let path = |name: &str| directory.path(name).to_str().unwrap().to_owned();
    let (file, out, data) = (path("given.toml"), path("certs"), path("data"));
    fs::write(&file, deployment("colocated", &[]).to_toml()).unwrap();
    let create = ["certs", "create", "--config", &file, "--out", &out];
    assert!(works(&create).starts_with("wrote the certificates of 3 nodes"));
    fails(&create, 1, "certs has certificates: `ionian certs renew`");
    for key in ["ca.key", "nodes/n1/tls.key", "operator/tls.key"] {
        let mode = fs::metadata(directory.path("certs").join(key))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600, "{key}");
    }
    let client = ["certs", "client", "web", "--config", &file, "--out", &out];
    assert!(works(&client).starts_with("wrote the certificate of client web to "));
    fails(&client, 1, "clients/web exists: `ionian certs renew`");
    fails(
        &[
            "certs", "client", "../web", "--config", &file, "--out", &out,
        ],
        2,
        "must be up to 64 letters",
    );
    let certificate = || fs::read(directory.path("certs/nodes/n1/tls.crt")).unwrap();
    let before = certificate();
    let renewed = works(&["certs", "renew", "--config", &file, "--out", &out]);
    assert!(renewed.contains("the monitor and 1 clients"), "{renewed}");
    assert!(certificate() != before);

    for name in ["ca.key", "ca.crt"] {
        let path = directory.path("certs").join(name);
        let sound = fs::read(&path).unwrap();
        let renew = ["certs", "renew", "--config", &file, "--out", &out];
        for (text, says) in [("", "the file is empty"), ("x", "cannot be used to sign")] {
            fs::write(&path, text).unwrap();
            fails(&renew, 1, &format!("certs/{name}: {says}"));
        }
        fs::write(&path, sound).unwrap();
    }

    let start = |tls: &str| run_node(&["n0", "--config", &file, "--data", &data, "--tls", tls]);
    let (code, log) = start(&format!("{out}/nodes/n1"));
    let reason = "is of ionian://ionian/node/n1; expected ionian://*/node/n0";
    assert!(code == Some(1) && log.contains(reason), "{log}");
    let tls = format!("{out}/nodes/n0");
    let node = ["n0", "--config", &file, "--data", &data, "--tls", &tls];
    let (code, log) = run_node(&[&node[..], &["--client-user", "certificate"]].concat());
    let reason = "--client-user certificate: needs --client-tls required";
    assert!(code == Some(2) && log.contains(reason), "{log}");
    let key = directory.path("certs/nodes/n0/tls.key");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let (code, log) = start(&format!("{out}/nodes/n0"));
    assert!(
        code == Some(1) && log.contains("the key has mode 0644"),
        "{log}"
    );
}

#[test]
fn operator_learns_what_became_of_new_files() {
    let cluster = Secured::start(&[], |_, _| Vec::new());
    cluster.client(0, "any");
    let (config, tls) = (cluster.path("given.toml"), cluster.path("certs/monitor"));
    let status = |fresh: bool| {
        let words = ["certs", "status", "--config", &config, "--tls", &tls];
        let output = run(&[&words[..], if fresh { &["--fresh"] } else { &[] }].concat());
        (output.status.code(), text(&output.stdout))
    };
    let (code, before) = status(false);
    assert_eq!(code, Some(0), "{before}");
    let renew = |file: &str| {
        let out = cluster.path("certs");
        works(&["certs", "renew", "--config", file, "--out", &out]);
    };
    // One node has a certificate with the key of another.
    renew(&config);
    let other = fs::read(cluster.path("certs/nodes/n2/tls.key")).unwrap();
    fs::write(cluster.path("certs/nodes/n1/tls.key"), other).unwrap();
    let (code, text) = status(true);
    assert_eq!(code, Some(1), "{text}");
    let refused = "\nn1: refuses its files: ";
    assert!(text.contains(refused), "{text}");
    assert_eq!(status(false), (code, text), "it remains so");
    // SIGHUP has it read them at once.
    renew(&config);
    (0..3).for_each(|node| kill(cluster.pid(node), Signal::SIGHUP).unwrap());
    eventually("the new ones are in force", || {
        let (code, text) = status(false);
        (code == Some(0) && !text.contains(refused)).then_some(())
    });
    assert!(cluster.log(1).contains("E0901"), "{}", cluster.log(1));
}

/// The nodes have certificates of a new authority, and a client has not.
#[test]
fn authority_of_a_client_that_has_connected_is_in_use() {
    let cluster = Secured::start(&["--client-tls", "required"], |_, _| Vec::new());
    let client = cluster.client(0, "any");
    let (config, next) = (cluster.path("given.toml"), cluster.path("next"));
    works(&["certs", "create", "--config", &config, "--out", &next]);
    let bundle = ["certs/ca.crt", "next/ca.crt"].map(|file| fs::read(cluster.path(file)).unwrap());
    let bundle = bundle.concat();
    for node in ["n0", "n1", "n2"] {
        for file in ["tls.crt", "tls.key"] {
            let [from, to] = ["next", "certs"].map(|it| format!("{it}/nodes/{node}/{file}"));
            fs::copy(cluster.path(&from), cluster.path(&to)).unwrap();
        }
        fs::write(cluster.path(&format!("certs/nodes/{node}/ca.crt")), &bundle).unwrap();
    }
    let monitor = cluster.path("next/monitor");
    fs::write(format!("{monitor}/ca.crt"), &bundle).unwrap();
    let status = ["certs", "status", "--config", &config, "--tls", &monitor];
    (0..3).for_each(|node| kill(cluster.pid(node), Signal::SIGHUP).unwrap());
    let listed = eventually("the nodes have new certificates", || {
        let listed = text(&run(&status).stdout);
        listed.contains("; signed n0 n1 n2").then_some(listed)
    });
    let old = listed.lines().find(|line| line.ends_with("; signed none"));
    let old = old.expect("it is still trusted");
    let says = ": in use: a client with a certificate of it connected to n0 at ";
    assert!(old.contains(says), "{listed}");
    drop(client);
}

/// The value of a metric of a node with this port for HTTP.
fn metric(port: u16, sample: &str) -> Option<u64> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(LIMIT)).ok()?;
    let get = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(get).ok()?;
    let mut page = String::new();
    stream.read_to_string(&mut page).ok()?;
    let value = |line: &str| line.strip_prefix(sample)?.strip_prefix(' ')?.parse().ok();
    page.lines().find_map(value)
}

#[test]
fn refused_callers_and_clients_are_in_the_metrics() {
    let http = free_port();
    let flag = format!("--http=127.0.0.1:{http}");
    let cluster = Secured::start(&[], |_, node| match node {
        "n0" => vec![flag.clone()],
        _ => Vec::new(),
    });
    let mut client = cluster.client(0, "any");
    let is = |name: &str, labels: &str, value: u64| {
        let sample = format!("ionian_{name}_total{{cluster=\"ionian\",node=\"n0\"{labels}}}");
        eventually(&format!("{sample} is {value}"), || {
            (metric(http, &sample) == Some(value)).then_some(())
        });
    };
    let before = eventually("the node answers", || {
        let sample = "ionian_tls_refused_callers_total{cluster=\"ionian\",node=\"n0\"}";
        metric(http, sample)
    });
    let config = cluster.path("given.toml");
    let monitor = cluster.path("certs/monitor");
    let address = &cluster.deployment.nodes[0].address;
    let drain = [
        "drain", "n0", "--undo", "--config", &config, "--tls", &monitor,
    ];
    fails(&drain, 1, "is of ionian://ionian/monitor/default; expected");
    is("tls_refused_callers", "", before + 1);
    fails(
        &["status", "--at", address],
        1,
        "accepts only TLS connections",
    );
    is("tls_refused_callers", "", before + 2);
    // The gateway counts its own.
    let mut broken = TcpStream::connect(cluster.gateway(0)).unwrap();
    broken.write_all(b"\x16garbage, and no handshake").unwrap();
    let _ = broken.read_to_end(&mut Vec::new());
    is("gateway_closed_connections", ",reason=\"tls_handshake\"", 1);
    for _ in 0..8 {
        client.call(&["AUTH", "eva", "wrong"]).unwrap();
    }
    is("gateway_denied", ",error=\"WRONGPASS\"", 8);
    is("gateway_delayed_logins", "", 0);
    client.call(&["AUTH", "eva", "wrong"]).unwrap();
    is("gateway_delayed_logins", "", 1);
    is("peer_malformed", ",peer=\"n1\"", 0);
}

#[test]
fn programs_say_which_side_has_no_tls() {
    let plain = Secured::start(&["--client-tls", "off"], |_, _| Vec::new());
    eventually("the gateway serves clients", || {
        Client::try_connect(plain.port(0)).ok()
    });
    let (at, tls) = (plain.gateway(0), plain.path("certs/operator"));
    let get = ["exec", "--at", at, "--tls", &tls, "GET", "k"];
    fails(&get, 1, "the server does not speak TLS");
    let secured = Secured::start(&[], |_, _| Vec::new());
    secured.client(0, "any");
    let output = run(&["exec", "--at", secured.gateway(0), "GET", "k"]);
    let said = text(&output.stdout) + &text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("accepts only TLS connections"), "{said}");
}
