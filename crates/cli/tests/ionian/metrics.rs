//! What nodes serve over HTTP. One cluster, because processes take long to start.

use crate::cluster::{Cluster, eventually, free_port, stop_all_threads, text, works};
use ionian_metrics::{Kind, lines};
use nix::sys::signal::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The most series that a node may have, so that a cluster of 22 nodes stays small.
const MOST_SERIES: usize = 1500;

/// The answer to these bytes.
fn answer(port: u16, bytes: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(bytes.as_bytes()).unwrap();
    let mut answer = Vec::new();
    // The server may close the connection before it has read all of a bad request.
    let _ = stream.read_to_end(&mut answer);
    text(&answer)
}

/// The answer with its head.
pub(crate) fn request(port: u16, path: &str) -> String {
    answer(
        port,
        &format!("GET {path} HTTP/1.1\r\nConnection: close\r\nHost: 127.0.0.1\r\n\r\n"),
    )
}

/// The code and the body of the answer to this request.
fn asked(port: u16, request: &str) -> (u16, String) {
    let answer = answer(port, request);
    let code = answer.split(' ').nth(1).and_then(|code| code.parse().ok());
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    (code.unwrap_or(0), body.to_owned())
}

pub(crate) fn get(port: u16, path: &str, header: &str) -> (u16, String) {
    let request = format!("GET {path} HTTP/1.1\r\nConnection: close\r\n{header}\r\n\r\n");
    asked(port, &request)
}

pub(crate) fn get_own(port: u16, path: &str) -> (u16, String) {
    get(port, path, "Host: 127.0.0.1")
}

/// The metrics of a node: the values of the samples, by name with labels.
fn samples(port: u16) -> BTreeMap<String, f64> {
    let (code, body) = get_own(port, "/metrics");
    assert_eq!(code, 200);
    let samples = body.lines().filter(|line| !line.starts_with('#'));
    samples
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').unwrap();
            (name.to_owned(), value.parse().unwrap())
        })
        .collect()
}

/// The sum over the samples of a metric whose labels include these.
fn sum(port: u16, name: &str, labels: &[&str]) -> f64 {
    let matching = samples(port).into_iter().filter(|(key, _)| {
        key.split('{').next() == Some(name) && labels.iter().all(|label| key.contains(label))
    });
    matching.map(|(_, value)| value).sum()
}

/// The first of three free ports, below those that other tests use. No other call gets one of them
/// at the same time.
pub(crate) fn free_ports() -> u16 {
    loop {
        let first = 8_000 + (free_port() - 20_000) % 4_000 * 3;
        let next = (0..3).map(|offset| TcpListener::bind(("127.0.0.1", first + offset)));
        if next.collect::<Result<Vec<_>, _>>().is_ok() {
            return first;
        }
    }
}

#[test]
fn nodes_serve_metrics_and_health_whatever_the_cluster_does() {
    let first = free_ports();
    let flag = format!("--http=127.0.0.1:{first}");
    let overrides = ["durability=disk", "options.snapshot_slots=64"];
    let mut cluster = Cluster::start("colocated", &overrides, &[&flag, "--no-restart"]);
    let ports = [first, first + 1, first + 2];
    for number in 0..200 {
        cluster.client(1).set("k", &number.to_string());
    }
    assert_eq!(cluster.client(1).get("k"), Some("199".into()));
    names_and_formats(&ports);
    values(&ports);
    unknown_clients(first);
    for port in ports {
        for path in ["/livez", "/readyz", "/healthz/cluster"] {
            assert_eq!(get_own(port, path), (200, "ok\n".into()), "{path}");
        }
    }
    let (_, checks) = get_own(first, "/readyz?verbose&exclude=replica_lag");
    assert!(
        checks.contains("[+] takes_part ok") && checks.contains("[ ] replica_lag excluded"),
        "{checks}"
    );

    stopped(&cluster, ports[2]);

    // Without a quorum a node is as ready as before, and says that the cluster does not serve.
    cluster.signal(1, Signal::SIGKILL);
    eventually("n0 sees that no further node may fail", || {
        (sum(first, "ionian_failure_tolerance", &[]) == 0.0).then_some(())
    });
    cluster.signal(2, Signal::SIGKILL);
    eventually("n0 sees that clients are not served", || {
        (sum(first, "ionian_failure_tolerance", &[]) == -1.0).then_some(())
    });
    let why = eventually("no command passes the log", || {
        let (code, why) = get_own(first, "/healthz/cluster");
        (code == 503).then_some(why)
    });
    let failed = "[-] command failed: no command passed the log";
    assert!(why.starts_with(failed), "{why}");
    for path in ["/livez", "/readyz"] {
        assert_eq!(get_own(first, path), (200, "ok\n".into()), "{path}");
    }
    assert_eq!(sum(first, "ionian_peer_connected", &[]), 0.0);
    cluster.stop(Signal::SIGTERM);
}

/// A process that is stopped answers nothing: what looks at it gives up after its own limit.
fn stopped(cluster: &Cluster, port: u16) {
    stop_all_threads(cluster.pid(2).expect("it runs"));
    for path in ["/metrics", "/livez"] {
        // The system still accepts the connection.
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let limit = Duration::from_secs(2);
        stream.set_read_timeout(Some(limit)).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let error = stream.read(&mut [0]).expect_err(path);
        assert_eq!(error.kind(), ErrorKind::WouldBlock, "{path}: {error}");
    }
    cluster.signal(2, Signal::SIGCONT);
    for path in ["/livez", "/readyz", "/healthz/cluster"] {
        eventually("a node that goes on is well", || {
            (get_own(port, path) == (200, "ok\n".into())).then_some(())
        });
    }
}

