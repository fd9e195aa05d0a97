//! All peers of a node.

use super::channel::Output;
use super::peer::{Link, Peer, Shared, write_and_close, write_rest};
use crate::status::PeerStatus;
use crate::tasks::Tasks;
use bytes::Bytes;
use ionian_deployment::Distance;
use ionian_kernel::id::{Epoch, Members};
use ionian_kernel::layout::NodeId;
use ionian_kernel::time::Instant;
use ionian_kernel::wire::Wire;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use tokio::sync::Notify;

/// See the top of this file.
pub(crate) struct Peers {
    own: NodeId,
    /// By their numbers.
    peers: RefCell<Vec<Option<Shared>>>,
    /// The epoch of the membership that the peers belong to.
    epoch: Cell<Epoch>,
    /// The frame that announces this membership. It is the first frame on a connection to a peer
    /// that does not know the membership.
    announcement: RefCell<Vec<u8>>,
    /// The peers for which messages were queued since the last flush.
    dirty: RefCell<Vec<Shared>>,
    tasks: Rc<Tasks>,
    /// The node stops: connections that end are not made again.
    stopping: Cell<bool>,
    /// The node is not a member any more: members refuse it, and that is as it should be.
    leaving: Cell<bool>,
    /// Notified when a connection has ended.
    ended: Notify,
    /// Notified when the peers have changed.
    pub(crate) changed: Notify,
}

impl Peers {
    pub(crate) fn new(
        own: NodeId,
        epoch: Epoch,
        addresses: &BTreeMap<NodeId, String>,
        tasks: Rc<Tasks>,
    ) -> Self {
        let peers = Peers {
            own,
            peers: RefCell::default(),
            epoch: Cell::new(epoch),
            announcement: RefCell::default(),
            dirty: RefCell::default(),
            tasks,
            stopping: Cell::new(false),
            leaving: Cell::new(false),
            ended: Notify::new(),
            changed: Notify::new(),
        };
        peers.set(addresses);
        peers
    }

    /// Changes the membership. Every connected peer receives the `announcement`, a frame, before
    /// any later message; a peer that has left receives nothing after it.
    pub(crate) fn change(
        self: &Rc<Self>,
        epoch: Epoch,
        addresses: &BTreeMap<NodeId, String>,
        announcement: Vec<u8>,
    ) {
        self.epoch.set(epoch);
        for shared in self.all() {
            let mut peer = shared.borrow_mut();
            if peer.is_connected() {
                peer.push_announcement(&announcement);
                self.mark_dirty(&shared, &mut peer);
            }
        }
        *self.announcement.borrow_mut() = announcement;
        for gone in self.set(addresses) {
            // The connection ends now, so its last bytes cannot be delayed.
            gone.borrow_mut().disable_link_shaping();
            self.flush_peer(&gone);
            gone.borrow_mut().leave();
        }
        self.changed.notify_one();
    }

