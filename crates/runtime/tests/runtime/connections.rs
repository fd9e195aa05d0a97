//! How a node treats callers, accepted and refused ones.

use crate::common;
use crate::common::{Running, bind, echo, eventually, layout, settings, start, start_with, status};
use crate::greeting::{Greeting, MAGIC};
use bytes::Bytes;
use ionian_kernel::client::{Operation, Request};
use ionian_kernel::id::{ClientId, Members};
use ionian_kernel::level::Level;
use ionian_kernel::wire::{Wire, encode_all};
use ionian_runtime::NodeSettings;
use ionian_runtime::status::PeerState;
use ionian_runtime::transport::frame::{FrameReader, MAX_FRAME_BYTES, encode_frame};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(common::DEADLINE)).unwrap();
    stream
}

/// Sends a hello and returns the connection, the verdict and the text.
fn ask(address: SocketAddr, greeting: &[u8]) -> (TcpStream, u8, String) {
    let mut stream = connect(address);
    stream.write_all(greeting).unwrap();
    let mut head = [0; 13];
    stream.read_exact(&mut head).unwrap();
    assert_eq!(head[..8], *MAGIC);
    assert_eq!(
        u16::from_le_bytes([head[8], head[9]]),
        Level::FIRST.number()
    );
    let mut text = vec![0; u16::from_le_bytes([head[11], head[12]]) as usize];
    stream.read_exact(&mut text).unwrap();
    (stream, head[10], String::from_utf8(text).unwrap())
}

/// As a peer does: accepts in turn after it is accepted.
fn greet(address: SocketAddr, greeting: &[u8]) -> (TcpStream, u8, String) {
    let (mut stream, verdict, text) = ask(address, greeting);
    if verdict == 0 {
        assert_eq!(text, "\u{2}\0\0\0n0\0", "its name, and no data directory");
        stream
            .write_all(
                &[
                    MAGIC.as_slice(),
                    &Level::FIRST.number().to_le_bytes(),
                    &[0, 0, 0],
                ]
                .concat(),
            )
            .unwrap();
    }
    (stream, verdict, text)
}

/// Waits until the node has closed the connection.
fn assert_closed(mut stream: TcpStream) {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => assert!(rest.is_empty(), "{rest:?}"),
        Err(error) => assert_eq!(
            error.kind(),
            std::io::ErrorKind::ConnectionReset,
            "it was left open"
        ),
    }
}

/// Node 0 of two, with an echo instance on each; the test plays node 1.
fn node_0() -> NodeSettings {
    let listener = bind();
    let peers = [
        listener.local_addr().unwrap(),
        "127.0.0.1:1".parse().unwrap(),
    ];
    settings(0, listener, &peers, &layout(&[0], &[0, 1]))
}

fn question() -> echo::In {
    echo::In::Ask {
        client: ClientId(0),
        token: 9,
        payload: Bytes::from_static(b"hi"),
    }
}

fn frame(message: &impl Wire) -> Vec<u8> {
    let mut frame = Vec::new();
    encode_frame(&mut frame, Members::from_bits(1), message).unwrap();
    frame
}

/// Checks that the node still serves peers.
fn assert_unharmed(node: &Running) {
    let asked = |node: &Running| {
        node.status()
            .roles
            .iter()
            .map(|role| role.metrics.get("asked").copied())
            .max()
    };
    let before = asked(node).flatten().unwrap();
    let (mut stream, verdict, _) = greet(node.address, &Greeting::default().bytes());
    assert_eq!(verdict, 0);
    stream
        .write_all(&frame(&common::Message::Echo(question())))
        .unwrap();
    eventually("the question arrives", || {
        asked(node).flatten() == Some(before + 1)
    });
}

