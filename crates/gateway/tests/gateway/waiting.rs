//! XREAD with BLOCK: its limits, its memory, and what refusals and half-closed clients get.

use crate::common::{Client, Cluster, client, host, request, text};
use crate::socket::{Node, answer_all, connect, execute, expect, run, until_blocked};
use ionian_gateway::Limits;
use ionian_kernel::client::{Operation, ReadLevel, Refusal, Reply};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

const SEQUENTIAL: Operation = Operation::Read(ReadLevel::Sequential);

/// XREAD of this many streams, after what they have now.
fn read_of(streams: usize) -> Vec<u8> {
    let names: Vec<String> = (0..streams).map(|i| format!("s{i}")).collect();
    let mut words: Vec<&[u8]> = vec![b"XREAD", b"BLOCK", b"0", b"STREAMS"];
    words.extend(names.iter().map(String::as_bytes));
    words.extend(std::iter::repeat_n(&b"$"[..], streams));
    request(&words)
}

#[test]
fn clients_of_one_gateway_wait_for_a_limited_number_of_streams() {
    let (host, mut cluster) = (host(Limits::default()), Cluster::default());
    let mut wait = || {
        let mut client = Client::new(&host);
        client.send(read_of(1024));
        let answer = text(&client.finish(&mut cluster));
        (client, answer)
    };
    let mut clients = Vec::new();
    for _ in 0..16 {
        let (client, answer) = wait();
        assert_eq!(answer, "");
        clients.push(client);
    }
    let refusal = "-ERR clients of this node would wait for 17408 streams, the limit is 16384\n";
    assert_eq!(wait().1, refusal);
    clients.pop();
    assert_eq!(wait().1, "");
}

#[test]
fn a_client_waits_with_a_command_of_limited_size() {
    let (mut client, mut cluster) = (client(), Cluster::default());
    let key = vec![b'k'; 70_000];
    client.send(request(&[b"XREAD", b"STREAMS", &key, b"0"]));
    assert_eq!(client.finish(&mut cluster), b"*-1\r\n");
    client.send(request(&[b"XREAD", b"BLOCK", b"0", b"STREAMS", &key, b"0"]));
    assert_eq!(
        text(&client.finish(&mut cluster)),
        "-ERR XREAD with BLOCK is larger than 65536 bytes\n"
    );
}

/// Otherwise each of these commands would retain the whole read in which it came.
#[test]
fn input_of_a_client_that_waits_is_one_read() {
    let (mut client, mut cluster) = (client(), Cluster::default());
    client.send(read_of(1));
    client.finish(&mut cluster);
    let behind = request(&[b"INCR", b"n"]);
    client.send(behind.repeat(5000));
    assert!(client.unsent() > 0 && !client.connection.wants_input());
    let held = client.connection.held();
    assert!((65_536..70_000).contains(&held), "{held} bytes");
    // What came with the command itself is copied, not retained.
    let mut client = self::client();
    client.send(
        [
            request(&[b"SET", b"k", &[b'v'; 50_000]]),
            read_of(1),
            behind,
        ]
        .concat(),
    );
    client.finish(&mut cluster);
    let held = client.connection.held();
    assert!((10..2_000).contains(&held), "{held} bytes");
}

#[test]
fn memory_of_a_client_that_waits_counts_each_stream() {
    let (mut client, mut cluster) = (client(), Cluster::default());
    client.ask(&mut cluster, "HELLO 3\nCLIENT TRACKING on");
    let before = client.connection.held();
    client.send(read_of(1000));
    client.finish(&mut cluster);
    let held = client.connection.held() - before;
    assert!(held > 1000 * 150, "{held} bytes");
}

#[test]
fn a_client_that_has_closed_its_side_gets_what_is_there() {
    let mut cluster = Cluster::default();
    client().ask(&mut cluster, "XADD s 0-* f v");
    let mut client = client();
    client.send("XREAD BLOCK 100 STREAMS s 0\r\nSET k v\r\n");
    client.connection.end_input();
    let expected = "*1\n*2\n$1\ns\n*1\n*2\n$3\n0-1\n*2\n$1\nf\n$1\nv\n+OK\n";
    assert_eq!(text(&client.finish(&mut cluster)), expected);
    assert!(client.connection.is_closed());
}

#[test]
fn a_client_that_has_closed_its_side_does_not_begin_to_wait() {
    let (mut client, mut cluster) = (client(), Cluster::default());
    client.send("XREAD BLOCK 100 STREAMS s 0\r\n");
    client.connection.end_input();
    assert!(!client.connection.is_closed());
    assert_eq!(client.finish(&mut cluster), b"");
    assert!(client.connection.is_closed());
}

