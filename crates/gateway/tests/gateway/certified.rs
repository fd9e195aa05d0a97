//! Clients whose certificates name their users. The certificates themselves are in `tls`.

use crate::common::{Client, Cluster, READ, host, request, text};
use ionian_gateway::{Host, Limits};
use ionian_kernel::client::Refusal;
use ionian_kernel::level::Level;
use std::rc::Rc;
use std::time::{Duration, Instant};

const WRONG_PASS: &str = "-WRONGPASS invalid username-password pair or user is disabled.\n";
const NO_AUTH: &str = "-NOAUTH Authentication required.\n";
const UNAVAILABLE: &str =
    "-TRYAGAIN the cluster did not answer in time, the command was not executed\n";
const GONE: &str = "-ERR closed: the user of this connection was deleted or switched off\n";
const WEB: &str = "$3\nweb\n";
const DEFAULT: &str = "$7\ndefault\n";

fn gateway() -> Rc<Host> {
    let host = host(Limits::default());
    host.set_level(Level(18));
    host
}

/// A gateway with an administrator, and `web`, which has no password.
fn with_web(cluster: &mut Cluster, rules: &str) -> (Rc<Host>, Client) {
    let host = gateway();
    let mut admin = Client::new(&host);
    let setup = format!(
        "ACL SETUSER admin on >p +@all ~*\nAUTH admin p\nACL SETUSER web on resetpass {rules}"
    );
    assert_eq!(admin.ask(cluster, &setup), "+OK\n+OK\n+OK\n");
    assert_eq!(admin.ask(cluster, "PING"), "+PONG\n");
    (host, admin)
}

/// A client whose certificate names a user.
fn certified(host: &Rc<Host>, user: &str) -> Client {
    let mut client = Client::new(host);
    client.connection.certify(user);
    client.send("");
    client
}

#[test]
fn client_is_the_user_that_its_certificate_names() {
    let mut cluster = Cluster::default();
    let (host, mut admin) = with_web(&mut cluster, "~web:* +@all");
    let mut web = certified(&host, "web");
    assert_eq!(web.request.as_ref().map(|it| it.0), Some(READ), "it asks");
    assert!(web.step(&mut cluster));
    // From its beginning, without any command.
    let list = admin.ask(&mut cluster, "CLIENT LIST");
    assert!(list.contains(" user=web "), "{list}");
    assert_eq!(web.ask(&mut cluster, "ACL WHOAMI"), WEB);
    assert_eq!(web.ask(&mut cluster, "SET web:1 v"), "+OK\n");
    assert!(
        web.ask(&mut cluster, "HELLO 2").starts_with("*14\n"),
        "it has logged in"
    );
    let refused = web.ask(&mut cluster, "GET other");
    assert!(refused.starts_with("-NOPERM "), "{refused}");
    let log = admin.ask(&mut cluster, "ACL LOG");
    assert!(log.contains("$8\nusername\n$3\nweb\n"), "{log}");
    assert!(log.contains(" user=web "), "{log}");
}

#[test]
fn what_the_user_may_do_is_known_before_the_first_command_is_judged() {
    let mut cluster = Cluster::default();
    let (_, mut admin) = with_web(&mut cluster, "~web:* +@all");
    // A gateway that has just started knows no users, and says only that it runs.
    let other = gateway();
    let mut web = certified(&other, "web");
    assert_eq!(web.request, None);
    web.send("PING\r\n");
    assert_eq!(text(&web.take()), "+PONG\n");
    web.send("SET k v\r\nACL WHOAMI\r\n");
    assert_eq!(web.request.as_ref().map(|it| it.0), Some(READ));
    assert_eq!(text(&web.take()), "");
    let answered = text(&web.finish(&mut cluster));
    let no_key = "-NOPERM this user has no permissions to access one of the keys used as arguments";
    assert_eq!(answered, format!("{no_key}\n{WEB}"));
    // One that knew the users before this one was made asks too.
    assert_eq!(admin.ask(&mut cluster, "ACL SETUSER new on +@all"), "+OK\n");
    let mut new = certified(&other, "new");
    assert_eq!(new.ask(&mut cluster, "ACL WHOAMI"), "$3\nnew\n");
    // So does one that knew it, and whose user is off now.
    assert_eq!(admin.ask(&mut cluster, "ACL SETUSER new off"), "+OK\n");
    let mut new = certified(&other, "new");
    assert_eq!(new.ask(&mut cluster, "ACL WHOAMI"), DEFAULT);
}

