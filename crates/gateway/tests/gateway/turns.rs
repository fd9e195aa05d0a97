//! What one client may take of the node's loop, and of its connections.

use crate::common::request;
use crate::socket::{answer_all, connect, expect, info, run, until, until_blocked};
use ionian_gateway::Limits;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// A reader that is as fast as the gateway leaves no moment in which its socket is full.
#[test]
fn other_clients_are_served_during_a_long_pipeline_of_the_gateways_own_commands() {
    const COMMANDS: usize = 1500;
    run(Limits::default(), answer_all(), |address| {
        let (mut reader, mut other) = (connect(address), connect(address));
        let mut writer = reader.try_clone().expect("another handle");
        let read = Arc::new(AtomicUsize::new(0));
        let sending = std::thread::spawn(move || {
            let pipeline = request(&[b"COMMAND"]).repeat(COMMANDS);
            writer.write_all(&pipeline).expect("it is read");
            writer
                .write_all(&request(&[b"ECHO", b"end"]))
                .expect("it is read");
        });
        let reading = std::thread::spawn({
            let read = read.clone();
            move || {
                let (mut buffer, mut last) = (vec![0; 1 << 20], Vec::new());
                while !last.ends_with(b"$3\r\nend\r\n") {
                    let count = reader.read(&mut buffer).expect("a reply");
                    assert!(count > 0, "it is not closed");
                    last.extend_from_slice(&buffer[..count]);
                    last.drain(..last.len().saturating_sub(100));
                    read.fetch_add(count, Ordering::Relaxed);
                }
            }
        });
        while read.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        other.write_all(&request(&[b"PING"])).expect("it is read");
        expect(&mut other, b"+PONG\r\n");
        let before = read.load(Ordering::Relaxed);
        sending.join().expect("it has sent all");
        reading.join().expect("it has read all");
        let all = read.load(Ordering::Relaxed);
        assert!(before < all / 2, "answered after {before} of {all} bytes");
    });
}

/// As with Redis's `timeout`, those are left alone that wait for a stream.
#[test]
fn a_client_that_rests_too_long_is_closed_and_counted() {
    let limits = Limits {
        idle: Duration::from_millis(200),
        ..Limits::default()
    };
    run(limits, answer_all(), |address| {
        let [mut silent, mut resting, mut waiting, mut busy] = [(); 4].map(|()| connect(address));
        resting.write_all(&request(&[b"PING"])).unwrap();
        expect(&mut resting, b"+PONG\r\n");
        waiting
            .write_all(&request(&[
                b"XREAD", b"BLOCK", b"0", b"STREAMS", b"s", b"$",
            ]))
            .unwrap();
        until_blocked(&mut busy, 1);
        until("the two that rest are closed", || {
            let closed = info(&mut busy, "stats", "idle_clients_closed");
            closed == 2
        });
        for stream in [&mut silent, &mut resting] {
            assert_eq!(stream.read(&mut [0; 10]).unwrap(), 0, "without a word");
        }
        busy.write_all(&request(&[b"XADD", b"s", b"0-*", b"e", b"v"]))
            .unwrap();
        expect(&mut busy, b"$3\r\n0-1\r\n");
        expect(&mut waiting, b"*1\r\n*2\r\n$1\r\ns\r\n");
    });
}
