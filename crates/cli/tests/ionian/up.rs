//! Starting and stopping whole clusters.

use crate::cluster::{
    Cluster, Nodes, deployment, eventually, fails, free_port, ionian, is_alive, run,
    stop_all_threads, text, unfolded, up_refuses, works,
};
use crate::resp::Reply;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::Write;
use std::net::TcpListener;
use std::process::Stdio;

#[test]
fn a_directory_has_one_user_and_keeps_its_deployment() {
    let mut cluster = Cluster::start("colocated", &["durability=memory"], &[]);
    let said = cluster.stderr();
    let warning = "durability = memory: nothing is stored";
    assert!(said.contains(warning), "{said}");
    cluster.client(0).set("k", "v");
    let data = cluster.data();

    // By one process at a time.
    let second = run(&["up", "--data", &data]);
    assert_eq!(second.status.code(), Some(1));
    let error = text(&second.stderr);
    assert!(
        error.contains("another `ionian up` (process ")
            && error.contains(&cluster.up_pid().to_string()),
        "{error}"
    );
    assert_eq!(cluster.client(1).get("k"), Some("v".into()));

    // Without flags: the same deployment, and a new cluster. Ctrl-C as a terminal sends it.
    cluster.stop(Signal::SIGINT);
    let five = run(&["up", "--nodes", "5", "--data", &data]);
    let error = text(&five.stderr);
    assert!(error.contains("f was 1, is to be 2; "), "{error}");
    cluster.start_again(&[]);
    let said = cluster.stderr();
    assert!(said.contains("a new and empty cluster"), "{said}");
    assert_eq!(cluster.client(2).get("k"), None);
    cluster.client(2).set("k", "w");

    // A killed `up` leaves no node running, and the next `up` waits for the nodes to stop.
    let pids = cluster.pids();
    assert_eq!(pids.len(), 3);
    kill(cluster.up_pid(), Signal::SIGKILL).unwrap();
    cluster.wait_for_up();
    cluster.start_again(&["--set", "options.batch_commands=100"]);
    assert!(pids.iter().all(|pid| !is_alive(*pid)));
    let said = cluster.stderr();
    assert!(
        said.contains("options.batch_commands was 256, is to be 100"),
        "{said}"
    );
    cluster.stop(Signal::SIGTERM);

    // The directory cannot be used for another deployment.
    for (flags, difference) in [
        (["--preset", "baseline"], "node.n0.roles was"),
        (
            ["--preset", "unreplicated"],
            "protocol was multipaxos, is to be unreplicated",
        ),
        (
            ["--set", "options.heartbeat_ms=50"],
            "options.heartbeat_ms was 100, is to be 50",
        ),
        (
            ["--durability", "disk"],
            "durability was memory, is to be disk",
        ),
        (
            ["--set", "durability=disk"],
            "durability was memory, is to be disk",
        ),
    ] {
        let refused = ionian()
            .arg("up")
            .args(flags)
            .args(["--data", &data])
            .output()
            .unwrap();
        let error = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1));
        let held = [
            "holds another deployment",
            "holds a cluster with other options",
        ];
        assert!(
            held.iter().any(|held| error.contains(held)) && error.contains(difference),
            "{error}"
        );
    }
}

#[test]
fn a_cluster_on_disk_keeps_its_data_across_restarts() {
    let mut cluster = Cluster::start("colocated", &[], &[]);
    assert!(
        !cluster.stderr().contains("durability = memory"),
        "{}",
        cluster.stderr()
    );
    for life in 1..=3 {
        let mut client = cluster.client(life % 3);
        assert_eq!(
            client.call(&["INCR", "lives"]).unwrap(),
            Reply::Integer(life as i64)
        );
        (0..20).for_each(|key| client.set(&format!("{life}.{key}"), "v"));
        let status = cluster.status();
        assert_eq!(status["durability"], "disk");
        assert!(
            status["nodes"]
                .as_array()
                .unwrap()
                .iter()
                .all(|node| node["status"]["amnesiac"] == false)
        );
        // First in order, then like a power failure: all at once, so that no node has its memory to
        // help another.
        if life == 1 {
            cluster.stop(Signal::SIGTERM);
        } else {
            let pids = cluster.pids();
            for pid in std::iter::once(cluster.up_pid()).chain(pids) {
                kill(pid, Signal::SIGKILL).unwrap();
            }
            cluster.wait_for_up();
        }
        cluster.start_again(&[]);
        assert!(
            !cluster.stderr().contains("new and empty"),
            "{}",
            cluster.stderr()
        );
        let mut client = cluster.client(0);
        for (life, key) in (1..=life).flat_map(|life| (0..20).map(move |key| (life, key))) {
            assert_eq!(
                client.get(&format!("{life}.{key}")),
                Some("v".into()),
                "{life}.{key}"
            );
        }
    }
    // A single node restarts by itself.
    cluster.signal(1, Signal::SIGKILL);
    cluster.client(0).set("k", "v");
    cluster.wait_until_whole();
    assert_eq!(cluster.client(1).get("k"), Some("v".into()));
    cluster.stop(Signal::SIGTERM);
    // The durability of a directory cannot change.
    let refused = ionian()
        .args(["up", "--durability", "memory", "--data", &cluster.data()])
        .output()
        .unwrap();
    let error = text(&refused.stderr);
    assert!(
        error.contains("durability was disk, is to be memory"),
        "{error}"
    );
    cluster.start_again(&[]);
    assert_eq!(cluster.client(2).get("lives"), Some("3".into()));
    cluster.stop(Signal::SIGINT);
}

