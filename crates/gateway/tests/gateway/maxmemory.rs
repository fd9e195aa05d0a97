//! The limit of memory: CONFIG SET maxmemory, and what clients see of it.

use crate::common::{Client, Cluster, host};
use crate::socket::{connect, execute, expect, run_after};
use ionian_gateway::{Host, Limits};
use ionian_kernel::client::DiskRoom;
use ionian_kernel::level::Level;
use ionian_machines::kv::Compound;
use std::io::Write;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

fn gateway(level: u16) -> Rc<Host> {
    let host = host(Limits::default());
    host.set_level(Level(level));
    host
}

#[test]
fn the_limit_is_set_through_the_log_and_shown() {
    let (mut client, mut cluster) = (Client::new(&gateway(18)), Cluster::default());
    let mut ask = |line: &str| client.ask(&mut cluster, line);
    assert_eq!(ask("CONFIG GET maxmemory"), "*2\n$9\nmaxmemory\n$1\n0\n");
    assert_eq!(ask("SET long 0123456789"), "+OK\n");
    assert_eq!(ask("CONFIG SET MaxMemory 100b"), "+OK\n");
    assert_eq!(ask("CONFIG GET maxmemory"), "*2\n$9\nmaxmemory\n$3\n100\n");
    assert!(ask("INFO memory").contains("maxmemory:100"));
    let refused = "-OOM command not allowed when used memory > 'maxmemory'.\n";
    assert_eq!(ask("SET k v"), refused);
    assert_eq!(ask("GET long"), "$10\n0123456789\n");
    assert_eq!(
        ask("MULTI\nSET k v\nEXEC").lines().last(),
        Some(
            "-EXECABORT Transaction discarded because of: OOM command not allowed when used memory > \
         'maxmemory'."
        )
    );
    assert_eq!(ask("CONFIG SET maxmemory 0"), "+OK\n");
    assert_eq!(ask("SET k v"), "+OK\n");
}

/// What reads, frees memory or concerns users is done while there is none, also by the rights that
/// were changed meanwhile.
#[test]
fn what_needs_no_memory_is_done_while_there_is_none() {
    let (mut client, mut cluster) = (Client::new(&gateway(18)), Cluster::default());
    let mut ask = |line: &str| client.ask(&mut cluster, line);
    let values = "SET a 0123456789\nSET b 1\nSET c 1\nSET d 1\nXADD s 1-1 f v";
    assert_eq!(ask(values), "+OK\n+OK\n+OK\n+OK\n$3\n1-1\n");
    assert_eq!(ask("CONFIG SET maxmemory 1"), "+OK\n");
    let refused = "-OOM command not allowed when used memory > 'maxmemory'.\n";
    for (line, expected) in [
        ("SET a 1", refused),
        ("GET a", "$10\n0123456789\n"),
        ("MGET b none", "*2\n$1\n1\n$-1\n"),
        ("XLEN s", ":1\n"),
        ("XRANGE s - +", "*1\n*2\n$3\n1-1\n*2\n$1\nf\n$1\nv\n"),
        ("EXPIRE b 100", ":1\n"),
        ("TTL b", ":100\n"),
        ("PERSIST b", ":1\n"),
        ("GETDEL c", "$1\n1\n"),
        ("XDEL s 1-1", ":1\n"),
        ("DEL d", ":1\n"),
        ("UNLINK none", ":0\n"),
        ("RENAME a z", "+OK\n"),
        (
            "WATCH z\nMULTI\nGET z\nDEL z\nEXEC",
            "+OK\n+OK\n+QUEUED\n+QUEUED\n*2\n$10\n0123456789\n:1\n",
        ),
        ("ACL SETUSER u on >p ~b +@all", "+OK\n"),
        ("ACL USERS", "*2\n$7\ndefault\n$1\nu\n"),
        ("AUTH u p", "+OK\n"),
        ("SET b 1", refused),
        (
            "SET z 1",
            "-NOPERM this user has no permissions to access one of the keys used as arguments\n",
        ),
        ("ACL SETUSER u -get", "+OK\n"),
        (
            "GET b",
            "-NOPERM this user has no permissions to run the 'get' command\n",
        ),
        ("ACL SETUSER u +get", "+OK\n"),
        ("GET b", "$1\n1\n"),
        ("ACL DELUSER other", ":0\n"),
        ("FLUSHALL", "+OK\n"),
        ("CONFIG SET maxmemory 0", "+OK\n"),
        ("SET b 1", "+OK\n"),
    ] {
        assert_eq!(ask(line), expected, "{line}");
    }
}

#[test]
fn wrong_limits_are_refused() {
    let (mut client, mut cluster) = (Client::new(&gateway(18)), Cluster::default());
    let mut ask = |line: &str| client.ask(&mut cluster, line);
    let wrong = "-ERR CONFIG SET failed (possibly related to argument 'maxmemory') - argument must \
                 be a memory value\n";
    for value in ["-1", "1tb", "x"] {
        assert_eq!(ask(&format!("CONFIG SET maxmemory {value}")), wrong);
    }
    let alone = "-ERR CONFIG SET takes maxmemory alone, with one value\n";
    assert_eq!(ask("CONFIG SET maxmemory 1mb timeout 5"), alone);
    assert!(ask("CONFIG SET timeout 5").starts_with("-ERR CONFIG SET is not available"));
    let in_transaction = ask("MULTI\nCONFIG SET maxmemory 1mb\nEXEC");
    assert!(
        in_transaction.contains("is not supported inside MULTI"),
        "{in_transaction}"
    );
    let mut early = Client::new(&gateway(17));
    let refused = early.ask(&mut cluster, "CONFIG SET maxmemory 1mb");
    assert!(
        refused.starts_with("-ERR maxmemory needs level 18"),
        "{refused}"
    );
}

