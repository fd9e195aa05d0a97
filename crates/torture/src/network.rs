//! The network between the nodes, as far as it can be cut: each node is found at the address of a
//! forwarder, and listens elsewhere. A forwarder finds out which process has made a connection,
//! whose bytes may be encrypted, and holds back what goes from one node to another while that way
//! is cut; the other way goes on. When the way is whole again everything arrives, late, as after
//! packets that the system has sent again. A connection of two nodes that ends is forgotten with
//! what it held.
//!
//! It needs no privileges. What a forwarder cannot do is to lose a packet: TCP would send it again.

use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::watch;

/// How many bytes are forwarded at once.
const PIECE: usize = 64 << 10;

/// The connections of this machine with IPv4, and the numbers of their sockets.
const CONNECTIONS: &str = "/proc/net/tcp";

/// From a node to a node, by their names: how many cuts there are.
type Cuts = BTreeMap<(String, String), u32>;

/// Forwarders in a thread of their own. Dropping it ends them.
pub(crate) struct Network {
    cuts: watch::Sender<Cuts>,
    held: Arc<AtomicU64>,
}

/// Where a node is found, and where it listens.
pub(crate) struct Place {
    pub(crate) name: String,
    pub(crate) address: SocketAddr,
    pub(crate) listens: SocketAddr,
}

impl Network {
    /// Forwards to these nodes.
    ///
    /// # Errors
    /// When an address is taken, or there is no other thread.
    pub(crate) fn start(places: Vec<Place>) -> Result<Self> {
        let (cuts, watched) = watch::channel(Cuts::new());
        let held = Arc::new(AtomicU64::new(0));
        let mut listeners = Vec::new();
        for place in places {
            let listener = TcpListener::bind(place.address);
            let listener =
                listener.with_context(|| format!("cannot forward from {}", place.address))?;
            listener.set_nonblocking(true)?;
            listeners.push((listener, place));
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let counted = held.clone();
        std::thread::Builder::new()
            .name("network".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    let mut watched_here = watched.clone();
                    for (listener, place) in listeners {
                        tokio::spawn(forward(
                            listener,
                            Arc::new(place),
                            watched.clone(),
                            counted.clone(),
                        ));
                    }
                    // Until the other end is dropped.
                    while watched_here.changed().await.is_ok() {}
                });
            })?;
        Ok(Network { cuts, held })
    }

    /// Cuts the ways from one node to another that are in the list.
    pub(crate) fn cut(&self, ways: &[(String, String)]) {
        self.cuts.send_modify(|cuts| {
            ways.iter()
                .for_each(|way| *cuts.entry(way.clone()).or_default() += 1)
        });
    }

    /// Ends a cut.
    pub(crate) fn join(&self, ways: &[(String, String)]) {
        self.cuts.send_modify(|cuts| {
            for way in ways {
                if let Some(count) = cuts.get_mut(way) {
                    *count = count.saturating_sub(1);
                }
            }
            cuts.retain(|_, count| *count > 0);
        });
    }

    /// Ends all cuts.
    pub(crate) fn heal(&self) {
        self.cuts.send_modify(Cuts::clear);
    }

    /// How often something was held back.
    pub(crate) fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }
}

async fn forward(
    listener: TcpListener,
    place: Arc<Place>,
    cuts: watch::Receiver<Cuts>,
    held: Arc<AtomicU64>,
) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else {
        return;
    };
    loop {
        // What fails here is one connection; its client tries again.
        if let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(connection(
                stream,
                place.clone(),
                cuts.clone(),
                held.clone(),
            ));
        }
    }
}

/// Forwards one connection, until either side breaks it or both have ended it.
async fn connection(
    mut dialler: TcpStream,
    place: Arc<Place>,
    cuts: watch::Receiver<Cuts>,
    held: Arc<AtomicU64>,
) -> std::io::Result<()> {
    let target = TcpStream::connect(place.listens).await?;
    dialler.set_nodelay(true)?;
    target.set_nodelay(true)?;
    let mut first = vec![0; PIECE];
    let count = dialler.read(&mut first).await?;
    first.truncate(count);
    let from = caller(dialler.peer_addr()?, dialler.local_addr()?);
    let there = from.clone().map(|from| (from, place.name.clone()));
    let back = from.map(|from| (place.name.clone(), from));
    let (dialler_reads, dialler_writes) = dialler.into_split();
    let (target_reads, target_writes) = target.into_split();
    let there = pump(
        first,
        dialler_reads,
        target_writes,
        there,
        cuts.clone(),
        held.clone(),
    );
    let back = pump(Vec::new(), target_reads, dialler_writes, back, cuts, held);
    tokio::try_join!(there, back).map(drop)
}

/// Forwards one direction to its end. `piece` was read already.
async fn pump(
    mut piece: Vec<u8>,
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    way: Option<(String, String)>,
    mut cuts: watch::Receiver<Cuts>,
    held: Arc<AtomicU64>,
) -> std::io::Result<()> {
    loop {
        if let Some(way) = &way {
            held.fetch_add(
                u64::from(cuts.borrow().contains_key(way)),
                Ordering::Relaxed,
            );
            // When there is no one left to cut it, it is whole.
            let _ = cuts.wait_for(|cuts| !cuts.contains_key(way)).await;
        }
        to.write_all(&piece).await?;
        piece.resize(PIECE, 0);
        let count = from.read(&mut piece).await?;
        if count == 0 {
            return to.shutdown().await;
        }
        piece.truncate(count);
    }
}

