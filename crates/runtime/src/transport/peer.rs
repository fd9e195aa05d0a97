//! The other nodes: the connection to each, what waits for it, and what was counted.

use super::frame::{encode_frame, set_members};
use super::link_shaper::Pace;
use super::outgoing::{LARGE_FROM, Next, Outgoing};
use crate::status::{PeerState, PeerStatus};
use crate::tasks::Tasks;
use bytes::Bytes;
use ionian_deployment::Distance;
use ionian_kernel::id::Epoch;
use ionian_kernel::layout::NodeId;
use ionian_kernel::time::{Duration, Instant};
use ionian_kernel::wire::Wire;
use socket2::SockRef;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::Shutdown;
use std::rc::Rc;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::Notify;

/// How many bytes may wait for a connected peer, in short messages and in large ones. Beyond it
/// messages to that peer are dropped and counted: every protocol bears loss, and no node bears a
/// queue without end. The size lets one of the largest frames pass.
pub(crate) const BACKLOG_LIMIT: usize = 64 << 20;

/// While large messages of so many bytes wait for a peer, no other begins to: roles have less under
/// way, and what would wait longer than these take is soon asked for again or of no use any more.
const LARGE_LIMIT: usize = 24 << 20;

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

    /// Closes the connection behind what was written.
    fn finish(&self, reason: String) {
        self.reason.borrow_mut().get_or_insert(reason);
        let _ = SockRef::from(self.stream.as_ref()).shutdown(Shutdown::Write);
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
    repeated: u64,
    connections: u64,
}

/// A peer as everybody who deals with it holds it. When the membership changes, another may get its
/// number.
pub(crate) type Shared = Rc<RefCell<Peer>>;

pub(crate) struct Peer {
    node: NodeId,
    /// `host:port`; resolved when it is dialled.
    address: String,
    name: Option<String>,
    link: Option<Rc<Link>>,
    /// Why the peer last refused this node; forgotten when it accepts it.
    refusal: Option<String>,
    outgoing: Outgoing,
    /// Of one at another site: when what waits may be written, short messages and large ones.
    pace: Option<Box<[Pace; 2]>>,
    /// Whether something was said since the last write.
    dirty: bool,
    /// Whether a task waits until more can be written.
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
    fn new(node: NodeId, address: String) -> Shared {
        Rc::new(RefCell::new(Peer {
            node,
            address,
            name: None,
            link: None,
            refusal: None,
            outgoing: Outgoing::default(),
            pace: None,
            dirty: false,
            draining: false,
            held_since: Instant::ZERO,
            counters: Counters::default(),
        }))
    }

    pub(crate) fn node(&self) -> NodeId {
        self.node
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.link.is_some()
    }

    /// Notes why it refuses this node; true when it is news.
    pub(crate) fn refused(&mut self, reason: &str) -> bool {
        let news = self.refusal.as_deref() != Some(reason);
        self.refusal = Some(reason.to_owned());
        news
    }

    pub(crate) fn count_in(&mut self, bytes: usize, frames: u64) {
        self.counters.bytes_in += bytes as u64;
        self.counters.frames_in += frames;
    }

