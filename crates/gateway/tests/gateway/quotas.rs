//! Quotas of users: rules, and what the gateway does at each of them. The clock is the test's.

use crate::common::{Client, Cluster, host, text};
use crate::socket::{Node, answer_all, connect, execute, expect, run_after, until};
use ionian_gateway::{Gateway, Host, Limits};
use ionian_kernel::level::Level;
use std::cell::Cell;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const ADMIN: &str = "ACL SETUSER admin on >a +@all ~*\nAUTH admin a";

/// A clock that stands still.
#[derive(Clone)]
struct Clock(Rc<Cell<Instant>>);

impl Clock {
    fn add(&self, ms: u64) {
        self.0.set(self.0.get() + Duration::from_millis(ms));
    }
}

/// A gateway with a client that has logged in, and one that is `u` with these quotas.
fn gateway(cluster: &mut Cluster, quotas: &str) -> (Rc<Host>, Clock, Client, Client) {
    let (host, clock) = (
        host(Limits::default()),
        Clock(Rc::new(Cell::new(Instant::now()))),
    );
    host.set_level(Level(18));
    let time = clock.clone();
    host.set_clock(Box::new(move || time.0.get()));
    let mut admin = Client::new(&host);
    assert_eq!(admin.ask(cluster, ADMIN), "+OK\n+OK\n");
    let set = format!("ACL SETUSER u on >p +@all ~* {quotas}");
    assert_eq!(admin.ask(cluster, &set), "+OK\n");
    let user = log_in(cluster, &host);
    (host, clock, admin, user)
}

fn log_in(cluster: &mut Cluster, host: &Rc<Host>) -> Client {
    let mut user = Client::new(host);
    assert_eq!(user.ask(cluster, "AUTH u p"), "+OK\n");
    user
}

/// Advances the clock, and looks at the connection as its timer does.
fn after(clock: &Clock, ms: u64, client: &mut Client, cluster: &mut Cluster) -> String {
    clock.add(ms);
    client.connection.advance();
    client.send("");
    text(&client.finish(cluster))
}

fn field(admin: &mut Client, cluster: &mut Cluster, name: &str) -> u64 {
    let info = admin.ask(cluster, "INFO stats");
    let value = info.lines().find_map(|line| line.strip_prefix(name));
    value.expect("a field")[1..].parse().expect("a number")
}

fn busy(what: &str) -> String {
    format!("-BUSY quota of user u reached: {what}\n")
}

#[test]
fn quotas_are_rules_that_are_shown_where_they_are_set() {
    let mut cluster = Cluster::default();
    let quotas = "quota:connections=3 QUOTA:COMMANDS=500 quota:bytes=10mb quota:flight=64k";
    let (_, _, mut admin, _) = gateway(&mut cluster, quotas);
    let mut ask = |line: &str| admin.ask(&mut cluster, line);
    let shown = "quota:connections=3 quota:commands=500 quota:bytes=10485760 quota:flight=64000";
    let list = ask("ACL LIST");
    let line = list.lines().find(|line| line.starts_with("user u "));
    let rules = line.and_then(|line| line.strip_prefix("user u "));
    let rules = rules.expect("it is there").to_owned();
    assert!(rules.ends_with(&format!("+@all {shown}")), "{rules}");
    let get = ask("ACL GETUSER u");
    assert!(get.starts_with("*14\n"), "{get}");
    let tail = format!("$6\nquotas\n${}\n{shown}\n", shown.len());
    assert!(get.ends_with(&tail), "{get}");
    // The line makes the same user.
    assert_eq!(ask(&format!("ACL SETUSER v {rules}")), "+OK\n");
    let list = ask("ACL LIST");
    assert!(list.contains(&format!("user v {rules}\n")), "{list}");
    // Without quotas users look as in Redis.
    for gone in ["resetquota", "quota:flight=1 reset"] {
        assert_eq!(ask(&format!("ACL SETUSER v {rules} {gone}")), "+OK\n");
        let list = ask("ACL LIST");
        let line = list.lines().find(|line| line.starts_with("user v "));
        assert!(!line.unwrap().contains("quota"), "{list}");
        let get = ask("ACL GETUSER v");
        assert!(get.starts_with("*12\n") && !get.contains("quota"), "{get}");
    }
    for (rule, allowed) in [
        (
            "quota:keys=1",
            "The quotas are quota:connections=N, quota:commands=N, quota:bytes=N and \
             quota:flight=N",
        ),
        (
            "quota:bytes=1kb",
            "A quota is a number from 1 to 1099511627776, or 0 for no limit. quota:bytes is at \
             least 16384. quota:bytes and quota:flight may have a unit, as in 10mb",
        ),
    ] {
        let named = if rule.ends_with("kb") {
            "quota:bytes=1024"
        } else {
            rule
        };
        assert_eq!(
            ask(&format!("ACL SETUSER u {rule}")),
            format!("-ERR Error in ACL SETUSER modifier '{named}': {allowed}\n")
        );
    }
}