#[test]
fn every_refused_handshake_contains_the_reason() {
    let node = start(node_0());
    let other = |change: fn(&mut Greeting)| {
        let mut greeting = Greeting::default();
        change(&mut greeting);
        greeting.bytes()
    };
    let speaks = format!(
        "this node speaks wire versions {} to {}, you speak version 99",
        Level::OLDEST.number(),
        Level::LATEST.number()
    );
    let cases: [(Vec<u8>, &str); 8] = [
        (other(|it| it.version = 99), &speaks),
        (
            other(|it| it.identity.cluster = "red".into()),
            "this is cluster 'blue', you are of cluster 'red'",
        ),
        (
            other(|it| it.identity.protocol = "tot".into()),
            "this cluster runs protocol 'toy', you run 'tot'",
        ),
        (
            other(|it| it.identity.founding = 0xd2),
            "this node's deployment has the digest 00000000000000d1, yours 00000000000000d2: the two nodes were \
             started from different deployment files",
        ),
        (
            other(|it| it.target = 1),
            "this is node 0 ('n0'), you look for node 1: an address is wrong",
        ),
        (other(|it| it.sender = 2), "the deployment has no node 2"),
        (
            other(|it| it.sender = 0),
            "you say that you are node 0, which is this node",
        ),
        (
            other(|it| it.sender = 65535),
            "the deployment has no node 65535",
        ),
    ];
    for (greeting, reason) in cases {
        let (stream, verdict, text) = greet(node.address, &greeting);
        assert_eq!((verdict, text.as_str()), (1, reason));
        assert_closed(stream);
        // As a warning, unless there were many of them in this second.
        eventually("it is logged", || node.logged(&[reason]) == 1);
    }
    assert_unharmed(&node);
}

#[test]
fn a_refusal_is_logged_once_and_the_node_connects_after_the_repair() {
    let (a, b) = (bind(), bind());
    let peers = [a.local_addr().unwrap(), b.local_addr().unwrap()];
    let layout = layout(&[0], &[1]);
    let mut wrong = settings(0, a, &peers, &layout);
    wrong.identity.cluster = "red".into();
    let reason = "this is cluster 'red', you are of cluster 'blue'";
    let wrong = start(wrong);
    let right = start(settings(1, b, &peers, &layout));
    eventually("the refusal shows", || {
        right.status().peers[0].state == PeerState::Refused
    });
    assert_eq!(right.status().peers[0].refusal.as_deref(), Some(reason));
    // Refused twice, logged once.
    eventually("it tries again", || wrong.logged(&["WARN", reason]) >= 2);
    assert_eq!(right.logged(&["ERROR", "node 0 at", reason]), 1);

    wrong.stop().unwrap();
    let again = std::net::TcpListener::bind(peers[0]).unwrap();
    let _node = start(settings(0, again, &peers, &layout));
    eventually("it is accepted", || {
        right.status().peers[0].state == PeerState::Connected
    });
    assert_eq!(right.status().peers[0].refusal, None);
}

#[test]
fn text_from_an_unknown_caller_cannot_forge_a_log_line() {
    let node = start(node_0());
    let mut greeting = Greeting::default();
    greeting.identity.cluster = "x\nERROR all is lost\x1b[2J".into();
    let (_, verdict, text) = greet(node.address, &greeting.bytes());
    assert_eq!((verdict, text.lines().count()), (1, 1));
    assert!(
        text.ends_with("of cluster 'x\u{fffd}ERROR all is lost\u{fffd}[2J'"),
        "{text}"
    );
}

#[test]
fn connections_of_other_protocols_are_dropped_and_harm_no_peer() {
    let node = start(node_0());
    let greeting = Greeting::default().bytes();
    for garbage in [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![0; 5000],
        vec![0xff; 5000],
        // Another purpose; a body that is too long; a body that is cut; a body with bytes after it.
        Greeting {
            purpose: 7,
            ..Greeting::default()
        }
        .bytes(),
        [&greeting[..11], &[0xff, 0xff]].concat(),
        [&greeting[..11], &[4, 0], &[9, 9, 9, 9]].concat(),
        [
            &greeting[..11],
            &[greeting[11] + 1, greeting[12]],
            &greeting[13..],
            b"x",
        ]
        .concat(),
    ] {
        let mut stream = connect(node.address);
        stream.write_all(&garbage).unwrap();
        assert_closed(stream);
    }
    for cut in 0..greeting.len() {
        let mut stream = connect(node.address);
        stream.write_all(&greeting[..cut]).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        assert_closed(stream);
    }
    assert_unharmed(&node);
    assert_eq!(
        node.logged(&["ERROR"]),
        0,
        "a caller of another protocol is not an error of this cluster"
    );
    let refused = 7 + greeting.len() - 1;
    assert_eq!(
        node.logged(&["which is not a peer"]),
        refused,
        "one sent no byte"
    );
    let warnings = node.logged(&["WARN", "which is not a peer"]);
    assert!((1..=refused).contains(&warnings), "{warnings}");
}

