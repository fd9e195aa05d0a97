//! The gateway on loopback sockets, with a node's loop that answers as the test says.

use crate::common::{Cluster, request};
use bytes::Bytes;
use ionian_gateway::{ClientTls, Gateway, Limits};
use ionian_kernel::client::{Operation, Reply, Request};
use ionian_kernel::id::Slot;
use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::task::LocalSet;

/// How the node's loop treats requests; they come in the order of submission.
pub(crate) type Node = Box<dyn FnMut(&mut Cluster, Vec<Request>) -> Vec<Reply>>;

pub(crate) fn execute(cluster: &mut Cluster, request: &Request) -> Reply {
    Reply {
        token: request.token,
        command: None,
        seen: Slot::ZERO,
        outcome: cluster.execute(request.operation, &request.payload),
    }
}

pub(crate) fn answer_all() -> Node {
    Box::new(|cluster, requests| {
        requests
            .iter()
            .map(|request| execute(cluster, request))
            .collect()
    })
}

/// Runs `client` on a thread of its own against a gateway, until it returns.
pub(crate) fn run(limits: Limits, node: Node, client: impl FnOnce(SocketAddr) + Send + 'static) {
    run_after(limits, node, |_, address| address, client);
}

/// The same; `begin` is called before the gateway's tasks have run at all, and what it makes is
/// given to `client`.
pub(crate) fn run_after<T: Send + 'static>(
    limits: Limits,
    node: Node,
    begin: impl FnOnce(&Gateway, SocketAddr) -> T,
    client: impl FnOnce(T) + Send + 'static,
) {
    run_secured(limits, node, None, begin, client);
}

/// The same with TLS.
pub(crate) fn run_secured<T: Send + 'static>(
    limits: Limits,
    mut node: Node,
    tls: Option<ClientTls>,
    begin: impl FnOnce(&Gateway, SocketAddr) -> T,
    client: impl FnOnce(T) + Send + 'static,
) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    LocalSet::new().block_on(&runtime, async move {
        let queue = Rc::new(RefCell::new(Vec::new()));
        let wake = Rc::new(Notify::new());
        let submit = {
            let (queue, wake) = (queue.clone(), wake.clone());
            move |request| {
                queue.borrow_mut().push(request);
                wake.notify_one();
            }
        };
        let gateway = Gateway::new(limits, Box::new(|_| {}), Box::new(submit), tls);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        gateway.serve(listener);
        let node = tokio::task::spawn_local({
            let gateway = gateway.clone();
            async move {
                let mut cluster = Cluster::default();
                loop {
                    wake.notified().await;
                    let requests = queue.take();
                    for reply in node(&mut cluster, requests) {
                        gateway.on_reply(reply);
                    }
                    gateway.flush();
                }
            }
        });
        let begun = begin(&gateway, address);
        let client = tokio::task::spawn_blocking(move || client(begun));
        tokio::time::timeout(Duration::from_secs(60), client)
            .await
            .expect("it ends")
            .expect("it does not panic");
        // All clients are gone, which the gateway notices.
        while gateway.connections() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        node.abort();
    });
}

pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    stream
}

pub(crate) fn expect(stream: &mut TcpStream, expected: &[u8]) {
    let mut got = vec![0; expected.len()];
    stream.read_exact(&mut got).unwrap();
    assert_eq!(
        String::from_utf8_lossy(&got),
        String::from_utf8_lossy(expected)
    );
}

