//! Nodes with certificates: who is admitted as a peer, who gets an answer, and how certificates are
//! exchanged.

use crate::common::{self, Running, start};
use crate::pki::{HOUR, Pair, Pki, block_on, is_connected, status_by};
use crate::support::{DEADLINE, Directory, eventually};
use ionian_kernel::id::Epoch;
use ionian_kernel::membership::Change;
use ionian_runtime::admin::change::probe;
use ionian_runtime::traces::{NodeNotes, Wanted};
use ionian_runtime::{
    Addressee, Contact, NodeTls, Record, TlsMode, query_notes, query_snapshot, query_status,
    request_change, request_drain,
};
use ionian_tls::{Authority, Hosts, Kind};
use nix::sys::stat::Mode;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, SystemTime};

#[test]
fn nodes_with_certificates_connect_and_answer_by_role() {
    let (pki, mut pair) = (Pki::new(), Pair::new());
    let zero = pair.start(0, pki.required(Kind::Node, "n0"));
    let one = pair.start(1, pki.required(Kind::Node, "n1"));
    let operator = pki.required(Kind::Operator, "eva");
    eventually("they are connected", || is_connected(&one, &operator));
    let status = status_by(&zero, &operator).unwrap();
    let tls = status.tls.unwrap();
    assert_eq!(
        (&*tls.mode, &*tls.certificate.subject),
        ("required", "ionian://blue/node/n0")
    );

    let monitor = pki.required(Kind::Monitor, "m");
    assert!(status_by(&zero, &monitor).is_ok());
    let contact = |tls: &Option<NodeTls>| Contact {
        tls: tls.clone(),
        ..Contact::from(zero.address)
    };
    let refused = block_on(query_snapshot(contact(&monitor), None))
        .unwrap_err()
        .to_string();
    let reason = "the certificate is of ionian://blue/monitor/m; expected ionian://blue/operator/*";
    assert!(refused.contains(reason), "{refused}");
    let change = Change::Abandon {
        epoch: Default::default(),
    };
    let response = block_on(request_change(contact(&monitor), &change, DEADLINE)).unwrap();
    assert!(response.to_string().contains(reason), "{response}");
    let addressee = Addressee {
        cluster: "blue".into(),
        node: "n0".into(),
        process: None,
    };
    let refused = block_on(request_drain(contact(&monitor), &addressee, true, DEADLINE));
    assert!(refused.unwrap_err().to_string().contains(reason));
    assert!(status_by(&zero, &operator).unwrap().drains.is_none());
    block_on(request_drain(
        contact(&operator),
        &addressee,
        true,
        DEADLINE,
    ))
    .unwrap();

    // Whose certificates it has admitted: also those whose request it refused for a right.
    let tls = status_by(&zero, &operator).unwrap().tls.unwrap();
    let admitted = tls.admitted.unwrap();
    let kinds: Vec<_> = admitted.issuers.iter().map(|it| &*it.kind).collect();
    assert_eq!(kinds, ["operator", "monitor"], "and no node");
    for seen in &admitted.issuers {
        assert_eq!(seen.issuer, tls.trusted[0].subject);
        assert!(
            seen.last >= admitted.since && admitted.since > 0,
            "{admitted:?}"
        );
    }

    // Another node answers at the address.
    let mistaken = Contact {
        name: Some("n1".into()),
        ..contact(&operator)
    };
    let refused = block_on(query_status(mistaken, DEADLINE))
        .unwrap_err()
        .to_string();
    let reason = "the certificate is of ionian://blue/node/n0; expected ionian://blue/node/n1";
    assert_eq!(refused, reason);
}