#[test]
fn silent_connections_are_closed_after_the_limit_or_when_too_many_wait() {
    let node = start(node_0());
    let mut silent: Vec<_> = (0..64).map(|_| connect(node.address)).collect();
    // Half a hello is treated in the same way.
    silent[1]
        .write_all(&Greeting::default().bytes()[..20])
        .unwrap();
    assert_eq!(
        node.status().name,
        "n0",
        "a node must answer queries while other callers wait"
    );
    // That query was the 65th connection, so the node closed the oldest.
    assert_closed(silent.remove(0));
    assert_unharmed(&node);
    // The others it closed for their silence. Only that has a line in the log.
    silent.into_iter().for_each(assert_closed);
    eventually("each silent connection is logged", || {
        node.logged(&["no answer within 5 s"]) >= 63
    });
    assert_eq!(node.logged(&["no answer within 5 s"]), 63);
}

#[test]
fn connection_of_a_peer_that_sends_garbage_is_closed_and_the_reason_logged() {
    let node = start(node_0());
    let huge = (MAX_FRAME_BYTES as u32 + 1).to_le_bytes().to_vec();
    let trailing = [encode_all(&common::Message::Echo(question())), vec![0]].concat();
    let framed = |message: &[u8]| frame(&common::Raw(message.to_vec()));
    let mut changed = frame(&common::Message::Echo(question()));
    *changed.last_mut().unwrap() ^= 1;
    let cases = [
        (changed, "the checksum of a frame of"),
        (huge, "a frame of 67108865 bytes is announced"),
        (vec![0xff; 4], "a frame of 2147483647 bytes is announced"),
        (vec![8, 0, 0, 0], "a frame of 8 bytes is announced, too few"),
        (framed(&[77]), "77 is no known Message"),
        (framed(&[1, 0, 0]), "the bytes end before the message does"),
        (framed(&trailing), "1 bytes are left over"),
        (
            framed(&[1, 0, 200]),
            "200 is out of range for a role instance",
        ),
    ];
    let count = cases.len() as u64;
    for (nonsense, reason) in cases {
        let (mut stream, verdict, _) = greet(node.address, &Greeting::default().bytes());
        assert_eq!(verdict, 0);
        stream.write_all(&nonsense).unwrap();
        assert_closed(stream);
        eventually("it is logged", || {
            node.logged(&["ERROR", "node 1", reason]) == 1
        });
    }
    // It is counted before it is logged.
    assert_eq!(node.status().peers[0].malformed, count);
    assert_unharmed(&node);
}

#[test]
fn unfinished_frame_holds_no_memory_and_message_to_no_instance_is_ignored() {
    let node = start(node_0());
    let (mut stream, ..) = greet(node.address, &Greeting::default().bytes());
    // Instances that do not exist, or are on another node.
    for members in [2, 4, 1 << 63] {
        let mut message = Vec::new();
        encode_frame(
            &mut message,
            Members::from_bits(members),
            &common::Message::Echo(question()),
        )
        .unwrap();
        stream.write_all(&message).unwrap();
    }
    eventually("they have arrived", || {
        node.status().peers[0].frames_in == 3
    });
    assert!(
        node.status()
            .roles
            .iter()
            .all(|role| role.metrics.get("asked").is_none_or(|asked| *asked == 0))
    );
    let pumps = node.status().event_loop.pumps;
    stream
        .write_all(&(MAX_FRAME_BYTES as u32).to_le_bytes())
        .unwrap();
    stream.write_all(&[0; 100]).unwrap();
    eventually("it has arrived", || node.status().peers[0].bytes_in > 100);
    assert_eq!(
        node.status().event_loop.pumps,
        pumps,
        "there is nothing to run for yet"
    );
    assert_eq!(node.status().peers[0].state, PeerState::Connected);
    drop(stream);
    eventually("its end is noticed", || {
        node.status().peers[0].state == PeerState::Disconnected
    });
    assert_unharmed(&node);
}

/// Submits `count` requests of `size` bytes to the lane at once; the test plays node 1.
fn asking(count: u64, size: usize) -> Running {
    start_with(node_0(), move |handle| {
        for token in 0..count {
            let payload = Bytes::from([b"@1".as_slice(), &vec![b'.'; size - 2]].concat());
            handle.submit(
                ClientId(0),
                Request {
                    token,
                    operation: Operation::Write,
                    payload,
                },
            );
        }
        Box::new(())
    })
}

