//! The lines of the audit log about changes of users and of the limit of memory.

use crate::common::{Client, Cluster, host, text};
use ionian_gateway::{Host, Limits};
use ionian_kernel::client::Refusal;
use ionian_kernel::level::Level;
use std::fmt::{Debug, Write as _};
use std::rc::Rc;
use std::sync::Mutex;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// The lines of all tests of this process, as `name=value` for each field.
static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Capture;

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {}={value:?}", field.name()).expect("a string");
    }
}

impl Subscriber for Capture {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "ionian::audit"
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        LINES.lock().unwrap().push(line.0);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// The outcomes of the changes of this object, which no other test changes.
fn outcomes(object: &str) -> Vec<String> {
    let lines = LINES.lock().unwrap();
    let object = format!(" object={object:?} ");
    let of_object = lines.iter().filter(|line| line.contains(&object));
    let outcome = |line: &String| line.split("outcome=").nth(1).map(str::to_owned);
    let outcomes = of_object.map(|line| outcome(line).expect("an outcome"));
    outcomes.map(|it| it.replace('"', "")).collect()
}

/// A gateway of a cluster that has users, whose lines are kept.
fn gateway() -> Rc<Host> {
    // Another test may have come first.
    let _ = tracing::subscriber::set_global_default(Capture);
    let host = host(Limits::default());
    host.set_level(Level(18));
    host
}

/// A client that knows the users, so that the next thing it sends is a change.
fn ready(host: &Rc<Host>, cluster: &mut Cluster) -> Client {
    let mut client = Client::new(host);
    assert_eq!(client.ask(cluster, "GET k"), "$-1\n");
    client
}

/// The changes to try, and the object of each.
fn changes(number: usize) -> [(String, String); 3] {
    let user = |sub: &str| format!("audited-{number}-{sub}");
    [
        (
            format!("ACL SETUSER {} on >secret", user("set")),
            user("set"),
        ),
        (
            format!("ACL DELUSER {} y{number}", user("del")),
            format!("{} y{number}", user("del")),
        ),
        (
            format!("CONFIG SET maxmemory 123456{number}"),
            format!("maxmemory 123456{number}"),
        ),
    ]
}

#[test]
fn a_change_has_a_line_before_it_is_sent_and_one_when_it_is_made() {
    let (host, mut cluster) = (gateway(), Cluster::default());
    for (line, object) in changes(1) {
        let mut client = ready(&host, &mut cluster);
        client.send(line.clone() + "\r\n");
        assert!(client.request.is_some(), "{line}");
        assert_eq!(outcomes(&object), ["permitted"], "{line}");
        client.finish(&mut cluster);
        assert_eq!(outcomes(&object), ["permitted", "done"], "{line}");
    }
    let lines = LINES.lock().unwrap();
    assert!(!lines.iter().any(|line| line.contains("secret")));
}

/// What a client has sent is executed, also if the client is gone.
#[test]
fn a_client_that_is_gone_leaves_a_line() {
    let (host, mut cluster) = (gateway(), Cluster::default());
    for (line, object) in changes(2) {
        let mut client = ready(&host, &mut cluster);
        client.send(line.clone() + "\r\n");
        drop(client);
        assert_eq!(outcomes(&object), ["permitted"], "{line}");
    }
    for (line, object) in changes(3) {
        let mut client = ready(&host, &mut cluster);
        let id = client.ask(&mut cluster, "CLIENT ID");
        client.send(line.clone() + "\r\n");
        let kill = format!("CLIENT KILL ID {}", id[1..].trim_end());
        let mut other = Client::new(&host);
        assert_eq!(other.ask(&mut cluster, &kill), ":1\n");
        client.connection.advance();
        assert!(client.connection.is_closed());
        assert_eq!(outcomes(&object), ["permitted"], "{line}");
    }
}

#[test]
fn a_change_that_is_not_answered_is_unknown() {
    let (host, mut cluster) = (gateway(), Cluster::default());
    for (line, object) in changes(4) {
        let mut client = ready(&host, &mut cluster);
        client.send(line.clone() + "\r\n");
        client.connection.give_up();
        let answer = text(client.connection.output());
        assert!(answer.contains("may or may not"), "{line}: {answer}");
        assert_eq!(outcomes(&object), ["permitted", "unknown"], "{line}");
    }
}

#[test]
fn a_change_that_is_refused_says_so() {
    let (host, mut cluster) = (gateway(), Cluster::default());
    for (line, object) in changes(5) {
        let mut client = ready(&host, &mut cluster);
        client.send(line.clone() + "\r\n");
        client.answer(Err(Refusal::Busy));
        assert_eq!(outcomes(&object), ["permitted", "refused"], "{line}");
    }
    // By the machine.
    let mut client = ready(&host, &mut cluster);
    let answer = client.ask(&mut cluster, "ACL SETUSER audited-wrong wrong");
    assert!(answer.starts_with("-ERR Error in ACL SETUSER"), "{answer}");
    assert_eq!(outcomes("audited-wrong"), ["permitted", "refused"]);
    // By the audit log itself: nothing is sent.
    host.set_audit(Box::new(|| Err("it takes none".to_owned())));
    for (line, object) in changes(6) {
        let mut client = ready(&host, &mut cluster);
        client.send(line.clone() + "\r\n");
        assert!(client.request.is_none(), "{line}");
        let answer = text(client.connection.output());
        assert_eq!(
            answer, "-ERR it takes none; nothing was changed\n",
            "{line}"
        );
        assert_eq!(outcomes(&object), ["refused"], "{line}");
    }
}

/// The users have changed at another gateway since the change was judged.
#[test]
fn an_outdated_change_that_is_refused_says_so() {
    let (host, mut cluster) = (gateway(), Cluster::default());
    let mut admin = ready(&gateway(), &mut cluster);
    let boss = |number| format!("ACL SETUSER boss{number} on >p ~* +@all");
    for (number, (line, object)) in changes(7).into_iter().enumerate() {
        assert_eq!(admin.ask(&mut cluster, &boss(number)), "+OK\n");
        let mut client = ready(&host, &mut cluster);
        let login = format!("AUTH boss{number} p");
        assert_eq!(client.ask(&mut cluster, &login), "+OK\n");
        let take = format!("ACL SETUSER boss{number} -acl -config");
        assert_eq!(admin.ask(&mut cluster, &take), "+OK\n");
        let answer = client.ask(&mut cluster, &line);
        assert!(answer.starts_with("-NOPERM"), "{line}: {answer}");
        assert_eq!(outcomes(&object), ["permitted", "refused"], "{line}");
    }
    // The users of now cannot be learned.
    let (line, object) = ("ACL SETUSER audited-outdated on\r\n", "audited-outdated");
    let mut client = ready(&host, &mut cluster);
    assert_eq!(admin.ask(&mut cluster, &boss(9)), "+OK\n");
    client.send(line);
    assert!(client.step(&mut cluster));
    assert_eq!(outcomes(object), ["permitted"]);
    client.answer(Err(Refusal::Unavailable));
    assert_eq!(outcomes(object), ["permitted", "refused"]);
}