    /// Writes as much as the connection takes now.
    fn write(&mut self, link: &Link) -> Written {
        loop {
            let ready = self
                .pace
                .as_ref()
                .map_or([usize::MAX; 2], |pace| [pace[0].ready(), pace[1].ready()]);
            let Some(next) = self.outgoing.next(ready) else {
                return Written::Everything;
            };
            let class = usize::from(matches!(next, Next::Large(..)));
            match next.write(ready[class], |slices| {
                link.stream.try_write_vectored(slices)
            }) {
                Ok(count) => {
                    match class {
                        0 => self.outgoing.short.advance(count),
                        _ => self.outgoing.large.advance(count),
                    }
                    if let Some(pace) = &mut self.pace {
                        pace[class].wrote(count);
                    }
                    self.counters.bytes_out += count as u64;
                    self.counters.writes += 1;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Written::Blocked,
                Err(error) => return Written::Failed(error),
            }
        }
    }

    /// Forgets what waits, and counts it.
    fn drop_waiting(&mut self) {
        self.counters.dropped += self.outgoing.clear();
        if let Some(pace) = &mut self.pace {
            pace.iter_mut().for_each(Pace::clear);
        }
    }

    /// It is not at another site any more: everything that waits may be written.
    fn come_near(&mut self) {
        if self.pace.take().is_some() {
            self.draining = false;
        }
    }

    /// How many bytes may wait now, after letting go of what has waited too long for a connection.
    fn limit(&mut self, now: Instant) -> usize {
        if self.link.is_some() {
            return BACKLOG_LIMIT;
        }
        if self.outgoing.is_empty() || now.since(self.held_since) > HELD_FOR {
            self.drop_waiting();
            self.held_since = now;
        }
        HELD_LIMIT
    }
}

/// All peers of a node.
pub(crate) struct Peers {
    own: NodeId,
    /// By their numbers.
    peers: RefCell<Vec<Option<Shared>>>,
    /// The epoch of the membership that the peers are those of.
    epoch: Cell<Epoch>,
    /// What is said of it first on every connection to a peer that does not know of it.
    news: RefCell<Vec<u8>>,
    dirty: RefCell<Vec<Shared>>,
    tasks: Rc<Tasks>,
    /// The node stops: connections that end are not made again.
    stopping: Cell<bool>,
    /// Rung whenever a connection has ended.
    ended: Notify,
    /// Rung when there are other peers.
    pub(crate) changed: Notify,
}

impl Peers {
    pub(crate) fn new(
        own: NodeId,
        epoch: Epoch,
        addresses: &BTreeMap<NodeId, String>,
        tasks: Rc<Tasks>,
    ) -> Self {
        let (peers, news, dirty) = Default::default();
        let (stopping, ended, changed) = (Cell::new(false), Notify::new(), Notify::new());
        let peers = Peers {
            own,
            peers,
            epoch: Cell::new(epoch),
            news,
            dirty,
            tasks,
            stopping,
            ended,
            changed,
        };
        peers.set(addresses);
        peers
    }

    /// The membership has changed: who is known already is told by `news`, a frame, before anything
    /// else is said; who has left is told as well, and nothing more.
    pub(crate) fn change(
        self: &Rc<Self>,
        epoch: Epoch,
        addresses: &BTreeMap<NodeId, String>,
        news: Vec<u8>,
    ) {
        self.epoch.set(epoch);
        for shared in self.all() {
            let mut peer = shared.borrow_mut();
            if peer.is_connected() {
                peer.outgoing.short.tail().extend_from_slice(&news);
                self.queue(&shared, &mut peer);
            }
        }
        *self.news.borrow_mut() = news;
        for gone in self.set(addresses) {
            // There is no time for a distance.
            gone.borrow_mut().come_near();
            self.flush_peer(&gone);
            let mut gone = gone.borrow_mut();
            if let Some(link) = gone.link.take() {
                link.finish("the node has left the cluster".into());
            }
        }
        self.changed.notify_one();
    }

    /// Takes over who is there; returns who is not any more.
    fn set(&self, addresses: &BTreeMap<NodeId, String>) -> Vec<Shared> {
        let mut peers = self.peers.borrow_mut();
        let stays = |peer: &Shared| {
            let peer = peer.borrow();
            addresses
                .get(&peer.node)
                .is_some_and(|address| *address == peer.address)
        };
        let gone = peers
            .iter_mut()
            .filter_map(|place| place.take_if(|peer| !stays(peer)))
            .collect();
        for (node, address) in addresses.iter().filter(|(node, _)| **node != self.own) {
            let place = usize::from(node.0);
            let length = peers.len().max(place + 1);
            peers.resize(length, None);
            peers[place].get_or_insert_with(|| Peer::new(*node, address.clone()));
        }
        gone
    }