#[test]
fn commands_over_the_rate_wait_and_are_refused_after_that() {
    let mut cluster = Cluster::default();
    let (host, clock, mut admin, mut user) = gateway(&mut cluster, "quota:commands=2");
    assert_eq!(
        user.ask(&mut cluster, "INCR n\nPING\nINCR n"),
        ":1\n+PONG\n"
    );
    // Its input stays in the socket, those of others do not.
    assert!(!user.connection.wants_input());
    assert_eq!(admin.ask(&mut cluster, "INCR m"), ":1\n");
    assert_eq!(after(&clock, 99, &mut user, &mut cluster), "");
    let refused = busy("commands a second (allowed: 2)");
    assert_eq!(after(&clock, 1, &mut user, &mut cluster), refused);
    assert!(user.connection.wants_input());
    // Another connection of the user has the same quota, also one that is new.
    let mut other = log_in(&mut cluster, &host);
    assert_eq!(other.ask(&mut cluster, "INCR n\nINCR n"), "");
    // Half a second after the start there is one more.
    assert_eq!(after(&clock, 300, &mut other, &mut cluster), refused);
    assert_eq!(after(&clock, 100, &mut other, &mut cluster), ":2\n");
    assert_eq!(admin.ask(&mut cluster, "GET n"), "$1\n2\n");
    let mut count = |name| field(&mut admin, &mut cluster, name);
    assert_eq!(count("quota_refused_commands"), 2);
    assert_eq!(count("quota_delayed_commands"), 1);
}

#[test]
fn a_pipeline_of_a_user_is_paced() {
    let mut cluster = Cluster::default();
    let (_, clock, _, mut user) = gateway(&mut cluster, "quota:commands=100");
    let answers = user.ask(&mut cluster, &["PING"; 1100].join("\n"));
    assert_eq!(answers, "+PONG\n".repeat(100));
    // One every 10 ms, and no errors.
    for _ in 0..100 {
        assert_eq!(after(&clock, 9, &mut user, &mut cluster), "");
        assert_eq!(after(&clock, 1, &mut user, &mut cluster), "+PONG\n");
    }
}

#[test]
fn a_refused_command_makes_its_transaction_fail() {
    let mut cluster = Cluster::default();
    let (_, clock, _, mut user) = gateway(&mut cluster, "quota:commands=2");
    let answers = user.ask(&mut cluster, "MULTI\nINCR n\nINCR n");
    assert_eq!(answers, "+OK\n+QUEUED\n");
    let refused = busy("commands a second (allowed: 2)");
    assert_eq!(after(&clock, 100, &mut user, &mut cluster), refused);
    clock.add(1000);
    let failed = "-EXECABORT Transaction discarded because of previous errors.\n";
    assert_eq!(user.ask(&mut cluster, "EXEC"), failed);
    // A refused EXEC leaves nothing behind.
    clock.add(1000);
    assert_eq!(
        user.ask(&mut cluster, "MULTI\nINCR n\nEXEC"),
        "+OK\n+QUEUED\n"
    );
    let refused = after(&clock, 100, &mut user, &mut cluster);
    assert!(refused.starts_with("-EXECABORT Transaction discarded because of: BUSY quota"));
    clock.add(1000);
    assert_eq!(
        user.ask(&mut cluster, "GET n\nEXEC"),
        "$-1\n-ERR EXEC without MULTI\n"
    );
}

