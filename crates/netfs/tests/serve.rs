//! The server and the client over sockets, in front of a state machine in this process whose
//! answers get lost now and then.

use ionian_kernel::client::{DiskRoom, Operation, Refusal, Reply as LaneReply, Request};
use ionian_kernel::id::Slot;
use ionian_kernel::machine::StateMachine;
use ionian_kernel::time::Timestamp;
use ionian_netfs::{
    Change, Client, ConnectError, Content, Errno, NetFs, Query, ROOT, Reply, ServeLimits, Server,
    Transport, Volume,
};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

/// Generous, because the machine may be busy. No wait takes this long if all is well.
const LIMIT: Duration = Duration::from_secs(40);

/// A server on a thread of its own; it stops when this is dropped.
struct Node {
    address: SocketAddr,
    /// Whether its disk is full.
    full: Arc<AtomicBool>,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Node {
    /// Every `faults`-th request is executed and not answered; the one before is refused.
    fn start(faults: u64) -> Node {
        let (ready, address) = mpsc::channel();
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let full = Arc::new(AtomicBool::new(false));
        let is_full = full.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            let local = tokio::task::LocalSet::new();
            local.block_on(&runtime.unwrap(), async move {
                let (requests, queue) = tokio::sync::mpsc::unbounded_channel();
                let submit = move |request| requests.send(request).unwrap();
                let limits = ServeLimits {
                    connections: 8,
                    memory_bytes: 8 << 20,
                    payload_bytes: 1 << 20,
                };
                let server = Server::new(limits, Box::new(submit));
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                ready.send(listener.local_addr().unwrap()).unwrap();
                server.serve(listener);
                tokio::select! {
                    () = execute(queue, server, faults, is_full) => {}
                    _ = stopped => {}
                }
            });
        });
        let address = address.recv_timeout(LIMIT).unwrap();
        Node {
            address,
            full,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    fn client(&self) -> Client {
        Client::connect(vec![self.address.to_string()]).unwrap()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        drop(self.stop.take());
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(matches!(ended, Some(Ok(()))) || std::thread::panicking());
    }
}

/// Stands for the lane and the cluster.
async fn execute(
    mut queue: tokio::sync::mpsc::UnboundedReceiver<Request>,
    server: Server,
    faults: u64,
    is_full: Arc<AtomicBool>,
) {
    let mut machine = NetFs::default();
    let mut count = 0;
    while let Some(request) = queue.recv().await {
        count += 1;
        let now = Timestamp(count);
        let refused = (count % faults == faults - 1).then_some(Refusal::Busy);
        let mut answer = Vec::new();
        match (refused, request.operation) {
            (Some(_), _) => {}
            (None, Operation::Write) => machine.apply(now, &request.payload, &mut answer),
            (None, _) => machine.read(now, &request.payload, &mut answer).unwrap(),
        }
        let lost = (count % faults == 0).then_some(Refusal::Unknown);
        let outcome = match refused.or(lost) {
            Some(refusal) => Err(refusal),
            None => Ok(answer.into()),
        };
        server.on_reply(LaneReply {
            token: request.token,
            command: None,
            outcome,
            seen: Slot::ZERO,
        });
        server.set_disk_room(match is_full.load(Ordering::Relaxed) {
            true => DiskRoom::Little,
            false => DiskRoom::Enough,
        });
    }
}

fn create(volume: &Volume, name: &[u8]) -> u64 {
    let (mode, uid, gid, rdev, hold) = (0o100_600, 0, 0, 0, true);
    let made = Change::Create {
        parent: ROOT,
        name,
        mode,
        uid,
        gid,
        rdev,
        hold,
    };
    match volume.change(&made) {
        Ok(Reply::Attr(attr)) => attr.ino,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_change_whose_answer_is_lost_is_executed_once() {
    let node = Node::start(5);
    let volume = Volume::begin(Box::new(node.client())).unwrap();
    let ino = create(&volume, b"log");
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let volume = &volume;
            scope.spawn(move || {
                for turn in 0..50 {
                    let line = format!("{writer}.{turn}\n");
                    let data = Content::Plain(line.as_bytes());
                    let (offset, grow, append) = (0, false, true);
                    let write = Change::Write {
                        ino,
                        offset,
                        grow,
                        append,
                        data,
                    };
                    assert!(matches!(volume.change(&write), Ok(Reply::Attr(_))));
                }
            });
        }
    });
    let Ok(Reply::Data(log)) = volume.query(Query::Read {
        ino,
        offset: 0,
        length: 1 << 17,
    }) else {
        panic!("the log cannot be read")
    };
    let mut lines: Vec<&str> = std::str::from_utf8(&log).unwrap().lines().collect();
    lines.sort_unstable();
    let expected = (0..4).flat_map(|writer| (0..50).map(move |turn| format!("{writer}.{turn}")));
    let mut expected: Vec<String> = expected.collect();
    expected.sort_unstable();
    assert_eq!(lines, expected);
    // A name that was made is not found to exist by the copy.
    for turn in 0..20 {
        create(&volume, format!("file{turn}").as_bytes());
    }
}

