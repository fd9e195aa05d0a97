//! Clients that have to log in and have not: how many, for how long, and how often they may try.

use crate::common::{Client, Cluster, host, text};
use crate::socket::{answer_all, connect, expect, run_after};
use ionian_gateway::{Gateway, Host, Limits};
use ionian_kernel::client::Refusal;
use ionian_kernel::level::Level;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

const WRONG_PASS: &str = "-WRONGPASS invalid username-password pair or user is disabled.\n";
const SETUP: &str = "ACL SETUSER u on >p +@all ~*\nAUTH u p\nACL SETUSER default off";

/// A gateway whose clients have to log in, and one that has.
fn gateway(cluster: &mut Cluster) -> (Rc<Host>, Client) {
    let host = host(Limits::default());
    host.set_level(Level(18));
    let mut admin = Client::new(&host);
    assert_eq!(admin.ask(cluster, SETUP), "+OK\n+OK\n+OK\n");
    assert_eq!(admin.ask(cluster, "ACL WHOAMI"), "$1\nu\n");
    (host, admin)
}

/// Runs `client` against a gateway of a cluster that has users.
fn run_with_users(limits: Limits, client: impl FnOnce(SocketAddr) + Send + 'static) {
    let begin = |gateway: &Gateway, address| {
        gateway.set_level(Box::new(|| Level(18)));
        address
    };
    run_after(limits, answer_all(), begin, client);
}

/// A gateway whose cluster was never complete cannot learn who may do what. PING says that it runs.
#[test]
fn ping_needs_no_users_as_long_as_none_are_known() {
    let (host, mut cluster) = (host(Limits::default()), Cluster::default());
    host.set_level(Level(18));
    let mut client = Client::new(&host);
    client.send("PING\r\nping hello\r\n");
    assert_eq!(client.request, None, "it asks the cluster for nothing");
    assert_eq!(text(&client.take()), "+PONG\n$5\nhello\n");
    // Whatever else is asked waits for the users, and PING behind it for its turn.
    client.send("ECHO x\r\nPING\r\n");
    assert_eq!(text(&client.take()), "");
    client.answer(Err(Refusal::Unavailable));
    client.answer(Err(Refusal::Unavailable));
    let answered = text(&client.take());
    assert!(
        answered.starts_with("-TRYAGAIN ") && answered.ends_with("\n+PONG\n"),
        "{answered}"
    );
    // Once they are known, PING is judged as everything else.
    let mut admin = Client::new(&host);
    assert_eq!(admin.ask(&mut cluster, SETUP), "+OK\n+OK\n+OK\n");
    let mut client = Client::new(&host);
    let refused = "-NOAUTH Authentication required.\n";
    assert_eq!(client.ask(&mut cluster, "PING"), refused);
}

#[test]
fn who_guesses_passwords_waits_with_each_further_attempt() {
    let mut cluster = Cluster::default();
    let (host, mut admin) = gateway(&mut cluster);
    let mut client = Client::new(&host);
    for _ in 0..8 {
        assert_eq!(client.ask(&mut cluster, "AUTH u wrong"), WRONG_PASS);
    }
    for (line, expected) in [
        ("AUTH u wrong", WRONG_PASS),
        ("HELLO 2 AUTH u wrong", WRONG_PASS),
        ("AUTH u p", "+OK\n"),
    ] {
        assert_eq!(client.ask(&mut cluster, line), "", "{line}");
        assert!(client.connection.has_deadline());
        // As does another one from the same address.
        let mut other = Client::new(&host);
        assert_eq!(other.ask(&mut cluster, line), "", "{line}");
        client.connection.on_time(Instant::now());
        client.connection.advance();
        assert_eq!(text(&client.finish(&mut cluster)), "", "{line}");
        client
            .connection
            .on_time(Instant::now() + Limits::default().login_delay);
        client.connection.advance();
        assert_eq!(text(&client.finish(&mut cluster)), expected, "{line}");
    }
    assert_eq!(client.ask(&mut cluster, "ACL WHOAMI"), "$1\nu\n");
    assert!(!client.connection.has_deadline());
    // Nothing else waits.
    assert_eq!(admin.ask(&mut cluster, "GET k"), "$-1\n");
    let info = admin.ask(&mut cluster, "INFO stats");
    assert!(info.contains("logins_delayed:6\n"), "{info}");
}

