//! What a collector receives.

use super::*;
use ionian_kernel::id::ClientId;
use ionian_kernel::time::Instant;
use ionian_kernel::trace::path::{self, Seen};
use ionian_kernel::trace::{CommandId, Run};
use ionian_runtime::traces::Delay;
use ionian_tls::{Authority, Hosts, Kind, Name};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};

const COMMAND: CommandId = CommandId {
    client: ClientId(1),
    sessionless: false,
    number: 7,
};

fn seen((node, role): (&str, &str), at: u64, sent: bool, message: &str) -> Seen {
    Seen {
        place: Place {
            node: node.to_owned(),
            role: role.to_owned(),
            index: 0,
        },
        at: Instant(at),
        sent: sent.then(|| vec![0]),
        message: message.to_owned(),
        stage: message.to_lowercase(),
        slot: None,
        commands: Some(Run {
            first: COMMAND,
            count: 1,
        }),
    }
}

/// A command that a server of another node has answered.
fn traced(parent: Option<&str>) -> Traced {
    let (lane, server) = (("a", "lane"), ("b", "server"));
    let events = [
        seen(lane, 20, true, "Ask"),
        seen(server, 30, false, "Ask"),
        seen(server, 40, true, "Answer"),
        seen(lane, 50, false, "Answer"),
    ];
    Traced {
        node: "a".to_owned(),
        kept: KeptCommand {
            name: "set".to_owned(),
            together: 1,
            command: Some(COMMAND.into()),
            parent: parent.map(str::to_owned),
            received_us: 10,
            submitted_us: 15,
            answered_us: 55,
            written_us: 60,
            ..KeptCommand::default()
        },
        path: path::Path::of(COMMAND, &events),
        delays: vec![Meanwhile {
            node: "b".to_owned(),
            us: 9,
            delay: Delay {
                what: "disk".to_owned(),
                began_us: 31,
                ended_us: 40,
                roles: Vec::new(),
            },
        }],
    }
}

/// The head of a request, and its body.
type Taken = (String, Vec<u8>);

/// Takes one request and answers with this status.
fn serve(mut stream: impl Read + Write, status: &str) -> std::io::Result<Taken> {
    let mut input = Vec::new();
    loop {
        let mut some = [0; 4096];
        let read = stream.read(&mut some)?;
        if read == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        input.extend_from_slice(&some[..read]);
        let end = input.windows(4).position(|it| it == b"\r\n\r\n");
        let Some(end) = end else { continue };
        let head = String::from_utf8_lossy(&input[..end]).to_lowercase();
        let length = head.split("content-length: ").nth(1).expect("a length");
        let length: usize = length.lines().next().expect("a line").parse().expect("one");
        if input.len() == end + 4 + length {
            let said = "no such tenant";
            let length = said.len();
            let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{said}");
            stream.write_all(answer.as_bytes())?;
            return Ok((head, input[end + 4..].to_vec()));
        }
    }
}

/// A collector that takes one request: its address.
fn collector(status: &'static str) -> (String, JoinHandle<Taken>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let serve = move || {
        let (stream, _) = listener.accept().expect("a caller");
        serve(stream, status).expect("a request")
    };
    (format!("http://{address}"), std::thread::spawn(serve))
}

/// One with TLS, and its authority's certificate.
fn secure_collector() -> (String, String, JoinHandle<std::io::Result<Taken>>) {
    let day = Duration::from_secs(86_400);
    let (authority, _) = Authority::create("shop", day).expect("an authority");
    let name = Name {
        cluster: "shop".to_owned(),
        kind: Kind::Node,
        name: "collector".to_owned(),
    };
    let hosts = Hosts {
        addresses: vec![Ipv4Addr::LOCALHOST.into()],
        ..Hosts::default()
    };
    let issued = authority.issue(&name, &hosts, day).expect("a certificate");
    let certificate = CertificateDer::from_pem_slice(issued.certificate.as_bytes());
    let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes());
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.expect("PEM")], key.expect("PEM"))
        .expect("they belong together");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let serve = move || {
        let (stream, _) = listener.accept().expect("a caller");
        let connection = ServerConnection::new(Arc::new(config)).expect("a configuration");
        let mut stream = StreamOwned::new(connection, stream);
        let taken = serve(&mut stream, "200 OK")?;
        stream.conn.send_close_notify();
        stream.flush()?;
        Ok(taken)
    };
    let served = std::thread::spawn(serve);
    (
        format!("https://{address}"),
        authority.certificate().to_owned(),
        served,
    )
}

/// The collector at this address.
fn at(address: &str, authorities: Option<&Path>) -> Result<Collector> {
    Collector::new(&endpoint(address).expect("an endpoint"), authorities)
}