#[test]
fn bytes_of_commands_have_a_rate() {
    let mut cluster = Cluster::default();
    let (_, clock, _, mut user) = gateway(&mut cluster, "quota:bytes=16kb");
    let set = format!("SET k {}", "v".repeat(15_000));
    // What is left counts, not what is asked for.
    assert_eq!(
        user.ask(&mut cluster, &format!("{set}\n{set}\nGET none")),
        "+OK\n+OK\n"
    );
    let refused = busy("bytes a second (allowed: 16384)");
    assert_eq!(after(&clock, 100, &mut user, &mut cluster), refused);
    assert_eq!(after(&clock, 750, &mut user, &mut cluster), "");
    assert_eq!(user.ask(&mut cluster, "GET none"), "$-1\n");
    // What is larger than a second's could never be sent.
    clock.add(5000);
    let set = format!("SET k {}", "v".repeat(16_384));
    let larger = "-ERR the command is larger than the quota of user u for a second: 16384 bytes\n";
    // As with each refusal the connection is not read for a while.
    user.send(format!("{set}\r\n{set}\r\n"));
    assert_eq!(after(&clock, 99, &mut user, &mut cluster), "");
    assert_eq!(after(&clock, 1, &mut user, &mut cluster), larger);
    assert_eq!(after(&clock, 99, &mut user, &mut cluster), "");
    assert_eq!(after(&clock, 1, &mut user, &mut cluster), larger);
    assert_eq!(user.ask(&mut cluster, "STRLEN k"), ":15000\n");
}

#[test]
fn bytes_without_an_answer_have_a_limit() {
    let mut cluster = Cluster::default();
    let (host, clock, mut admin, mut user) = gateway(&mut cluster, "quota:flight=2000");
    let mut other = log_in(&mut cluster, &host);
    let set = |key: &str, len| format!("SET {key} {}\r\n", "v".repeat(len));
    // One command is always taken, whatever its size.
    user.send(set("a", 9000));
    assert!(user.request.is_some());
    other.send(set("b", 100));
    assert!(other.request.is_none() && !other.connection.wants_input());
    assert_eq!(admin.ask(&mut cluster, "SET c v"), "+OK\n");
    let refused = busy("bytes of commands without an answer (allowed: 2000)");
    assert_eq!(after(&clock, 99, &mut other, &mut cluster), "");
    assert_eq!(after(&clock, 1, &mut other, &mut cluster), refused);
    // What takes no room is not held up.
    assert_eq!(other.ask(&mut cluster, "PING"), "+PONG\n");
    other.send(set("b", 100));
    assert_eq!(text(&user.finish(&mut cluster)), "+OK\n");
    assert_eq!(after(&clock, 10, &mut other, &mut cluster), "+OK\n");
    // Queued commands have no answer either; DISCARD gives their room back.
    let queued = other.ask(&mut cluster, &format!("MULTI\nSET q {}", "v".repeat(1800)));
    assert_eq!(queued, "+OK\n+QUEUED\n");
    user.send(set("a", 500));
    assert!(user.request.is_none());
    assert_eq!(other.ask(&mut cluster, "DISCARD"), "+OK\n");
    assert_eq!(after(&clock, 10, &mut user, &mut cluster), "+OK\n");
    // A connection that is closed takes its bytes with it.
    other.send(set("b", 9000));
    user.send(set("a", 500));
    assert!(other.request.is_some() && user.request.is_none());
    drop(other);
    assert_eq!(after(&clock, 10, &mut user, &mut cluster), "+OK\n");
    // So does one that becomes another user: watched keys stay in its memory.
    let mut other = log_in(&mut cluster, &host);
    let watch = format!("WATCH {}", "k".repeat(1900));
    assert_eq!(other.ask(&mut cluster, &watch), "+OK\n");
    user.send(set("a", 500));
    assert!(user.request.is_none());
    assert_eq!(other.ask(&mut cluster, "AUTH admin a"), "+OK\n");
    assert_eq!(after(&clock, 10, &mut user, &mut cluster), "+OK\n");
}