/// Durable data is not replaced by a new cluster, though the others do without a minority.
#[test]
fn up_refuses_a_directory_that_has_lost_most_of_its_nodes() {
    let mut cluster = Cluster::start("colocated", &["durability=disk"], &[]);
    cluster.client(0).set("k", "v");
    cluster.stop(Signal::SIGTERM);
    let path = |name: &str| cluster.directory.path("data").join(name);
    let (data, nodes) = (cluster.data(), path("nodes"));
    let refuses = |missing: &str| {
        let says = format!("are missing in {}: {missing}. Without", nodes.display());
        up_refuses(&data, &says);
    };
    let move_all = |names: &[&str], from: &str, to: &str| {
        for name in names {
            std::fs::rename(path(from).join(name), path(to).join(name)).unwrap();
        }
    };
    std::fs::create_dir(path("aside")).unwrap();
    move_all(&["n0", "n1", "n2"], "nodes", "aside");
    refuses("n0, n1, n2");
    // As disks that are not mounted.
    let names = ["n0", "n1", "n2"].map(|name| nodes.join(name));
    names.iter().for_each(|it| std::fs::create_dir(it).unwrap());
    refuses("n0, n1, n2");
    // As after an earlier program, which wrote no such file.
    let founded = std::fs::read(path("founded")).unwrap();
    std::fs::remove_file(path("founded")).unwrap();
    refuses("n0, n1, n2");
    std::fs::write(path("founded"), founded).unwrap();
    names.iter().for_each(|it| std::fs::remove_dir(it).unwrap());
    move_all(&["n1"], "aside", "nodes");
    refuses("n0, n2");
    move_all(&["n0"], "aside", "nodes");
    cluster.start_again_without("n2");
    assert_eq!(cluster.client(1).get("k"), Some("v".into()));
    cluster.stop(Signal::SIGTERM);
    // The directory that n2 has made meanwhile is not the one that was lost.
    assert!(nodes.join("n2").join("lock").exists());
    std::fs::remove_dir_all(nodes.join("n1")).unwrap();
    refuses("n1, n2");
}

#[test]
fn a_port_in_use_is_named() {
    let deployment = deployment("colocated", &[]);
    for text_of in [
        &deployment.nodes[1].address,
        deployment.nodes[2].gateway.as_ref().unwrap(),
    ] {
        let directory = crate::cluster::Directory::new();
        let file = directory.path("given.toml");
        std::fs::write(&file, deployment.to_toml()).unwrap();
        let _taken = TcpListener::bind(text_of).unwrap();
        let data = directory.path("data");
        let refused = run(&[
            "up",
            file.to_str().unwrap(),
            "--data",
            data.to_str().unwrap(),
        ]);
        assert_eq!(refused.status.code(), Some(1));
        let error = text(&refused.stderr);
        let port = text_of.rsplit_once(':').unwrap().1;
        assert!(error.contains(&format!("port {port} is in use")), "{error}");
    }
}

#[test]
fn a_port_of_the_flag_http_in_use_is_named_before_any_node_starts() {
    let directory = crate::cluster::Directory::new();
    let file = directory.path("given.toml");
    std::fs::write(&file, deployment("colocated", &[]).to_toml()).unwrap();
    let first = crate::metrics::free_ports();
    let _taken = TcpListener::bind(("127.0.0.1", first + 2)).unwrap();
    let (file, data) = (file.to_str().unwrap(), directory.path("data"));
    let flag = format!("--http=127.0.0.1:{first}");
    let refused = run(&["up", file, &flag, "--data", data.to_str().unwrap()]);
    let error = text(&refused.stderr);
    let says = format!("ionian: --http: port {}: ", first + 2);
    assert_eq!(refused.status.code(), Some(1), "{error}");
    assert!(error.starts_with(&says), "{error}");
    let logs = std::fs::read_dir(data.join("logs")).unwrap().count();
    assert_eq!(logs, 0, "no node has started");
}

