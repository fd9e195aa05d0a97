//! `ionian member` on clusters of real processes.

mod each_protocol;
mod joining;
mod moved;
mod refused;
mod same_addresses;

use crate::cluster::{Cluster, Directory, Nodes, eventually, free_port, ionian, run, text};
use crate::failures::Writer;
use crate::resp::Client;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::process::{Child, Output, Stdio};

/// Runs a command on the cluster.
fn member(cluster: &Cluster, arguments: &[&str]) -> Output {
    let data = cluster.data();
    run(&[&["member"], arguments, &["--data", &data]].concat())
}

#[track_caller]
fn done(output: &Output) -> String {
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}

/// The exit code and the output.
fn refused(output: &Output) -> (Option<i32>, String) {
    (output.status.code(), text(&output.stderr))
}

fn local(port: u16) -> String {
    format!("127.0.0.1:{port}")
}

/// A node that the test runs itself.
struct Node(Child);

impl Node {
    fn join(name: &str, contact: &str, directory: &Directory) -> Node {
        let log = std::fs::File::create(directory.path(&format!("{name}.log"))).unwrap();
        let data = directory.path("elsewhere");
        let arguments = [
            "node",
            name,
            "--join",
            contact,
            "--data",
            data.to_str().unwrap(),
        ];
        Node(
            ionian()
                .args(arguments)
                .stdin(Stdio::null())
                .stderr(log)
                .spawn()
                .unwrap(),
        )
    }