/// Waits until `condition` holds.
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(Instant::now() < limit, "not within 30 s: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A number that the gateway reports of its clients.
pub(crate) fn info(stream: &mut TcpStream, section: &str, field: &str) -> usize {
    stream
        .write_all(format!("INFO {section}\r\n").as_bytes())
        .unwrap();
    let mut info = [0; 4096];
    let len = stream.read(&mut info).unwrap();
    let info = String::from_utf8_lossy(&info[..len]).into_owned();
    let value = info
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let value = value.unwrap_or_else(|| panic!("no field {field}: {info}"));
    value
        .parse()
        .unwrap_or_else(|_| panic!("{field} is not a number: {info}"))
}

/// Waits until this many clients wait.
pub(crate) fn until_blocked(stream: &mut TcpStream, count: usize) {
    until("clients wait", || {
        info(stream, "clients", "blocked_clients") == count
    });
}

#[test]
fn clients_talk_to_the_cluster() {
    run(Limits::default(), answer_all(), |address| {
        let (mut a, mut b) = (connect(address), connect(address));
        for turn in 0..100 {
            a.write_all(&request(&[b"INCR", b"n"])).unwrap();
            expect(&mut a, format!(":{}\r\n", 2 * turn + 1).as_bytes());
            b.write_all(&request(&[b"INCR", b"n"])).unwrap();
            expect(&mut b, format!(":{}\r\n", 2 * turn + 2).as_bytes());
        }
        a.write_all(&[request(&[b"GET", b"n"]), b"PING\r\nQUIT\r\n".to_vec()].concat())
            .unwrap();
        expect(&mut a, b"$3\r\n200\r\n+PONG\r\n+OK\r\n");
        assert_eq!(a.read(&mut [0]).unwrap(), 0);
        // What was sent before the end of the input is answered.
        b.write_all(b"GET n\r\nINCR n\r\n").unwrap();
        b.shutdown(std::net::Shutdown::Write).unwrap();
        let mut rest = Vec::new();
        b.read_to_end(&mut rest).unwrap();
        assert_eq!(rest, b"$3\r\n200\r\n:201\r\n");
    });
}

/// Also one that sends nothing, and one that waits for the cluster.
#[test]
fn killed_clients_are_closed() {
    let node: Node = Box::new(|cluster, requests| {
        let mut replies = Vec::new();
        for request in requests {
            if !matches!(request.operation, Operation::Write) {
                replies.push(execute(cluster, &request));
            }
        }
        replies
    });
    run(Limits::default(), node, |address| {
        let [mut idle, mut waits, mut me] = [(); 3].map(|()| connect(address));
        idle.write_all(b"PING\r\n").unwrap();
        expect(&mut idle, b"+PONG\r\n");
        waits.write_all(b"PING\r\nINCR n\r\n").unwrap();
        expect(&mut waits, b"+PONG\r\n");
        me.write_all(b"CLIENT KILL TYPE normal\r\nGET n\r\n")
            .unwrap();
        expect(&mut me, b":2\r\n$-1\r\n");
        for stream in [&mut idle, &mut waits] {
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).unwrap_or_default();
            assert_eq!(rest, b"");
        }
        until("they are gone", || {
            info(&mut me, "clients", "connected_clients") == 1
        });
    });
}

#[test]
fn a_reader_slower_than_its_replies_gets_them_all() {
    let limit = 100_000;
    let limits = Limits {
        output_bytes_soft: limit,
        ..Limits::default()
    };
    run(limits, answer_all(), move |address| {
        let (mut watcher, mut stream) = (connect(address), connect(address));
        let value = vec![b'x'; 1_000_000];
        stream.write_all(&request(&[b"SET", b"k", &value])).unwrap();
        expect(&mut stream, b"+OK\r\n");
        let mut writer = stream.try_clone().unwrap();
        let commands = [request(&[b"GET", b"k"]), request(&[b"PING"])].concat();
        let writing =
            std::thread::spawn(move || (0..100).for_each(|_| writer.write_all(&commands).unwrap()));
        until("replies wait for the reader", || {
            info(&mut watcher, "clients", "client_memory") > limit
        });
        let expected = [&b"$1000000\r\n"[..], &value, b"\r\n+PONG\r\n"].concat();
        let mut got = vec![0; expected.len()];
        for _ in 0..100 {
            stream.read_exact(&mut got).unwrap();
            assert!(got == expected);
        }
        writing.join().unwrap();
    });
}

#[test]
fn there_is_a_limit_to_connections() {
    let limits = Limits {
        connections: 2,
        ..Limits::default()
    };
    run(limits, answer_all(), |address| {
        let mut streams = [connect(address), connect(address)];
        for stream in &mut streams {
            stream.write_all(b"PING\r\n").unwrap();
            expect(stream, b"+PONG\r\n");
        }
        // Also one that has already asked for something.
        for _ in 0..20 {
            let mut refused = connect(address);
            refused.write_all(b"HELLO 3\r\n").unwrap();
            let mut rest = Vec::new();
            refused.read_to_end(&mut rest).expect("no reset");
            assert_eq!(rest, b"-ERR max number of clients reached\r\n");
        }
    });
}

/// A node whose first request is answered together with the second one: late. It counts the
/// requests.
fn first_is_late(seen: Arc<AtomicUsize>) -> Node {
    let mut late = None;
    Box::new(move |cluster, requests| {
        let mut replies = Vec::new();
        for request in requests {
            if seen.fetch_add(1, Ordering::Relaxed) == 0 {
                let reply = execute(cluster, &request);
                late = Some(Reply {
                    outcome: Ok(Bytes::from_static(b"+LATE\r\n")),
                    ..reply
                });
            } else {
                replies.extend(late.clone());
                replies.push(execute(cluster, &request));
                // And once more, and for a connection that never was.
                replies.extend(late.clone());
                replies.push(Reply {
                    token: u64::MAX,
                    ..replies[0].clone()
                });
            }
        }
        replies
    })
}