#[test]
fn connections_over_the_quota_cannot_log_in() {
    let mut cluster = Cluster::default();
    let (host, _, mut admin, mut user) = gateway(&mut cluster, "quota:connections=2");
    let mut second = Client::new(&host);
    // Who has logged in may do it again.
    assert_eq!(second.ask(&mut cluster, "AUTH u p\nAUTH u p"), "+OK\n+OK\n");
    let mut third = Client::new(&host);
    let refused = busy("connections (allowed: 2)");
    assert_eq!(third.ask(&mut cluster, "AUTH u p"), refused);
    assert_eq!(third.ask(&mut cluster, "ACL WHOAMI"), "$7\ndefault\n");
    // Each further attempt of this connection waits.
    assert_eq!(third.ask(&mut cluster, "HELLO 3 AUTH u p"), "");
    let delay = Limits::default().login_delay;
    third.connection.on_time(Instant::now() + delay);
    third.connection.advance();
    assert_eq!(text(&third.finish(&mut cluster)), refused);
    // A wrong password is answered as ever, and other users log in.
    let mut fourth = Client::new(&host);
    assert!(
        fourth
            .ask(&mut cluster, "AUTH u q")
            .starts_with("-WRONGPASS")
    );
    assert_eq!(fourth.ask(&mut cluster, "AUTH admin a"), "+OK\n");
    assert_eq!(
        field(&mut admin, &mut cluster, "quota_refused_connections"),
        2
    );
    // There is room when one leaves, becomes another user, or is none any more.
    drop(second);
    assert_eq!(fourth.ask(&mut cluster, "AUTH u p"), "+OK\n");
    assert_eq!(user.ask(&mut cluster, "AUTH admin a"), "+OK\n");
    assert_eq!(Client::new(&host).ask(&mut cluster, "AUTH u p"), "+OK\n");
    assert_eq!(fourth.ask(&mut cluster, "RESET"), "+RESET\n");
    let (mut one, mut other) = (log_in(&mut cluster, &host), log_in(&mut cluster, &host));
    // A smaller quota closes nothing, and counts for those that come.
    assert_eq!(
        admin.ask(&mut cluster, "ACL SETUSER u quota:connections=1"),
        "+OK\n"
    );
    assert_eq!(
        one.ask(&mut cluster, "PING") + &other.ask(&mut cluster, "PING"),
        "+PONG\n+PONG\n"
    );
    let refused = busy("connections (allowed: 1)");
    drop(one);
    assert_eq!(Client::new(&host).ask(&mut cluster, "AUTH u p"), refused);
}

#[test]
fn a_changed_quota_counts_for_connections_that_are_there() {
    let mut cluster = Cluster::default();
    let (host, clock, mut admin, mut user) = gateway(&mut cluster, "");
    let pings = ["PING"; 50].join("\n");
    assert_eq!(user.ask(&mut cluster, &pings), "+PONG\n".repeat(50));
    let mut change = |cluster: &mut Cluster, quotas: &str| {
        let set = format!("ACL SETUSER u {quotas}");
        assert_eq!(admin.ask(cluster, &set), "+OK\n");
        // The gateway asks for the users with the next command.
        assert_eq!(admin.ask(cluster, "PING"), "+PONG\n");
    };
    change(&mut cluster, "quota:commands=10");
    assert_eq!(user.ask(&mut cluster, &pings), "+PONG\n".repeat(10));
    // What waits goes on when the connection is looked at, though the clock stands still.
    change(&mut cluster, "resetquota");
    assert_eq!(
        after(&clock, 0, &mut user, &mut cluster),
        "+PONG\n".repeat(40)
    );
    // The same for what would have been refused, if another quota remains.
    change(&mut cluster, "quota:commands=1 quota:bytes=1mb");
    clock.add(1100);
    assert_eq!(user.ask(&mut cluster, "PING\nPING"), "+PONG\n");
    change(&mut cluster, "quota:commands=0");
    assert_eq!(after(&clock, 0, &mut user, &mut cluster), "+PONG\n");
    // The quotas of a user that is made anew are its own.
    change(&mut cluster, "quota:commands=1");
    assert_eq!(user.ask(&mut cluster, "PING\nPING"), "");
    admin.ask(&mut cluster, "ACL DELUSER u\nACL SETUSER u on >p +@all");
    assert_eq!(admin.ask(&mut cluster, "PING"), "+PONG\n");
    let mut again = Client::new(&host);
    let replies = again.ask(&mut cluster, "AUTH u p\nPING\nPING");
    assert_eq!(replies, "+OK\n+PONG\n+PONG\n");
}

