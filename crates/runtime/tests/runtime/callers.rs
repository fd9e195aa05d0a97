//! Callers of a node that requires certificates, and lack the right one.

use crate::common;
use crate::greeting::Greeting;
use crate::pki::{HOUR, Pair, Pki, ask, ask_by, is_connected, status_by, verdict};
use crate::support::{DEADLINE, eventually};
use ionian_deployment::{Configuration, Deployment, PresetOptions};
use ionian_kernel::protocol::any;
use ionian_machines::register::Register;
use ionian_protocols::multipaxos::MultiPaxos;
use ionian_runtime::NodeSettings;
use ionian_tls::rustls::version::{TLS12, TLS13};
use ionian_tls::{Authority, Hosts, Kind};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::SystemTime;

/// The first bytes of requests for the status and for the membership, in any version.
const ASKS_STATUS: &[u8] = b"\x96ionian\n\x05\x00\x01\x00\x00";
const ASKS_MEMBERSHIP: &[u8] = b"\x96ionian\n\x05\x00\x03\x00\x00";

/// Those of a change of the membership, in version 17.
const ASKS_CHANGE: &[u8] = b"\x96ionian\n\x11\x00\x04\x00\x00";

#[test]
fn caller_without_the_right_certificate_gets_no_answer() {
    let (pki, mut pair) = (Pki::new(), Pair::new());
    let zero = pair.start(0, pki.required(Kind::Node, "n0"));
    let now = SystemTime::now();
    let none = Hosts::default();
    let signed = |uris: &[&str], from: SystemTime| {
        let uris: Vec<String> = uris.iter().map(|uri| uri.to_string()).collect();
        pki.authority
            .sign(Kind::Operator, &uris, &none, from, HOUR)
            .unwrap()
    };
    let own = "ionian://blue/operator/eva";
    let (status, membership) = (ASKS_STATUS, ASKS_MEMBERSHIP);
    assert_eq!(
        verdict(&ask(&pki, &zero, Some(&signed(&[own], now)), status).unwrap()).0,
        0
    );

    // A valid certificate of another owner: the caller receives both names.
    let told = [
        (
            pki.issue(Kind::Client, "web"),
            membership,
            "is of ionian://blue/client/web; expected",
        ),
        (
            pki.issue(Kind::Node, "n1"),
            ASKS_CHANGE,
            "is of ionian://blue/node/n1; expected",
        ),
        (
            signed(&["ionian://red/operator/eva"], now),
            status,
            "is of ionian://red/operator/eva; expected ionian://blue/operator/*",
        ),
        (signed(&[], now), status, "the certificate has no name"),
        (
            signed(&[own, "ionian://blue/node/n0"], now),
            status,
            "the certificate has 2 names",
        ),
    ];
    for (certificate, hello, reason) in &told {
        let answer = verdict(&ask(&pki, &zero, Some(certificate), hello).unwrap());
        assert!(answer.0 == 1 && answer.1.contains(reason), "{answer:?}");
        let words = ["refused a connection", reason];
        eventually("the node has logged it", || zero.logged(&words) > 0);
    }
    // No valid certificate: the node logs the name in it, and what it expected.
    let unknown = Authority::create("blue", HOUR).unwrap().0;
    let of_unknown = unknown
        .sign(Kind::Operator, &[own.into()], &none, now, HOUR)
        .unwrap();
    let unproven = [
        (of_unknown, "UnknownIssuer"),
        (signed(&[own], now - 2 * HOUR), "expired"),
        (signed(&[own], now + HOUR), "not valid yet"),
    ];
    for (certificate, reason) in &unproven {
        let answer = ask(&pki, &zero, Some(certificate), status);
        assert!(
            answer.as_ref().is_err_and(|e| e.contains("alert")),
            "{answer:?}"
        );
        let words = [
            reason,
            "not a peer: the certificate that says ionian://blue/operator/eva",
            "of ionian://blue/ that",
        ];
        eventually("the node has logged it", || zero.logged(&words) > 0);
    }
    let answer = ask(&pki, &zero, None, status);
    assert!(
        answer
            .as_ref()
            .is_err_and(|e| e.contains("CertificateRequired")),
        "{answer:?}"
    );
    let operator = pki.required(Kind::Operator, "eva");
    assert!(status_by(&zero, &operator).is_ok(), "the node is unharmed");
}