#[test]
fn a_wait_that_was_not_answered_does_not_use_the_time_of_commands_behind_it() {
    let mut client = client();
    client.send("XREAD BLOCK 100 STREAMS s 0\r\nGET k\r\n");
    let before = Instant::now();
    client.answer(Err(Refusal::Unavailable));
    assert!(client.take().starts_with(b"-TRYAGAIN"));
    assert!(client.connection.in_flight_since() >= Some(before));
}

/// The gateway's own second question is refused, not the client's first one.
#[test]
fn a_client_goes_on_waiting_when_the_cluster_is_busy() {
    let mut reads = 0;
    let node: Node = Box::new(move |cluster, requests| {
        let answer = |request: &ionian_kernel::client::Request| {
            reads += usize::from(request.operation == Operation::Read(ReadLevel::Linearizable));
            match request.operation {
                Operation::Read(ReadLevel::Linearizable) if (2..5).contains(&reads) => {
                    Reply::refused(request.token, Refusal::Busy)
                }
                _ => execute(cluster, request),
            }
        };
        requests.iter().map(answer).collect()
    });
    run(Limits::default(), node, |address| {
        let (mut reader, mut writer) = (connect(address), connect(address));
        reader.write_all(b"XREAD BLOCK 0 STREAMS s $\r\n").unwrap();
        until_blocked(&mut writer, 1);
        writer.write_all(b"XADD s 0-* f v\r\n").unwrap();
        expect(&mut writer, b"$3\r\n0-1\r\n");
        let entry = b"*1\r\n*2\r\n$1\r\ns\r\n*1\r\n*2\r\n$3\r\n0-1\r\n*2\r\n$1\r\nf\r\n$1\r\nv\r\n";
        expect(&mut reader, entry);
    });
}

/// The pause of at most 50 ms is between two rounds, not between two of their questions: otherwise
/// there would be at most 50 questions here.
#[test]
fn questions_of_one_round_follow_each_other_at_once() {
    const STREAMS: usize = 200;
    let questions = Arc::new(AtomicUsize::new(0));
    let counted = questions.clone();
    let node: Node = Box::new(move |cluster, requests| {
        let asked = requests.iter().filter(|it| it.operation == SEQUENTIAL);
        counted.fetch_add(asked.count(), Ordering::Relaxed);
        requests.iter().map(|it| execute(cluster, it)).collect()
    });
    let limits = Limits {
        compound_commands: 2,
        ..Limits::default()
    };
    run(limits, node, |address| {
        let mut clients: Vec<_> = (0..STREAMS).map(|_| connect(address)).collect();
        for (i, client) in clients.iter_mut().enumerate() {
            let line = format!("XREAD BLOCK 2000 STREAMS s{i} $\r\n");
            client.write_all(line.as_bytes()).unwrap();
        }
        for client in &mut clients {
            expect(client, b"*-1\r\n");
        }
    });
    let questions = questions.load(Ordering::Relaxed);
    assert!(questions >= STREAMS / 2, "{questions} questions");
}

/// A replica that is behind the one that answers the gateway's questions.
#[test]
fn a_client_whose_replica_is_behind_is_asked_for_after_a_pause() {
    let reads = Arc::new(AtomicUsize::new(0));
    let counted = reads.clone();
    let node: Node = Box::new(move |cluster, requests| {
        let mut behind = Cluster::default();
        let answer = |request: &ionian_kernel::client::Request| match request.operation {
            Operation::Read(ReadLevel::Eventual) => {
                counted.fetch_add(1, Ordering::Relaxed);
                execute(&mut behind, request)
            }
            _ => execute(cluster, request),
        };
        requests.iter().map(answer).collect()
    });
    run(Limits::default(), node, |address| {
        let mut client = connect(address);
        client
            .write_all(b"XADD s 0-* f v\r\nIONIAN CONSISTENCY eventual\r\n")
            .unwrap();
        expect(&mut client, b"$3\r\n0-1\r\n+OK\r\n");
        client
            .write_all(b"XREAD BLOCK 500 STREAMS s 0\r\n")
            .unwrap();
        expect(&mut client, b"*-1\r\n");
    });
    let reads = reads.load(Ordering::Relaxed);
    assert!((3..30).contains(&reads), "{reads} reads");
}

#[test]
fn client_list_shows_that_a_client_waits() {
    run(Limits::default(), answer_all(), |address| {
        let (mut reader, mut watcher) = (connect(address), connect(address));
        reader.write_all(b"XREAD BLOCK 0 STREAMS s $\r\n").unwrap();
        until_blocked(&mut watcher, 1);
        watcher.write_all(b"CLIENT LIST\r\n").unwrap();
        let mut list = [0; 4096];
        let len = std::io::Read::read(&mut watcher, &mut list).unwrap();
        let list = String::from_utf8_lossy(&list[..len]).into_owned();
        let flags: Vec<_> = list.matches(" flags=b ").collect();
        assert_eq!(flags.len(), 1, "{list}");
    });
}