#[test]
fn the_quotas_of_default_are_for_clients_without_login() {
    let mut cluster = Cluster::default();
    let (host, clock, mut admin, mut user) = gateway(&mut cluster, "");
    let set = "ACL SETUSER default quota:commands=1 quota:connections=1\nPING";
    assert_eq!(admin.ask(&mut cluster, set), "+OK\n+PONG\n");
    let mut one = Client::new(&host);
    assert_eq!(one.ask(&mut cluster, "PING\nPING"), "+PONG\n");
    let refused = "-BUSY quota of user default reached: commands a second (allowed: 1)\n";
    assert_eq!(after(&clock, 100, &mut one, &mut cluster), refused);
    // It keeps none from logging in, as a user whose quotas are others.
    let login = "AUTH u p\nPING";
    assert_eq!(one.ask(&mut cluster, login), "+OK\n+PONG\n");
    // RESET makes a connection of `default`, if there is room.
    let _first = Client::new(&host);
    let full = "-BUSY quota of user default reached: connections (allowed: 1)\n";
    assert_eq!(
        user.ask(&mut cluster, "RESET\nACL WHOAMI"),
        format!("{full}$1\nu\n")
    );
    // With a password, clients that have not given it are not `default`.
    assert_eq!(
        admin.ask(&mut cluster, "ACL SETUSER default >d\nPING"),
        "+OK\n+PONG\n"
    );
    let mut unknown = Client::new(&host);
    let no_auth = "-NOAUTH Authentication required.\n";
    assert_eq!(
        unknown.ask(&mut cluster, "PING\nPING\nPING"),
        no_auth.repeat(3)
    );
    assert_eq!(user.ask(&mut cluster, "RESET"), "+RESET\n");
    assert_eq!(unknown.ask(&mut cluster, "AUTH d"), "+OK\n");
    assert_eq!(Client::new(&host).ask(&mut cluster, "AUTH d"), full);
}

/// A clock for a gateway on another thread, in milliseconds after its start.
fn start_with_clock(gateway: &Gateway, address: SocketAddr) -> (SocketAddr, Arc<AtomicU64>) {
    let (ms, start) = (Arc::new(AtomicU64::new(0)), Instant::now());
    let time = ms.clone();
    gateway.set_clock(Box::new(move || {
        start + Duration::from_millis(time.load(Ordering::SeqCst))
    }));
    gateway.set_level(Box::new(|| Level(18)));
    (address, ms)
}

/// Runs `client` against a gateway in which nothing happens but what it asks for: the questions of
/// the gateway itself get no answer, so they are not repeated, and requests have no deadline.
fn run_with_clock(
    mut node: Node,
    client: impl FnOnce(SocketAddr, Arc<AtomicU64>) + Send + 'static,
) {
    let limits = Limits {
        deadline: Duration::from_secs(3600),
        ..Limits::default()
    };
    let questions = Arc::new(AtomicU64::new(0));
    let asked = questions.clone();
    let node: Node = Box::new(move |cluster, mut requests| {
        let all = requests.len();
        requests.retain(|request| request.token >> 32 < 1000);
        asked.fetch_add((all - requests.len()) as u64, Ordering::SeqCst);
        node(cluster, requests)
    });
    run_after(limits, node, start_with_clock, move |(address, clock)| {
        let first = connect(address);
        until("the gateway has asked for users and memory", || {
            questions.load(Ordering::SeqCst) == 2
        });
        drop(first);
        client(address, clock);
    });
}

fn send(stream: &mut TcpStream, lines: &str, expected: &str) {
    let lines = lines.replace('\n', "\r\n") + "\r\n";
    stream.write_all(lines.as_bytes()).unwrap();
    expect(stream, expected.replace('\n', "\r\n").as_bytes());
}

fn log_in_at(address: SocketAddr, quotas: &str) -> (TcpStream, TcpStream) {
    let (mut admin, mut user) = (connect(address), connect(address));
    send(&mut admin, ADMIN, "+OK\n+OK\n");
    send(
        &mut admin,
        &format!("ACL SETUSER u on >p +@all ~* {quotas}"),
        "+OK\n",
    );
    send(&mut user, "AUTH u p", "+OK\n");
    (admin, user)
}