/// `ionian status --probe` uses the request for a change, and changes nothing.
#[test]
fn the_audit_log_tells_probes_from_changes() {
    let (pki, mut pair) = (Pki::new(), Pair::new());
    let zero = pair.start(0, pki.required(Kind::Node, "n0"));
    let request = |kind, owner: &str, change: &Change| {
        let contact = Contact {
            tls: pki.required(kind, owner),
            ..Contact::from(zero.address)
        };
        block_on(request_change(contact, change, DEADLINE)).unwrap()
    };
    // The node logs before it answers.
    let logged =
        |owner: &str, request: &str, outcome: &str| zero.logged(&["INFO", owner, request, outcome]);
    request(Kind::Operator, "eva", &probe());
    assert_eq!(logged("operator/eva", "\"probe\"", "\"permitted\""), 1);
    assert_eq!(logged("", "\"change\"", ""), 0);
    let change = Change::Abandon { epoch: Epoch(1) };
    request(Kind::Operator, "eva", &change);
    let abandons =
        |outcome: &str| logged("operator/eva", "\"change\" \"abandon epoch 1\"", outcome);
    assert_eq!(abandons("\"permitted\""), 1);
    // What became of it, with the reason.
    let why = "the membership of this cluster cannot change";
    assert_eq!(abandons(&format!("\"refused\" \"{why}\"")), 1);
    // What a caller would change is not read before it is known that it may.
    request(Kind::Monitor, "m", &probe());
    assert_eq!(logged("monitor/m", "\"change\"", "\"refused\""), 1);
    assert_eq!(logged("", "\"probe\"", ""), 1);
}

/// Traces show what clients do, and recording costs all nodes processor time.
#[test]
fn traces_are_read_by_operators_and_monitors_and_recorded_by_operators() {
    let (pki, mut pair) = (Pki::new(), Pair::new());
    let zero = pair.start(0, pki.required(Kind::Node, "n0"));
    let record = Record {
        one_in: 5,
        lasting: Duration::from_secs(60),
    };
    let ask = |kind, owner: &str, record| -> Result<NodeNotes, String> {
        let contact = Contact {
            tls: pki.required(kind, owner),
            ..Contact::from(zero.address)
        };
        let answer = block_on(query_notes(contact, record, &Wanted::default(), DEADLINE));
        answer.map_err(|error| error.to_string())
    };
    let one_in = |notes: NodeNotes| notes.recording.map(|recording| recording.one_in);
    let logged = |words: &[&str]| zero.logged(&[&["INFO", "\"record\""], words].concat());
    for (kind, owner) in [(Kind::Monitor, "m"), (Kind::Node, "n1")] {
        let refused = ask(kind, owner, Some(record)).unwrap_err();
        let reason = format!(
            "the request to record for traces is refused: the certificate is of \
             ionian://blue/{}/{owner}; expected ionian://blue/operator/*",
            kind.word()
        );
        assert_eq!(refused, reason);
        assert_eq!(
            logged(&[owner, "one in 5 commands for 60 s", "\"refused\""]),
            1
        );
    }
    assert_eq!(one_in(ask(Kind::Monitor, "m", None).unwrap()), None);
    assert_eq!(
        one_in(ask(Kind::Operator, "eva", Some(record)).unwrap()),
        Some(5)
    );
    let words = [
        "operator/eva",
        "one in 5 commands for 60 s",
        "\"permitted\"",
    ];
    assert_eq!(logged(&words), 1);
    assert_eq!(one_in(ask(Kind::Monitor, "m", None).unwrap()), Some(5));
    assert_eq!(logged(&[]), 3, "reading has no line");
    let refused = ask(Kind::Node, "n1", None).unwrap_err();
    let reason = "the request for traces is refused: the certificate is of ionian://blue/node/n1; \
                  expected ionian://blue/operator/*";
    assert!(refused.starts_with(reason), "{refused}");
}

#[test]
fn certificate_that_ends_soon_is_reported() {
    let (pki, mut pair) = (Pki::new(), Pair::new());
    let (fresh, minutes) = (pki.required(Kind::Node, "n0"), Duration::from_secs(60));
    let (names, from) = (
        ["ionian://blue/node/n1".to_owned()],
        SystemTime::now() - 50 * minutes,
    );
    let old = pki
        .authority
        .sign(Kind::Node, &names, &Hosts::default(), from, HOUR);
    pki.write("n1", &old.unwrap());
    let zero = pair.start(0, fresh);
    let one = pair.start(1, Some(pki.open("n1", TlsMode::Required)));
    let operator = pki.required(Kind::Operator, "eva");
    eventually("they are connected", || is_connected(&one, &operator));
    let words = ["the certificate ionian://blue/node/n1 ends in 0 hours"];
    eventually("it is logged", || one.logged(&words) == 1);
    assert_eq!(zero.logged(&["ends in"]), 0);
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap();
    let ending = |node: &Running| {
        let tls = status_by(node, &operator).unwrap().tls.unwrap();
        tls.near_end(now.as_secs() as i64)
            .map(|(what, _)| what)
            .collect::<Vec<_>>()
    };
    assert_eq!((ending(&zero), ending(&one)), (vec![], vec!["certificate"]));
}