    /// Says which of them are at other sites; what is on its way begins anew where that is news.
    pub(crate) fn set_distances(&self, distances: &BTreeMap<NodeId, Distance>) {
        for shared in self.all() {
            let mut peer = shared.borrow_mut();
            let distance = distances.get(&peer.node).copied();
            if peer.pace.as_ref().map(|pace| pace[0].distance()) != distance {
                peer.pace =
                    distance.map(|distance| Box::new([Pace::new(distance), Pace::new(distance)]));
            }
        }
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch.get()
    }

    /// All of them, in order.
    pub(crate) fn all(&self) -> Vec<Shared> {
        self.peers.borrow().iter().flatten().cloned().collect()
    }

    /// Whether there is one of this number.
    pub(crate) fn peer(&self, node: NodeId) -> Option<Shared> {
        self.peers.borrow().get(usize::from(node.0))?.clone()
    }

    /// Whether this is still one of the cluster.
    pub(crate) fn has(&self, peer: &Shared) -> bool {
        let node = peer.borrow().node;
        self.peer(node)
            .is_some_and(|known| Rc::ptr_eq(&known, peer))
    }

    /// Queues a message for one node, encoded straight into that node's buffer.
    pub(crate) fn send(&self, node: NodeId, members: u64, message: &impl Wire, now: Instant) {
        let Some(shared) = self.peer(node) else {
            return;
        };
        let mut peer = shared.borrow_mut();
        let peer = &mut *peer;
        let limit = peer.limit(now);
        let start = peer.outgoing.short.tail().len();
        if let Err(error) = encode_frame(peer.outgoing.short.tail(), members, message) {
            tracing::error!("a message to node {} is dropped: {error}", node.0);
            peer.counters.dropped += 1;
            return;
        }
        // How long a message is shows only when it is encoded.
        if let Some(message) = peer.outgoing.short.take_large(start) {
            return self.queue_large(&shared, peer, members, message, limit);
        }
        if peer.outgoing.short.len() > limit {
            peer.outgoing.short.tail().truncate(start);
            peer.counters.dropped += 1;
            return;
        }
        self.queue(&shared, peer);
    }

    /// Queues a large message for one node.
    pub(crate) fn send_large(&self, node: NodeId, members: u64, message: Bytes, now: Instant) {
        let Some(shared) = self.peer(node) else {
            return;
        };
        let mut peer = shared.borrow_mut();
        let limit = peer.limit(now);
        self.queue_large(&shared, &mut peer, members, message, limit);
    }

    fn queue_large(
        &self,
        shared: &Shared,
        peer: &mut Peer,
        members: u64,
        message: Bytes,
        limit: usize,
    ) {
        debug_assert!(message.len() >= LARGE_FROM, "a short message in pieces");
        let large = &mut peer.outgoing.large;
        if large.has(members, &message) {
            // Asked again while the first copy waits here: the answer to that one will do.
            peer.counters.repeated += 1;
        } else if large.len() > LARGE_LIMIT || large.len() + message.len() > limit {
            peer.counters.dropped += 1;
        } else {
            large.push(members, message);
            self.queue(shared, peer);
        }
    }

    /// Queues an encoded short frame for one node.
    pub(crate) fn send_copy(&self, node: NodeId, members: u64, frame: &[u8], now: Instant) {
        let Some(shared) = self.peer(node) else {
            return;
        };
        let mut peer = shared.borrow_mut();
        let peer = &mut *peer;
        // The limit first: asking for it lets go of what is too old.
        let limit = peer.limit(now);
        if peer.outgoing.short.len() + frame.len() > limit {
            peer.counters.dropped += 1;
            return;
        }
        let tail = peer.outgoing.short.tail();
        let start = tail.len();
        tail.extend_from_slice(frame);
        set_members(&mut tail[start..], members);
        self.queue(&shared, peer);
    }

    /// Something was appended to what waits for `peer`, which is `shared`.
    fn queue(&self, shared: &Shared, peer: &mut Peer) {
        peer.counters.frames_out += 1;
        if !peer.dirty {
            peer.dirty = true;
            self.dirty.borrow_mut().push(shared.clone());
        }
    }

    /// Writes to every connection that something was said to, once each.
    pub(crate) fn flush(self: &Rc<Self>) {
        // Nothing that is called here says anything to a peer.
        let mut dirty = self.dirty.borrow_mut();
        for peer in dirty.drain(..) {
            peer.borrow_mut().dirty = false;
            self.flush_peer(&peer);
        }
    }

