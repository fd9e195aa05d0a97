//! How a program starts nodes: with certificates, and from async code.

use crate::common::{Machines, preset};
use ionian::{Kv, Node, NodeOptions, Origin, StartError, Tls};
use ionian_runtime::{Contact, query_membership};
use ionian_tls::{Authority, Hosts, Kind, Name};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

/// Long enough for any machine; a test fails by it only if the cluster does not work.
const LIMIT: Duration = Duration::from_secs(60);

fn runtime() -> Runtime {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
}

async fn can_write(node: &Node) {
    let began = Instant::now();
    while let Err(why) = node.probe(Duration::from_secs(1)).await {
        assert!(began.elapsed() < LIMIT, "{why}");
    }
}

/// `NodeOptions` with another way to find the others: the node at `port`.
fn joining(options: NodeOptions, port: u16) -> NodeOptions {
    NodeOptions {
        origin: Origin::Joining(format!("127.0.0.1:{port}")),
        ..options
    }
}

/// Certificates of the nodes of a cluster, each in a directory.
fn certificates(test: &str, cluster: &str, nodes: [&str; 3]) -> [PathBuf; 3] {
    let (authority, _) = Authority::create(cluster, LIMIT * 60).expect("an authority");
    nodes.map(|name| {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{test}-{name}"));
        fs::create_dir_all(&directory).expect("a directory");
        let owner = Name {
            cluster: cluster.to_owned(),
            kind: Kind::Node,
            name: name.to_owned(),
        };
        let issued = authority.issue(&owner, &Hosts::default(), LIMIT * 60);
        let issued = issued.expect("a certificate");
        for (file, text) in [
            ("tls.crt", issued.certificate.as_str()),
            ("tls.key", &issued.key),
            ("ca.crt", authority.certificate()),
        ] {
            let path = directory.join(file);
            fs::write(&path, text).expect("written");
            fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("private");
        }
        directory
    })
}

#[test]
fn nodes_with_certificates_accept_no_caller_without_one() {
    let machines = Machines::<Kv>::new("secured", preset("colocated"));
    let directories = certificates("secured", "ionian", ["n0", "n1", "n2"]);
    let secured = |at: usize, certificate: usize| NodeOptions {
        tls: Some(Tls::required(&directories[certificate])),
        ..machines.options(at)
    };
    let [n0, n1] = [0, 1].map(|at| Node::start::<Kv>(secured(at, at)).expect("a node"));
    let n2 = joining(secured(2, 2), machines.ports[0]);
    let n2 = Node::start::<Kv>(n2).expect("a node that asks with its certificate");
    let runtime = runtime();
    for node in [&n0, &n2] {
        runtime.block_on(can_write(node));
    }

    let plain = Contact {
        address: format!("127.0.0.1:{}", machines.ports[0]),
        socket: None,
        tls: None,
        name: None,
    };
    let refused = runtime.block_on(query_membership(plain, LIMIT));
    let refused = refused.expect_err("no certificate").to_string();
    assert!(
        refused.contains("accepts only TLS connections"),
        "{refused}"
    );

    drop(n1);
    let of_another = Node::start::<Kv>(secured(1, 2)).err();
    let of_another = of_another.expect("the certificate is that of n2");
    assert!(matches!(of_another, StartError::Tls { .. }));
    let text = of_another.to_string();
    assert!(text.contains("is of ionian://ionian/node/n2;"), "{text}");
}

#[test]
fn async_code_starts_a_node_that_joins_and_may_give_up() {
    let machines = Machines::<Kv>::new("started-async", preset("colocated"));
    let first = machines.start(0);
    let port = machines.ports[0];
    runtime().block_on(async {
        // This one blocks the thread, and must work for all that.
        let second = Node::start::<Kv>(joining(machines.options(1), port)).expect("a node");
        let third = Node::start_async::<Kv>(joining(machines.options(2), port)).await;
        let third = third.expect("a node");
        for node in [&first, &second, &third] {
            can_write(node).await;
        }
        let no_member = NodeOptions {
            name: "n9".to_owned(),
            ..machines.options(2)
        };
        let start = Node::start_async::<Kv>(joining(no_member, port));
        let waited = tokio::time::timeout(Duration::from_millis(300), start).await;
        assert!(waited.is_err(), "it is no member");
        second.stop().expect("an orderly stop");
        third.stop().expect("an orderly stop");
    });
}