#[test]
fn with_no_restart_a_node_that_ends_is_only_reported() {
    let mut cluster = Cluster::start("colocated", &[], &["--no-restart"]);
    let pid = cluster.pid(1).unwrap();
    cluster.signal(1, Signal::SIGKILL);
    let said = eventually("the end is reported", || {
        Some(cluster.stderr()).filter(|text| text.contains("node n1"))
    });
    assert!(
        said.contains("node n1 was killed by signal 9 (SIGKILL)\n"),
        "{said}"
    );
    assert!(!is_alive(pid) && cluster.pid(1).is_none());
    let shown = run(&["status", "--data", &cluster.data()]);
    assert!(
        matches!(shown.status.code(), Some(1 | 3)),
        "not healthy, or serving no more: n1 may have led"
    );
    let shown = text(&shown.stdout);
    assert!(
        shown.contains("2 of 3 nodes answer") && shown.contains("! node n1 does not answer"),
        "{shown}"
    );
    // The others continue.
    cluster.client(0).set("k", "v");
    // It can be started by hand, and takes part again.
    let config = cluster.directory.path("data/deployment.toml");
    let flags = [
        "node",
        "n1",
        "--data",
        &cluster.data(),
        "--config",
        config.to_str().unwrap(),
    ];
    let mut by_hand = ionian().args(flags).stderr(Stdio::null()).spawn().unwrap();
    cluster.wait_until_whole();
    assert_eq!(cluster.client(1).get("k"), Some("v".into()));
    kill(Pid::from_raw(by_hand.id() as i32), Signal::SIGTERM).unwrap();
    assert_eq!(by_hand.wait().unwrap().code(), Some(0));
    // After the last node the command ends.
    cluster.signal(0, Signal::SIGKILL);
    cluster.signal(2, Signal::SIGKILL);
    assert_eq!(cluster.wait_for_up().code(), Some(1));
    assert!(
        cluster.stderr().contains("no node is left"),
        "{}",
        cluster.stderr()
    );
}

#[test]
fn a_node_that_refuses_to_run_restarts_with_growing_delays() {
    let mut cluster = Cluster::start("colocated", &["durability=memory"], &[]);
    std::fs::write(
        cluster
            .directory
            .path("data/nodes/n2/vital/0000000000000001.wal"),
        "nothing that a node wrote",
    )
    .unwrap();
    cluster.signal(2, Signal::SIGKILL);
    let said = eventually("three attempts", || {
        Some(cluster.stderr()).filter(|text| text.contains("restarting in 0.8 s"))
    });
    assert!(
        said.contains("node n2 was killed by signal 9 (SIGKILL); restarting in 0.1 s"),
        "{said}"
    );
    let refusal = "node n2 has ended with exit code 1: ionian: ";
    assert!(
        said.contains(refusal)
            && said.contains("0000000000000001.wal does not begin as a log segment"),
        "{said}"
    );
    assert_eq!(said.matches(refusal).count(), 1, "{said}");
    let again = "node n2 has ended for the same reason; restarting in 0.8 s";
    assert!(said.contains(again), "{said}");
    cluster.client(0).set("k", "v");
    cluster.stop(Signal::SIGTERM);
}

#[test]
fn a_cluster_that_cannot_start_stops_with_a_reason() {
    let directory = crate::cluster::Directory::new();
    let deployment = deployment("colocated", &[]);
    let (file, data) = (directory.path("given.toml"), directory.path("data"));
    std::fs::write(&file, deployment.to_toml()).unwrap();
    std::fs::create_dir_all(directory.path("data/nodes/n1")).unwrap();
    std::fs::write(
        directory.path("data/nodes/n1/vital"),
        "nothing that a node wrote",
    )
    .unwrap();
    let refused = run(&[
        "up",
        "--no-http",
        file.to_str().unwrap(),
        "--data",
        data.to_str().unwrap(),
    ]);
    assert_eq!(refused.status.code(), Some(1));
    let error = text(&refused.stderr);
    assert!(
        error.contains("node n1 does not start: has ended with exit code 1: ionian: "),
        "{error}"
    );
    assert!(
        error.contains("A new cluster begins with all of its nodes") && error.contains("n1.log"),
        "{error}"
    );
    assert!(!error.contains("started again"), "{error}");
    // Even the files of a node that could not start are kept.
    assert!(directory.path("data/nodes/n1/vital").exists());
}

