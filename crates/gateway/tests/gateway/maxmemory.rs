//! The limit of memory: CONFIG SET maxmemory, and what clients see of it.

use crate::common::{Client, Cluster, host};

use ionian_gateway::{Host, Limits};
use ionian_kernel::level::Level;
use std::rc::Rc;

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
