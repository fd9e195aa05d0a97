//! Stopping and draining nodes under load: every command that a node has received gets an answer.

use crate::cluster::{Cluster, LIMIT, deployment, eventually, fails, free_port, run, text, works};
use crate::resp::Reply;
use nix::sys::signal::Signal;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A client that increments its own key and never sends a command twice. Before it sends, it checks
/// whether its connection has been closed, as connection pools of client libraries do.
struct Counter {
    key: String,
    gateways: Vec<SocketAddr>,
    turn: usize,
    connection: Option<BufReader<TcpStream>>,
    reached: i64,
}

impl Counter {
    fn new(number: usize, gateways: &[SocketAddr]) -> Self {
        let gateways = gateways.to_vec();
        Counter {
            key: format!("counter-{number}"),
            gateways,
            turn: number,
            connection: None,
            reached: 0,
        }
    }

    fn count(&mut self) {
        let mut connection = self
            .connection
            .take()
            .filter(is_open)
            .unwrap_or_else(|| self.connect());
        let command = format!(
            "*2\r\n$4\r\nINCR\r\n${}\r\n{}\r\n",
            self.key.len(),
            self.key
        );
        connection
            .get_mut()
            .write_all(command.as_bytes())
            .unwrap_or_else(|error| panic!("{}: {error}", self.key));
        let mut reply = String::new();
        let read = connection.read_line(&mut reply);
        self.reached += 1;
        let local = connection.get_ref().peer_addr();
        assert_eq!(
            reply,
            format!(":{}\r\n", self.reached),
            "{}: {read:?} from {local:?}",
            self.key
        );
        self.connection = Some(connection);
    }

    /// Connects to the next gateway that accepts clients.
    fn connect(&mut self) -> BufReader<TcpStream> {
        eventually("a gateway accepts a client", || {
            self.turn += 1;
            let stream = TcpStream::connect(self.gateways[self.turn % self.gateways.len()]).ok()?;
            stream.set_read_timeout(Some(LIMIT)).unwrap();
            stream.set_nodelay(true).unwrap();
            let mut stream = BufReader::new(stream);
            // Like client libraries, one after the other.
            for greeting in [["LIB-NAME", "counter"], ["LIB-VER", "1"]] {
                let command = format!("CLIENT SETINFO {}\r\n", greeting.join(" "));
                stream
                    .get_mut()
                    .write_all(command.as_bytes())
                    .unwrap_or_else(|error| panic!("greeting: {error}"));
                let mut reply = String::new();
                let read = stream.read_line(&mut reply);
                assert_eq!(
                    reply, "+OK\r\n",
                    "a gateway that took a client in sent it away: {read:?}"
                );
            }
            Some(stream)
        })
    }
}

/// Whether the connection is still open.
fn is_open(connection: &BufReader<TcpStream>) -> bool {
    let stream = connection.get_ref();
    stream.set_nonblocking(true).unwrap();
    let peeked = stream.peek(&mut [0]);
    stream.set_nonblocking(false).unwrap();
    matches!(peeked, Err(error) if error.kind() == ErrorKind::WouldBlock)
}

fn addresses(cluster: &Cluster) -> Vec<SocketAddr> {
    cluster
        .gateways()
        .iter()
        .map(|port| SocketAddr::from(([127, 0, 0, 1], *port)))
        .collect()
}

/// The log of a node.
fn log(cluster: &Cluster, node: usize) -> String {
    let name = &cluster.deployment.nodes[node].name;
    std::fs::read_to_string(
        cluster
            .directory
            .path("data")
            .join(format!("logs/{name}.log")),
    )
    .unwrap()
}

/// Sends a node a command that needs a majority, and returns when the node waits for the others.
fn start_unanswerable_command(cluster: &Cluster, node: usize) -> TcpStream {
    let mut stream = TcpStream::connect(addresses(cluster)[node]).unwrap();
    stream.write_all(b"INCR lonely\r\n").unwrap();
    eventually("it was taken in", || {
        let roles = cluster.status()["nodes"][node]["status"]["roles"]
            .as_array()?
            .clone();
        roles
            .iter()
            .any(|role| role["metrics"]["in_flight"] == 1)
            .then_some(())
    });
    stream
}

/// How often the supervisor has reported that a node stopped by itself.
fn stops(cluster: &Cluster) -> usize {
    cluster.stderr().matches("has stopped by itself").count()
}

