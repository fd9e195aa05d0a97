//! Users of a cluster of real processes.

use crate::cluster::works;
use crate::resp::{Client, Reply};
use crate::secured::Secured;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};

const BY_CERTIFICATE: [&str; 4] = ["--client-tls", "required", "--client-user", "certificate"];

const ROUNDS: usize = 45;

/// How many writes each client has executed before the right is taken away.
const WRITES: usize = 20;

fn bulk(text: &str) -> Reply {
    Reply::Bulk(Some(text.into()))
}

fn ok(client: &mut Client, words: &[&str]) {
    let answer = client.call(words).unwrap();
    assert_eq!(answer, Reply::Status("OK".into()), "{words:?}");
}

/// A cluster whose only users are `admin` and those that it makes.
fn with_admin(flags: &[&str]) -> Secured {
    let cluster = Secured::start(flags, |_, _| Vec::new());
    let mut first = cluster.client(0, "admin");
    assert_eq!(first.call(&["ACL", "WHOAMI"]).unwrap(), bulk("default"));
    let rules = ["ACL", "SETUSER", "admin", "on", "resetpass", "~*", "&*"];
    ok(&mut first, &[&rules[..], &["+@all"]].concat());
    ok(&mut first, &["ACL", "SETUSER", "default", "off"]);
    cluster
}

fn make_web(admin: &mut Client) {
    let rules = ["on", "resetpass", "~web:*", "+@read", "+@write"];
    ok(
        admin,
        &[&["ACL", "SETUSER", "web"][..], &rules, &["+acl|whoami"]].concat(),
    );
}

/// A client that writes until it is refused. Returns the refusal.
fn writer(mut client: Client, key: String, has_written: Sender<()>) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut written = 0;
        loop {
            match client.call(&["INCR", &key]) {
                Ok(Reply::Integer(_)) => {
                    written += 1;
                    if written == WRITES {
                        has_written.send(()).unwrap();
                    }
                }
                // Of a busy machine.
                Ok(Reply::Error(why)) if why.starts_with("TRYAGAIN") => {}
                Ok(refusal) => return format!("{refusal:?}"),
                Err(closed) => return format!("closed: {closed}"),
            }
        }
    })
}

/// Each change by another node, while a client of each node writes. What is there when the change
/// is acknowledged is all that is ever there: no gateway executes what was sent before or after.
#[test]
fn nothing_is_executed_by_a_right_that_was_taken_away() {
    let cluster = with_admin(&BY_CERTIFICATE);
    let mut admins = [0, 1, 2].map(|node| cluster.client(node, "admin"));
    let changes: [(&[&str], &str); 3] = [
        (&["ACL", "SETUSER", "web", "-@write"], "NOPERM"),
        (&["ACL", "DELUSER", "web"], "closed"),
        (&["ACL", "SETUSER", "web", "off"], "closed"),
    ];
    for round in 0..ROUNDS {
        let (change, expected) = changes[round / 3 % 3];
        let admin = &mut admins[round % 3];
        make_web(admin);
        let (has_written, written) = channel();
        let keys = [0, 1, 2].map(|node| format!("web:{round}:{node}"));
        let writers = [0, 1, 2].map(|node| {
            let mut client = cluster.client(node, "web");
            assert_eq!(client.call(&["ACL", "WHOAMI"]).unwrap(), bulk("web"));
            writer(client, keys[node].clone(), has_written.clone())
        });
        drop(has_written);
        writers.iter().for_each(|_| written.recv().unwrap());
        let changed = admin.call(change).unwrap();
        assert!(!matches!(changed, Reply::Error(_)), "{changed:?}");
        let read = ["MGET", &keys[0], &keys[1], &keys[2]];
        let then = admin.call(&read).unwrap();
        for writer in writers {
            let refusal = writer.join().unwrap();
            assert!(refusal.contains(expected), "{change:?}: {refusal}");
        }
        assert_eq!(admin.call(&read).unwrap(), then, "{round}: {change:?}");
    }
}

/// Names are of certificates, and a certificate cannot be replaced by words.
#[test]
fn a_client_is_the_user_of_its_certificate_and_no_other_takes_that_user() {
    let cluster = with_admin(&BY_CERTIFICATE);
    let mut admin = cluster.client(0, "admin");
    make_web(&mut admin);
    for node in 0..3 {
        let mut web = cluster.client(node, "web");
        assert_eq!(web.call(&["ACL", "WHOAMI"]).unwrap(), bulk("web"));
        ok(&mut web, &["SET", "web:1", "v"]);
        let refused = web.call(&["SET", "other", "v"]).unwrap();
        assert!(format!("{refused:?}").contains("NOPERM"), "{refused:?}");
        // With another certificate of the cluster, or one of no user.
        for certificate in ["web", "none"] {
            let mut client = cluster.client(node, certificate);
            for password in ["", "any", "admin"] {
                let refused = client.call(&["AUTH", "admin", password]).unwrap();
                assert!(format!("{refused:?}").contains("WRONGPASS"), "{refused:?}");
            }
        }
    }
    // The program logs in as a client does.
    let (certificate, at) = (cluster.certificate("web"), cluster.gateway(2));
    let tls = certificate.to_str().unwrap();
    let whoami = ["exec", "--at", at, "--tls", tls, "ACL", "WHOAMI"];
    assert_eq!(works(&whoami), "web\n");
}

/// While the clients of a running cluster are switched to TLS: who has no certificate is `default`.
#[test]
fn where_tls_is_permissive_a_plain_client_is_the_user_default() {
    let flags = [&BY_CERTIFICATE[..], &["--tls-mode", "permissive"]].concat();
    let cluster = Secured::start(&flags, |_, _| Vec::new());
    let mut admin = cluster.client(0, "admin");
    make_web(&mut admin);
    let mut plain = Client::connect(cluster.port(1));
    assert_eq!(plain.call(&["ACL", "WHOAMI"]).unwrap(), bulk("default"));
    ok(&mut plain, &["SET", "other", "v"]);
    let mut web = cluster.client(1, "web");
    assert_eq!(web.call(&["ACL", "WHOAMI"]).unwrap(), bulk("web"));
    let refused = plain.call(&["AUTH", "web", "any"]).unwrap();
    assert!(format!("{refused:?}").contains("WRONGPASS"), "{refused:?}");
    // It closes the connections of `default` everywhere, so of plain clients.
    let rules = ["ACL", "SETUSER", "admin", "on", ">secret", "~*", "+@all"];
    ok(&mut admin, &rules);
    ok(&mut admin, &["ACL", "SETUSER", "default", "off"]);
    let mut plain = Client::connect(cluster.port(2));
    let refused = plain.call(&["GET", "other"]).unwrap();
    assert!(format!("{refused:?}").contains("NOAUTH"), "{refused:?}");
    ok(&mut plain, &["AUTH", "admin", "secret"]);
    assert_eq!(plain.get("other").as_deref(), Some("v"));
}
