//! The other nodes: the connection to each, what waits for it, and what was counted.

use crate::frame::{encode_frame, set_members};
use crate::outgoing::Outgoing;
use crate::status::{PeerState, PeerStatus};
use crate::tasks::Tasks;
use ionian_kernel::layout::NodeId;
use ionian_kernel::time::{Duration, Instant};
use ionian_kernel::wire::Wire;
use socket2::SockRef;
use std::cell::{Cell, RefCell};
use std::io::ErrorKind;
use std::net::{Shutdown, SocketAddr};
use std::rc::Rc;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::Notify;

/// How many bytes may wait for a connected peer. Beyond it messages to that peer are dropped and
/// counted: every protocol bears loss, and no node bears a queue without end. The size lets a few of
/// the largest frames pass behind each other.
pub(crate) const BACKLOG_LIMIT: usize = 64 << 20;

/// How many bytes are held for a peer that is not connected: what roles say first at a start, while
/// the connections are being made, must not be lost, or the first election waits for its timeout.
const HELD_LIMIT: usize = 256 << 10;

/// What is held is dropped when something new is said and it is older than this: a peer that comes
/// back is told the latest, not the oldest.
const HELD_FOR: Duration = Duration::from_secs(1);

/// An open connection, seen from the writing side.
pub(crate) struct Link {
    stream: OwnedWriteHalf,
    /// Why this side closed it.
    reason: RefCell<Option<String>>,
}

impl Link {
    /// Closes the connection both ways; its reader sees the end of the stream.
    fn close(&self, reason: String) {
        self.reason.borrow_mut().get_or_insert(reason);
        // It fails when the other side was faster, and then it is closed as well.
        let _ = SockRef::from(self.stream.as_ref()).shutdown(Shutdown::Both);
    }

    /// Why this side closed the connection, if it did.
    pub(crate) fn take_reason(&self) -> Option<String> {
        self.reason.borrow_mut().take()
    }
}

/// What happened on the connections to one peer.
#[derive(Default)]
struct Counters {
    bytes_in: u64,
    bytes_out: u64,
    frames_in: u64,
    frames_out: u64,
    writes: u64,
    dropped: u64,
    connections: u64,
}

struct Peer {
    address: SocketAddr,
    name: Option<String>,
    link: Option<Rc<Link>>,
    /// Why the peer last refused this node; forgotten when it accepts it.
    refusal: Option<String>,
    outgoing: Outgoing,
    /// Whether something was said since the last write.
    dirty: bool,
    /// Whether a task waits until the connection takes more.
    draining: bool,
    /// Since when messages wait for a connection.
    held_since: Instant,
    counters: Counters,
}

enum Written {
    Everything,
    Blocked,
    Failed(std::io::Error),
}

impl Peer {
    /// Writes as much as the connection takes now.
    fn write(&mut self, link: &Link) -> Written {
        while !self.outgoing.is_empty() {
            match link.stream.try_write(self.outgoing.unwritten()) {
                Ok(count) => {
                    self.outgoing.advance(count);
                    self.counters.bytes_out += count as u64;
                    self.counters.writes += 1;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Written::Blocked,
                Err(error) => return Written::Failed(error),
            }
        }
        Written::Everything
    }

    /// How many bytes may wait now, after letting go of what has waited too long for a connection.
    fn limit(&mut self, now: Instant) -> usize {
        if self.link.is_some() {
            return BACKLOG_LIMIT;
        }
        if self.outgoing.is_empty() || now.since(self.held_since) > HELD_FOR {
            self.counters.dropped += self.outgoing.clear();
            self.held_since = now;
        }
        HELD_LIMIT
    }
}

/// All peers of a node.
pub(crate) struct Peers {
    own: NodeId,
    peers: Vec<RefCell<Peer>>,
    dirty: RefCell<Vec<NodeId>>,
    tasks: Rc<Tasks>,
    /// The node stops: connections that end are not made again.
    stopping: Cell<bool>,
    /// Rung whenever a connection has ended.
    ended: Notify,
}

impl Peers {
    pub(crate) fn new(own: NodeId, addresses: &[SocketAddr], tasks: Rc<Tasks>) -> Self {
        let peer = |address: &SocketAddr| {
            RefCell::new(Peer {
                address: *address,
                name: None,
                link: None,
                refusal: None,
                outgoing: Outgoing::default(),
                dirty: false,
                draining: false,
                held_since: Instant::ZERO,
                counters: Counters::default(),
            })
        };
        let peers = addresses.iter().map(peer).collect();
        let (dirty, stopping, ended) = (RefCell::default(), Cell::new(false), Notify::new());
        Peers { own, peers, dirty, tasks, stopping, ended }
    }