/// What a replica knows that may have executed nothing yet says not who a client is.
#[test]
fn without_a_quorum_a_certificate_logs_no_client_in() {
    let mut cluster = Cluster::default();
    let (host, _admin) = with_web(&mut cluster, "~* +@all");
    for host in [gateway(), host] {
        let mut web = certified(&host, "web");
        web.send("ECHO x\r\nECHO y\r\n");
        web.answer(Err(Refusal::Unavailable));
        assert_eq!(web.operations, [READ; 2], "the second asks again");
        assert_eq!(text(&web.take()), UNAVAILABLE);
        web.answer(Err(Refusal::Unavailable));
        assert_eq!(text(&web.take()), UNAVAILABLE);
        assert_eq!(web.ask(&mut cluster, "ACL WHOAMI"), WEB);
    }
}

#[test]
fn refusal_that_came_without_a_command_is_no_answer() {
    let mut cluster = Cluster::default();
    let (host, _admin) = with_web(&mut cluster, "~* +@all");
    let mut web = certified(&host, "web");
    web.answer(Err(Refusal::Unavailable));
    assert_eq!(web.request, None);
    assert_eq!(web.ask(&mut cluster, "ACL WHOAMI"), WEB);
}

#[test]
fn client_without_such_a_user_is_as_one_without_a_certificate() {
    let mut cluster = Cluster::default();
    let (host, mut admin) = with_web(&mut cluster, "+@all");
    assert_eq!(admin.ask(&mut cluster, "ACL SETUSER web off"), "+OK\n");
    for user in ["web", "none"] {
        let mut client = certified(&host, user);
        assert_eq!(client.ask(&mut cluster, "ACL WHOAMI"), DEFAULT, "{user}");
        let mut other = certified(&host, user);
        assert_eq!(other.ask(&mut cluster, "AUTH admin p"), "+OK\n");
        assert_eq!(other.ask(&mut cluster, "ACL WHOAMI"), "$5\nadmin\n");
    }
    // Where that has to log in, it has as much time as that.
    assert_eq!(admin.ask(&mut cluster, "ACL SETUSER default off"), "+OK\n");
    assert_eq!(admin.ask(&mut cluster, "PING"), "+PONG\n");
    for user in ["web", "none"] {
        let mut client = certified(&host, user);
        assert!(
            !client.connection.has_deadline(),
            "it may not have to log in"
        );
        let begun = Instant::now();
        while Instant::now() == begun {}
        assert_eq!(client.ask(&mut cluster, "GET k"), NO_AUTH, "{user}");
        assert!(client.connection.has_deadline());
        // From the moment at which it is known that it has to log in.
        client.connection.on_time(begun + Duration::from_secs(60));
        assert!(!client.connection.is_closing());
        client
            .connection
            .on_time(Instant::now() + Duration::from_secs(61));
        let closed = text(&client.finish(&mut cluster));
        assert!(closed.contains("has not logged in after 60 s"), "{closed}");
    }
}

#[test]
fn client_that_a_certificate_logs_in_is_not_closed_for_silence() {
    let mut cluster = Cluster::default();
    let (host, mut admin) = with_web(&mut cluster, "+@all");
    assert_eq!(admin.ask(&mut cluster, "ACL SETUSER default off"), "+OK\n");
    assert_eq!(admin.ask(&mut cluster, "PING"), "+PONG\n");
    let mut web = certified(&host, "web");
    let late = Instant::now() + Duration::from_secs(61);
    for _ in 0..2 {
        assert!(!web.connection.has_deadline());
        web.connection.on_time(late);
        assert!(!web.connection.is_closing());
        web.finish(&mut cluster);
    }
    assert_eq!(web.ask(&mut cluster, "ACL WHOAMI"), WEB);
    // Nor has it the limits of one that has to log in, while it is not known.
    let mut web = certified(&host, "web");
    web.send(request(&[b"ECHO", &[b'x'; 20 << 10]]));
    assert!(web.finish(&mut cluster).starts_with(b"$20480\r\nx"));
}

#[test]
fn user_without_a_password_is_taken_only_by_its_certificate() {
    let mut cluster = Cluster::default();
    let (host, mut admin) = with_web(&mut cluster, "+@all");
    let mut plain = Client::new(&host);
    let mut certified = certified(&host, "admin");
    for client in [&mut plain, &mut certified] {
        for line in [
            "AUTH web any",
            "AUTH web \"\"",
            "HELLO 2 AUTH web any",
            "HELLO 3 AUTH web web",
        ] {
            assert_eq!(client.ask(&mut cluster, line), WRONG_PASS, "{line}");
        }
    }
    assert_eq!(plain.ask(&mut cluster, "ACL WHOAMI"), DEFAULT);
    assert_eq!(certified.ask(&mut cluster, "ACL WHOAMI"), "$5\nadmin\n");
    // With `nopass` anyone takes it.
    assert_eq!(admin.ask(&mut cluster, "ACL SETUSER web nopass"), "+OK\n");
    let mut plain = Client::new(&gateway());
    assert_eq!(plain.ask(&mut cluster, "AUTH web any"), "+OK\n");
}