/// Whether nothing has come that was not read.
fn has_nothing(stream: &mut TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let read = stream.peek(&mut [0; 1]);
    stream.set_nonblocking(false).unwrap();
    read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

/// The clock stands still while the user waits, so nothing can come for it. When it goes on, the
/// gateway goes on by itself, although nothing else happens there.
#[test]
fn who_waits_is_woken_and_slows_no_other_user() {
    run_with_clock(answer_all(), |address, clock| {
        let (mut admin, mut user) = log_in_at(address, "quota:commands=20");
        let first: String = (1..=20).map(|n| format!(":{n}\n")).collect();
        send(&mut user, &["INCR n"; 22].join("\n"), &first);
        for _ in 0..100 {
            send(&mut admin, "SET k v", "+OK\n");
        }
        assert!(has_nothing(&mut user));
        clock.fetch_add(50, Ordering::SeqCst);
        expect(&mut user, b":21\r\n");
        send(&mut admin, "PING", "+PONG\n");
        assert!(has_nothing(&mut user));
        clock.fetch_add(50, Ordering::SeqCst);
        expect(&mut user, b":22\r\n");
        // What was refused is answered by the same timer.
        send(
            &mut admin,
            "ACL SETUSER u quota:commands=1\nPING",
            "+OK\n+PONG\n",
        );
        user.write_all(b"PING\r\n").unwrap();
        send(&mut admin, "PING", "+PONG\n");
        until("it is answered", || {
            clock.fetch_add(1, Ordering::SeqCst);
            !has_nothing(&mut user)
        });
        let refused = b"-BUSY quota of user u reached: commands a second (allowed: 1)\r\n";
        expect(&mut user, refused);
    });
}

#[test]
fn who_waits_for_answers_to_another_connection_is_woken() {
    let (mut held, is_held) = (Vec::new(), Arc::new(AtomicBool::new(false)));
    let holds = is_held.clone();
    let node: Node = Box::new(move |cluster, requests| {
        let mut replies = Vec::new();
        for request in requests {
            let contains = |text: &[u8]| request.payload.windows(4).any(|at| at == text);
            let reply = execute(cluster, &request);
            match contains(b"hold") {
                true => {
                    held.push(reply);
                    holds.store(true, Ordering::SeqCst);
                }
                false => replies.push(reply),
            }
            if contains(b"free") {
                replies.append(&mut held);
            }
        }
        replies
    });
    run_with_clock(node, move |address, clock| {
        let (mut admin, mut user) = log_in_at(address, "quota:flight=1000");
        let mut other = connect(address);
        send(&mut other, "AUTH u p", "+OK\n");
        user.write_all(b"SET hold v\r\nPING\r\n").unwrap();
        until("the command is in flight", || {
            is_held.load(Ordering::SeqCst)
        });
        let set = format!("SET big {}\r\n", "v".repeat(990));
        other.write_all(set.as_bytes()).unwrap();
        until("the next one waits", || {
            asks(&mut admin, "quota_delayed_commands:1")
        });
        send(&mut admin, "SET free v", "+OK\n");
        expect(&mut user, b"+OK\r\n+PONG\r\n");
        assert!(has_nothing(&mut other));
        clock.fetch_add(10, Ordering::SeqCst);
        expect(&mut other, b"+OK\r\n");
    });
}

/// Whether INFO has this line.
fn asks(stream: &mut TcpStream, line: &str) -> bool {
    stream.write_all(b"INFO stats\r\nPING\r\n").unwrap();
    let mut info = Vec::new();
    while !info.ends_with(b"+PONG\r\n") {
        let mut some = [0; 4096];
        let len = stream.read(&mut some).unwrap();
        info.extend_from_slice(&some[..len]);
    }
    String::from_utf8_lossy(&info).contains(&format!("{line}\r\n"))
}

#[test]
fn connections_of_default_over_its_quota_are_refused_at_once() {
    run_with_clock(answer_all(), |address, _| {
        let (mut admin, _user) = log_in_at(address, "");
        let set = "ACL SETUSER default quota:connections=1\nPING";
        send(&mut admin, set, "+OK\n+PONG\n");
        let mut first = connect(address);
        send(&mut first, "PING", "+PONG\n");
        let mut refused = Vec::new();
        connect(address)
            .read_to_end(&mut refused)
            .expect("no reset");
        let why = "-BUSY quota of user default reached: connections (allowed: 1)\n";
        assert_eq!(text(&refused), why);
        send(&mut first, "AUTH u p", "+OK\n");
        send(&mut connect(address), "PING", "+PONG\n");
        assert!(asks(&mut admin, "quota_refused_connections:1"));
    });
}
