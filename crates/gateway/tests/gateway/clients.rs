//! Programs that know Redis: an exporter of metrics, and what clients send when they connect.

use crate::common::{Client, Cluster, host};
use crate::socket::{answer_all, connect, expect, run_after, until};
use ionian_gateway::{Gateway, Limits};
use ionian_kernel::level::Level;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// What clients send first: one file each, which says where it is from. Lines are inline commands;
/// behind `=>` stands the beginning of an error that they get, and `---` begins another connection.
const STARTS: &[(&str, &str)] = &[
    ("redis-py", include_str!("clients/redis-py.txt")),
    ("node-redis", include_str!("clients/node-redis.txt")),
    ("ioredis", include_str!("clients/ioredis.txt")),
    ("go-redis", include_str!("clients/go-redis.txt")),
    ("jedis", include_str!("clients/jedis.txt")),
    ("lettuce", include_str!("clients/lettuce.txt")),
    (
        "stackexchange-redis",
        include_str!("clients/stackexchange-redis.txt"),
    ),
    ("redisinsight", include_str!("clients/redisinsight.txt")),
];

/// Sends a line of a file; what is wrong with the answer, if anything.
fn answered(client: &mut Client, cluster: &mut Cluster, line: &str) -> Option<String> {
    let (command, error) = match line.split_once(" => ") {
        Some((command, error)) => (command, Some(error)),
        None => (line, None),
    };
    let reply = client.ask(cluster, command);
    let is_right = match error {
        Some(error) => reply.starts_with(error),
        None => !reply.is_empty() && !reply.starts_with('-'),
    };
    (!is_right).then(|| format!("{line}: {reply}"))
}

#[test]
fn clients_get_no_error_that_is_not_listed_when_they_connect() {
    for (name, text) in STARTS {
        assert!(
            text.starts_with("# "),
            "{name} does not say where it is from"
        );
        let lines = text
            .lines()
            .filter(|it| !it.starts_with('#') && !it.is_empty());
        let host = host(Limits::default());
        host.set_level(Level(18));
        let (mut client, mut cluster) = (Client::new(&host), Cluster::default());
        let mut wrong = Vec::new();
        for line in lines {
            match line {
                "---" => client = Client::new(&host),
                _ => wrong.extend(answered(&mut client, &mut cluster, line)),
            }
        }
        assert_eq!(wrong, Vec::<String>::new(), "{name}");
    }
}

/// A prometheus-redis-exporter that looks at a gateway.
struct Exporter {
    process: Child,
    port: u16,
}

impl Exporter {
    /// Starts it; `None` if none is installed.
    fn new(gateway: SocketAddr) -> Option<Exporter> {
        // Another program may take the port before it does, and then it ends.
        for _ in 0..10 {
            let port = TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr());
            let port = port.expect("a free port").port();
            let process = Command::new("prometheus-redis-exporter")
                .arg(format!("-redis.addr=redis://{gateway}"))
                .arg(format!("-web.listen-address=127.0.0.1:{port}"))
                .args(["-include-config-metrics", "-export-client-list"])
                .stderr(Stdio::null())
                .spawn();
            let Ok(process) = process else {
                eprintln!("skipped: prometheus-redis-exporter is not installed");
                return None;
            };
            let mut exporter = Exporter { process, port };
            let (mut ended, mut answers) = (false, false);
            until("the exporter answers or ends", || {
                ended = exporter.process.try_wait().expect("its state").is_some();
                answers = TcpStream::connect(("127.0.0.1", port)).is_ok();
                ended || answers
            });
            if !ended {
                return Some(exporter);
            }
        }
        panic!("the exporter does not start");
    }

    fn metrics(&self) -> String {
        let address = ("127.0.0.1", self.port);
        let mut stream = TcpStream::connect(address).expect("it listens");
        let limit = Some(Duration::from_secs(40));
        stream.set_read_timeout(limit).expect("a timeout");
        let request = b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n";
        stream.write_all(request).expect("to write");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        let killed = self.process.kill().and_then(|()| self.process.wait());
        if !std::thread::panicking() {
            killed.expect("to end the exporter");
        }
    }
}

fn begin_at_18(gateway: &Gateway, address: SocketAddr) -> SocketAddr {
    gateway.set_level(Box::new(|| Level(18)));
    address
}

#[test]
fn the_exporter_of_debian_takes_info() {
    run_after(Limits::default(), answer_all(), begin_at_18, |address| {
        let mut client = connect(address);
        let writes = b"MSET a 1 b 2 c 3\r\nEXPIRE a 1000\r\nSET d 4 EX 1000\r\n";
        client.write_all(writes).expect("to write");
        expect(&mut client, b"+OK\r\n:1\r\n+OK\r\n");
        let Some(exporter) = Exporter::new(address) else {
            return;
        };
        let metrics = exporter.metrics();
        for line in [
            "redis_up 1",
            "redis_db_keys{db=\"db0\"} 4",
            "redis_db_keys_expiring{db=\"db0\"} 2",
            "redis_db_avg_ttl_seconds{db=\"db0\"} 0",
            "redis_exporter_last_scrape_error{err=\"\"} 0",
        ] {
            let found = metrics.lines().any(|it| it == line);
            assert!(found, "{line} is not in {metrics}");
        }
    });
}

/// Replicas of the former release cannot read the question for keys with a deadline.
#[test]
fn keys_with_a_deadline_are_asked_for_from_level_18_on() {
    for (level, expiring) in [(17, 0), (18, 1)] {
        let host = host(Limits::default());
        host.set_level(Level(level));
        let (mut client, mut cluster) = (Client::new(&host), Cluster::default());
        let replies = client.ask(&mut cluster, "SET a 1 EX 1000\nSET b 2\nINFO keyspace");
        let line = format!("db0:keys=2,expires={expiring},avg_ttl=0\n");
        assert!(replies.contains(&line), "level {level}: {replies}");
    }
}