#[test]
fn a_collector_with_tls_gets_them_if_it_is_trusted() {
    let directory = std::env::temp_dir().join(format!("ionian-otlp-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    let file = directory.join("ca.crt");
    let (address, authority, served) = secure_collector();
    std::fs::write(&file, &authority).expect("written");
    let to = at(&address, Some(&file)).expect("it is read");
    waiting::block_on(send(&to, &[traced(None)])).expect("it is taken");
    let (head, body) = served.join().expect("no panic").expect("served");
    assert!(head.starts_with("post /v1/traces http/1.1"), "{head}");
    ExportTraceServiceRequest::decode(&*body).expect("a request");
    // The authority of another one.
    let (address, _, served) = secure_collector();
    let to = at(&address, Some(&file)).expect("it is read");
    let error = waiting::block_on(send(&to, &[traced(None)])).expect_err("it is not trusted");
    let told = explain(&error);
    assert!(
        told.contains(&address) && told.contains("certificate"),
        "{told}"
    );
    assert!(
        served.join().expect("no panic").is_err(),
        "it has got something"
    );
    std::fs::write(&file, "nothing").expect("written");
    for (address, authorities, reason) in [
        ("https://a:1", None, "needs --otlp-ca FILE"),
        ("http://a:1", Some(&file), "allowed with https:// only"),
        ("https://a:1", Some(&file), "holds no certificate"),
        ("https://a:1", Some(&directory.join("none")), "none: "),
    ] {
        let refused = at(address, authorities.map(PathBuf::as_path)).err();
        let told = explain(&refused.expect(reason));
        assert!(told.contains(reason), "{told}");
    }
    std::fs::remove_dir_all(&directory).expect("removed");
}

#[test]
fn a_collector_gets_the_spans_of_all_nodes_as_one_tree() {
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let (address, served) = collector("200 OK");
    let to = at(&address, None).expect("a collector");
    waiting::block_on(send(&to, &[traced(Some(parent))])).expect("it is taken");
    let (head, body) = served.join().expect("served");
    assert!(head.starts_with("post /v1/traces http/1.1"), "{head}");
    assert!(
        head.contains("content-type: application/x-protobuf"),
        "{head}"
    );
    let request = ExportTraceServiceRequest::decode(&*body).expect("a request");
    let nodes = request.resource_spans.iter().map(|it| {
        let resource = it.resource.as_ref().expect("a resource");
        resource.attributes[1].value.clone()
    });
    let name = |name: &str| text("", name).value;
    assert_eq!(nodes.collect::<Vec<_>>(), [name("a"), name("b")]);
    let spans = request.resource_spans.iter().flat_map(|it| &it.scope_spans);
    let spans: Vec<&Span> = spans.flat_map(|it| &it.spans).collect();
    let id = |wanted: &str| {
        let mut named = spans.iter().filter(|span| span.name == wanted);
        named.next().expect(wanted).span_id.clone()
    };
    let remote = 0x00f0_67aa_0ba9_02b7_u64.to_be_bytes().to_vec();
    for (span, parent, times) in [
        ("SET", remote, (10, 60)),
        ("gateway.receive", id("SET"), (10, 15)),
        ("submit", id("SET"), (20, 20)),
        ("ask", id("submit"), (30, 40)),
        ("answer", id("ask"), (50, 50)),
    ] {
        let found = spans.iter().find(|it| it.name == span).expect(span);
        let found_times = (found.start_time_unix_nano, found.end_time_unix_nano);
        assert_eq!(found.parent_span_id, parent, "{span}");
        assert_eq!(found_times, (times.0 * 1000, times.1 * 1000), "{span}");
        assert_eq!(found.trace_id[..4], [0x4b, 0xf9, 0x2f, 0x35], "{span}");
    }
    assert_eq!(spans.len(), 5);
    let events: Vec<_> = spans.iter().flat_map(|span| &span.events).collect();
    let told = |event: &Event| (event.name.clone(), event.time_unix_nano);
    assert_eq!(events.len(), 1);
    assert_eq!(told(events[0]), ("waited: disk".to_owned(), 31_000));
}

#[test]
fn a_command_without_a_parent_has_a_trace_of_its_own() {
    let spans = request(&[traced(None)]).resource_spans;
    let root = &spans[0].scope_spans[0].spans[0];
    assert!(root.parent_span_id.is_empty());
    assert!(root.trace_id.iter().any(|byte| *byte != 0));
}

#[test]
fn a_collector_that_refuses_is_named_with_its_answer() {
    let (address, served) = collector("403 Forbidden");
    let to = at(&address, None).expect("a collector");
    let error = waiting::block_on(send(&to, &[traced(None)])).expect_err("it is refused");
    let told = explain(&error);
    assert!(
        told.contains(&address) && told.contains("403 Forbidden: no such tenant"),
        "{told}"
    );
    drop(served.join());
    for wrong in ["", "127.0.0.1:4318", "https://", "http://", "ftp://a"] {
        let error = endpoint(wrong).expect_err(wrong);
        assert!(
            error.contains("must be http://HOST:PORT or https://HOST:PORT"),
            "{error}"
        );
    }
}
