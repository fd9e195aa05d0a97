//! XREAD with BLOCK: woken by what others append, timed, left, drained, refused.

use crate::common::request;
use crate::socket::{
    Node, answer_all, connect, execute, expect, info, run, run_after, until_blocked,
};
use ionian_gateway::{Gateway, Limits};
use ionian_kernel::client::{Operation, ReadLevel, Refusal, Reply};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The reply with one entry of one stream.
fn entry(key: &str, id: &str, value: &str) -> Vec<u8> {
    let (k, i, v) = (key.len(), id.len(), value.len());
    format!(
        "*1\r\n*2\r\n${k}\r\n{key}\r\n*1\r\n*2\r\n${i}\r\n{id}\r\n*2\r\n$1\r\ne\r\n${v}\r\n{value}\r\n"
    )
    .into_bytes()
}

fn send(stream: &mut TcpStream, line: &str) {
    let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    stream.write_all(&request(&words)).unwrap();
}

fn add(stream: &mut TcpStream, key: &str, value: &str, id: &str) {
    send(stream, &format!("XADD {key} 0-* e {value}"));
    expect(stream, format!("${}\r\n{id}\r\n", id.len()).as_bytes());
}

#[test]
fn a_client_waits_until_another_appends() {
    run(Limits::default(), answer_all(), |address| {
        let (mut reader, mut writer) = (connect(address), connect(address));
        send(&mut reader, "XREAD BLOCK 0 STREAMS log other $ $");
        // Commands behind it wait, too, be they the gateway's own or not.
        send(&mut reader, "XLEN log");
        send(&mut reader, "PING");
        until_blocked(&mut writer, 1);
        add(&mut writer, "log", "one", "0-1");
        let expected = [&entry("log", "0-1", "one")[..], b":1\r\n+PONG\r\n"].concat();
        expect(&mut reader, &expected);
        until_blocked(&mut writer, 0);
    });
}

#[test]
fn subscribers_see_each_entry_once_and_in_order() {
    const ENTRIES: usize = 200;
    run(Limits::default(), answer_all(), |address| {
        let subscribe = move || {
            let mut reader = connect(address);
            for i in 0..ENTRIES {
                send(
                    &mut reader,
                    &format!("XREAD COUNT 1 BLOCK 20000 STREAMS log 0-{i}"),
                );
                let id = format!("0-{}", i + 1);
                expect(&mut reader, &entry("log", &id, &i.to_string()));
            }
        };
        let readers = [0; 3].map(|_| std::thread::spawn(subscribe));
        let mut writer = connect(address);
        for i in 0..ENTRIES {
            add(&mut writer, "log", &i.to_string(), &format!("0-{}", i + 1));
        }
        for reader in readers {
            reader.join().expect("it saw all of them");
        }
    });
}

#[test]
fn a_client_that_has_waited_long_enough_gets_null() {
    run(Limits::default(), answer_all(), |address| {
        let mut client = connect(address);
        send(&mut client, "XREAD BLOCK 1 STREAMS log 0");
        expect(&mut client, b"*-1\r\n");
        client.write_all(b"HELLO 3\r\n").unwrap();
        let mut hello = [0; 4096];
        assert!(client.read(&mut hello).unwrap() > 0);
        send(&mut client, "XREAD BLOCK 30 STREAMS log 0");
        expect(&mut client, b"_\r\n");
        // What is there is answered at once, with a map.
        add(&mut client, "log", "one", "0-1");
        send(&mut client, "XREAD BLOCK 0 STREAMS log 0");
        let array = entry("log", "0-1", "one");
        expect(&mut client, &[b"%1\r\n", &array[8..]].concat());
    });
}

#[test]
fn errors_and_transactions_do_not_wait() {
    let limits = Limits {
        compound_commands: 3,
        ..Limits::default()
    };
    run(limits, answer_all(), |address| {
        let mut client = connect(address);
        for (line, reply) in [
            ("SET string v", "+OK\r\n"),
            (
                "XREAD BLOCK 0 STREAMS string 0",
                "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n",
            ),
            ("XREAD BLOCK -1 STREAMS s 0", "-ERR timeout is negative\r\n"),
            (
                "XREAD BLOCK 0 STREAMS s t u v 0 0 0 0",
                "-ERR XREAD with BLOCK reads at most 3 streams\r\n",
            ),
            ("MULTI", "+OK\r\n"),
            ("XREAD BLOCK 0 STREAMS s $", "+QUEUED\r\n"),
            ("EXEC", "*1\r\n*-1\r\n"),
        ] {
            send(&mut client, line);
            expect(&mut client, reply.as_bytes());
        }
    });
}

