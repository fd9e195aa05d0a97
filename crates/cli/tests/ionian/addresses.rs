//! Nodes that listen at other addresses than those at which others reach them: behind address
//! translation, in containers.

use crate::cluster::{Cluster, Directory, deployment, eventually, free_port, ionian, run, text};
use std::io::copy;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Stdio;
use std::thread::spawn;

/// Forwards connections from one port to another, like address translation.
fn forward(from: u16, to: u16) {
    let listener = TcpListener::bind(("127.0.0.1", from)).unwrap();
    spawn(move || {
        for outside in listener.incoming().map_while(Result::ok) {
            let Ok(inside) = TcpStream::connect(("127.0.0.1", to)) else {
                continue;
            };
            for (mut one, mut other) in [
                (outside.try_clone().unwrap(), inside.try_clone().unwrap()),
                (inside, outside),
            ] {
                spawn(move || {
                    let _ = copy(&mut one, &mut other);
                    let _ = other.shutdown(Shutdown::Write);
                });
            }
        }
    });
}

#[test]
fn nodes_and_clients_find_a_node_behind_address_translation() {
    let [found, listens, served, serves] = [(); 4].map(|()| free_port());
    forward(found, listens);
    forward(served, serves);
    let overrides = [
        // Nodes dial nodes with a lower number.
        format!("node.n0.address=127.0.0.1:{found}"),
        format!("node.n0.listen=0.0.0.0:{listens}"),
        format!("node.n0.gateway=127.0.0.1:{served}"),
        format!("node.n0.gateway_listen=127.0.0.1:{serves}"),
    ];
    let mut cluster = Cluster::start("colocated", &overrides.each_ref().map(String::as_str), &[]);
    cluster.client(0).set("k", "v");
    let status = run(&["status", "--wait", "--at", &format!("127.0.0.1:{found}")]);
    assert_eq!(status.status.code(), Some(0), "{}", text(&status.stdout));
    // The addresses of the members in the log do not change where a node listens.
    let set = run(&[
        "options",
        "set",
        "heartbeat_ms=60",
        "--data",
        &cluster.data(),
    ]);
    assert_eq!(set.status.code(), Some(0), "{}", text(&set.stderr));
    cluster.kill_all();
    cluster.start_again(&[]);
    assert_eq!(cluster.client(0).get("k"), Some("v".into()));
}

#[test]
fn flags_override_the_listening_addresses() {
    let directory = Directory::new();
    let deployment = deployment("unreplicated", &[]);
    let name = &deployment.nodes[0].name;
    let file = directory.path("given.toml");
    std::fs::write(&file, deployment.to_toml()).unwrap();
    let [listens, serves] = [(); 2].map(|()| free_port());
    let [address, gateway] = [listens, serves].map(|port| format!("127.0.0.1:{port}"));
    forward(
        deployment.nodes[0]
            .address
            .rsplit_once(':')
            .unwrap()
            .1
            .parse()
            .unwrap(),
        listens,
    );
    let data = directory.path("data");
    let mut node = ionian()
        .args([
            "node",
            name,
            "--config",
            file.to_str().unwrap(),
            "--data",
            data.to_str().unwrap(),
        ])
        .args(["--listen", &address, "--gateway-listen", &gateway])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let reply = eventually("it serves", || {
        let output = run(&["exec", "--at", &gateway, "SET", "k", "v"]);
        output.status.success().then(|| text(&output.stdout))
    });
    let listed = run(&["options", "list", "--at", &address]);
    let _ = node.kill();
    let _ = node.wait();
    assert_eq!(
        (reply.as_str(), listed.status.code()),
        ("OK\n", Some(0)),
        "{}",
        text(&listed.stderr)
    );
}