#[test]
fn client_with_a_certificate_changes_its_user_and_returns() {
    let mut cluster = Cluster::default();
    let (host, mut admin) = with_web(&mut cluster, "+@all");
    let mut web = certified(&host, "web");
    assert_eq!(web.ask(&mut cluster, "AUTH admin wrong"), WRONG_PASS);
    assert_eq!(web.ask(&mut cluster, "ACL WHOAMI"), WEB);
    // It is that user already, so there is nothing to ask.
    web.send("RESET\r\n");
    assert_eq!((&*text(&web.take()), &web.request), ("+RESET\n", &None));
    assert_eq!(web.ask(&mut cluster, "ACL WHOAMI"), WEB);
    assert_eq!(web.ask(&mut cluster, "AUTH admin p"), "+OK\n");
    assert_eq!(web.ask(&mut cluster, "ACL WHOAMI"), "$5\nadmin\n");
    assert_eq!(web.ask(&mut cluster, "RESET\nACL WHOAMI"), reset_to(WEB));
    // What it returns to may have gone meanwhile.
    assert_eq!(web.ask(&mut cluster, "AUTH admin p"), "+OK\n");
    assert_eq!(admin.ask(&mut cluster, "ACL DELUSER web"), ":1\n");
    assert_eq!(
        web.ask(&mut cluster, "RESET\nACL WHOAMI"),
        reset_to(DEFAULT)
    );
}

fn reset_to(user: &str) -> String {
    format!("+RESET\n{user}")
}

#[test]
fn rights_that_are_taken_away_count_for_a_certificate_as_for_a_password() {
    let mut cluster = Cluster::default();
    for change in ["ACL DELUSER web", "ACL SETUSER web off"] {
        let (_, mut admin) = with_web(&mut cluster, "reset on ~* +@all");
        let mut web = certified(&gateway(), "web");
        assert_eq!(web.ask(&mut cluster, "SET k v"), "+OK\n");
        // The other gateway has sent it before it could know.
        web.send("SET k w\r\n");
        assert_eq!(admin.ask(&mut cluster, "ACL SETUSER web -set"), "+OK\n");
        let refused = text(&web.finish(&mut cluster));
        assert!(refused.starts_with("-NOPERM "), "{refused}");
        admin.ask(&mut cluster, change);
        web.send("GET k\r\n");
        let closed = text(&web.finish(&mut cluster));
        assert_eq!(closed, GONE, "{change}");
        assert_eq!(web.ask(&mut cluster, "GET k"), GONE, "{change}");
        assert!(web.connection.is_closed());
    }
}

#[test]
fn quotas_of_a_user_count_for_its_certificates() {
    let mut cluster = Cluster::default();
    let (host, mut admin) = with_web(
        &mut cluster,
        "+@all quota:connections=1 quota:commands=2 quota:bytes=16kb",
    );
    let clock = Instant::now();
    host.set_clock(Box::new(move || clock));
    let mut web = certified(&host, "web");
    assert_eq!(
        web.ask(&mut cluster, "ACL WHOAMI\nPING"),
        "$3\nweb\n+PONG\n"
    );
    assert_eq!(web.ask(&mut cluster, "PING"), "", "it waits");
    let mut second = certified(&host, "web");
    let full = "-BUSY quota of user web reached: connections (allowed: 1)\n";
    assert_eq!(text(&second.finish(&mut cluster)), full);
    assert!(second.connection.is_closed());
    let info = admin.ask(&mut cluster, "INFO stats");
    assert!(info.contains("quota_refused_connections:1\n"), "{info}");
    drop(web);
    let mut third = certified(&host, "web");
    assert!(third.step(&mut cluster));
    assert_eq!(text(&third.finish(&mut cluster)), "");
    assert!(!third.connection.is_closing());
}

/// A cluster without users has none to look up, and gets them with its level.
#[test]
fn certificates_count_when_the_level_brings_users() {
    let mut cluster = Cluster::default();
    with_web(&mut cluster, "+@all");
    let host = host(Limits::default());
    let mut web = certified(&host, "web");
    assert_eq!(web.request, None);
    assert_eq!(web.ask(&mut cluster, "ACL WHOAMI"), DEFAULT);
    let mut default = certified(&host, "web");
    assert_eq!(default.ask(&mut cluster, "AUTH default any"), "+OK\n");
    host.set_level(Level(18));
    assert_eq!(web.ask(&mut cluster, "ACL WHOAMI"), WEB);
    assert_eq!(
        default.ask(&mut cluster, "ACL WHOAMI"),
        DEFAULT,
        "it has logged in as that"
    );
}