#[test]
fn cluster_switches_from_plain_to_required_node_by_node() {
    let (pki, mut pair) = (Pki::new(), Pair::new());
    let tls = |pki: &Pki, node: u16, mode| Some(pki.tls(Kind::Node, &format!("n{node}"), mode));
    let operator = pki.required(Kind::Operator, "eva");
    let mut nodes = [pair.start(0, None), pair.start(1, None)];
    let mut modes = [None, None];
    for (node, mode) in [
        (0, TlsMode::Permissive),
        (1, TlsMode::Permissive),
        (0, TlsMode::Required),
        (1, TlsMode::Required),
    ] {
        let [zero, one] = nodes;
        let (stopped, other) = if node == 0 { (zero, one) } else { (one, zero) };
        stopped.stop().unwrap();
        let started = pair.start(node, tls(&pki, node, mode));
        nodes = if node == 0 {
            [started, other]
        } else {
            [other, started]
        };
        modes[usize::from(node)] = Some(mode);
        for (node, mode) in nodes.iter().zip(modes) {
            let by = if mode.is_some() {
                operator.clone()
            } else {
                None
            };
            eventually("it is connected", || is_connected(node, &by));
        }
    }
    // A caller without TLS is refused, with the reason.
    let refused = common::status(nodes[0].address).unwrap_err().to_string();
    assert_eq!(refused, "this node accepts only TLS connections");
}

#[test]
fn processes_of_the_own_user_administer_a_node_on_its_unix_socket() {
    let (pki, mut pair, data) = (Pki::new(), Pair::new(), Directory::new());
    let mut settings = pair.settings(0, pki.required(Kind::Node, "n0"));
    settings.data = Some(data.0.clone());
    let node = start(settings);
    let socket = data.0.join(ionian_runtime::node::unix_socket::SOCKET);
    let contact = || Contact {
        socket: Some(socket.clone()),
        ..Contact::from(node.address)
    };
    eventually("it answers", || {
        block_on(query_status(contact(), DEADLINE)).is_ok()
    });
    assert_eq!(
        fs::metadata(&socket).unwrap().permissions().mode() & 0o777,
        0o600
    );
}

/// Has a node read its files again, and waits until it has.
fn read_again(set: &NodeTls) {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(set.read_again());
}

/// After a new authority is trusted, the connection that the earlier trust admitted is made again,
/// and the node goes on with its new certificate.
#[test]
fn certificates_and_authorities_are_exchanged_without_a_restart() {
    let (mut pki, mut pair) = (Pki::new(), Pair::new());
    let sets = [0, 1].map(|node| pki.tls(Kind::Node, &format!("n{node}"), TlsMode::Required));
    let nodes = [
        pair.start(0, Some(sets[0].clone())),
        pair.start(1, Some(sets[1].clone())),
    ];
    let operator = pki.required(Kind::Operator, "eva");
    eventually("they are connected", || is_connected(&nodes[0], &operator));

    let next = Authority::create("blue", HOUR).unwrap().0;
    let both = format!("{}{}", pki.authority.certificate(), next.certificate());
    let trust = |pki: &Pki, bundle: &str| {
        for (name, set) in ["n0", "n1"].iter().zip(&sets) {
            fs::write(pki.path(name).join("ca.crt"), bundle).unwrap();
            read_again(set);
        }
    };
    let generation = |number| {
        sets.iter()
            .all(|set| set.live.loaded().generation == number)
    };
    trust(&pki, &both);
    assert!(generation(1), "both authorities are trusted");
    let connections = |tls: &Option<NodeTls>| {
        status_by(&nodes[0], tls).map_or(0, |status| status.peers[0].connections)
    };
    eventually("the connection is made again", || {
        connections(&operator) == 2 && is_connected(&nodes[0], &operator)
    });
    // New certificates of the new authority, and then the old one is dropped.
    pki.authority = next;
    for (name, set) in ["n0", "n1"].iter().zip(&sets) {
        pki.write(name, &pki.issue(Kind::Node, name));
        set.reload.notify_one();
    }
    eventually("only the new one is trusted", || generation(2));
    let refused = status_by(&nodes[0], &operator);
    assert!(
        refused.is_err(),
        "an operator of the old authority is refused"
    );
    let operator = pki.required(Kind::Operator, "max");
    eventually("they are connected", || {
        connections(&operator) >= 3 && is_connected(&nodes[1], &operator)
    });
}