    /// Sets the peers; returns those that have left.
    fn set(&self, addresses: &BTreeMap<NodeId, String>) -> Vec<Shared> {
        let mut peers = self.peers.borrow_mut();
        let stays = |peer: &Shared| {
            let peer = peer.borrow();
            addresses
                .get(&peer.node())
                .is_some_and(|address| address == peer.address())
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

    /// Sets which peers are at other sites, and how far away.
    pub(crate) fn set_distances(&self, distances: &BTreeMap<NodeId, Distance>) {
        for shared in self.all() {
            let mut peer = shared.borrow_mut();
            let distance = distances.get(&peer.node()).copied();
            peer.set_distance(distance);
        }
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch.get()
    }

    /// All peers, by their numbers.
    pub(crate) fn all(&self) -> Vec<Shared> {
        self.peers.borrow().iter().flatten().cloned().collect()
    }

    /// The peer with this number, if there is one.
    pub(crate) fn peer(&self, node: NodeId) -> Option<Shared> {
        self.peers.borrow().get(usize::from(node.0))?.clone()
    }

    /// Whether this is still a peer.
    pub(crate) fn has(&self, peer: &Shared) -> bool {
        let node = peer.borrow().node();
        self.peer(node)
            .is_some_and(|known| Rc::ptr_eq(&known, peer))
    }

    /// Queues a message for one node, encoded straight into that node's buffer.
    pub(crate) fn send(&self, node: NodeId, members: Members, message: &impl Wire, now: Instant) {
        self.queue(node, |peer| peer.push(members, message, now));
    }

    /// Queues a large message for one node.
    pub(crate) fn send_large(&self, node: NodeId, members: Members, message: Bytes, now: Instant) {
        self.queue(node, |peer| peer.push_large(members, message, now));
    }

    /// Queues an encoded short frame for one node.
    pub(crate) fn send_copy(&self, node: NodeId, members: Members, frame: &[u8], now: Instant) {
        self.queue(node, |peer| peer.push_frame(members, frame, now));
    }

    /// Lets `push` queue something for a node.
    #[inline]
    fn queue(&self, node: NodeId, push: impl FnOnce(&mut Peer) -> bool) {
        let Some(shared) = self.peer(node) else {
            return;
        };
        let mut peer = shared.borrow_mut();
        if push(&mut peer) {
            self.mark_dirty(&shared, &mut peer);
        }
    }

    /// Something was queued for `peer`, which is `shared`.
    fn mark_dirty(&self, shared: &Shared, peer: &mut Peer) {
        if !peer.dirty {
            peer.dirty = true;
            self.dirty.borrow_mut().push(shared.clone());
        }
    }

    /// Writes to every connection that has queued messages, once each.
    pub(crate) fn flush(self: &Rc<Self>) {
        // Writing queues no message, so `dirty` is not borrowed twice.
        let mut dirty = self.dirty.borrow_mut();
        for peer in dirty.drain(..) {
            peer.borrow_mut().dirty = false;
            self.flush_peer(&peer);
        }
    }

    fn flush_peer(self: &Rc<Self>, shared: &Shared) {
        let mut peer = shared.borrow_mut();
        let Some(link) = peer.link() else {
            return;
        };
        if peer.flush(&link) {
            drop(peer);
            self.tasks.spawn(write_rest(shared.clone(), link));
        }
    }

    /// Takes over a new connection to a peer. In the handshake both sides were in the epoch
    /// `agreed`.
    pub(crate) fn connected(
        self: &Rc<Self>,
        shared: &Shared,
        name: String,
        agreed: Epoch,
        output: Output,
    ) -> Rc<Link> {
        let announcement = self.announcement.borrow();
        let first = (agreed < self.epoch()).then_some(&announcement[..]);
        let link = shared.borrow_mut().connect(name, output, first);
        drop(announcement);
        self.flush_peer(shared);
        link
    }

    /// Closes one connection to a peer that was admitted by an earlier generation of trusted
    /// authorities. Returns whether there was one.
    pub(crate) fn close_older_than(&self, generation: u64) -> bool {
        let links = self
            .all()
            .into_iter()
            .filter_map(|peer| peer.borrow().link());
        let Some(link) = links
            .into_iter()
            .find(|link| link.is_older_than(generation))
        else {
            return false;
        };
        link.close("the trusted certificate authorities have changed".into());
        true
    }

    /// A connection has ended.
    pub(crate) fn disconnected(&self, peer: &Shared, link: &Rc<Link>) {
        peer.borrow_mut().disconnect(link);
        self.ended.notify_waiters();
    }

    /// The known membership lacks this node.
    pub(crate) fn leave(&self) {
        self.leaving.set(true);
    }

    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.get()
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.get()
    }

    /// Writes everything that waits, closes the connections, and waits until the peers have closed
    /// them as well, so that nothing already written is lost. The caller sets the time limit.
    pub(crate) async fn close_gracefully(&self) {
        self.stopping.set(true);
        for peer in self.all() {
            write_and_close(&peer).await;
        }
        loop {
            let ended = self.ended.notified();
            if self.all().iter().all(|peer| !peer.borrow().is_connected()) {
                return;
            }
            ended.await;
        }
    }

    /// The status of every peer.
    pub(crate) fn status(&self) -> Vec<PeerStatus> {
        self.all()
            .iter()
            .map(|peer| peer.borrow().status())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::channel::split;
    use super::super::outgoing::LARGE_FROM;
    use super::super::peer::HELD_FOR;
    use super::super::stream::NodeStream;
    use super::*;
    use ionian_kernel::time::Duration;

    /// How many frames are held for node 1, and how many were dropped.
    fn held_and_dropped(peers: &Peers) -> (u64, u64) {
        let peer = peers.peer(NodeId(1)).unwrap();
        let status = peer.borrow().status();
        let frame = 12 + 4 + 1;
        (status.backlog_bytes / frame, status.dropped)
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
    async fn waiting_large_messages_are_bounded_in_bytes_and_never_queued_twice() {
        let peers = peers();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = tokio::net::TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let shared = peers.peer(NodeId(1)).unwrap();
        let (_input, output) = split(NodeStream::Plain(stream)).unwrap();
        peers.connected(&shared, "n1".into(), Epoch(0), output);
        let send = |byte: u8, bytes: usize| {
            peers.send_large(
                NodeId(1),
                Members::from_bits(1),
                vec![byte; bytes].into(),
                Instant::ZERO,
            );
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
            "a smaller message does not keep out a larger one"
        );
        assert_eq!(send(2, LARGE_FROM), (50, 1, 1), "too many bytes wait");
        assert_eq!(send(0, 20 << 20), (50, 1, 2));
    }

    #[test]
    fn messages_held_too_long_for_a_disconnected_peer_are_dropped_by_the_next() {
        let peers = peers();
        let message = Bytes::from_static(b"x");
        let start = Instant(1_000_000);
        peers.send(NodeId(1), Members::from_bits(1), &message, start);
        peers.send(NodeId(1), Members::from_bits(1), &message, start + HELD_FOR);
        assert_eq!(held_and_dropped(&peers), (2, 0));
        let later = start + HELD_FOR + Duration::from_micros(1);
        peers.send(NodeId(1), Members::from_bits(1), &message, later);
        assert_eq!(held_and_dropped(&peers), (1, 2));
        // The limit starts again with this message.
        peers.send(
            NodeId(1),
            Members::from_bits(1),
            &message,
            start + HELD_FOR * 2,
        );
        assert_eq!(held_and_dropped(&peers), (2, 2));
    }
}