    fn flush_peer(self: &Rc<Self>, shared: &Shared) {
        let mut peer = shared.borrow_mut();
        let Some(link) = peer.link.clone() else {
            return;
        };
        observe(&mut peer);
        if peer.draining {
            return;
        }
        if peer.pace.is_none() {
            match peer.write(&link) {
                Written::Everything => return,
                Written::Failed(error) => return link.close(format!("cannot write: {error}")),
                Written::Blocked => {}
            }
        }
        peer.draining = true;
        drop(peer);
        self.tasks.spawn(drain(shared.clone(), link));
    }

    /// A connection to a peer stands. It takes the place of an earlier one: the peer would not have
    /// made it if it had not given up the other. In the handshake both were of the epoch `agreed`.
    pub(crate) fn connected(
        self: &Rc<Self>,
        shared: &Shared,
        name: String,
        agreed: Epoch,
        stream: OwnedWriteHalf,
    ) -> Rc<Link> {
        let link = Rc::new(Link {
            stream,
            reason: RefCell::default(),
        });
        let mut peer = shared.borrow_mut();
        if let Some(old) = peer.link.replace(link.clone()) {
            peer.drop_waiting();
            old.close("the peer has made a new connection".into());
        }
        tracing::info!(
            "node {} ('{name}', {}) is connected",
            peer.node.0,
            peer.address
        );
        (peer.draining, peer.refusal, peer.name) = (false, None, Some(name));
        peer.counters.connections += 1;
        if agreed < self.epoch() {
            peer.counters.frames_out += 1;
            peer.outgoing.short.put_first(&self.news.borrow());
        }
        drop(peer);
        self.flush_peer(shared);
        link
    }

    /// A connection has ended.
    pub(crate) fn disconnected(&self, peer: &Shared, link: &Rc<Link>) {
        let mut peer = peer.borrow_mut();
        if peer
            .link
            .as_ref()
            .is_some_and(|current| Rc::ptr_eq(current, link))
        {
            peer.link = None;
            peer.draining = false;
            // What is left may be half a frame, and belongs to a conversation that is over.
            peer.drop_waiting();
        }
        drop(peer);
        self.ended.notify_waiters();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.get()
    }

    /// Writes out everything that waits, closes, and waits until the peers have closed as well, so
    /// that nothing already written is lost. The caller sets the time limit.
    pub(crate) async fn close_gracefully(&self) {
        self.stopping.set(true);
        for peer in self.all() {
            write_out(&peer).await;
        }
        loop {
            let ended = self.ended.notified();
            if self.all().iter().all(|peer| peer.borrow().link.is_none()) {
                return;
            }
            ended.await;
        }
    }