#[test]
fn a_rolling_restart_loses_no_reply_and_executes_nothing_twice() {
    for preset in ["colocated", "mencius", "spaxos"] {
        let cluster = Cluster::start(preset, &[], &[]);
        let (gateways, over) = (addresses(&cluster), Arc::new(AtomicBool::new(false)));
        let clients: Vec<_> = (0..40)
            .map(|number| {
                let (mut counter, over) = (Counter::new(number, &gateways), over.clone());
                std::thread::spawn(move || {
                    while !over.load(Ordering::Relaxed) {
                        counter.count();
                    }
                    counter.reached
                })
            })
            .collect();
        for node in 0..3 {
            let (before, pid) = (stops(&cluster), cluster.pid(node));
            cluster.signal(node, Signal::SIGTERM);
            eventually("the node has stopped in order", || {
                (stops(&cluster) > before).then_some(())
            });
            eventually("another process runs", || {
                cluster.pid(node).filter(|new| Some(*new) != pid)
            });
            cluster.wait_until_whole_under_load();
        }
        over.store(true, Ordering::Relaxed);
        let counted: i64 = clients
            .into_iter()
            .map(|client| client.join().unwrap())
            .sum();
        assert!(counted > 0, "{preset}: no client counted anything");
        for (place, node) in cluster.deployment.nodes.iter().enumerate() {
            let log = log(&cluster, place);
            assert!(
                !log.contains("what is left"),
                "{preset}: {} had to give up: {log}",
                node.name
            );
        }
    }
}