/// Both formats have the same metrics, all of them known.
fn names_and_formats(ports: &[u16]) {
    let known: BTreeMap<String, Kind> = lines()
        .into_iter()
        .map(|line| (line.name, line.kind))
        .collect();
    for port in ports {
        let (_, plain) = get_own(*port, "/metrics");
        let open_metrics = "Host: localhost\r\nAccept: application/openmetrics-text;version=1.0.0";
        let (_, open) = get(*port, "/metrics", open_metrics);
        assert!(open.ends_with("# EOF\n") && !plain.contains("# EOF"));
        let described: BTreeSet<(&str, &str)> = plain
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
            .collect();
        assert!(described.len() > 80, "{plain}");
        for (name, kind) in described {
            let known = known.get(name).map(|kind| kind.name());
            assert_eq!(known, Some(kind), "{name}");
        }
        let series = plain.lines().filter(|line| !line.starts_with('#')).count();
        assert!((200..MOST_SERIES).contains(&series), "{series} series");
        check_with_promtool(&plain);
    }
    let listed = works(&["metrics", "list"]);
    let missing = known.keys().find(|name| !listed.contains(name.as_str()));
    assert_eq!(missing, None);
}

fn check_with_promtool(metrics: &str) {
    let promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut promtool) = promtool else {
        return eprintln!("skipped: promtool is not installed (it comes with Prometheus)");
    };
    let mut input = promtool.stdin.take().unwrap();
    input.write_all(metrics.as_bytes()).unwrap();
    drop(input);
    let output = promtool.wait_with_output().unwrap();
    let found = text(&output.stdout) + &text(&output.stderr);
    assert!(output.status.success(), "{found}");
}

fn values(ports: &[u16]) {
    let served = || {
        let writes = ["family=\"write\"", "outcome=\"ok\""];
        sum(ports[1], "ionian_gateway_commands_total", &writes)
    };
    // A node publishes once a second.
    eventually("all writes are counted", || {
        (served() >= 200.0).then_some(())
    });
    assert_eq!(served(), 200.0);
    let write = ["family=\"write\""];
    let times = sum(ports[1], "ionian_gateway_service_seconds_count", &write);
    assert_eq!(times, 200.0);
    // Nodes publish at different moments, between which another may have been elected.
    eventually("one node leads", || {
        let leading = ports
            .iter()
            .map(|port| sum(*port, "ionian_role_leading", &[]));
        (leading.sum::<f64>() == 1.0).then_some(())
    });
    for port in ports {
        let positive = [
            "ionian_loop_iteration_seconds_count",
            "ionian_loop_busy_seconds_total",
            "ionian_log_sync_seconds_count",
            "ionian_log_sync_bytes_sum",
            "ionian_snapshot_seconds_count",
            "ionian_role_busy_seconds_total",
            "ionian_disk_free_bytes",
            "process_cpu_seconds_total",
            "process_resident_memory_bytes",
        ];
        for name in positive {
            assert!(sum(*port, name, &[]) > 0.0, "{name}");
        }
        assert_eq!(sum(*port, "ionian_failure_tolerance", &[]), 1.0);
        assert_eq!(sum(*port, "ionian_peer_connected", &[]), 2.0);
        assert_eq!(sum(*port, "ionian_node_state", &["state=\"serving\""]), 1.0);
        assert_eq!(sum(*port, "ionian_node_state", &[]), 1.0);
        assert!(sum(*port, "ionian_metrics_age_seconds", &[]) < 60.0);
    }
}

/// What bad requests get.
fn unknown_clients(port: u16) {
    for path in [
        "/metrics",
        "/livez",
        "/readyz",
        "/healthz/cluster",
        "/",
        "/api/v1/events",
        "/x",
    ] {
        for host in [
            "Host: evil.example",
            "Host: 127.0.0.1.evil.example:80",
            "X: y",
        ] {
            assert_eq!(get(port, path, host).0, 403, "{path} {host}");
        }
        let post = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        assert_eq!(asked(port, &post).0, 405, "{path}");
    }
    assert_eq!(get_own(port, "/x").0, 404);
    let large = format!("Host: localhost\r\nX: {}", "x".repeat(9 << 10));
    assert_eq!(get(port, "/livez", &large).0, 431);
    assert_eq!(asked(port, "\0\r\n\r\n").0, 400);
    // Connections that ask for nothing whole give their places to others, the oldest first.
    let half = |_| {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream
            .write_all(b"GET /livez HTTP/1.1\r\nHost: loc")
            .unwrap();
        stream
    };
    let halves: Vec<TcpStream> = (0..300).map(half).collect();
    assert_eq!(get_own(port, "/livez").0, 200);
    eventually("the first one is closed", || {
        halves[0].set_nonblocking(true).unwrap();
        is_closed(&halves[0]).then_some(())
    });
    let last = halves.last().unwrap();
    last.set_nonblocking(true).unwrap();
    assert!(!is_closed(last));
}

fn is_closed(mut stream: &TcpStream) -> bool {
    match stream.read(&mut [0; 16]) {
        Ok(length) => length == 0,
        Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
    }
}
