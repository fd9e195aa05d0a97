//! What a collector receives.

use super::*;
use ionian_kernel::id::ClientId;
use ionian_kernel::time::Instant;
use ionian_kernel::trace::path::{Path, Seen};
use ionian_kernel::trace::{CommandId, Run};
use std::io::{Read, Write};
use std::net::TcpListener;

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
        path: Path::of(COMMAND, &events),
    }
}

/// Takes one request and answers with this status: the head of the request, and its body.
fn collector(status: &'static str) -> (String, std::thread::JoinHandle<(String, Vec<u8>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let serve = move || {
        let (mut stream, _) = listener.accept().expect("a caller");
        let mut input = Vec::new();
        loop {
            let mut some = [0; 4096];
            let read = stream.read(&mut some).expect("a request");
            assert!(read > 0, "the request ends early");
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
                stream.write_all(answer.as_bytes()).expect("it is read");
                return (head, input[end + 4..].to_vec());
            }
        }
    };
    (format!("http://{address}"), std::thread::spawn(serve))
}

#[test]
fn a_collector_gets_the_spans_of_all_nodes_as_one_tree() {
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let (address, served) = collector("200 OK");
    let to = endpoint(&address).expect("an endpoint");
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
    let to = endpoint(&address).expect("an endpoint");
    let error = waiting::block_on(send(&to, &[traced(None)])).expect_err("it is refused");
    let told = explain(&error);
    assert!(
        told.contains(&address) && told.contains("403 Forbidden: no such tenant"),
        "{told}"
    );
    drop(served.join());
    for wrong in ["", "127.0.0.1:4318", "https://a:1", "http://", "ftp://a"] {
        let error = endpoint(wrong).expect_err(wrong);
        assert!(error.contains("must be http://HOST:PORT"), "{error}");
    }
}