/// Checks that this machine tells which process has made a connection.
///
/// # Errors
/// If it does not.
pub(crate) fn try_callers() -> Result<()> {
    let told = ["/proc/self/cmdline", "/proc/self/fd", CONNECTIONS];
    let missing = told.into_iter().find(|path| !Path::new(path).exists());
    ensure!(
        missing.is_none(),
        "there is no {}",
        missing.unwrap_or_default()
    );
    Ok(())
}

/// The name of the node whose process has made the connection between these addresses, if a node
/// has.
fn caller(from: SocketAddr, to: SocketAddr) -> Option<String> {
    let socket = socket(&fs::read_to_string(CONNECTIONS).ok()?, from, to)?;
    let socket = Path::new(&format!("socket:[{socket}]")).to_owned();
    let processes = fs::read_dir("/proc").ok()?.flatten();
    processes.map(|process| process.path()).find_map(|process| {
        let name = node(&fs::read(process.join("cmdline")).ok()?)?;
        let mut files = fs::read_dir(process.join("fd")).ok()?.flatten();
        let has = files.any(|file| fs::read_link(file.path()).is_ok_and(|it| it == socket));
        has.then_some(name)
    })
}

/// The number of the socket of the connection from one address to another, in a table like that of
/// the system.
fn socket(table: &str, from: SocketAddr, to: SocketAddr) -> Option<u64> {
    let text = |address: SocketAddr| match address {
        SocketAddr::V4(address) => {
            let ip = u32::from_ne_bytes(address.ip().octets());
            Some(format!("{ip:08X}:{:04X}", address.port()))
        }
        SocketAddr::V6(_) => None,
    };
    let (from, to) = (text(from)?, text(to)?);
    table.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let is_this = words.next() == Some(&from) && words.next() == Some(&to);
        words.nth(6).filter(|_| is_this)?.parse().ok()
    })
}

/// The name of the node that a process with this command line runs.
fn node(command: &[u8]) -> Option<String> {
    let mut words = command.split(|byte| *byte == 0).skip(1);
    let is_node = words.next() == Some(b"node");
    let name = words.next().filter(|_| is_node)?;
    String::from_utf8(name.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::OwnedFd;
    use std::process::Stdio;
    use std::time::Duration;

    /// A process that holds this connection, and whose command line is that of a node. It waits
    /// until its output is read, which is never.
    struct Node(std::process::Child);

    impl Node {
        fn with(connection: &std::net::TcpStream, name: &str) -> Self {
            let held = OwnedFd::from(connection.try_clone().unwrap());
            let mut command = std::process::Command::new("yes");
            command.args(["node", name]);
            let process = command.stdin(held).stdout(Stdio::piped()).spawn();
            Node(process.unwrap())
        }
    }

    impl Drop for Node {
        fn drop(&mut self) {
            self.0.kill().unwrap();
            self.0.wait().unwrap();
        }
    }

    #[test]
    fn the_caller_is_known_by_its_process() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connect = || std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (of_node, other) = (connect(), connect());
        let _node = Node::with(&of_node, "n12");
        let caller = |stream: &std::net::TcpStream| {
            caller(stream.local_addr().unwrap(), stream.peer_addr().unwrap())
        };
        assert_eq!(caller(&of_node).as_deref(), Some("n12"));
        assert_eq!(caller(&other), None, "no node has made it");
        assert_eq!(
            node(b"/bin/ionian\0node\0n1\0--data\0x\0"),
            Some("n1".to_owned())
        );
        assert_eq!(node(b"/bin/ionian\0status\0n1\0"), None);
        assert_eq!(node(b""), None);
    }

    /// Reads this number of bytes. Fails when they do not come within a minute.
    fn read(stream: &mut std::net::TcpStream, count: usize) -> Vec<u8> {
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        let mut bytes = vec![0; count];
        stream.read_exact(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn one_way_is_cut_and_the_other_goes_on() {
        let free = || TcpListener::bind("127.0.0.1:0").unwrap();
        let target = free();
        let (address, listens) = (free().local_addr().unwrap(), target.local_addr().unwrap());
        let network = Network::start(vec![Place {
            name: "n1".to_owned(),
            address,
            listens,
        }])
        .unwrap();
        let mut dialler = std::net::TcpStream::connect(address).unwrap();
        let _node = Node::with(&dialler, "n0");
        dialler.write_all(b"first").unwrap();
        let mut accepted = target.accept().unwrap().0;
        assert_eq!(read(&mut accepted, 5), b"first");
        let way = [("n0".to_owned(), "n1".to_owned())];
        network.cut(&way);
        dialler.write_all(b"there").unwrap();
        accepted.write_all(b"back").unwrap();
        assert_eq!(read(&mut dialler, 4), b"back");
        let begun = std::time::Instant::now();
        while network.held() == 0 {
            assert!(
                begun.elapsed() < Duration::from_secs(60),
                "nothing was held"
            );
            std::thread::sleep(Duration::from_millis(1));
        }
        accepted.set_nonblocking(true).unwrap();
        assert!(
            accepted.read(&mut [0]).is_err(),
            "it arrives though the way is cut"
        );
        accepted.set_nonblocking(false).unwrap();
        network.join(&way);
        assert_eq!(read(&mut accepted, 5), b"there");
    }
}
