//! Clients with TLS, and those that lack it or a certificate.

use crate::socket::{Node, answer_all, connect, execute, run_secured, until};
use ionian_gateway::{ClientTls, Gateway, Limits};
use ionian_kernel::client::Operation;
use ionian_kernel::level::Level;
use ionian_machines::kv::Compound;
use ionian_tls::rustls::pki_types::ServerName;
use ionian_tls::rustls::{ClientConfig, ClientConnection, StreamOwned};
use ionian_tls::{Authority, ClientAuth, Expected, Files, Hosts, Kind, Live, Name};
use std::fs::{self, Permissions};
use std::io::{Error, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

/// The certificates of a gateway and its clients, in a directory that is deleted with them.
struct Certificates {
    directory: PathBuf,
    authority: Authority,
    live: Arc<Live>,
}

impl Certificates {
    fn new(auth: ClientAuth) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("ionian-gateway-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let (authority, _) = Authority::create("shop", HOUR).unwrap();
        let live = open(
            &directory.join("node"),
            &authority,
            "ionian://shop/node/n0",
            auth,
        );
        Certificates {
            directory,
            authority,
            live,
        }
    }

    /// A client with a certificate of this name.
    fn client(&self, name: &str) -> Arc<ClientConfig> {
        let directory = self.directory.join("client");
        let live = open(&directory, &self.authority, name, ClientAuth::None);
        live.loaded().gateway_client.clone()
    }

    fn run(
        &self,
        permissive: bool,
        client: impl FnOnce(SocketAddr, Arc<ClientConfig>) + Send + 'static,
    ) {
        self.run_within(Limits::default(), permissive, client);
    }

    fn run_within(
        &self,
        limits: Limits,
        permissive: bool,
        client: impl FnOnce(SocketAddr, Arc<ClientConfig>) + Send + 'static,
    ) {
        let tls = ClientTls {
            live: self.live.clone(),
            permissive,
            certificates_log_in: false,
        };
        let config = self.client("ionian://shop/client/web");
        let client = move |address| client(address, config);
        run_secured(
            limits,
            answer_all(),
            Some(tls),
            |_, address| address,
            client,
        );
    }
}

/// Writes a certificate of this name and what belongs to it, and opens it.
fn open(directory: &Path, authority: &Authority, name: &str, auth: ClientAuth) -> Arc<Live> {
    fs::create_dir_all(directory).unwrap();
    let hosts = Hosts {
        names: vec!["localhost".into()],
        addresses: Vec::new(),
    };
    let name: Name = name.parse().unwrap();
    let issued = authority.issue(&name, &hosts, HOUR).unwrap();
    for (file, text) in [
        ("tls.crt", &*issued.certificate),
        ("tls.key", &*issued.key),
        ("ca.crt", authority.certificate()),
    ] {
        let path = directory.join(file);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    }
    let expected = Expected::any();
    Arc::new(Live::open(Files::within(directory), expected, auth).unwrap())
}

impl Drop for Certificates {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn secured(
    address: SocketAddr,
    config: Arc<ClientConfig>,
) -> StreamOwned<ClientConnection, TcpStream> {
    let host = ServerName::try_from("localhost").unwrap();
    StreamOwned::new(
        ClientConnection::new(config, host).unwrap(),
        connect(address),
    )
}

fn expect(stream: &mut impl Read, expected: &[u8]) {
    let mut found = vec![0; expected.len()];
    stream.read_exact(&mut found).unwrap();
    assert!(
        found == expected,
        "{:?}",
        String::from_utf8_lossy(&found[..found.len().min(99)])
    );
}

/// Values that fill several records and more than the socket's buffers, a pipeline, and an end that
/// the client can tell from a cut.
#[test]
fn client_with_tls_gets_every_reply_and_an_end_in_order() {
    Certificates::new(ClientAuth::None).run(false, |address, config| {
        let mut stream = secured(address, config);
        let value = vec![b'v'; 512 << 10];
        write!(stream, "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${}\r\n", value.len()).unwrap();
        stream.write_all(&value).unwrap();
        stream.write_all(b"\r\n").unwrap();
        expect(&mut stream, b"+OK\r\n");
        let pipeline = "GET k\r\nPING\r\n".repeat(8) + "QUIT\r\n";
        stream.write_all(pipeline.as_bytes()).unwrap();
        for _ in 0..8 {
            expect(&mut stream, format!("${}\r\n", value.len()).as_bytes());
            expect(&mut stream, &value);
            expect(&mut stream, b"\r\n+PONG\r\n");
        }
        expect(&mut stream, b"+OK\r\n");
        assert_eq!(stream.read(&mut [0]).unwrap(), 0, "a cut is an error");
    });
}

#[test]
fn client_without_tls_is_served_only_where_that_is_permitted() {
    let certificates = Certificates::new(ClientAuth::None);
    certificates.run(true, |address, config| {
        let (mut plain, mut tls) = (connect(address), secured(address, config));
        plain.write_all(b"PING\r\n").unwrap();
        expect(&mut plain, b"+PONG\r\n");
        tls.write_all(b"PING\r\n").unwrap();
        expect(&mut tls, b"+PONG\r\n");
    });
    certificates.run(false, |address, config| {
        let mut plain = connect(address);
        // More than the gateway reads of it, and it can read the error all the same.
        plain.write_all(&b"PING\r\n".repeat(2000)).unwrap();
        let mut answer = String::new();
        plain.read_to_string(&mut answer).unwrap();
        let reason = "-ERR Protocol error: this port accepts only TLS connections\r\n";
        assert_eq!(answer, reason);
        let mut tls = secured(address, config);
        assert_eq!(stat(&mut tls, "protocol_errors"), 1);
        assert_eq!(stat(&mut tls, "tls_handshakes_failed"), 0);
    });
}

/// A number of INFO.
fn stat(stream: &mut (impl Read + Write), field: &str) -> u64 {
    stream.write_all(b"INFO stats\r\n").unwrap();
    let mut info = Vec::new();
    while !info.ends_with(b"\r\n\r\n") {
        let mut piece = [0; 4096];
        let len = stream.read(&mut piece).unwrap();
        assert!(len > 0, "the whole answer");
        info.extend_from_slice(&piece[..len]);
    }
    let info = String::from_utf8(info).unwrap();
    let value = |line: &str| line.strip_prefix(field)?.strip_prefix(':')?.parse().ok();
    info.lines().find_map(value).expect("a number")
}

/// Its client waits for an answer, and closes the connection for one that is not of TLS.
#[test]
fn client_with_tls_is_refused_at_once_where_there_is_none() {
    let certificates = Certificates::new(ClientAuth::None);
    let config = certificates.client("ionian://shop/client/web");
    run_secured(
        Limits::default(),
        answer_all(),
        None,
        |_, address| address,
        move |address| {
            let error = secured(address, config).write_all(b"PING\r\n");
            let error = error.unwrap_err().to_string();
            assert!(error.contains("InvalidContentType"), "{error}");
            let mut plain = connect(address);
            assert_eq!(stat(&mut plain, "protocol_errors"), 1);
            // As much of a handshake as tells it from a command, and a line of it.
            for begin in [&b"\x16"[..], b"\x16\x03\x01\n"] {
                let mut plain = connect(address);
                plain.write_all(begin).unwrap();
                let mut answer = String::new();
                plain.read_to_string(&mut answer).unwrap();
                let reason = "-ERR Protocol error: this port does not accept TLS connections\r\n";
                assert_eq!(answer, reason);
            }
        },
    );
}

#[test]
fn handshakes_that_fail_are_counted_and_probes_are_not() {
    Certificates::new(ClientAuth::None).run(false, |address, config| {
        drop(connect(address));
        let mut broken = connect(address);
        broken.write_all(b"\x16garbage, and no handshake").unwrap();
        let _ = broken.read_to_end(&mut Vec::new());
        let mut tls = secured(address, config);
        assert_eq!(stat(&mut tls, "tls_handshakes_failed"), 1);
        assert_eq!(stat(&mut tls, "protocol_errors"), 0);
    });
}

/// The limit is short here, so that a client that is slow for other reasons may exceed it too, but
/// not each time.
#[test]
fn handshake_that_stops_half_way_is_closed_after_the_limit() {
    let limits = Limits {
        handshake: Duration::from_millis(50),
        ..Limits::default()
    };
    let certificates = Certificates::new(ClientAuth::None);
    certificates.run_within(limits, false, |address, config| {
        const ATTEMPTS: usize = 100;
        let in_time = (0..ATTEMPTS).find_map(|_| {
            let mut tls = secured(address, config.clone());
            let pong = tls
                .write_all(b"PING\r\n")
                .and_then(|()| tls.read_exact(&mut [0; 7]));
            let is_open = |error: &Error| error.kind() == ErrorKind::WouldBlock;
            assert!(!pong.as_ref().is_err_and(is_open), "it is closed");
            pong.is_ok().then_some(tls)
        });
        let mut tls = in_time.expect("a handshake within the limit");
        let before = stat(&mut tls, "tls_handshakes_failed");
        // A record of 512 bytes is announced, of which a few come.
        for begin in [
            &b"\x16"[..],
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        ] {
            let mut half = connect(address);
            half.write_all(begin).unwrap();
            let mut answer = Vec::new();
            half.read_to_end(&mut answer).unwrap();
            assert!(answer.is_empty(), "{answer:?}");
        }
        assert_eq!(stat(&mut tls, "tls_handshakes_failed"), before + 2);
    });
}

/// A monitor may look at nodes, a node be a peer, and another cluster's client use that cluster.
#[test]
fn client_with_the_wrong_certificate_is_refused() {
    let required = Certificates::new(ClientAuth::Required);
    let other = Certificates::new(ClientAuth::None);
    let clients = [
        (required.client("ionian://shop/client/web"), true),
        (required.client("ionian://shop/operator/eva"), true),
        (required.client("ionian://shop/monitor/m"), false),
        (required.client("ionian://shop/node/n0"), false),
        (required.client("ionian://stock/client/web"), false),
        (other.client("ionian://shop/client/web"), false),
    ];
    required.run(false, move |address, _| {
        for (place, (config, is_served)) in clients.into_iter().enumerate() {
            let mut client = secured(address, config);
            let answer = client
                .write_all(b"PING\r\n")
                .and_then(|()| client.read_exact(&mut [0]));
            assert_eq!(answer.is_ok(), is_served, "{place}");
        }
    });
    // The authorities of those who were served are known.
    let (_, seen) = required.live.admitted();
    let kinds: Vec<_> = seen.iter().map(|it| it.kind).collect();
    assert_eq!(kinds, [Kind::Client, Kind::Operator]);
}

/// A cluster with the user `web`, which has no password.
fn answer_with_users() -> Node {
    let setup = Compound::SetUser {
        name: "web".into(),
        rules: ["on", "resetpass", "+@all"].map(Into::into).to_vec(),
    };
    let mut setup = Some(setup.encode());
    Box::new(move |cluster, requests| {
        if let Some(setup) = setup.take() {
            let done = cluster.execute(Operation::Write, &setup).unwrap();
            assert_eq!(&done[..], b"+OK\r\n");
        }
        let requests = requests.iter();
        requests.map(|request| execute(cluster, request)).collect()
    })
}

fn run_with_users(
    certificates: &Certificates,
    certificates_log_in: bool,
    client: impl FnOnce(SocketAddr) + Send + 'static,
) {
    let tls = ClientTls {
        live: certificates.live.clone(),
        permissive: false,
        certificates_log_in,
    };
    let begin = |gateway: &Gateway, address| {
        gateway.set_level(Box::new(|| Level(18)));
        address
    };
    let (limits, node) = (Limits::default(), answer_with_users());
    run_secured(limits, node, Some(tls), begin, client);
}

/// Where that is switched on. The certificate of an operator names none.
#[test]
fn certificate_of_a_client_names_its_user() {
    let certificates = Certificates::new(ClientAuth::Required);
    for on in [true, false] {
        let clients = ["client/web", "operator/web", "client/none"]
            .map(|name| certificates.client(&format!("ionian://shop/{name}")));
        run_with_users(&certificates, on, move |address| {
            for (place, config) in clients.into_iter().enumerate() {
                let mut client = secured(address, config);
                client.write_all(b"ACL WHOAMI\r\n").unwrap();
                match on && place == 0 {
                    true => expect(&mut client, b"$3\r\nweb\r\n"),
                    false => expect(&mut client, b"$7\r\ndefault\r\n"),
                }
            }
        });
    }
}

/// One connects before the gateway knows any users, one when it does. Neither says anything.
#[test]
fn silent_client_is_the_user_that_its_certificate_names() {
    let certificates = Certificates::new(ClientAuth::Required);
    let [web, operator] = ["client/web", "operator/eva"]
        .map(|name| certificates.client(&format!("ionian://shop/{name}")));
    run_with_users(&certificates, true, move |address| {
        let mut silent = Vec::new();
        let mut operator = secured(address, operator);
        for count in 1..=2 {
            let mut client = secured(address, web.clone());
            client.flush().unwrap();
            silent.push(client);
            until("it is web", || {
                operator.write_all(b"CLIENT LIST\r\n").unwrap();
                let mut list = [0; 4096];
                let len = operator.read(&mut list).unwrap();
                let list = String::from_utf8_lossy(&list[..len]);
                list.matches(" user=web ").count() == count
            });
        }
    });
}

/// A node that drains waits for it: its side of the handshake may be over, and a command sent.
#[test]
fn client_in_the_handshake_is_counted() {
    let tls = ClientTls {
        live: Certificates::new(ClientAuth::None).live.clone(),
        permissive: false,
        certificates_log_in: false,
    };
    let (counted, is_counted) = std::sync::mpsc::channel();
    let begin = move |gateway: &Gateway, address| {
        let gateway = gateway.clone();
        tokio::task::spawn_local(async move {
            while gateway.connections() == 0 {
                tokio::task::yield_now().await;
            }
            counted.send(()).unwrap();
        });
        (address, is_counted)
    };
    run_secured(
        Limits::default(),
        answer_all(),
        Some(tls),
        begin,
        |(address, is_counted)| {
            let _silent = connect(address);
            is_counted.recv().unwrap();
        },
    );
}
