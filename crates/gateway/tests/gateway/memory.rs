//! The memory of all clients together: who is closed when it is exhausted.

use crate::common::request;
use crate::socket::{Node, answer_all, connect, execute, expect, info, run, until};
use ionian_gateway::Limits;
use ionian_kernel::client::Operation;
use std::io::{Read, Write};

#[test]
fn those_who_hold_most_are_closed_first_and_the_others_served() {
    let limits = Limits {
        memory_bytes: 4 << 20,
        ..Limits::default()
    };
    run(limits, answer_all(), |address| {
        let mut served = connect(address);
        let mut check = || {
            served.write_all(b"INCR n\r\n").unwrap();
            let mut reply = [0; 16];
            let len = served.read(&mut reply).unwrap();
            assert_eq!(
                reply[0],
                b':',
                "{:?}",
                String::from_utf8_lossy(&reply[..len])
            );
        };
        // All but the end of a command, 20 MB together.
        let head = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1000000\r\n";
        let mut streams: Vec<_> = (0..20).map(|_| connect(address)).collect();
        for stream in &mut streams {
            stream
                .write_all(&[&head[..], &[b'x'; 999_999]].concat())
                .expect("all is taken, kept or not");
            check();
        }
        let (mut told, mut kept) = (0, 0);
        for stream in &mut streams {
            stream.write_all(b"x\r\n").unwrap();
            let mut reply = [0; 200];
            let len = stream.read(&mut reply).expect("no reset");
            match String::from_utf8_lossy(&reply[..len]) {
                text if text
                    .starts_with("-ERR closed: the memory of this node's clients is exhausted") =>
                {
                    told += 1
                }
                text if text == "+OK\r\n" => kept += 1,
                text => panic!("{text}"),
            }
        }
        assert!(
            told + kept == 20 && kept > 0 && told >= 16,
            "{told} were closed, {kept} were served"
        );

        // Replies of 20 MB that are not read: what the sockets do not take is bounded, and others
        // are served.
        streams.clear();
        served
            .write_all(&request(&[b"SET", b"big", &vec![b'x'; 1 << 20]]))
            .unwrap();
        expect(&mut served, b"+OK\r\n");
        let deaf: Vec<_> = (0..20).map(|_| connect(address)).collect();
        for mut stream in &deaf {
            stream
                .write_all(&request(&[b"GET", b"big"]).repeat(8))
                .unwrap();
            served.write_all(b"PING\r\n").unwrap();
            expect(&mut served, b"+PONG\r\n");
        }
        let held = info(&mut served, "clients", "client_memory");
        assert!(held <= 4 << 20, "{held}");
    });
}

/// The gateway keeps the connection of a refused client open until the client has read the error.
#[test]
fn a_client_with_a_refused_length_does_not_affect_others() {
    run(Limits::default(), answer_all(), |address| {
        let mut before = connect(address);
        let mut refused: Vec<_> = (0..5).map(|_| connect(address)).collect();
        for (stream, length) in refused
            .iter_mut()
            .zip([30_000_000, 1_000_000_000_000u64].into_iter().cycle())
        {
            let head = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${length}\r\n");
            stream.write_all(head.as_bytes()).unwrap();
            let error = "invalid bulk length: a command has at most 8388608 bytes";
            expect(
                stream,
                format!("-ERR Protocol error: {error}\r\n").as_bytes(),
            );
        }
        for client in [&mut before, &mut connect(address)] {
            client.write_all(b"SET k 1\r\n").unwrap();
            expect(client, b"+OK\r\n");
        }
        let held = info(&mut before, "clients", "client_memory");
        assert!(held < 10_000, "{held}");
    });
}

/// Replies that arrive after the client has ended its side: the connection is to be closed, but it
/// can have more unread replies than any other.
#[test]
fn clients_that_leave_without_reading_are_closed_before_others() {
    let limits = Limits {
        memory_bytes: 16 << 20,
        ..Limits::default()
    };
    // Answers one read after each write.
    let mut reads = Vec::new();
    let node: Node = Box::new(move |cluster, requests| {
        let mut replies = Vec::new();
        for request in requests {
            if matches!(request.operation, Operation::Read(_)) {
                reads.push(request);
            } else {
                replies.push(execute(cluster, &request));
                replies.extend(reads.pop().map(|read| execute(cluster, &read)));
            }
        }
        replies
    });
    run(limits, node, |address| {
        let mut served = connect(address);
        served
            .write_all(&request(&[b"SET", b"big", &vec![b'x'; 1 << 20]]))
            .unwrap();
        expect(&mut served, b"+OK\r\n");
        let mut words = vec![&b"big"[..]; 8];
        words[0] = b"MGET";
        let left = [connect(address), connect(address)];
        for mut stream in &left {
            stream.write_all(&request(&words)).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
        }
        // Two turns of the gateway, which reads the ends of both connections.
        for _ in 0..2 {
            served.write_all(b"PING\r\n").unwrap();
            expect(&mut served, b"+PONG\r\n");
        }
        // Both replies, of 7 MB each.
        for n in 1..4 {
            served.write_all(b"INCR n\r\n").unwrap();
            expect(&mut served, format!(":{n}\r\n").as_bytes());
        }
        // It uses 3 MB, they use 7 MB each.
        served
            .write_all(&request(&[b"SET", b"k", &vec![b'x'; 3 << 20]]))
            .unwrap();
        expect(&mut served, b"+OK\r\n");
        until("one of them is closed", || {
            info(&mut served, "clients", "connected_clients") == 2
        });
    });
}