    pub(crate) fn count(&self) -> usize {
        self.peers.len()
    }

    pub(crate) fn address(&self, node: NodeId) -> SocketAddr {
        self.peer(node).borrow().address
    }

    fn peer(&self, node: NodeId) -> &RefCell<Peer> {
        &self.peers[node.0 as usize]
    }

    /// Queues a message for one node, encoded straight into that node's buffer.
    pub(crate) fn send(&self, node: NodeId, members: u64, message: &impl Wire, now: Instant) {
        let mut peer = self.peer(node).borrow_mut();
        let peer = &mut *peer;
        let limit = peer.limit(now);
        let before = peer.outgoing.len();
        if let Err(error) = encode_frame(peer.outgoing.tail(), members, message) {
            tracing::error!("a message to node {} is dropped: {error}", node.0);
            peer.counters.dropped += 1;
            return;
        }
        // How long a message is shows only when it is encoded.
        if peer.outgoing.len() > limit {
            let added = peer.outgoing.len() - before;
            let tail = peer.outgoing.tail();
            tail.truncate(tail.len() - added);
            peer.counters.dropped += 1;
            return;
        }
        self.queued(node, peer);
    }

    /// Queues an encoded frame for one node.
    pub(crate) fn send_copy(&self, node: NodeId, members: u64, frame: &[u8], now: Instant) {
        let mut peer = self.peer(node).borrow_mut();
        let peer = &mut *peer;
        // The limit first: asking for it lets go of what is too old.
        let limit = peer.limit(now);
        if peer.outgoing.len() + frame.len() > limit {
            peer.counters.dropped += 1;
            return;
        }
        let tail = peer.outgoing.tail();
        let start = tail.len();
        tail.extend_from_slice(frame);
        set_members(&mut tail[start..], members);
        self.queued(node, peer);
    }

    fn queued(&self, node: NodeId, peer: &mut Peer) {
        peer.counters.frames_out += 1;
        if !peer.dirty {
            peer.dirty = true;
            self.dirty.borrow_mut().push(node);
        }
    }

    /// Writes to every connection that something was said to, once each.
    pub(crate) fn flush(self: &Rc<Self>) {
        // Nothing that is called here says anything to a peer.
        let mut dirty = self.dirty.borrow_mut();
        for node in dirty.drain(..) {
            self.peer(node).borrow_mut().dirty = false;
            self.flush_peer(node);
        }
    }

    fn flush_peer(self: &Rc<Self>, node: NodeId) {
        let mut peer = self.peer(node).borrow_mut();
        let Some(link) = peer.link.clone() else { return };
        if peer.draining {
            return;
        }
        match peer.write(&link) {
            Written::Everything => {}
            Written::Failed(error) => link.close(format!("cannot write: {error}")),
            Written::Blocked => {
                peer.draining = true;
                drop(peer);
                self.tasks.spawn(self.clone().drain(node, link));
            }
        }
    }

    /// Writes as the connection takes it, until nothing is left or the connection ends.
    async fn drain(self: Rc<Self>, node: NodeId, link: Rc<Link>) {
        loop {
            let writable = link.stream.writable().await;
            let mut peer = self.peer(node).borrow_mut();
            if !peer.link.as_ref().is_some_and(|current| Rc::ptr_eq(current, &link)) {
                return;
            }
            let written = match writable {
                Ok(()) => peer.write(&link),
                Err(error) => Written::Failed(error),
            };
            match written {
                Written::Blocked => {}
                Written::Everything => {
                    peer.draining = false;
                    return;
                }
                Written::Failed(error) => return link.close(format!("cannot write: {error}")),
            }
        }
    }

    /// A connection to a peer stands. It takes the place of an earlier one: the peer would not have
    /// made it if it had not given up the other.
    pub(crate) fn connected(self: &Rc<Self>, node: NodeId, name: String, stream: OwnedWriteHalf) -> Rc<Link> {
        let link = Rc::new(Link { stream, reason: RefCell::default() });
        let mut peer = self.peer(node).borrow_mut();
        if let Some(old) = peer.link.replace(link.clone()) {
            peer.counters.dropped += peer.outgoing.clear();
            old.close("the peer has made a new connection".into());
        }
        tracing::info!("node {} ('{name}', {}) is connected", node.0, peer.address);
        (peer.draining, peer.refusal, peer.name) = (false, None, Some(name));
        peer.counters.connections += 1;
        drop(peer);
        self.flush_peer(node);
        link
    }

