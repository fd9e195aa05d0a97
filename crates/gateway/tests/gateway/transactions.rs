//! MULTI, EXEC, DISCARD, WATCH, UNWATCH.

use crate::common::{Client, Cluster, READ, WRITE, client, host, text};
use ionian_gateway::Limits;
use ionian_kernel::client::Refusal;
use ionian_kernel::level::Level;

#[test]
fn a_transaction_is_one_compound() {
    let (mut client, mut cluster) = (client(), Cluster::default());
    let replies = client.ask(&mut cluster, "MULTI\nSET a 1\nINCR a\nGET b\nEXEC\nGET a");
    assert_eq!(
        replies,
        "+OK\n+QUEUED\n+QUEUED\n+QUEUED\n*3\n+OK\n:2\n$-1\n$1\n2\n"
    );
    assert_eq!(client.operations, [WRITE, READ]);
}

#[test]
fn errors_as_in_redis() {
    let (mut client, mut cluster) = (client(), Cluster::default());
    let mut ask = |lines: &str| client.ask(&mut cluster, lines);
    assert_eq!(ask("EXEC"), "-ERR EXEC without MULTI\n");
    assert_eq!(ask("DISCARD"), "-ERR DISCARD without MULTI\n");
    assert_eq!(
        ask("MULTI\nMULTI\nWATCH a\nSET a b\nEXEC"),
        "+OK\n-ERR MULTI calls can not be nested\n-ERR WATCH inside MULTI is not allowed\n+QUEUED\n*1\n+OK\n"
    );
    assert_eq!(
        ask("MULTI\nfoo\nGET\nSET a c\nEXEC\nEXEC\nGET a"),
        "+OK\n-ERR unknown command 'foo', with args beginning with: \n\
         -ERR wrong number of arguments for 'get' command\n+QUEUED\n\
         -EXECABORT Transaction discarded because of previous errors.\n-ERR EXEC without MULTI\n$1\nb\n"
    );
    assert_eq!(
        ask("MULTI\nECHO\nEXEC\nMULTI\nEXEC x\nEXEC\nEXEC x"),
        "+OK\n-ERR wrong number of arguments for 'echo' command\n\
         -EXECABORT Transaction discarded because of previous errors.\n+OK\n\
         -EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command\n\
         -ERR EXEC without MULTI\n\
         -EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command\n"
    );
    // What goes wrong in the execution undoes nothing.
    assert_eq!(
        ask("MULTI\nINCR a\nSET a d\nSET a e BAD\nEXEC\nGET a"),
        "+OK\n+QUEUED\n+QUEUED\n+QUEUED\n*3\n-ERR value is not an integer or out of range\n+OK\n\
         -ERR syntax error\n$1\nd\n"
    );
    assert_eq!(
        ask("MULTI\nSET a f\nDISCARD\nGET a"),
        "+OK\n+QUEUED\n+OK\n$1\nd\n"
    );
    assert_eq!(
        ask("MULTI\nSET a f\nRESET\nEXEC"),
        "+OK\n+QUEUED\n+RESET\n-ERR EXEC without MULTI\n"
    );
    assert_eq!(ask("MULTI\nEXEC"), "+OK\n*0\n");
    assert_eq!(
        ask("WATCH"),
        "-ERR wrong number of arguments for 'watch' command\n"
    );
    assert_eq!(ask("MULTI\nQUIT"), "+OK\n+OK\n");
}

#[test]
fn changes_of_the_cluster_are_not_queued() {
    let host = host(Limits::default());
    host.set_level(Level(18));
    let (mut client, mut cluster) = (Client::new(&host), Cluster::default());
    for (line, what) in [
        ("ACL SETUSER u on", "ACL SETUSER"),
        ("acl deluser u", "ACL DELUSER"),
        ("CONFIG SET maxmemory 1mb", "CONFIG SET maxmemory"),
    ] {
        let expected = format!(
            "+OK\n+QUEUED\n-ERR {what} is not supported inside MULTI\n\
             -EXECABORT Transaction discarded because of previous errors.\n$-1\n"
        );
        let lines = format!("MULTI\nSET k v\n{line}\nEXEC\nGET k");
        assert_eq!(client.ask(&mut cluster, &lines), expected, "{line}");
    }
    let others = "MULTI\nACL WHOAMI\nCONFIG GET port\nEXEC";
    let expected = "+OK\n+QUEUED\n+QUEUED\n*2\n$7\ndefault\n*2\n$4\nport\n$1\n0\n";
    assert_eq!(client.ask(&mut cluster, others), expected);
}