/// The file of the certificate is a pipe, whose reader waits for a writer.
#[test]
fn files_that_are_not_read_in_time_hold_up_no_node_and_the_old_ones_stay() {
    let (pki, mut pair) = (Pki::new(), Pair::new());
    let (own, operator) = (
        pki.required(Kind::Node, "n0").unwrap(),
        pki.required(Kind::Operator, "eva"),
    );
    let zero = pair.start(0, Some(own.clone()));
    let file = pki.path("n0").join("tls.crt");
    let certificate = fs::read(&file).unwrap();
    fs::remove_file(&file).unwrap();
    nix::unistd::mkfifo(&file, Mode::S_IRWXU).unwrap();
    let one = pair.start(1, pki.required(Kind::Node, "n1"));
    block_on(async {
        let read = tokio::time::timeout(DEADLINE, own.read_again());
        read.await.expect("an operator who asks gets an answer");
    });
    let why = format!("{} and the files beside it were not read", file.display());
    eventually("the log says so", || zero.logged(&["E0910", &why]) == 1);
    eventually("it serves others", || is_connected(&one, &operator));
    let refusal = || status_by(&zero, &operator).unwrap().tls.unwrap().refusal;
    assert!(refusal().unwrap().starts_with(&why), "{:?}", refusal());
    fs::write(&file, certificate).unwrap();
    eventually("they are read", || refusal().is_none());
    // The next reader waits, too.
    own.reload.notify_one();
    zero.stop().unwrap();
    one.stop().unwrap();
}

/// An operator replaces the pipe by a file, whose reader does not wait.
#[test]
fn files_are_read_again_though_an_earlier_reader_of_others_still_waits() {
    let (pki, mut pair) = (Pki::new(), Pair::new());
    let (own, operator) = (
        pki.required(Kind::Node, "n0").unwrap(),
        pki.required(Kind::Operator, "eva"),
    );
    let zero = pair.start(0, Some(own.clone()));
    let (file, pipe) = (pki.path("n0").join("tls.crt"), pki.path("pipe"));
    let before = fs::read(&file).unwrap();
    let serial = || own.live.loaded().set.certificate().to_vec();
    let (first, reads) = (serial(), own.live.reads());
    fs::remove_file(&file).unwrap();
    nix::unistd::mkfifo(&file, Mode::S_IRWXU).unwrap();
    for _ in 0..3 {
        block_on(own.read_again());
    }
    assert_eq!(zero.logged(&["E0910"]), 1, "one reader waits for one file");
    assert_eq!(own.live.reads(), reads);
    fs::rename(&file, &pipe).unwrap();
    pki.write("n0", &pki.issue(Kind::Node, "n0"));
    block_on(own.read_again());
    let second = serial();
    assert_ne!(second, first, "the new certificate is in force");
    let refusal = || status_by(&zero, &operator).unwrap().tls.unwrap().refusal;
    assert_eq!(refusal(), None);
    // What the first reader gets now is out of date.
    fs::write(&pipe, before).unwrap();
    block_on(own.read_again());
    assert_eq!((serial(), refusal()), (second, None));
    zero.stop().unwrap();
}

/// The storage says that a file is missing, so that no reader goes to the pipe beside it.
#[test]
fn a_missing_file_beside_a_pipe_holds_up_no_later_read() {
    let (pki, mut pair) = (Pki::new(), Pair::new());
    let own = pki.required(Kind::Node, "n0").unwrap();
    let zero = pair.start(0, Some(own.clone()));
    let serial = || own.live.loaded().set.certificate().to_vec();
    let first = serial();
    let [file, key] = ["tls.crt", "tls.key"].map(|name| pki.path("n0").join(name));
    fs::remove_file(&file).unwrap();
    fs::remove_file(&key).unwrap();
    nix::unistd::mkfifo(&file, Mode::S_IRWXU).unwrap();
    for _ in 0..3 {
        block_on(own.read_again());
        let refusal = own.live.refusal().expect("it is refused");
        assert!(refusal.contains("tls.key: "), "{refusal}");
    }
    fs::remove_file(&file).unwrap();
    pki.write("n0", &pki.issue(Kind::Node, "n0"));
    block_on(own.read_again());
    assert_ne!(serial(), first, "the new certificate is in force");
    assert_eq!(own.live.refusal(), None);
    zero.stop().unwrap();
}