/// Commands that may let the state grow by 64 MiB each come from many clients at once.
#[test]
fn what_may_grow_much_waits_for_a_measurement_of_what_has_grown() {
    let order = Arc::new(Mutex::new(String::new()));
    let seen = order.clone();
    let node = Box::new(move |cluster: &mut Cluster, requests: Vec<_>| {
        let each = requests
            .iter()
            .map(|request: &ionian_kernel::client::Request| {
                let is_large = request.payload.windows(5).any(|it| it == b"large");
                let is_measurement = request.payload == Compound::Measure.encode();
                let mut seen = seen.lock().expect("no panic");
                seen.extend(is_large.then_some('x'));
                seen.extend(is_measurement.then_some(' '));
                execute(cluster, request)
            });
        each.collect()
    });
    let begin = |gateway: &ionian_gateway::Gateway, address| {
        gateway.set_level(Box::new(|| Level(18)));
        address
    };
    run_after(Limits::default(), node, begin, |address| {
        let mut first = connect(address);
        // What is no string does not really grow.
        first
            .write_all(b"XADD large 1-1 f v\r\nCONFIG SET maxmemory 1gb\r\n")
            .unwrap();
        expect(&mut first, b"$3\r\n1-1\r\n+OK\r\n");
        let mut clients: Vec<_> = (0..20).map(|_| connect(address)).collect();
        for _ in 0..3 {
            for client in &mut clients {
                client.write_all(b"SETRANGE large 67108863 v\r\n").unwrap();
            }
            for client in &mut clients {
                expect(
                    client,
                    b"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n",
                );
            }
        }
    });
    let order = order.lock().expect("no panic");
    // The first is that of XADD.
    assert_eq!(order.matches('x').count(), 61, "{order}");
    assert!(order[1..].split(' ').all(|some| some.len() <= 4), "{order}");
}

#[test]
fn while_the_disk_is_full_reads_and_what_frees_memory_are_served() {
    let host = gateway(18);
    let (mut client, mut cluster) = (Client::new(&host), Cluster::default());
    assert_eq!(client.ask(&mut cluster, "SET k v\nSET l v"), "+OK\n+OK\n");
    host.set_disk_room(DiskRoom::Little);
    let refused = "MISCONF the disk of this node is full: only reads and commands that free memory \
                   are accepted";
    for (line, expected) in [
        ("SET k w", format!("-{refused}\n")),
        ("GET k\nSET k w\nDEL l", format!("$1\nv\n-{refused}\n:1\n")),
        (
            "MULTI\nSET k w\nEXEC",
            format!(
                "+OK\n-{refused}\n-EXECABORT Transaction discarded because of previous errors.\n"
            ),
        ),
    ] {
        assert_eq!(client.ask(&mut cluster, line), expected, "{line}");
    }
    // What frees nothing would fill the log: a long one, or several.
    let long = "MISCONF the disk of this node is full: commands and transactions of at most \
                4096 bytes are accepted";
    let half = "x".repeat(3000);
    let cases = [
        (format!("DEL {half} {half}"), format!("-{long}\n")),
        (format!("GET {half}{half}"), "$-1\n".into()),
        (
            format!("MULTI\nDEL {half}\nDEL {half}\nEXEC"),
            format!(
                "+OK\n+QUEUED\n-{long}\n-EXECABORT Transaction discarded because of previous errors.\n"
            ),
        ),
    ];
    for (line, expected) in cases {
        assert_eq!(client.ask(&mut cluster, &line), expected);
    }
    assert_eq!(client.ask(&mut cluster, "MULTI\nDEL l"), "+OK\n+QUEUED\n");
    host.set_disk_room(DiskRoom::None);
    let refused =
        "MISCONF the log of this node is full, and its disk: only reads and FLUSHALL are accepted";
    let aborted = format!("-EXECABORT Transaction discarded because of: {refused}\n");
    for (line, expected) in [
        ("EXEC", aborted.clone()),
        ("DEL l", format!("-{refused}\n")),
        ("ACL SETUSER u on", format!("-{refused}\n")),
        ("CONFIG SET maxmemory 1gb", format!("-{refused}\n")),
        ("GET k", "$1\nv\n".into()),
        ("MULTI\nFLUSHALL", "+OK\n+QUEUED\n".into()),
        ("EXEC", aborted.clone()),
        ("FLUSHALL", "+OK\n".into()),
    ] {
        assert_eq!(client.ask(&mut cluster, line), expected, "{line}");
    }
    host.set_disk_room(DiskRoom::Enough);
    assert_eq!(client.ask(&mut cluster, "SET k w"), "+OK\n");
}

#[test]
fn reads_that_are_in_the_log_are_refused_when_it_is_full() {
    let logs_reads = true;
    let host = host(Limits {
        logs_reads,
        ..Limits::default()
    });
    host.set_level(Level(18));
    let (mut client, mut cluster) = (Client::new(&host), Cluster::default());
    assert_eq!(client.ask(&mut cluster, "SET k v"), "+OK\n");
    host.set_disk_room(DiskRoom::Little);
    assert_eq!(client.ask(&mut cluster, "GET k"), "$1\nv\n");
    host.set_disk_room(DiskRoom::None);
    let refused = "-MISCONF the log of this node is full, and its disk: only FLUSHALL and reads of \
                   lower consistency are accepted\n";
    assert_eq!(client.ask(&mut cluster, "GET k"), refused);
    assert_eq!(client.ask(&mut cluster, "PING"), "+PONG\n");
    client.ask(&mut cluster, "IONIAN CONSISTENCY eventual");
    assert_eq!(client.ask(&mut cluster, "GET k"), "$1\nv\n");
}