    /// A connection has ended.
    pub(crate) fn disconnected(&self, node: NodeId, link: &Rc<Link>) {
        let mut peer = self.peer(node).borrow_mut();
        if peer.link.as_ref().is_some_and(|current| Rc::ptr_eq(current, link)) {
            peer.link = None;
            peer.draining = false;
            // What is left may be half a frame, and belongs to a conversation that is over.
            peer.counters.dropped += peer.outgoing.clear();
        }
        drop(peer);
        self.ended.notify_waiters();
    }

    /// Notes why a peer refuses this node; true when it is news.
    pub(crate) fn refused(&self, node: NodeId, reason: &str) -> bool {
        let mut peer = self.peer(node).borrow_mut();
        let news = peer.refusal.as_deref() != Some(reason);
        peer.refusal = Some(reason.to_owned());
        news
    }

    pub(crate) fn count_in(&self, node: NodeId, bytes: usize, frames: u64) {
        let counters = &mut self.peer(node).borrow_mut().counters;
        counters.bytes_in += bytes as u64;
        counters.frames_in += frames;
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.get()
    }

    /// Writes out everything that waits, closes, and waits until the peers have closed as well, so
    /// that nothing already written is lost. The caller sets the time limit.
    pub(crate) async fn close_gracefully(&self) {
        self.stopping.set(true);
        for index in 0..self.peers.len() {
            self.write_out(NodeId(index as u16)).await;
        }
        loop {
            let ended = self.ended.notified();
            if self.peers.iter().all(|peer| peer.borrow().link.is_none()) {
                return;
            }
            ended.await;
        }
    }

    async fn write_out(&self, node: NodeId) {
        loop {
            let Some(link) = self.peer(node).borrow().link.clone() else { return };
            let written = self.peer(node).borrow_mut().write(&link);
            match written {
                Written::Blocked => {
                    if link.stream.writable().await.is_err() {
                        return;
                    }
                }
                Written::Failed(_) => return,
                Written::Everything => {
                    let _ = SockRef::from(link.stream.as_ref()).shutdown(Shutdown::Write);
                    return;
                }
            }
        }
    }

    /// What there is to say of every peer.
    pub(crate) fn status(&self) -> Vec<PeerStatus> {
        let others = (0..).zip(&self.peers).filter(|(index, _)| *index != self.own.0);
        others.map(|(index, peer)| peer_status(index, &peer.borrow())).collect()
    }
}

fn peer_status(node: u16, peer: &Peer) -> PeerStatus {
    let Counters { bytes_in, bytes_out, frames_in, frames_out, writes, dropped, connections } = peer.counters;
    let state = match (&peer.link, &peer.refusal) {
        (Some(_), _) => PeerState::Connected,
        (None, Some(_)) => PeerState::Refused,
        (None, None) => PeerState::Disconnected,
    };
    PeerStatus {
        node,
        name: peer.name.clone(),
        address: peer.address.to_string(),
        state,
        refusal: peer.refusal.clone(),
        connections,
        bytes_in,
        bytes_out,
        frames_in,
        frames_out,
        writes,
        dropped,
        backlog_bytes: peer.outgoing.len() as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outgoing::Outgoing;
    use bytes::Bytes;

    fn held(peers: &Peers) -> (u64, u64) {
        let peer = peers.peer(NodeId(1)).borrow();
        let frame = 12 + 4 + 1;
        (Outgoing::len(&peer.outgoing) as u64 / frame, peer.counters.dropped)
    }

    #[test]
    fn what_was_said_to_nobody_is_forgotten_when_something_newer_is_said() {
        let address = "127.0.0.1:1".parse().unwrap();
        let peers = Peers::new(NodeId(0), &[address, address], Rc::default());
        let message = Bytes::from_static(b"x");
        let start = Instant(1_000_000);
        peers.send(NodeId(1), 1, &message, start);
        peers.send(NodeId(1), 1, &message, start + HELD_FOR);
        assert_eq!(held(&peers), (2, 0));
        peers.send(NodeId(1), 1, &message, start + HELD_FOR + Duration::from_micros(1));
        assert_eq!(held(&peers), (1, 2));
        // It is held for a full time of its own.
        peers.send(NodeId(1), 1, &message, start + HELD_FOR * 2);
        assert_eq!(held(&peers), (2, 2));
    }
}