/// A transaction would try many passwords at once, by users that were known when it began.
#[test]
fn no_password_is_tried_in_a_transaction() {
    let mut cluster = Cluster::default();
    let (host, mut admin) = gateway(&mut cluster);
    let aborted = "-EXECABORT Transaction discarded because of previous errors.\n";
    for (line, what) in [
        ("AUTH u wrong", "AUTH"),
        ("auth p", "AUTH"),
        ("HELLO 3 AUTH u wrong", "HELLO with AUTH"),
        ("HELLO 2 SETNAME n auth u p", "HELLO with AUTH"),
    ] {
        let refused = format!("-ERR {what} is not supported inside MULTI\n");
        let lines = format!("MULTI\nSET k v\n{line}\n{line}\nEXEC");
        let expected = format!("+OK\n+QUEUED\n{refused}{refused}{aborted}");
        assert_eq!(admin.ask(&mut cluster, &lines), expected, "{line}");
    }
    assert_eq!(admin.ask(&mut cluster, "GET k"), "$-1\n");
    // They are no attempts, so the right password does not wait.
    let mut client = Client::new(&host);
    assert_eq!(client.ask(&mut cluster, "AUTH u p"), "+OK\n");
    let hello = client.ask(&mut cluster, "MULTI\nHELLO 3\nEXEC\nGET k");
    assert!(hello.starts_with("+OK\n+QUEUED\n*1\n%7\n"), "{hello}");
    assert!(hello.ends_with("*0\n_\n"), "{hello}");
}

/// The attempt that has waited asks the cluster for the users, also if nothing else happens there.
#[test]
fn an_attempt_that_has_waited_is_made() {
    let limits = Limits {
        login_delay: Duration::from_millis(20),
        ..Limits::default()
    };
    run_with_users(limits, |address| {
        let mut admin = connect(address);
        admin
            .write_all(b"ACL SETUSER u on >p +@all ~*\r\n")
            .unwrap();
        expect(&mut admin, b"+OK\r\n");
        for _ in 0..8 {
            let mut client = connect(address);
            client.write_all(b"AUTH u wrong\r\n").unwrap();
            expect(&mut client, WRONG_PASS.replace('\n', "\r\n").as_bytes());
        }
        let mut client = connect(address);
        client.write_all(b"AUTH u p\r\n").unwrap();
        expect(&mut client, b"+OK\r\n");
        client.write_all(b"INFO stats\r\n").unwrap();
        let mut info = [0; 4096];
        let len = client.read(&mut info).unwrap();
        let info = String::from_utf8_lossy(&info[..len]).into_owned();
        assert!(info.contains("logins_delayed:1\r\n"), "{info}");
        assert!(info.contains("deadlines_passed:0\r\n"), "{info}");
    });
}

#[test]
fn who_does_not_log_in_is_closed() {
    let mut cluster = Cluster::default();
    let (host, mut admin) = gateway(&mut cluster);
    let mut client = Client::new(&host);
    let (soon, late) = (Duration::from_secs(50), Duration::from_secs(61));
    assert!(client.connection.has_deadline());
    for client in [&mut admin, &mut client] {
        client.connection.on_time(Instant::now() + soon);
        assert!(!client.connection.is_closing());
    }
    client.connection.on_time(Instant::now() + late);
    admin.connection.on_time(Instant::now() + late);
    let closed = "-ERR closed: the client has not logged in after 60 s\n";
    assert_eq!(text(&client.finish(&mut cluster)), closed);
    assert!(client.connection.is_closed());
    assert!(!admin.connection.is_closing());
    // Where clients need not log in any more, they are left in peace.
    let mut client = Client::new(&host);
    admin.ask(&mut cluster, "ACL SETUSER default on nopass +ping");
    assert_eq!(client.ask(&mut cluster, "PING"), "+PONG\n");
    client.connection.on_time(Instant::now() + late);
    assert!(!client.connection.is_closing());
    assert!(!client.connection.has_deadline());
}

#[test]
fn a_quarter_of_the_connections_is_for_clients_that_have_not_logged_in() {
    let limits = Limits {
        connections: 8,
        ..Limits::default()
    };
    run_with_users(limits, |address| {
        let mut admin = connect(address);
        let setup = SETUP.replace('\n', "\r\n") + "\r\nPING\r\n";
        admin.write_all(setup.as_bytes()).unwrap();
        expect(&mut admin, b"+OK\r\n+OK\r\n+OK\r\n+PONG\r\n");
        let no_auth = b"-NOAUTH Authentication required.\r\n";
        let mut streams = [connect(address), connect(address)];
        for stream in &mut streams {
            stream.write_all(b"PING\r\n").unwrap();
            expect(stream, no_auth);
        }
        let mut refused = connect(address);
        let mut rest = Vec::new();
        refused.read_to_end(&mut rest).expect("no reset");
        let why = "-ERR max number of clients that have not logged in reached\r\n";
        assert_eq!(String::from_utf8_lossy(&rest), why);
        // One that has logged in makes room for another.
        streams[0].write_all(b"AUTH u p\r\n").unwrap();
        expect(&mut streams[0], b"+OK\r\n");
        let mut next = connect(address);
        next.write_all(b"PING\r\n").unwrap();
        expect(&mut next, no_auth);
    });
}