#[test]
fn own_commands_are_answered_in_their_place() {
    let (mut client, mut cluster) = (client(), Cluster::default());
    assert_eq!(
        client.ask(
            &mut cluster,
            "MULTI\nPING\nSET a 1\nECHO x\nUNWATCH\nMGET a b\nSELECT 1\nEXEC"
        ),
        "+OK\n+QUEUED\n+QUEUED\n+QUEUED\n+QUEUED\n+QUEUED\n+QUEUED\n\
         *6\n+PONG\n+OK\n$1\nx\n+OK\n*2\n$1\n1\n$-1\n-ERR DB index is out of range\n"
    );
    assert_eq!(
        client
            .ask(&mut cluster, "MULTI\nPING\nTIME x\nEXEC")
            .lines()
            .last()
            .unwrap()[..10],
        *"-EXECABORT"
    );
    assert_eq!(
        client.ask(&mut cluster, "MULTI\nPING\nPING x\nEXEC"),
        "+OK\n+QUEUED\n+QUEUED\n*2\n+PONG\n$1\nx\n"
    );
    // The protocol that a transaction chooses holds from there on.
    let replies = client.ask(&mut cluster, "MULTI\nGET b\nHELLO 3\nGET b\nEXEC\nGET b");
    assert!(
        replies.contains("*3\n$-1\n%7\n") && replies.ends_with("*0\n_\n_\n"),
        "{replies}"
    );
}

#[test]
fn a_watched_key_that_changes_stops_exec() {
    let host = host(Limits::default());
    let mut cluster = Cluster::default();
    let (mut a, mut b) = (Client::new(&host), Client::new(&host));
    assert_eq!(
        a.ask(&mut cluster, "SET k 1\nWATCH k other\nMULTI\nINCR k"),
        "+OK\n+OK\n+OK\n+QUEUED\n"
    );
    assert_eq!(b.ask(&mut cluster, "INCR k"), ":2\n");
    assert_eq!(a.ask(&mut cluster, "EXEC\nGET k"), "*-1\n$1\n2\n");
    // Nothing is watched any more.
    assert_eq!(
        a.ask(&mut cluster, "MULTI\nPING\nINCR k\nEXEC"),
        "+OK\n+QUEUED\n+QUEUED\n*2\n+PONG\n:3\n"
    );
    // Null comes in the protocol of the client, also with own commands in the transaction.
    assert!(a.ask(&mut cluster, "HELLO 3\nWATCH k").ends_with("+OK\n"));
    b.ask(&mut cluster, "SET k 7");
    assert_eq!(
        a.ask(&mut cluster, "MULTI\nPING\nGET k\nEXEC"),
        "+OK\n+QUEUED\n+QUEUED\n_\n"
    );
}

/// The value that EXEC would overwrite was read between the two.
#[test]
fn a_watched_key_that_came_and_went_stops_exec() {
    let host = host(Limits::default());
    let mut cluster = Cluster::default();
    let (mut a, mut b) = (Client::new(&host), Client::new(&host));
    for gone in [
        "DEL k",
        "GETDEL k",
        "RENAME k l",
        "PEXPIRE k -1",
        "FLUSHALL",
    ] {
        assert_eq!(
            a.ask(&mut cluster, "DEL k\nWATCH k").lines().last(),
            Some("+OK")
        );
        b.ask(&mut cluster, "SET k 10");
        assert_eq!(a.ask(&mut cluster, "GET k"), "$2\n10\n");
        b.ask(&mut cluster, gone);
        assert_eq!(
            a.ask(&mut cluster, "MULTI\nSET k 11\nEXEC"),
            "+OK\n+QUEUED\n*-1\n",
            "{gone}"
        );
    }
}

#[test]
fn own_changes_after_watch_count_and_unwatch_discard_and_exec_forget() {
    let (mut client, mut cluster) = (client(), Cluster::default());
    assert_eq!(
        client.ask(&mut cluster, "WATCH k\nSET k 1\nMULTI\nEXEC"),
        "+OK\n+OK\n+OK\n*-1\n"
    );
    for forget in ["UNWATCH", "MULTI\nDISCARD", "MULTI\nEXEC", "RESET"] {
        let replies = client.ask(
            &mut cluster,
            &format!("WATCH k\n{forget}\nINCR k\nMULTI\nINCR k\nEXEC"),
        );
        assert!(replies.contains("+QUEUED\n*1\n:"), "{forget}: {replies}");
    }
    // Watched again later, the first version still counts.
    assert_eq!(
        client
            .ask(&mut cluster, "WATCH k\nINCR k\nWATCH k\nMULTI\nEXEC")
            .lines()
            .last(),
        Some("*-1")
    );
}

