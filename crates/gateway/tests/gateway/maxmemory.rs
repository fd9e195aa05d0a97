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
