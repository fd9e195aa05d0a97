//! Nodes with certificates: who is admitted as a peer, who gets an answer, and what happens to
//! every other caller.

use crate::common::{self, Running, layout, settings, start};
use crate::support::{DEADLINE, Directory, eventually};
use ionian_kernel::id::Epoch;
use ionian_kernel::membership::Change;
use ionian_runtime::admin::change::probe;
use ionian_runtime::status::PeerState;
use ionian_runtime::{
    Addressee, Contact, NodeSettings, NodeStatus, NodeTls, QueryError, TlsMode, query_snapshot,
    query_status, request_change, request_drain,
};
use ionian_tls::rustls::pki_types::pem::PemObject;
use ionian_tls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use ionian_tls::rustls::{ClientConfig, RootCertStore};
use ionian_tls::{Authority, ClientAuth, Expected, Files, Hosts, Issued, Kind, Live, Name};
use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio_rustls::TlsConnector;

const HOUR: Duration = Duration::from_secs(3600);

/// The first bytes of requests for the status and for the membership, in any version.
const ASKS_STATUS: &[u8] = b"\x96ionian\n\x05\x00\x01\x00\x00";
const ASKS_MEMBERSHIP: &[u8] = b"\x96ionian\n\x05\x00\x03\x00\x00";

/// Those of a change of the membership, in version 17.
const ASKS_CHANGE: &[u8] = b"\x96ionian\n\x11\x00\x04\x00\x00";

/// An authority, and the certificates of a test.
struct Pki {
    authority: Authority,
    directory: Directory,
}

impl Pki {
    fn new() -> Self {
        Pki {
            authority: Authority::create("blue", HOUR).unwrap().0,
            directory: Directory::new(),
        }
    }

    fn issue(&self, kind: Kind, name: &str) -> Issued {
        let name = Name {
            cluster: "blue".into(),
            kind,
            name: name.into(),
        };
        let hosts = Hosts {
            names: vec!["localhost".into()],
            addresses: Vec::new(),
        };
        self.authority.issue(&name, &hosts, HOUR).unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.0.join(name)
    }

    fn write(&self, name: &str, issued: &Issued) {
        let write = |file: &str, text: &str| {
            let path = self.path(name).join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        };
        write("tls.crt", &issued.certificate);
        write("tls.key", &issued.key);
        write("ca.crt", self.authority.certificate());
    }

    /// The certificate of an owner, in force.
    fn tls(&self, kind: Kind, name: &str, mode: TlsMode) -> NodeTls {
        self.write(name, &self.issue(kind, name));
        self.open(name, mode)
    }

    /// The certificate that was written last.
    fn open(&self, name: &str, mode: TlsMode) -> NodeTls {
        let expected = Expected::any();
        let files = Files::within(&self.path(name));
        let live = Live::open(files, expected, ClientAuth::None).unwrap();
        NodeTls::new(mode, Arc::new(live))
    }

    fn required(&self, kind: Kind, name: &str) -> Option<NodeTls> {
        Some(self.tls(kind, name, TlsMode::Required))
    }
}

/// Two nodes, of which node 1 dials node 0.
struct Pair {
    listeners: [Option<TcpListener>; 2],
    addresses: Vec<SocketAddr>,
}

impl Pair {
    fn new() -> Self {
        let listeners = [common::bind(), common::bind()];
        let addresses = listeners
            .iter()
            .map(|at| at.local_addr().unwrap())
            .collect();
        Pair {
            listeners: listeners.map(Some),
            addresses,
        }
    }

    fn settings(&mut self, node: u16, tls: Option<NodeTls>) -> NodeSettings {
        let address = self.addresses[usize::from(node)];
        let listener = self.listeners[usize::from(node)]
            .take()
            .unwrap_or_else(|| TcpListener::bind(address).unwrap());
        let mut settings = settings(node, listener, &self.addresses, &layout(&[0], &[1]));
        settings.tls = tls;
        settings
    }

    fn start(&mut self, node: u16, tls: Option<NodeTls>) -> Running {
        start(self.settings(node, tls))
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(future)
}

fn status_by(node: &Running, tls: &Option<NodeTls>) -> Result<NodeStatus, QueryError> {
    let contact = Contact {
        tls: tls.clone(),
        ..Contact::from(node.address)
    };
    block_on(query_status(contact, DEADLINE))
}

fn is_connected(node: &Running, tls: &Option<NodeTls>) -> bool {
    status_by(node, tls).is_ok_and(|status| status.peers[0].state == PeerState::Connected)
}

/// What a caller reads that opens TLS with a certificate and sends `hello`: the bytes of the
/// answer, or why there are none.
fn ask(pki: &Pki, node: &Running, own: Option<&Issued>, hello: &[u8]) -> Result<Vec<u8>, String> {
    let mut roots = RootCertStore::empty();
    let root = CertificateDer::from_pem_slice(pki.authority.certificate().as_bytes()).unwrap();
    roots.add(root).unwrap();
    let provider = Arc::new(ionian_tls::rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match own {
        None => config.with_no_client_auth(),
        Some(own) => {
            let chain = vec![CertificateDer::from_pem_slice(own.certificate.as_bytes()).unwrap()];
            let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).unwrap();
            config.with_client_auth_cert(chain, key).unwrap()
        }
    };
    let exchange = async {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let stream = tokio::net::TcpStream::connect(node.address).await?;
        let host = ServerName::try_from("localhost").unwrap();
        let mut stream = TlsConnector::from(Arc::new(config))
            .connect(host, stream)
            .await?;
        stream.write_all(hello).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    block_on(exchange).map_err(|error| error.to_string())
}

/// The verdict in an answer: 0 accepted, 1 refused.
fn verdict(answer: &[u8]) -> (u8, String) {
    (
        answer[10],
        String::from_utf8_lossy(&answer[13..]).into_owned(),
    )
}

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
    assert_eq!(logged("operator/eva", "\"change\"", "\"permitted\""), 1);
    // What a caller would change is not read before it is known that it may.
    request(Kind::Monitor, "m", &probe());
    assert_eq!(logged("monitor/m", "\"change\"", "\"refused\""), 1);
    assert_eq!(logged("", "\"probe\"", ""), 1);
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
            one.logged(&["refuses this node", &reason]) == 1
        });
        eventually("it has refused", || {
            zero.logged(&["refused a connection", &reason]) > 0
        });
        assert!(!is_connected(&zero, &operator));
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

/// After a new authority is trusted, the connection that the earlier trust admitted is made again,
/// and the node goes on with its new certificate.
/// Has a node read its files again, and waits until it has.
fn read_again(set: &NodeTls) {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(set.read_again());
}

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