    /// Waits for the end; returns the exit code.
    fn ended(&mut self) -> Option<i32> {
        eventually("the node ends", || self.0.try_wait().unwrap()).code()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The node that joins finds the cluster though the first one of the list is the one that it
/// replaces, which does not come back.
#[test]
fn the_first_node_is_replaced_when_it_has_died() {
    let cluster = Cluster::start("colocated", &["durability=disk"], &["--no-restart"]);
    let (address, gateway) = (local(free_port()), local(free_port()));
    cluster.signal(0, Signal::SIGKILL);
    let to = ["--address", &address, "--gateway", &gateway];
    let said = done(&member(
        &cluster,
        &[&["replace", "n0", "n3"], &to[..]].concat(),
    ));
    assert!(
        said.ends_with("done: the cluster is in epoch 2\n"),
        "{said}"
    );
}

fn replaces_a_killed_node_and_starts_again_without_it(preset: &str) {
    let mut cluster = Cluster::start(preset, &["durability=disk"], &[]);
    let (address, gateway) = (local(free_port()), local(free_port()));
    let writer = Writer::start(cluster.gateways()[0], "k");
    writer.go_on(50);
    cluster.signal(1, Signal::SIGKILL);
    let replace = [
        "replace",
        "n1",
        "n3",
        "--address",
        &address,
        "--gateway",
        &gateway,
    ];
    let said = done(&member(&cluster, &replace));
    let epoch = 2;
    assert!(
        said.starts_with("epoch 1 begins\n")
            && said.ends_with(&format!("done: the cluster is in epoch {epoch}\n")),
        "{said}"
    );
    writer.go_on(50);
    // The same command again finds the change done.
    assert_eq!(
        done(&member(&cluster, &replace)),
        format!(
            "node n1 is no member, and n3 is one, at these addresses; the members are n0, n2, n3\n\
             no change: the cluster has this configuration already (epoch {epoch})\n"
        )
    );
    eventually("n1 leaves", || {
        cluster
            .stderr()
            .contains("node n1 has left the cluster")
            .then_some(())
    });
    assert!(
        cluster
            .stderr()
            .contains("node n3 has joined the cluster and starts"),
        "{}",
        cluster.stderr()
    );
    let status = cluster.status();
    let names: Vec<_> = status["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|node| node["name"].clone())
        .collect();
    assert_eq!(names, ["n0", "n2", "n3"]);
    assert_eq!(
        (&status["epoch"], &status["changing"]),
        (&epoch.into(), &false.into())
    );
    // A stale file leads to nodes that know the membership, and so does any of these nodes.
    let given = cluster.directory.path("given.toml");
    let stale = run(&["status", "--wait", "--config", given.to_str().unwrap()]);
    assert_eq!(stale.status.code(), Some(0), "{}", text(&stale.stdout));
    let said = text(&stale.stderr);
    assert!(
        said.contains("the cluster has changed since epoch 0")
            && said.contains(&format!("reports epoch {epoch}")),
        "{said}"
    );
    let listed = done(&run(&["member", "list", "--at", &address]));
    assert!(
        listed.starts_with(&format!("cluster ionian: epoch {epoch}\n")) && !listed.contains("n1"),
        "{listed}"
    );
    let saved = cluster.directory.path("saved.snapshot");
    done(&run(&[
        "snapshot",
        "save",
        saved.to_str().unwrap(),
        "--at",
        &address,
    ]));
    let (code, said) = refused(&run(&["status", "--at", "n3"]));
    assert_eq!(
        (code, said.contains("must be the HOST:PORT")),
        (Some(2), true),
        "{said}"
    );
    let keys = writer.finish();
    let port: u16 = gateway.rsplit_once(':').unwrap().1.parse().unwrap();
    assert_eq!(
        Client::connect(port).get(&keys[keys.len() - 1]),
        keys.last().cloned()
    );

    cluster.stop(Signal::SIGTERM);
    let file = std::fs::read_to_string(cluster.directory.path("data/deployment.toml")).unwrap();
    assert!(
        file.contains("name = \"n1\""),
        "it identifies the cluster permanently"
    );
    // From now on the test uses the present members.
    let mut new = cluster.deployment.nodes.remove(1);
    (new.name, new.address, new.gateway) = ("n3".into(), address, Some(gateway));
    cluster.deployment.nodes.push(new);
    cluster.start_again(&[]);
    let mut client = cluster.client(2);
    for key in &keys {
        assert_eq!(client.get(key).as_ref(), Some(key));
    }
    assert!(!cluster.stderr().contains("n1"), "{}", cluster.stderr());
}

/// As in a script or a service unit with fixed flags.
#[test]
fn address_flags_may_be_repeated_but_not_changed_after_a_membership_change() {
    let [nodes, gateways] = [free_ports(), free_ports()];
    let places: Vec<String> = (0..3)
        .flat_map(|node| {
            let (address, gateway) = (local(nodes + node), local(gateways + node));
            [
                format!("node.n{node}.address={address}"),
                format!("node.n{node}.gateway={gateway}"),
            ]
        })
        .collect();
    let places: Vec<&str> = [
        &["durability=disk"][..],
        &places.iter().map(String::as_str).collect::<Vec<_>>(),
    ]
    .concat();
    let mut cluster = Cluster::start("colocated", &places, &[]);
    let (address, gateway) = (local(free_port()), local(free_port()));
    done(&member(
        &cluster,
        &[
            "replace",
            "n1",
            "n3",
            "--address",
            &address,
            "--gateway",
            &gateway,
        ],
    ));
    cluster.kill_all();
    let mut new = cluster.deployment.nodes.remove(1);
    (new.name, new.address, new.gateway) = ("n3".into(), address, Some(gateway));
    cluster.deployment.nodes.push(new);
    let (listen, port) = (local(gateways), nodes.to_string());
    cluster.start_again(&["--listen", &listen, "--node-port", &port]);
    cluster.client(0).set("k", "v");
    cluster.kill_all();
    let other = free_ports().to_string();
    let output = run(&["up", "--node-port", &other, "--data", &cluster.data()]);
    let (code, said) = refused(&output);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("are those of the membership: omit the flags"),
        "{said}"
    );
}

/// The first of three consecutive free ports.
fn free_ports() -> u16 {
    eventually("three ports that follow each other are free", || {
        let first = free_port();
        (free_port() == first + 1 && free_port() == first + 2).then_some(first)
    })
}

fn abandons_or_finishes_a_change_that_waits_for_a_node(preset: &str) {
    let cluster = Cluster::start(preset, &[], &[]);
    // Another host for `ionian up`, so that it does not start the node.
    let address = format!("localhost:{}", free_port());
    let add = [
        "add",
        "n3",
        "--address",
        &address,
        "--roles",
        "acceptor,replica",
    ];
    assert_eq!(
        done(&member(&cluster, &[&add[..], &["--no-wait"]].concat())),
        "epoch 1 begins\n"
    );
    let listed = done(&member(&cluster, &["list"]));
    assert!(
        listed.starts_with("cluster ionian: epoch 1, a change is in progress\n"),
        "{listed}"
    );
    assert!(
        listed.contains("n3 (joins)") && listed.contains("+acceptor:3 +replica:3"),
        "{listed}"
    );
    assert!(
        listed.contains("! waits for node n3, which does not answer: `ionian node n3 --join"),
        "{listed}"
    );
    let (code, said) = refused(&member(&cluster, &["remove", "n2"]));
    assert_eq!(code, Some(1));
    assert!(
        said.contains("another change is under way, in epoch 1"),
        "{said}"
    );
    assert_eq!(
        done(&member(&cluster, &["abandon"])),
        "epoch 2 begins\ndone: the cluster is in epoch 2\n"
    );
    let (code, said) = refused(&member(&cluster, &["abandon"]));
    assert_eq!(
        (code, said.as_str()),
        (Some(1), "ionian: no change is under way\n")
    );

    // An interrupted wait changes nothing, and the same command waits for the same change.
    let data = cluster.data();
    let arguments = [&["member"][..], &add, &["--data", &data]].concat();
    let mut interrupted = ionian()
        .args(&arguments)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    eventually("the change has begun", || {
        (cluster.status()["epoch"] == 3).then_some(())
    });
    kill(Pid::from_raw(interrupted.id() as i32), Signal::SIGINT).unwrap();
    interrupted.wait().unwrap();
    let contact = &cluster.deployment.nodes[0].address;
    let mut node = Node::join("n3", contact, &cluster.directory);
    let said = done(&run(&arguments));
    // The directory of `ionian node` names the cluster.
    let elsewhere = cluster.directory.path("elsewhere");
    let listed = done(&run(&[
        "member",
        "list",
        "--data",
        elsewhere.to_str().unwrap(),
    ]));
    assert!(listed.contains("n3"), "{listed}");
    assert!(
        said.starts_with("this change is in progress already (epoch 3)\n"),
        "{said}"
    );
    assert!(
        said.ends_with("done: the cluster is in epoch 4\n"),
        "{said}"
    );

    // It has stored its membership, and starts even if no other node runs.
    kill(Pid::from_raw(node.0.id() as i32), Signal::SIGTERM).unwrap();
    assert_eq!(node.ended(), Some(0));
    let mut node = Node::join("n3", "127.0.0.1:1", &cluster.directory);
    eventually("all are up", || {
        (cluster.status()["nodes_up"] == 4).then_some(())
    });
    done(&member(&cluster, &["remove", "n3"]));
    assert_eq!(node.ended(), Some(0));
    let log = std::fs::read_to_string(cluster.directory.path("n3.log")).unwrap();
    assert!(
        log.contains("is not a member of the cluster any more"),
        "{log}"
    );
}

/// Three new nodes, none of which runs, are to replace three others: the old ones serve, and status
/// reports that.
fn serves_while_new_nodes_are_missing(preset: &str) {
    let cluster = Cluster::start(preset, &[], &[]);
    let mut next = cluster.deployment.numbered().unwrap();
    for (place, node) in next.nodes.iter_mut().enumerate() {
        (node.name, node.id) = (format!("m{place}"), None);
        // Another host for `ionian up`, so that it does not start the nodes.
        node.address = format!("localhost:{}", free_port());
        node.gateway = Some(local(free_port()));
        node.roles
            .iter_mut()
            .for_each(|placed| placed.number = None);
    }
    let file = cluster.directory.path("next.toml");
    std::fs::write(&file, next.to_toml()).unwrap();
    let begun = done(&member(
        &cluster,
        &["apply", file.to_str().unwrap(), "--no-wait"],
    ));
    assert_eq!(begun, "epoch 1 begins\n");
    cluster.client(0).set("k", "v");
    let looked = run(&["status", "--data", &cluster.data()]);
    assert_eq!(looked.status.code(), Some(3), "{}", text(&looked.stdout));
    assert!(
        text(&looked.stdout).contains("! node m2 does not answer"),
        "{}",
        text(&looked.stdout)
    );
    cluster.client(1).set("k", "w");
}

/// A cluster with one running node, and a command that waits for the others.
struct Stranded {
    cluster: Cluster,
    said: std::path::PathBuf,
    /// The command, and then the restarted nodes.
    processes: Nodes,
}

impl Stranded {
    fn new(command: &[&str]) -> Stranded {
        Stranded::prepared(|_| (), command)
    }

    /// Prepares the cluster for the command while all its nodes run.
    fn prepared(prepare: impl FnOnce(&Cluster), command: &[&str]) -> Stranded {
        let settings = ["durability=disk", "options.patience_ms=300"];
        let cluster = Cluster::start("colocated", &settings, &["--no-restart"]);
        prepare(&cluster);
        let said = cluster.directory.path("said");
        let file = std::fs::File::create(&said).unwrap();
        let mut stranded = Stranded {
            cluster,
            said,
            processes: Nodes(Vec::new()),
        };
        stranded.kill(1);
        stranded.kill(2);
        // Otherwise its successor would find its proposal in its log.
        eventually("n0 does not lead", || {
            let roles = stranded.cluster.status()["nodes"][0]["status"]["roles"]
                .as_array()?
                .clone();
            roles
                .iter()
                .all(|role| role["leads"]["own"] != true)
                .then_some(())
        });
        let mut waiting = ionian();
        waiting
            .arg("member")
            .args(command)
            .args(["--data", &stranded.cluster.data()]);
        waiting
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file);
        stranded.processes.0.push(waiting.spawn().unwrap());
        eventually("it says that it waits", || {
            let said = stranded.said();
            assert_eq!(stranded.processes.0[0].try_wait().unwrap(), None, "{said}");
            said.contains("waits for a leader and a quorum: n1 at ")
                .then_some(())
        });
        stranded
    }

    fn said(&self) -> String {
        std::fs::read_to_string(&self.said).unwrap()
    }

    fn kill(&self, node: usize) {
        self.cluster.signal(node, Signal::SIGKILL);
        eventually("it is gone", || {
            self.cluster.pid(node).is_none().then_some(())
        });
    }

    fn start(&mut self, names: &[&str]) {
        let config = self.cluster.directory.path("given.toml");
        for name in names {
            let flags = [
                "node",
                name,
                "--data",
                &self.cluster.data(),
                "--config",
                config.to_str().unwrap(),
            ];
            self.processes.0.push(
                ionian()
                    .args(flags)
                    .stdin(Stdio::null())
                    .stderr(Stdio::null())
                    .spawn()
                    .unwrap(),
            );
        }
    }

    fn signal_command(&self, signal: Signal) {
        kill(Pid::from_raw(self.processes.0[0].id() as i32), signal).unwrap();
    }

    /// Waits until the command has succeeded, with this last line.
    #[track_caller]
    fn done(self, last: &str) {
        self.ended(0, last);
    }

    /// Waits until the command has ended with this exit code and last line.
    #[track_caller]
    fn ended(mut self, code: i32, last: &str) {
        let status = eventually("the command ends", || {
            self.processes.0[0].try_wait().unwrap()
        });
        assert_eq!(status.code(), Some(code), "{}", self.said());
        assert!(self.said().ends_with(last), "{}", self.said());
    }
}

/// The only node that answers at first has no quorum, and is killed. The others come back, and the
/// command asks them.
#[test]
fn a_change_waits_for_a_quorum_and_retries_nodes_that_were_down() {
    let address = format!("localhost:{}", free_port());
    let mut stranded = Stranded::new(&[
        "add",
        "n3",
        "--address",
        &address,
        "--roles",
        "proxy_leader",
        "--no-wait",
    ]);
    stranded.kill(0);
    stranded.start(&["n1", "n2"]);
    stranded.done("epoch 1 begins\n");
}

/// The change has been accepted and finished before the command can ask again: the log reports a
/// later epoch.
#[test]
fn a_command_succeeds_whose_change_finished_without_its_knowledge() {
    let address = format!("localhost:{}", free_port());
    let add = [
        "add",
        "n3",
        "--address",
        &address,
        "--roles",
        "acceptor,replica",
    ];
    let mut stranded = Stranded::new(&add);
    stranded.signal_command(Signal::SIGSTOP);
    stranded.kill(0);
    stranded.start(&["n0", "n1", "n2"]);
    let contact = stranded.cluster.deployment.nodes[0].address.clone();
    let _new = Node::join("n3", &contact, &stranded.cluster.directory);
    eventually("the same command is carried out", || {
        member(&stranded.cluster, &add)
            .status
            .success()
            .then_some(())
    });
    stranded.signal_command(Signal::SIGCONT);
    stranded.done("epoch 1 begins\ndone: the cluster is in epoch 2\n");
}

/// Nothing is left to abandon when the command reaches the log, which answers as if it had
/// abandoned the change.
#[test]
fn abandon_fails_if_the_change_has_finished() {
    let address = format!("localhost:{}", free_port());
    let add = [
        "add",
        "n3",
        "--address",
        &address,
        "--roles",
        "acceptor,replica",
    ];
    let begin = |cluster: &Cluster| {
        done(&member(cluster, &[&add[..], &["--no-wait"]].concat()));
        let knows = || (cluster.status()["nodes"][0]["status"]["epoch"] == 1).then_some(());
        eventually("n0 knows the change", knows);
    };
    let mut stranded = Stranded::prepared(begin, &["abandon", "--no-wait"]);
    stranded.signal_command(Signal::SIGSTOP);
    stranded.kill(0);
    stranded.start(&["n0", "n1", "n2"]);
    let contact = stranded.cluster.deployment.nodes[0].address.clone();
    let _new = Node::join("n3", &contact, &stranded.cluster.directory);
    eventually("it is finished", || {
        let said = text(&member(&stranded.cluster, &["list"]).stdout);
        assert!(
            said.is_empty() || said.contains("n3"),
            "it was abandoned before: {}",
            stranded.said()
        );
        said.starts_with("cluster ionian: epoch 2\n").then_some(())
    });
    stranded.signal_command(Signal::SIGCONT);
    stranded.ended(
        1,
        "the change was finished before it could be abandoned, in epoch 2\n",
    );
}