#[test]
fn exec_waits_for_the_versions_of_a_pipelined_watch() {
    let host = host(Limits::default());
    let mut cluster = Cluster::default();
    let (mut a, mut b) = (Client::new(&host), Client::new(&host));
    a.send("WATCH k\r\nMULTI\r\nSET k a\r\nEXEC\r\n");
    assert!(a.step(&mut cluster), "the versions");
    b.ask(&mut cluster, "SET k b");
    assert_eq!(text(&a.finish(&mut cluster)), "+OK\n+OK\n+QUEUED\n*-1\n");
    assert_eq!(a.operations, [READ, WRITE]);
}

#[test]
fn a_watch_that_was_not_answered_stops_exec() {
    let (mut client, mut cluster) = (client(), Cluster::default());
    client.send("WATCH k\r\nMULTI\r\nSET k 1\r\nEXEC\r\nMULTI\r\nSET k 2\r\nEXEC\r\n");
    client.answer(Err(Refusal::Unavailable));
    let replies = text(&client.finish(&mut cluster));
    assert!(replies.starts_with("-TRYAGAIN"), "{replies}");
    assert!(replies.ends_with(
        "-EXECABORT Transaction discarded because of previous errors.\n+OK\n+QUEUED\n*1\n+OK\n"
    ));
}

#[test]
fn a_refused_transaction_is_one_error() {
    let (mut client, mut cluster) = (client(), Cluster::default());
    client.send("MULTI\r\nSET a 1\r\nPING\r\nSET b 1\r\nEXEC\r\nPING\r\n");
    client.answer(Err(Refusal::Busy));
    let replies = text(&client.finish(&mut cluster));
    assert!(
        replies.contains("+QUEUED\n-BUSY") && replies.ends_with("later\n+PONG\n"),
        "{replies}"
    );
}

#[test]
fn a_transaction_has_limits() {
    let limits = Limits {
        transaction_commands: 3,
        transaction_bytes: 1000,
        watched_keys: 3,
        ..Limits::default()
    };
    let (mut client, mut cluster) = (Client::new(&host(limits)), Cluster::default());
    let abort = "-EXECABORT Transaction discarded because of previous errors.\n";
    let many = client.ask(
        &mut cluster,
        "MULTI\nINCR a\nPING\nINCR a\nINCR a\nINCR a\nEXEC",
    );
    assert_eq!(
        many,
        format!(
            "+OK\n+QUEUED\n+QUEUED\n+QUEUED\n-ERR the transaction is too large\n+QUEUED\n{abort}"
        )
    );
    for line in ["SET a ", "ECHO "] {
        let long = client.ask(
            &mut cluster,
            &format!("MULTI\n{line}{}\nEXEC", "x".repeat(1001)),
        );
        assert_eq!(
            long,
            format!("+OK\n-ERR the transaction is too large\n{abort}")
        );
    }
    let watched = client.ask(
        &mut cluster,
        "WATCH a b\nWATCH c d\nMULTI\nINCR a\nEXEC\nGET a",
    );
    assert_eq!(
        watched,
        format!("+OK\n-ERR too many watched keys\n+OK\n+QUEUED\n{abort}$-1\n")
    );
}

/// Each is run in one turn of the node's loop, with those beside it.
#[test]
fn the_gateways_own_commands_of_one_transaction_are_bounded_in_work() {
    const COMMANDS: usize = 3000;
    let host = host(Limits::default());
    let _others: Vec<Client> = (0..500).map(|_| Client::new(&host)).collect();
    for command in [
        "COMMAND",
        "INFO",
        "CLIENT LIST",
        "CLIENT LIST ID 999999",
        "CLIENT KILL ID 999999",
    ] {
        let (mut client, mut cluster) = (Client::new(&host), Cluster::default());
        let queue = format!("{command}\n").repeat(COMMANDS);
        let queued = client.ask(&mut cluster, &format!("MULTI\n{queue}PING"));
        assert_eq!(queued.matches("QUEUED").count(), COMMANDS + 1, "{command}");
        let replies = client.ask(&mut cluster, "EXEC");
        let refusal = "-ERR too much work for the gateway in one MULTI, the command was not \
                       executed\n";
        assert!(replies.ends_with(refusal), "{command}");
        let executed = replies.len() - replies.matches(refusal).count() * refusal.len();
        assert!(executed < 5 << 20, "{command}: {executed} bytes");
        assert_eq!(client.ask(&mut cluster, "PING"), "+PONG\n", "{command}");
    }
}