/// Each introduces itself as node 1, which is a member.
#[test]
fn peer_needs_a_valid_certificate_of_its_node() {
    let (pki, mut pair) = (Pki::new(), Pair::new());
    let zero = pair.start(0, pki.required(Kind::Node, "n0"));
    let (now, none) = (SystemTime::now(), Hosts::default());
    let own = "ionian://blue/node/n1";
    let sign = |by: &Authority, uris: &[&str], from| {
        let uris: Vec<String> = uris.iter().map(|uri| uri.to_string()).collect();
        by.sign(Kind::Node, &uris, &none, from, HOUR).unwrap()
    };
    let unknown = Authority::create("blue", HOUR).unwrap().0;
    let introduction = Greeting {
        name: "n1",
        ..Greeting::default()
    };
    let introduction = introduction.bytes();
    let of_others = [
        "ionian://blue/client/n1",
        "ionian://blue/monitor/n1",
        "ionian://blue/operator/n1",
        "ionian://blue/node/n0",
        "ionian://red/node/n1",
    ];
    for found in of_others {
        let certificate = sign(&pki.authority, &[found], now);
        let (code, reason) = verdict(&ask(&pki, &zero, Some(&certificate), &introduction).unwrap());
        let expected = format!(
            "the connection of a peer is refused: the certificate is of {found}; expected {own}"
        );
        assert_eq!((code, reason), (1, expected.clone()));
        let caller = [found, "\"peer\"", "\"refused\""];
        assert_eq!(zero.logged(&caller), 1, "it is in the audit log");
        eventually("it is logged", || {
            zero.logged(&["refused a connection", &expected]) == 1
        });
    }
    let without_name = [
        (
            sign(&pki.authority, &[], now),
            "the certificate has no name",
        ),
        (
            sign(&pki.authority, &[own, "ionian://blue/node/n2"], now),
            "the certificate has 2 names",
        ),
    ];
    for (certificate, reason) in &without_name {
        let answer = verdict(&ask(&pki, &zero, Some(certificate), &introduction).unwrap());
        assert!(answer.0 == 1 && answer.1.contains(reason), "{answer:?}");
        assert_eq!(zero.logged(&[reason, "\"peer\"", "\"refused\""]), 1);
    }
    let invalid = [
        (sign(&unknown, &[own], now), "UnknownIssuer"),
        (sign(&pki.authority, &[own], now - 2 * HOUR), "expired"),
        (sign(&pki.authority, &[own], now + HOUR), "not valid yet"),
    ];
    for (certificate, reason) in &invalid {
        let answer = ask(&pki, &zero, Some(certificate), &introduction);
        assert!(
            answer.as_ref().is_err_and(|e| e.contains("alert")),
            "{answer:?}"
        );
        let words = [
            *reason,
            "not a peer: the certificate that says ionian://blue/node/n1",
        ];
        eventually("it is logged", || zero.logged(&words) == 1);
    }
    let operator = pki.required(Kind::Operator, "eva");
    let status = status_by(&zero, &operator).unwrap();
    assert_eq!(status.peers[0].connections, 0);
    assert_eq!(status.tls.unwrap().refused_callers, 10);
    let _one = pair.start(1, pki.required(Kind::Node, "n1"));
    eventually("it is unharmed", || is_connected(&zero, &operator));
}