/// Reads frames until `count` have arrived.
fn read_frames(stream: &mut TcpStream, count: u64) -> FrameReader {
    let mut reader = FrameReader::default();
    let (mut chunk, mut seen) = (vec![0; 1 << 20], 0);
    while seen < count {
        let got = stream.read(&mut chunk).unwrap();
        assert!(got > 0, "the connection ended after {seen} frames");
        reader.space().extend_from_slice(&chunk[..got]);
        while let Some(frame) = reader.next_frame().unwrap() {
            assert_eq!(frame.members, Members::from_bits(2));
            seen += 1;
        }
    }
    assert_eq!(seen, count);
    reader
}

#[test]
fn first_messages_are_held_for_a_disconnected_peer_up_to_the_limit() {
    let node = asking(100, 10_000);
    eventually("they were asked", || node.status().peers[0].dropped > 0);
    let peer = node.status().peers[0].clone();
    assert_eq!(
        (peer.frames_out, peer.dropped),
        (26, 74),
        "256 KiB are held"
    );
    let (mut stream, ..) = greet(node.address, &Greeting::default().bytes());
    assert_eq!(read_frames(&mut stream, 26).pending(), 0);
}

#[test]
fn backlog_of_a_peer_that_does_not_read_is_bounded_and_ends_in_whole_frames() {
    let listener_node = node_0();
    let (send, mut requests) = tokio::sync::mpsc::unbounded_channel();
    let node = start_with(listener_node, move |handle| {
        tokio::task::spawn_local(async move {
            while let Some(request) = requests.recv().await {
                handle.submit(ClientId(0), request);
            }
        });
        Box::new(())
    });
    let (mut stream, ..) = greet(node.address, &Greeting::default().bytes());
    eventually("it is connected", || {
        node.status().peers[0].state == PeerState::Connected
    });
    let payload = Bytes::from([b"@1".as_slice(), &vec![b'.'; 1 << 20]].concat());
    for token in 0..100 {
        send.send(Request {
            token,
            operation: Operation::Write,
            payload: payload.clone(),
        })
        .unwrap();
    }
    eventually("all were asked", || {
        let peer = &node.status().peers[0];
        peer.frames_out + peer.dropped == 100
    });
    let peer = node.status().peers[0].clone();
    assert!((24..60).contains(&peer.frames_out), "{peer:?}");
    assert!(
        peer.backlog_bytes <= 26 << 20 && peer.backlog_bytes > 20 << 20,
        "{peer:?}"
    );
    assert_eq!(read_frames(&mut stream, peer.frames_out).pending(), 0);
    eventually("all is written", || {
        node.status().peers[0].backlog_bytes == 0
    });
    assert_eq!(node.status().peers[0].state, PeerState::Connected);
}

#[test]
fn a_node_that_stops_writes_out_its_queued_messages() {
    let (send, mut requests) = tokio::sync::mpsc::unbounded_channel();
    let node = start_with(node_0(), move |handle| {
        tokio::task::spawn_local(async move {
            while let Some(request) = requests.recv().await {
                handle.submit(ClientId(0), request);
            }
        });
        Box::new(())
    });
    let (mut stream, ..) = greet(node.address, &Greeting::default().bytes());
    let payload = Bytes::from([b"@1".as_slice(), &vec![b'.'; 8 << 20]].concat());
    for token in 0..3 {
        send.send(Request {
            token,
            operation: Operation::Write,
            payload: payload.clone(),
        })
        .unwrap();
    }
    eventually("it cannot write all", || {
        node.status().peers[0].frames_out == 3
    });
    let reader = std::thread::spawn(move || {
        assert_eq!(read_frames(&mut stream, 3).pending(), 0);
        assert_closed(stream);
    });
    node.stop().unwrap();
    reader.join().unwrap();
}

/// Submits requests without end.
struct Restless(ionian_runtime::LaneHandle);

impl ionian_runtime::Application for Restless {
    fn on_reply(&mut self, lane: ClientId, reply: ionian_kernel::client::Reply) {
        let request = Request {
            token: reply.token + 1,
            operation: Operation::Write,
            payload: Bytes::from_static(b"@0"),
        };
        self.0.submit(lane, request);
    }
}