#[test]
fn a_drained_node_has_no_clients_and_does_not_lead_until_undo() {
    let cluster = Cluster::start("colocated", &[], &[]);
    let (data, leader) = (cluster.data(), cluster.leader());
    let (name, gateway) = (
        cluster.deployment.nodes[leader].name.clone(),
        addresses(&cluster)[leader],
    );
    let idle = BufReader::new(TcpStream::connect(gateway).unwrap());
    let mut busy = Counter::new(0, &[gateway]);
    busy.count();
    let drained = run(&["drain", &name, "--data", &data]);
    assert_eq!(
        text(&drained.stdout),
        format!("{name} has no clients and does not lead; it can be stopped\n"),
        "{drained:?}"
    );
    assert_eq!(drained.status.code(), Some(0));
    assert!(!is_open(&idle) && !is_open(busy.connection.as_ref().unwrap()));
    assert_eq!(
        TcpStream::connect(gateway).unwrap_err().kind(),
        ErrorKind::ConnectionRefused
    );
    assert_ne!(cluster.leader(), leader);
    let status = cluster.status();
    assert_eq!(status["nodes"][leader]["status"]["drains"]["clients"], 0);
    let looked = run(&["status", "--data", &data]);
    assert_eq!(looked.status.code(), Some(3), "{looked:?}");
    assert!(
        text(&looked.stdout).contains(&format!("! node {name} is drained: it accepts no clients")),
        "{looked:?}"
    );
    let row = format!("\n{name}    drained ");
    assert!(text(&looked.stdout).contains(&row), "{looked:?}");
    // The others serve, with the vote of the drained node.
    cluster.client((leader + 1) % 3).set("k", "v");
    let unknown = run(&["drain", "n9", "--data", &data]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(
        text(&unknown.stderr).contains("there is no node \"n9\": the members are n0, n1, n2"),
        "{unknown:?}"
    );
    let undone = run(&["drain", &name, "--undo", "--data", &data]);
    assert_eq!(undone.status.code(), Some(0), "{undone:?}");
    let mut client = eventually("clients are taken in again", || {
        TcpStream::connect(gateway)
            .ok()
            .map(|_| cluster.client(leader))
    });
    assert_eq!(
        client.call(&["INCR", "counter-0"]).unwrap(),
        Reply::Integer(2)
    );
    assert_eq!(
        cluster.status()["nodes"][leader]["status"]["drains"],
        serde_json::Value::Null
    );
}

#[test]
fn a_cluster_of_drained_nodes_does_not_serve() {
    let cluster = Cluster::start("colocated", &[], &[]);
    let data = cluster.data();
    for node in ["n0", "n1", "n2"] {
        let drain = ["drain", node, "--data", &data, "--force"];
        assert_eq!(run(&drain).status.code(), Some(0));
    }
    let looked = run(&["status", "--data", &data]);
    assert_eq!(looked.status.code(), Some(1), "{looked:?}");
    assert!(
        text(&looked.stdout).contains("for want of a node that serves clients and is not drained"),
        "{looked:?}"
    );
}

/// Without a majority a command cannot be answered: the node waits as long as it may, reports what
/// is left, and stops.
#[test]
fn a_node_that_cannot_answer_stops_at_the_drain_limit() {
    let cluster = Cluster::start("colocated", &["options.drain_ms=300"], &[]);
    let others = |signal| [1, 2].iter().for_each(|node| cluster.signal(*node, signal));
    cluster.client(0).set("k", "v");
    others(Signal::SIGSTOP);
    let asked = start_unanswerable_command(&cluster, 0);
    cluster.signal(0, Signal::SIGHUP);
    eventually("it reports that it continues", || {
        log(&cluster, 0)
            .contains("SIGHUP reloads certificates only")
            .then_some(())
    });
    cluster.signal(0, Signal::SIGTERM);
    eventually("it stops", || (stops(&cluster) == 1).then_some(()));
    let log = log(&cluster, 0);
    // The gateway may have a question for the users and one for the memory under way, and no more.
    let left = "stopping after 0.3 s, the limit of options.drain_ms; what is left: 1 clients, ";
    let said =
        ["1 commands", "2 commands", "3 commands"].map(|commands| format!("{left}{commands}"));
    assert!(said.iter().any(|said| log.contains(said)), "{log}");
    drop(asked);
    others(Signal::SIGCONT);
    cluster.wait_until_whole();
}

#[test]
fn a_second_signal_ends_a_node_immediately() {
    let cluster = Cluster::start("colocated", &["options.drain_ms=600000"], &[]);
    cluster.client(0).set("k", "v");
    [1, 2]
        .iter()
        .for_each(|node| cluster.signal(*node, Signal::SIGSTOP));
    let asked = start_unanswerable_command(&cluster, 0);
    cluster.signal(0, Signal::SIGTERM);
    eventually("it drains", || {
        log(&cluster, 0)
            .contains("draining: no new clients")
            .then_some(())
    });
    cluster.signal(0, Signal::SIGTERM);
    eventually("it ends", || {
        cluster
            .stderr()
            .contains("has ended with exit code 1")
            .then_some(())
    });
    assert!(
        cluster
            .stderr()
            .contains("stopping at once: SIGTERM; pending commands are not answered")
    );
    drop(asked);
    [1, 2]
        .iter()
        .for_each(|node| cluster.signal(*node, Signal::SIGCONT));
}

/// `blue` has a node at the addresses of a former node of `red`.
#[test]
fn the_end_of_up_does_not_drain_another_cluster_at_the_address_of_a_former_node() {
    let mut red = Cluster::start("colocated", &["cluster=red"], &[]);
    let former = &red.deployment.nodes[0];
    let [address, gateway] = [(); 2].map(|()| format!("127.0.0.1:{}", free_port()));
    works(&[
        "member",
        "replace",
        &former.name,
        "n3",
        "--address",
        &address,
        "--gateway",
        &gateway,
        "--data",
        &red.data(),
    ]);
    eventually("the replaced node has stopped", || {
        red.stderr().contains("has left the cluster").then_some(())
    });
    let name = deployment("unreplicated", &[]).nodes[0].name.clone();
    let at = [
        "cluster=blue".to_owned(),
        format!("node.{name}.address={}", former.address),
        format!("node.{name}.gateway={}", former.gateway.as_ref().unwrap()),
    ];
    let blue = Cluster::start("unreplicated", &at.each_ref().map(String::as_str), &[]);
    let drains = || blue.status()["nodes"][0]["status"]["drains"].clone();

    red.stop(Signal::SIGINT);
    assert!(drains().is_null(), "{}", drains());
    blue.client(0).set("k", "v");
}

/// The file names another cluster, with the address of a node that runs.
#[test]
fn commands_for_one_cluster_do_not_work_on_another() {
    let blue = Cluster::start("unreplicated", &["cluster=blue"], &[]);
    let name = &blue.deployment.nodes[0].name;
    let file = blue.directory.path("green.toml");
    let green = blue
        .deployment
        .clone()
        .with_overrides(&["cluster=green"])
        .unwrap();
    std::fs::write(&file, green.to_toml()).unwrap();
    let (file, backup) = (file.to_str().unwrap(), blue.directory.path("backup"));
    let refused = format!("this is node {name} of cluster blue, not node {name} of cluster green");
    fails(&["drain", name, "--config", file], 1, &refused);
    let save = [
        "snapshot",
        "save",
        backup.to_str().unwrap(),
        "--config",
        file,
    ];
    fails(&save, 1, "of cluster \"blue\"");
    assert!(!backup.exists());
    let status = run(&["status", "--config", file]);
    let said = text(&status.stdout);
    assert!(
        !status.status.success() && said.contains("of cluster \"blue\""),
        "{said}"
    );
    assert!(blue.status()["nodes"][0]["status"]["drains"].is_null());
    blue.client(0).set("k", "v");
}

#[test]
fn the_last_node_that_serves_is_drained_by_force_only() {
    let cluster = Cluster::start("colocated", &[], &[]);
    let data = cluster.data();
    let drain = |node| ["drain", node, "--data", &data];
    works(&drain("n0"));
    works(&drain("n1"));
    let why = "no other node serves clients: after the drain of n2 none does; --force";
    fails(&drain("n2"), 1, why);
    cluster.client(2).call(&["SET", "k", "v"]).unwrap();
    // One that does not serve may be drained again.
    works(&drain("n1"));
    works(&["drain", "n2", "--data", &data, "--force"]);
    assert!(cluster.status()["nodes"][2]["status"]["drains"].is_object());
}

/// The kernel's own list of sockets: for each, its two ports and the timer that runs.
fn timer(local: u16, remote: u16) -> Option<String> {
    let list = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let (local, remote) = (format!(":{local:04X}"), format!(":{remote:04X}"));
    list.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_it = words[1].ends_with(&local) && words[2].ends_with(&remote);
        is_it.then(|| words[5].split(':').next().unwrap().to_owned())
    })
}

#[cfg(target_os = "linux")]
#[test]
fn an_idle_client_is_asked_whether_its_machine_is_there() {
    let cluster = Cluster::start("colocated", &[], &[]);
    let gateway = cluster.gateways()[0];
    let client = TcpStream::connect(("127.0.0.1", gateway)).unwrap();
    let own = client.local_addr().unwrap().port();
    // 2 is that of keepalive.
    eventually("it is", || (timer(gateway, own)? == "02").then_some(()));
}