/// A node that a membership change has removed, or the thief of its key, says that it knows a later
/// membership. A member that says so is asked for it.
#[test]
fn removed_node_cannot_bring_another_membership() {
    const REFUSED: u8 = 1;
    const ASKED: u8 = 4;
    let (pki, listener) = (Pki::new(), common::bind());
    let mut founding = Deployment::preset("baseline", &PresetOptions::default()).unwrap();
    founding.cluster = "blue".into();
    founding.durability = ionian_deployment::Durability::Memory;
    founding.nodes[0].address = listener.local_addr().unwrap().to_string();
    let configuration = Configuration::founded(founding);
    let mut settings = NodeSettings::new(any::<MultiPaxos>(), configuration, "n0", None).unwrap();
    settings.listener = Some(listener);
    settings.tls = pki.required(Kind::Node, "n0");
    let identity = settings.identity.clone();
    let machine = || Box::new(Register::default()) as Box<_>;
    let zero = common::start_as::<MultiPaxos>(settings, machine, |_| Box::new(()));
    let claims = |pki: &Pki, name: &'static str| {
        let introduction = Greeting {
            identity: identity.clone(),
            epoch: 99,
            name,
            ..Greeting::default()
        };
        let certificate = pki.issue(Kind::Node, name);
        verdict(&ask(pki, &zero, Some(&certificate), &introduction.bytes()).unwrap())
    };
    let (code, reason) = claims(&pki, "n7");
    let known = "node 'n7' is not a member in epoch 0, the latest that this node knows";
    assert_eq!((code, &*reason), (REFUSED, known));
    eventually("it is logged", || {
        zero.logged(&["refused a connection", known]) == 1
    });
    let words = ["ionian://blue/node/n7", "\"peer\"", "\"refused\""];
    eventually("it is in the audit log", || zero.logged(&words) == 1);
    // It dials again and again: one line a minute, and the next one counts the others.
    for _ in 0..3 {
        assert_eq!(claims(&pki, "n7").0, REFUSED);
    }
    assert_eq!(claims(&pki, "n8").0, REFUSED);
    let next = ["ionian://blue/node/n8", "\"peer\" \"refused\" 3"];
    eventually("it is in the audit log", || zero.logged(&next) == 1);
    assert_eq!(zero.logged(&words), 1);
    assert_eq!(claims(&pki, "n1").0, ASKED);
    let status = status_by(&zero, &pki.required(Kind::Operator, "eva")).unwrap();
    assert_eq!((status.epoch, status.tls.unwrap().refused_callers), (0, 5));
}

/// This node accepts the caller, so it has refused nothing.
#[test]
fn caller_that_refuses_this_node_is_not_in_the_audit_log() {
    let (pki, mut pair) = (Pki::new(), Pair::new());
    let zero = pair.start(0, pki.required(Kind::Node, "n0"));
    let introduction = Greeting {
        name: "n1",
        ..Greeting::default()
    };
    let mut bytes = introduction.bytes();
    // Its answer to the answer of this node.
    let why = b"no data of node 0";
    bytes.extend_from_slice(b"\x96ionian\n\x05\x00\x01");
    bytes.extend_from_slice(&[why.len() as u8, 0]);
    bytes.extend_from_slice(why);
    let certificate = pki.issue(Kind::Node, "n1");
    assert_eq!(
        verdict(&ask(&pki, &zero, Some(&certificate), &bytes).unwrap()).0,
        0
    );
    eventually("it is logged", || {
        zero.logged(&["it refuses this node: no data of node 0"]) == 1
    });
    assert_eq!(zero.logged(&["\"peer\"", "\"refused\""]), 0);
}

#[test]
fn port_of_a_node_speaks_tls_1_3_alone() {
    let (pki, mut pair) = (Pki::new(), Pair::new());
    let zero = pair.start(0, pki.required(Kind::Node, "n0"));
    let operator = pki.issue(Kind::Operator, "eva");
    let by = |version| ask_by(&pki, &zero, Some(&operator), ASKS_STATUS, &[version]);
    let refused = by(&TLS12).unwrap_err();
    assert!(refused.contains("ProtocolVersion"), "{refused}");
    assert_eq!(verdict(&by(&TLS13).unwrap()).0, 0);
}