#[test]
fn an_application_that_always_submits_does_not_starve_connections() {
    let node = start_with(node_0(), |handle| {
        let mut application = Restless(handle);
        let reply = ionian_kernel::client::Reply {
            token: 0,
            command: None,
            outcome: Ok(Bytes::new()),
            seen: ionian_kernel::id::Slot::ZERO,
        };
        ionian_runtime::Application::on_reply(&mut application, ClientId(0), reply);
        Box::new(application)
    });
    eventually("it is busy", || node.status().event_loop.replies > 1000);
    let (mut stream, ..) = greet(node.address, &Greeting::default().bytes());
    stream
        .write_all(&frame(&common::Message::Echo(question())))
        .unwrap();
    eventually("the question arrives", || {
        node.status().peers[0].frames_in == 1
    });
    node.stop().unwrap();
}

#[test]
fn a_request_to_a_lane_on_another_node_is_refused() {
    struct Lost(std::sync::mpsc::Sender<ionian_kernel::client::Reply>);
    impl ionian_runtime::Application for Lost {
        fn on_reply(&mut self, _: ClientId, reply: ionian_kernel::client::Reply) {
            self.0.send(reply).unwrap();
        }
    }
    let (send, replies) = std::sync::mpsc::channel();
    let _node = start_with(node_0(), move |handle| {
        assert_eq!(handle.lanes(), [ClientId(0)]);
        for lane in [1, 63, 64, 255] {
            let token = u64::from(lane);
            handle.submit(
                ClientId(lane),
                Request {
                    token,
                    operation: Operation::Write,
                    payload: Bytes::new(),
                },
            );
        }
        Box::new(Lost(send))
    });
    for token in [1, 63, 64, 255] {
        let reply = replies.recv_timeout(common::DEADLINE).unwrap();
        assert_eq!(
            (reply.token, reply.outcome),
            (token, Err(ionian_kernel::client::Refusal::Unavailable))
        );
    }
}

#[test]
fn a_new_connection_of_a_peer_replaces_the_old_one() {
    let node = start(node_0());
    let (first, ..) = greet(node.address, &Greeting::default().bytes());
    eventually("the first stands", || {
        node.status().peers[0].connections == 1
    });
    let (mut second, ..) = greet(node.address, &Greeting::default().bytes());
    assert_closed(first);
    eventually("the second stands", || {
        node.status().peers[0].connections == 2
    });
    second
        .write_all(&frame(&common::Message::Echo(question())))
        .unwrap();
    // The answer goes to the lane on the same node, and nothing comes back here; but the message
    // was read.
    eventually("it is served", || node.status().peers[0].frames_in == 1);
    assert_eq!(node.status().peers[0].state, PeerState::Connected);
}

#[test]
fn status_is_one_json_document_with_all_fields() {
    let node = start(node_0());
    let mut greeting = MAGIC.to_vec();
    // A status query is answered to callers of any version.
    (99u16, (1u8, 0u16)).encode(&mut greeting);
    let (mut stream, verdict, name) = ask(node.address, &greeting);
    assert_eq!((verdict, name.as_str()), (0, "n0"));
    let mut document = String::new();
    stream.read_to_string(&mut document).unwrap();
    let value: serde_json::Value = serde_json::from_str(&document).unwrap();
    assert_eq!(value["cluster"], "blue");
    assert_eq!(value["pid"], std::process::id());
    assert_eq!(value["roles"][0]["role"], "client");
    assert_eq!(value["roles"][1]["metrics"]["asked"], 0);
    assert_eq!(value["peers"][0]["state"], "disconnected");
    assert!(
        value["process_cpu_us"].as_u64().unwrap() > 0 && value["loop_cpu_us"].as_u64().unwrap() > 0
    );
    assert_eq!(
        serde_json::from_value::<ionian_runtime::NodeStatus>(value)
            .unwrap()
            .wire_version,
        Level::FIRST.number()
    );

    let address = node.address;
    node.stop().unwrap();
    let text = status(address).unwrap_err().to_string();
    assert!(
        text.contains("refused") && !text.contains(&address.to_string()),
        "the caller names the node: {text}"
    );
    let other = bind();
    let address = other.local_addr().unwrap();
    let thread = std::thread::spawn(move || {
        other
            .accept()
            .unwrap()
            .0
            .write_all(b"HTTP/1.1 400 Bad Request")
            .unwrap()
    });
    let text = status(address).unwrap_err().to_string();
    thread.join().unwrap();
    assert!(
        text.contains("another program answers there") || text.contains("reset"),
        "{text}"
    );
}