#[test]
fn a_client_goes_on_at_the_nodes_that_it_is_given_later() {
    let (first, second) = (Node::start(1000), Node::start(1000));
    let client = Arc::new(first.client());
    let mut query = Vec::new();
    Query::Space.encode(&mut query);
    assert!(client.query(&query).is_ok());
    client.set_nodes(vec![second.address.to_string()]);
    assert!(client.query(&query).is_ok());
    drop(first);
    assert!(client.query(&query).is_ok());
}

#[test]
fn peers_that_do_not_keep_to_the_protocol_are_closed_and_others_served() {
    let node = Node::start(1000);
    let greeting = b"ionian-netfs   \x01";
    let broken: [&[u8]; 5] = [
        b"",
        &[0xff; 4],
        &[0, 0, 0, 0],
        // A frame of the right length, of no known sort.
        &[9, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 7],
        // A frame that ends too early.
        &[200, 0, 0, 0, 1],
    ];
    for rest in broken {
        let mut peer = TcpStream::connect(node.address).unwrap();
        peer.set_read_timeout(Some(LIMIT)).unwrap();
        peer.write_all(greeting).unwrap();
        peer.write_all(rest).unwrap();
        peer.shutdown(std::net::Shutdown::Write).unwrap();
        let mut said = Vec::new();
        peer.read_to_end(&mut said).unwrap();
        assert_eq!(&said[..16], greeting, "{rest:?}");
        assert_eq!(said.len(), 20, "{rest:?}");
    }
    let volume = Volume::begin(Box::new(node.client())).unwrap();
    create(&volume, b"file");
}

#[test]
fn a_client_of_redis_reads_what_the_cluster_is() {
    let node = Node::start(1000);
    for request in [&b"PING\r\n"[..], b"*1\r\n$4\r\nPING\r\n"] {
        let mut peer = TcpStream::connect(node.address).unwrap();
        peer.set_read_timeout(Some(LIMIT)).unwrap();
        peer.write_all(request).unwrap();
        let mut said = vec![0; 200];
        let length = peer.read(&mut said).unwrap();
        let said = String::from_utf8_lossy(&said[..length]);
        assert!(
            said.starts_with("-ERR this cluster replicates netfs"),
            "{said}"
        );
    }
}

#[test]
fn a_server_of_another_protocol_is_recognized() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let (mut peer, _) = listener.accept().unwrap();
        peer.set_read_timeout(Some(LIMIT)).unwrap();
        // Like a gateway for Redis: it answers whole lines.
        let mut line = Vec::new();
        while line.last() != Some(&b'\n') {
            let mut byte = [0];
            peer.read_exact(&mut byte).unwrap();
            line.push(byte[0]);
        }
        peer.write_all(b"-ERR unknown command\r\n").unwrap();
    });
    let refused = Client::connect(vec![address.to_string()]);
    assert_eq!(
        refused.err(),
        Some(ConnectError::Foreign(address.to_string()))
    );
    server.join().unwrap();
}

#[test]
fn a_node_that_is_not_there_is_named() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let Err(ConnectError::Unreachable(why)) = Client::connect(vec![address.clone()]) else {
        panic!("it connects")
    };
    assert!(why.contains(&address), "{why}");
}

/// Files can be read and removed, and there is room again afterwards.
#[test]
fn a_node_with_a_full_disk_refuses_what_needs_room_alone() {
    let node = Node::start(u64::MAX);
    let volume = Volume::begin(Box::new(node.client())).unwrap();
    let file = create(&volume, b"file");
    let write = |data| Change::Write {
        ino: file,
        offset: 0,
        grow: true,
        append: false,
        data: Content::Plain(data),
    };
    volume.change(&write(b"before")).unwrap();
    node.full.store(true, Ordering::Relaxed);
    let attr = || volume.query(Query::Attr { ino: file });
    // The node learns it with its next answer.
    attr().unwrap();
    let (parent, name) = (ROOT, &b"link"[..]);
    let link = Change::Link {
        ino: file,
        parent,
        name,
    };
    for change in [write(b"after"), link.clone()] {
        assert_eq!(volume.change(&change), Err(Errno::ENOSPC), "{change:?}");
    }
    let Ok(Reply::Attr(attr)) = attr() else {
        panic!("it is there");
    };
    assert_eq!(attr.size, 6);
    node.full.store(false, Ordering::Relaxed);
    // Removing is served, and shows that there is room.
    let name = b"file";
    volume.change(&Change::Unlink { parent, name }).unwrap();
    assert_eq!(volume.change(&link), Err(Errno::ENOENT), "it has no name");
    create(&volume, b"other");
}