#[test]
fn bad_usage_of_up_leaves_no_directory_behind() {
    let directory = crate::cluster::Directory::new();
    let data = directory.path("data");
    for bad in [
        ["--preset", "nosuch"],
        ["--set", "f=99"],
        ["--set", "machine=nosuch"],
        ["--set", "f=9"],
        ["--nodes", "0"],
        ["--listen", "127.0.0.1:65535"],
    ] {
        let refused = run(&[&["up", "--data", data.to_str().unwrap()], &bad[..]].concat());
        let error = text(&refused.stderr);
        assert!(!refused.status.success(), "{bad:?}: {error}");
        assert!(!data.exists(), "{bad:?}: {error}");
    }
}

/// A cluster that has run before starts without one node, which joins again when its problem is
/// solved.
#[test]
fn the_other_nodes_start_without_a_node_that_cannot() {
    let mut cluster = Cluster::start("colocated", &["durability=disk"], &[]);
    cluster.client(0).set("k", "v");
    cluster.stop(Signal::SIGTERM);
    let identity = cluster.directory.path("data/nodes/n1/identity");
    let sound = std::fs::read(&identity).unwrap();
    std::fs::write(&identity, "nothing that a node wrote").unwrap();
    cluster.start_again_without("n1");
    let said = cluster.stderr();
    assert!(
        said.contains("node n1 does not start: has ended with exit code 1: ionian: "),
        "{said}"
    );
    assert!(
        said.contains("identity") && said.contains("The others serve without it"),
        "{said}"
    );
    assert!(said.contains("ionian member replace n1 NEW"), "{said}");
    assert_eq!(
        cluster.client(0).call(&["GET", "k"]).unwrap(),
        Reply::Bulk(Some("v".into()))
    );
    cluster.client(2).set("k", "w");
    // Each attempt takes the reason of the one before away.
    eventually("`ionian status` says why", || {
        let shown = unfolded(&run(&["status", "--data", &cluster.data()]).stdout);
        let mut lines = shown.lines();
        let line = lines.find(|it| it.starts_with("! node n1 does not answer: "))?;
        let why = "; it has ended with exit code 1: ionian: ";
        (line.contains(why) && line.contains("identity")).then_some(())
    });
    // n1 restarts with growing delays, at first within about a second.
    std::fs::write(&identity, sound).unwrap();
    eventually("n1 is back", || {
        run(&["status", "--data", &cluster.data()])
            .status
            .success()
            .then_some(())
    });
    assert!(!cluster.directory.path("data/run/n1.ended").exists());
    cluster.stop(Signal::SIGTERM);
}

/// Starts a cluster that has stopped while another program has an address of n1.
fn starts_without_n1(cluster: &mut Cluster, key: &str, advice: &str) -> TcpListener {
    cluster.client(0).set("k", key);
    cluster.stop(Signal::SIGTERM);
    let n1 = &cluster.deployment.nodes[1];
    let address = match key {
        "address" => n1.address.clone(),
        _ => n1.gateway.clone().unwrap(),
    };
    let taken = TcpListener::bind(&address).unwrap();
    cluster.start_again_without("n1");
    let (said, (_, port)) = (cluster.stderr(), address.rsplit_once(':').unwrap());
    let why = format!(
        "node n1 does not start: port {port} is in use (node.n1.{key} = {address:?}). The others serve"
    );
    assert!(said.contains(&why) && said.contains(advice), "{said}");
    assert_eq!(cluster.client(2).get("k"), Some(key.into()));
    taken
}

#[test]
fn the_other_nodes_of_a_cluster_that_has_run_start_though_a_port_of_one_is_in_use() {
    let mut cluster = Cluster::start("colocated", &[], &[]);
    // What the text advises is done.
    for key in ["address", "gateway"] {
        let advice = format!("start it with --set node.n1.{key}=HOST:PORT");
        let _taken = starts_without_n1(&mut cluster, key, &advice);
        cluster.stop(Signal::SIGTERM);
        let other = format!("127.0.0.1:{}", free_port());
        let set = format!("node.n1.{key}={other}");
        let n1 = &mut cluster.deployment.nodes[1];
        match key {
            "address" => n1.address = other,
            _ => n1.gateway = Some(other),
        }
        cluster.start_again(&["--set", &set]);
        cluster.wait_until_whole();
    }
    // From now on the addresses are those of the membership.
    let data = cluster.data();
    works(&["options", "set", "heartbeat_ms=90", "--data", &data]);
    for key in ["address", "gateway"] {
        let advice = "or replace it by a node of another name (ionian member replace n1 NEW)";
        let taken = starts_without_n1(&mut cluster, key, advice);
        drop(taken);
        cluster.wait_until_whole();
    }
    cluster.stop(Signal::SIGTERM);
    let set = [
        "up",
        "--set",
        "node.n1.gateway=127.0.0.1:1",
        "--data",
        &data,
    ];
    fails(&set, 1, "are those of the membership: omit the flags");
    let gateways = cluster.gateways().into_iter();
    let _taken: Vec<_> = gateways
        .map(|port| TcpListener::bind(("127.0.0.1", port)).unwrap())
        .collect();
    let none = ["up", "--data", &data];
    fails(&none, 1, "stop what uses it. No flag moves node n0");
}