#[test]
fn a_request_without_a_reply_is_given_up_and_its_late_reply_ignored() {
    let limits = Limits {
        deadline: Duration::from_millis(80),
        ..Limits::default()
    };
    run(limits, first_is_late(Arc::default()), |address| {
        let mut stream = connect(address);
        stream.write_all(b"SET a 1\r\nGET a\r\n").unwrap();
        let error = b"-TRYAGAIN the cluster did not answer in time, the command may or may not have been executed\r\n";
        expect(&mut stream, &error.repeat(2));
        stream.write_all(b"GET a\r\n").unwrap();
        expect(&mut stream, b"$1\r\n1\r\n");
    });
}

#[test]
fn a_late_reply_does_not_reach_the_next_client_in_the_same_slot() {
    let seen = Arc::new(AtomicUsize::new(0));
    let node = first_is_late(seen.clone());
    run(Limits::default(), node, move |address| {
        let (mut watcher, mut gone) = (connect(address), connect(address));
        gone.write_all(b"PING\r\n").unwrap();
        // The reply is there, and stays unread.
        gone.peek(&mut [0]).unwrap();
        gone.write_all(b"SET a 1\r\n").unwrap();
        until("the command is submitted", || {
            seen.load(Ordering::Relaxed) == 1
        });
        // With a reply unread this is a reset, upon which the slot is free at once.
        drop(gone);
        until("the slot is free", || {
            info(&mut watcher, "clients", "connected_clients") == 1
        });
        let mut stream = connect(address);
        stream.write_all(b"GET a\r\n").unwrap();
        expect(&mut stream, b"$1\r\n1\r\n");
    });
}

#[test]
fn a_client_that_breaks_the_protocol_is_told_and_closed() {
    run(Limits::default(), answer_all(), |address| {
        let mut stream = connect(address);
        stream.write_all(b"PING\r\n*1\r\n!\r\n").unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
        assert_eq!(
            rest,
            b"+PONG\r\n-ERR Protocol error: expected '$', got '!'\r\n"
        );
    });
}

/// A client that sends all that it has before it reads must find the reason, and not a reset
/// connection.
#[test]
fn what_ends_a_connection_reaches_a_client_that_still_sends() {
    let limits = Limits {
        bulk_bytes: 1 << 20,
        ..Limits::default()
    };
    run(limits, answer_all(), |address| {
        let too_large = request(&[b"SET", b"k", &vec![b'x'; 24 << 20]]);
        let too_many: Vec<u8> = [&b"*70000\r\n"[..], &b"$1\r\na\r\n".repeat(70_000)].concat();
        for (sent, error) in [
            (
                too_large,
                "invalid bulk length: a command has at most 1048576 bytes",
            ),
            (too_many, "invalid multibulk length"),
        ] {
            let mut stream = connect(address);
            stream.write_all(b"PING\r\n").unwrap();
            stream.write_all(&sent).expect("all of it is taken");
            stream.write_all(b"PING\r\n").expect("and what follows");
            let mut rest = String::new();
            stream.read_to_string(&mut rest).expect("no reset");
            assert_eq!(rest, format!("+PONG\r\n-ERR Protocol error: {error}\r\n"));
        }
    });
}

/// The end of what is discarded: the client is not waited for without end.
#[test]
fn a_client_that_never_stops_sending_is_cut_off() {
    let limits = Limits {
        linger_bytes: 1 << 20,
        ..Limits::default()
    };
    run(limits, answer_all(), |address| {
        let mut stream = connect(address);
        stream.write_all(b"*1\r\n!\r\n").unwrap();
        let sent = (0..2_000)
            .take_while(|_| stream.write_all(&[b'x'; 64 << 10]).is_ok())
            .count();
        assert!(
            sent < 2_000,
            "128 MB were taken of a client that was told that its connection is closed"
        );
    });
    let limits = Limits {
        linger: Duration::from_millis(50),
        ..Limits::default()
    };
    run(limits, answer_all(), |address| {
        let mut stream = connect(address);
        stream.write_all(b"*1\r\n!\r\n").unwrap();
        // It sends no more and does not close: `run` waits until the gateway has given it up.
        stream.read_to_end(&mut Vec::new()).unwrap();
        std::mem::forget(stream);
    });
}