#[test]
fn caller_that_sends_half_a_client_hello_is_closed_after_the_limit() {
    let (pki, mut pair) = (Pki::new(), Pair::new());
    let zero = pair.start(0, pki.required(Kind::Node, "n0"));
    let mut half = TcpStream::connect(zero.address).unwrap();
    half.set_read_timeout(Some(DEADLINE)).unwrap();
    // A record of 512 bytes is announced.
    half.write_all(&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3])
        .unwrap();
    assert!(status_by(&zero, &pki.required(Kind::Operator, "eva")).is_ok());
    let mut answer = Vec::new();
    half.read_to_end(&mut answer).unwrap();
    assert!(answer.is_empty(), "{answer:?}");
    eventually("it is logged", || {
        zero.logged(&["no answer within 5 s"]) == 1
    });
}

#[test]
fn each_side_that_does_not_speak_the_others_language_gets_a_clear_end() {
    let (pki, mut pair) = (Pki::new(), Pair::new());
    let plain = pair.start(0, None);
    let operator = pki.required(Kind::Operator, "eva");
    let refused = status_by(&plain, &operator).unwrap_err().to_string();
    assert_eq!(refused, "it does not speak TLS, which is required here");
    eventually("the node has logged it", || {
        plain.logged(&["it speaks TLS, and TLS is off on this node"]) == 1
    });
    // Not even a node: the connection ends, and nothing is sent.
    let secured = pair.start(1, pki.required(Kind::Node, "n1"));
    let mut stream = TcpStream::connect(secured.address).unwrap();
    stream.write_all(b"PING\r\n").unwrap();
    let mut answer = Vec::new();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let _ = stream.read_to_end(&mut answer);
    assert!(answer.is_empty(), "{answer:?}");
    assert!(status_by(&secured, &operator).is_ok());
}

/// No two lines with these words are the same: a reason is logged once.
fn assert_once_each(node: &common::Running, words: &[&str]) {
    let log = node.log.lock().unwrap();
    let is_meant = |line: &&String| words.iter().all(|word| line.contains(word));
    let lines: Vec<_> = log.iter().filter(is_meant).collect();
    let different: BTreeSet<_> = lines.iter().collect();
    assert_eq!(different.len(), lines.len(), "{lines:?}");
}

#[test]
fn peer_with_the_certificate_of_another_is_refused_on_both_sides() {
    let (pki, mut pair) = (Pki::new(), Pair::new());
    let zero = pair.start(0, pki.required(Kind::Node, "n0"));
    let operator = pki.required(Kind::Operator, "eva");
    for (kind, name) in [(Kind::Node, "n2"), (Kind::Operator, "max")] {
        let one = pair.start(1, pki.required(kind, name));
        let word = kind.word();
        let reason = format!("ionian://blue/{word}/{name}; expected ionian://blue/node/n1");
        eventually("it is refused", || {
            one.logged(&["refuses this node", &reason]) > 0
        });
        eventually("it has refused", || {
            zero.logged(&["refused a connection", &reason]) > 0
        });
        assert!(!is_connected(&zero, &operator));
        assert_once_each(&one, &["refuses this node", &reason]);
        one.stop().unwrap();
    }
    let one = pair.start(1, pki.required(Kind::Node, "n1"));
    eventually("they are connected", || is_connected(&zero, &operator));
    // Now node 0 comes back with a certificate that is not its own.
    drop(zero);
    let _zero = pair.start(0, pki.required(Kind::Node, "n3"));
    let reason = "is of ionian://blue/node/n3; expected ionian://blue/node/";
    eventually("it is refused", || {
        one.logged(&["is refused by this node", reason]) > 0
    });
}