    /// What there is to say of every peer.
    pub(crate) fn status(&self) -> Vec<PeerStatus> {
        self.all()
            .iter()
            .map(|peer| peer_status(&peer.borrow()))
            .collect()
    }
}

/// What waits for a peer at another site begins its way.
fn observe(peer: &mut Peer) {
    if let Some(pace) = &mut peer.pace {
        let now = tokio::time::Instant::now();
        let [short, large] = &mut **pace;
        let busy = short.observe(now, peer.outgoing.short.len());
        // Short messages go first.
        large.hold_up(now, busy);
        large.observe(now, peer.outgoing.large.len());
    }
}

/// Writes as the connection takes it, to a peer at another site when it is time, until nothing is
/// left or the connection ends.
async fn drain(peer: Shared, link: Rc<Link>) {
    loop {
        let next = {
            let mut peer = peer.borrow_mut();
            if !peer
                .link
                .as_ref()
                .is_some_and(|current| Rc::ptr_eq(current, &link))
            {
                return;
            }
            observe(&mut peer);
            match (
                peer.write(&link),
                peer.pace
                    .as_ref()
                    .and_then(|pace| pace.iter().filter_map(Pace::next).min()),
            ) {
                (Written::Failed(error), _) => return link.close(format!("cannot write: {error}")),
                (Written::Blocked, _) => None,
                (Written::Everything, Some(next)) => Some(next),
                (Written::Everything, None) => {
                    peer.draining = false;
                    return;
                }
            }
        };
        match next {
            // A deadline is rounded up to the next millisecond, the grain of the runtime's timers.
            Some(next) => tokio::time::sleep_until(next).await,
            // When it fails, so does the next write.
            None => drop(link.stream.writable().await),
        }
    }
}

async fn write_out(peer: &Shared) {
    loop {
        let Some(link) = peer.borrow().link.clone() else {
            return;
        };
        let written = {
            let mut peer = peer.borrow_mut();
            peer.come_near();
            peer.write(&link)
        };
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

fn peer_status(peer: &Peer) -> PeerStatus {
    let Counters {
        bytes_in,
        bytes_out,
        frames_in,
        frames_out,
        writes,
        dropped,
        repeated,
        connections,
    } = peer.counters;
    let state = match (&peer.link, &peer.refusal) {
        (Some(_), _) => PeerState::Connected,
        (None, Some(_)) => PeerState::Refused,
        (None, None) => PeerState::Disconnected,
    };
    PeerStatus {
        node: peer.node.0,
        name: peer.name.clone(),
        address: peer.address.clone(),
        state,
        refusal: peer.refusal.clone(),
        connections,
        bytes_in,
        bytes_out,
        frames_in,
        frames_out,
        writes,
        dropped,
        repeated,
        backlog_bytes: peer.outgoing.len() as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn held(peers: &Peers) -> (u64, u64) {
        let peer = peers.peer(NodeId(1)).unwrap();
        let peer = peer.borrow();
        let frame = 12 + 4 + 1;
        (
            Outgoing::len(&peer.outgoing) as u64 / frame,
            peer.counters.dropped,
        )
    }

    /// The peers of node 0: one, node 1.
    fn peers() -> Rc<Peers> {
        let addresses = [0, 1].map(|node| (NodeId(node), format!("127.0.0.1:{}", node + 1)));
        Rc::new(Peers::new(
            NodeId(0),
            Epoch(0),
            &addresses.into(),
            Rc::default(),
        ))
    }

    #[tokio::test]
    async fn of_large_messages_a_bounded_number_of_bytes_waits_and_none_twice() {
        let peers = peers();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = tokio::net::TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let shared = peers.peer(NodeId(1)).unwrap();
        peers.connected(&shared, "n1".into(), Epoch(0), stream.into_split().1);
        let send = |byte: u8, bytes: usize| {
            peers.send_large(NodeId(1), 1, vec![byte; bytes].into(), Instant::ZERO);
            let peer = shared.borrow();
            (
                peer.outgoing.large.len() >> 20,
                peer.counters.dropped,
                peer.counters.repeated,
            )
        };
        assert_eq!(send(0, 20 << 20), (20, 0, 0));
        assert_eq!(send(0, 20 << 20), (20, 0, 1), "it waits already");
        assert_eq!(
            send(1, 30 << 20),
            (50, 0, 1),
            "a larger one is not kept out by a smaller"
        );
        assert_eq!(send(2, LARGE_FROM), (50, 1, 1), "too many wait");
        assert_eq!(send(0, 20 << 20), (50, 1, 2));
    }

    #[test]
    fn what_was_said_to_nobody_is_forgotten_when_something_newer_is_said() {
        let peers = peers();
        let message = Bytes::from_static(b"x");
        let start = Instant(1_000_000);
        peers.send(NodeId(1), 1, &message, start);
        peers.send(NodeId(1), 1, &message, start + HELD_FOR);
        assert_eq!(held(&peers), (2, 0));
        peers.send(
            NodeId(1),
            1,
            &message,
            start + HELD_FOR + Duration::from_micros(1),
        );
        assert_eq!(held(&peers), (1, 2));
        // It is held for a full time of its own.
        peers.send(NodeId(1), 1, &message, start + HELD_FOR * 2);
        assert_eq!(held(&peers), (2, 2));
    }
}