/// As of `ionian up 2>&1 | head`.
#[test]
fn up_restarts_nodes_and_stops_in_order_whatever_reads_what_it_says() {
    let closed = std::io::pipe().unwrap().1;
    up_restarts_and_stops([Stdio::null(), closed.into()]);
    let (_reader, mut full) = std::io::pipe().unwrap();
    full.write_all(&[b'x'; 64 << 10]).unwrap();
    up_restarts_and_stops([full.try_clone().unwrap().into(), full.into()]);
}

fn up_restarts_and_stops([output, errors]: [Stdio; 2]) {
    let directory = crate::cluster::Directory::new();
    let deployment = deployment("colocated", &["durability=memory"]).to_toml();
    let path = |name: &str| directory.path(name).to_str().unwrap().to_owned();
    let (file, data) = (path("given.toml"), path("data"));
    std::fs::write(&file, deployment).unwrap();
    let mut up = ionian();
    let up = up.args(["up", &file, "--no-http", "--data", &data]);
    let mut up = Nodes(vec![up.stdout(output).stderr(errors).spawn().unwrap()]);
    let pid = |name: &str| {
        let text = std::fs::read_to_string(path(&format!("data/run/{name}.pid"))).ok()?;
        text.trim().parse().ok().map(Pid::from_raw)
    };
    let status = ["status", "--data", &data];
    let is_whole = || run(&status).status.success().then_some(());
    eventually("it serves", is_whole);
    let first = pid("n1").unwrap();
    kill(first, Signal::SIGKILL).unwrap();
    eventually("n1 is restarted", || pid("n1").filter(|it| *it != first));
    eventually("it serves again", is_whole);
    kill(Pid::from_raw(up.0[0].id() as i32), Signal::SIGTERM).unwrap();
    let ended = eventually("it stops", || up.0[0].try_wait().unwrap());
    assert_eq!(ended.code(), Some(0));
}

/// The kernel accepts connections to a process that is stopped.
#[test]
fn exec_asks_the_next_gateway_if_the_first_accepts_and_does_not_answer() {
    let cluster = Cluster::start("colocated", &[], &[]);
    let exec = |words: &[&str]| works(&[&["exec", "--data", &cluster.data()], words].concat());
    assert_eq!(exec(&["SET", "k", "v"]), "OK\n");
    stop_all_threads(cluster.pid(0).unwrap());
    assert_eq!(exec(&["GET", "k"]), "v\n");
    cluster.signal(0, Signal::SIGCONT);
}

#[test]
fn a_second_signal_kills_a_paused_node() {
    let mut cluster = Cluster::start("colocated", &[], &[]);
    cluster.signal(0, Signal::SIGSTOP);
    let pids = cluster.pids();
    kill(cluster.up_pid(), Signal::SIGINT).unwrap();
    eventually("the first is heard", || {
        cluster.stderr().contains("Ctrl-C again").then_some(())
    });
    kill(cluster.up_pid(), Signal::SIGINT).unwrap();
    assert_eq!(cluster.wait_for_up().code(), Some(0));
    // Without the second signal `up` says this before it kills the node.
    let said = cluster.stderr();
    assert!(!said.contains("does not stop within"), "{said}");
    assert!(pids.iter().all(|pid| !is_alive(*pid)));
}

#[test]
fn signals_that_ask_for_nothing_end_neither_nodes_nor_their_supervisor() {
    let cluster = Cluster::start("colocated", &[], &[]);
    let nodes = cluster.pids();
    for signal in [Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGALRM] {
        for process in nodes.iter().copied().chain([cluster.up_pid()]) {
            kill(process, signal).unwrap();
        }
    }
    // A signal to a process that would end it has done so before it can answer.
    cluster.client(0).call(&["SET", "k", "v"]).unwrap();
    assert_eq!(cluster.status()["nodes_up"], 3);
    assert_eq!(cluster.pids(), nodes);
}