#[test]
fn a_command_that_stays_unfinished_is_given_up() {
    let limits = Limits {
        unfinished: Duration::from_millis(100),
        ..Limits::default()
    };
    run(limits, answer_all(), |address| {
        // One that is idle between commands stays, though it is idle longer than all of them.
        let mut idle = connect(address);
        idle.write_all(b"PING\r\n").unwrap();
        expect(&mut idle, b"+PONG\r\n");
        for part in [
            &b"*2\r\n$3\r\nGET\r\n$5\r\nab"[..],
            b"GET a",
            b"*2\r\n",
            b"PING\r\nPI",
        ] {
            let mut stream = connect(address);
            stream.write_all(part).unwrap();
            let mut rest = String::new();
            stream.read_to_string(&mut rest).unwrap();
            let rest = rest.strip_prefix("+PONG\r\n").unwrap_or(&rest);
            assert_eq!(
                rest,
                "-ERR Protocol error: the command was not complete after 0 s\r\n"
            );
        }
        idle.write_all(b"PING\r\n").unwrap();
        expect(&mut idle, b"+PONG\r\n");
    });
}

/// Clients that the system had taken in when the drain began are greeted and answered once; their
/// connections end with the answer.
#[test]
fn clients_accepted_before_a_drain_are_served() {
    let begin = |gateway: &Gateway, address| {
        let clients: Vec<TcpStream> = (0..50).map(|_| connect(address)).collect();
        gateway.drain(true);
        (clients, address)
    };
    run_after(
        Limits::default(),
        answer_all(),
        begin,
        |(clients, address)| {
            let mut counted = Vec::new();
            for mut client in clients {
                client
                    .write_all(b"CLIENT SETINFO LIB-NAME test\r\n")
                    .unwrap();
                expect(&mut client, b"+OK\r\n");
                client.write_all(b"INCR n\r\n").unwrap();
                let mut answer = String::new();
                client.read_to_string(&mut answer).unwrap();
                counted.push(answer);
            }
            let expected: Vec<String> = (1..=50).map(|number| format!(":{number}\r\n")).collect();
            assert_eq!(counted, expected);
            assert_eq!(
                TcpStream::connect(address).unwrap_err().kind(),
                std::io::ErrorKind::ConnectionRefused
            );
        },
    );
}

/// All commands of all clients were sent on at once: their replies met on the way, where no reader
/// counted them.
#[test]
fn as_many_large_replies_are_asked_for_as_there_is_room_for() {
    let most = Arc::new(AtomicUsize::new(0));
    let seen = most.clone();
    let (mut held, mut holds) = (Vec::<Request>::new(), false);
    // Answers writes at once. Reads are held from the first INCR to the last.
    let node: Node = Box::new(move |cluster, requests| {
        let mut replies = Vec::new();
        for request in requests {
            match request.operation {
                Operation::Read(_) => held.push(request),
                _ => {
                    let reply = execute(cluster, &request);
                    let answer = reply.outcome.as_ref().unwrap();
                    holds = answer[0] == b':' && answer[..] != b":60\r\n"[..];
                    replies.push(reply);
                }
            }
        }
        seen.fetch_max(held.len(), Ordering::Relaxed);
        if !holds {
            replies.extend(held.drain(..).map(|request| execute(cluster, &request)));
        }
        replies
    });
    let limits = Limits {
        expected_bytes: 4 << 20,
        ..Limits::default()
    };
    run(limits, node, move |address| {
        let mut served = connect(address);
        let value = vec![b'x'; 1_000_000];
        let reply = [&b"$1000000\r\n"[..], &value, b"\r\n"].concat();
        served
            .write_all(&request(&[b"SET", b"big", &value]))
            .unwrap();
        expect(&mut served, b"+OK\r\n");
        let mut streams: Vec<_> = (0..40).map(|_| connect(address)).collect();
        let mut got = vec![0; reply.len()];
        streams[0].write_all(b"GET big\r\n").unwrap();
        streams[0].read_exact(&mut got).unwrap();
        served.write_all(b"INCR n\r\n").unwrap();
        expect(&mut served, b":1\r\n");
        streams
            .iter_mut()
            .for_each(|stream| stream.write_all(b"GET big\r\n").unwrap());
        // Others are served meanwhile.
        for count in 2..=60 {
            served.write_all(b"INCR n\r\n").unwrap();
            expect(&mut served, format!(":{count}\r\n").as_bytes());
        }
        for stream in &mut streams {
            stream.read_exact(&mut got).unwrap();
            assert!(got == reply);
        }
    });
    assert_eq!(
        most.load(Ordering::Relaxed),
        4,
        "large replies were on their way at once"
    );
}