/// Also if a command of its own waits behind it, so that the gateway does not read.
#[test]
fn a_client_that_leaves_does_not_wait_any_more() {
    run(Limits::default(), answer_all(), |address| {
        let mut watcher = connect(address);
        for behind in ["", "PING\r\nGET k\r\n"] {
            let mut client = connect(address);
            send(&mut client, "XREAD BLOCK 0 STREAMS log 0");
            client.write_all(behind.as_bytes()).unwrap();
            until_blocked(&mut watcher, 1);
            drop(client);
            until_blocked(&mut watcher, 0);
        }
    });
}

/// A drain: its clients get null, as if their time were over, and leave.
#[test]
fn a_client_that_waits_leaves_a_gateway_that_drains() {
    let begin = |gateway: &Gateway, address| {
        let mut client = connect(address);
        send(&mut client, "XREAD BLOCK 0 STREAMS log 0");
        gateway.drain(true);
        client
    };
    run_after(Limits::default(), answer_all(), begin, |mut client| {
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "*-1\r\n");
    });
}

/// What a client gets whose question is refused, and what the one that wakes all is worth.
#[test]
fn a_refusal_is_answered_and_a_refused_wake_up_is_repeated() {
    let mut wake_ups = 0;
    let node: Node = Box::new(move |cluster, requests| {
        let answer = |request: &ionian_kernel::client::Request| {
            let is_wake_up = request.operation == Operation::Read(ReadLevel::Sequential);
            wake_ups += usize::from(is_wake_up);
            match is_wake_up && wake_ups < 4 {
                true => Reply::refused(request.token, Refusal::Unavailable),
                false => execute(cluster, request),
            }
        };
        requests.iter().map(answer).collect()
    });
    run(Limits::default(), node, |address| {
        let (mut reader, mut writer) = (connect(address), connect(address));
        send(&mut reader, "XREAD BLOCK 0 STREAMS log $");
        until_blocked(&mut writer, 1);
        add(&mut writer, "log", "one", "0-1");
        expect(&mut reader, &entry("log", "0-1", "one"));
    });
    let refuse: Node = Box::new(|_, requests| {
        let refusal = |request: &ionian_kernel::client::Request| {
            Reply::refused(request.token, Refusal::Unavailable)
        };
        requests.iter().map(refusal).collect()
    });
    run(Limits::default(), refuse, |address| {
        let mut client = connect(address);
        send(&mut client, "XREAD BLOCK 0 STREAMS log 0");
        let refused: &[u8] =
            b"-TRYAGAIN the cluster did not answer in time, the command was not executed\r\n";
        expect(&mut client, refused);
        assert_eq!(info_of(address), 0);
    });
}

fn info_of(address: SocketAddr) -> usize {
    info(&mut connect(address), "clients", "blocked_clients")
}

/// A question for many clients names each stream once.
#[test]
fn one_question_wakes_all_clients_of_a_stream() {
    const CLIENTS: usize = 50;
    let longest = Arc::new(AtomicUsize::new(0));
    let seen = longest.clone();
    let node: Node = Box::new(move |cluster, requests| {
        for request in &requests {
            if request.operation == Operation::Read(ReadLevel::Sequential) {
                seen.fetch_max(request.payload.len(), Ordering::Relaxed);
                // Larger ones are the node's own.
                assert!(request.token < 1 << 63);
            }
        }
        let replies = requests.iter().map(|request| execute(cluster, request));
        replies.collect()
    });
    run(Limits::default(), node, |address| {
        let mut writer = connect(address);
        let mut readers: Vec<_> = (0..CLIENTS).map(|_| connect(address)).collect();
        for reader in &mut readers {
            send(reader, "XREAD BLOCK 0 STREAMS a-stream $");
        }
        until_blocked(&mut writer, CLIENTS);
        add(&mut writer, "a-stream", "one", "0-1");
        for reader in &mut readers {
            expect(reader, &entry("a-stream", "0-1", "one"));
        }
    });
    let longest = longest.load(Ordering::Relaxed);
    assert!((10..20).contains(&longest), "{longest} bytes");
}

/// More streams than one question names: all of them are asked for in turn.
#[test]
fn streams_that_one_question_has_no_room_for_are_asked_for_later() {
    let limits = Limits {
        compound_commands: 3,
        ..Limits::default()
    };
    run(limits, answer_all(), |address| {
        let mut writer = connect(address);
        let mut readers: Vec<_> = (0..10).map(|_| connect(address)).collect();
        for (i, reader) in readers.iter_mut().enumerate() {
            send(reader, &format!("XREAD BLOCK 0 STREAMS s{i} $"));
        }
        until_blocked(&mut writer, 10);
        for (i, reader) in readers.iter_mut().enumerate() {
            add(&mut writer, &format!("s{i}"), "one", "0-1");
            expect(reader, &entry(&format!("s{i}"), "0-1", "one"));
        }
    });
}
