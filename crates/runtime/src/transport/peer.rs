//! One peer: its connection, the messages that wait for it, and its counters.

use super::channel::Output;
use super::frame::{encode_frame, set_members};
use super::link_shaper::LinkShaper;
use super::outgoing::{LARGE_FROM, Next, Outgoing};
use crate::status::{PeerState, PeerStatus};
use bytes::Bytes;
use ionian_deployment::Distance;
use ionian_kernel::id::Members;
use ionian_kernel::layout::NodeId;
use ionian_kernel::time::{Duration, Instant};
use ionian_kernel::wire::Wire;
use std::cell::RefCell;
use std::io::ErrorKind;
use std::net::Shutdown;
use std::rc::Rc;

/// How many bytes may wait for a connected peer in short messages, and how many in large ones.
/// Messages beyond it are dropped and counted: every protocol tolerates loss, and no queue may grow
/// without end. One of the largest frames fits.
const BACKLOG_LIMIT: usize = 64 << 20;

/// A large message is dropped while more bytes than these wait in earlier large messages. Roles
/// have less under way, and a role soon asks again for a message that would wait longer, or no
/// longer needs it.
const LARGE_LIMIT: usize = 24 << 20;

/// How many bytes are held for a peer that is not connected. At a start, roles send their first
/// messages while connections are being made: if those were lost, the first election would wait
/// for its timeout.
const HELD_LIMIT: usize = 256 << 10;

/// Held messages that are older than this are dropped when a new one is sent: a peer that comes
/// back receives the latest messages, not the oldest.
pub(super) const HELD_FOR: Duration = Duration::from_secs(1);

/// The writing side of an open connection.
pub(crate) struct Link {
    output: Output,
    /// Why this side closed it.
    reason: RefCell<Option<String>>,
}

impl Link {
    pub(super) fn new(output: Output) -> Rc<Self> {
        Rc::new(Link {
            output,
            reason: RefCell::default(),
        })
    }

    /// Closes the connection in both directions; its reader sees the end of the stream.
    pub(super) fn close(&self, reason: String) {
        self.reason.borrow_mut().get_or_insert(reason);
        self.output.shut_down(Shutdown::Both);
    }

    /// Closes the connection for writing, after what was written.
    pub(super) fn finish(&self, reason: String) {
        self.reason.borrow_mut().get_or_insert(reason);
        self.shut_down_writing();
    }

    fn shut_down_writing(&self) {
        self.output.shut_down(Shutdown::Write);
    }

    /// Whether the peer was admitted by another generation of trusted authorities than this.
    pub(super) fn is_older_than(&self, generation: u64) -> bool {
        self.output
            .generation()
            .is_some_and(|admitted| admitted < generation)
    }

    /// Why this side closed the connection, if it did.
    pub(crate) fn take_reason(&self) -> Option<String> {
        self.reason.borrow_mut().take()
    }
}

/// What was counted on the connections to one peer.
#[derive(Default)]
pub(super) struct Counters {
    bytes_in: u64,
    bytes_out: u64,
    frames_in: u64,
    malformed: u64,
    frames_out: u64,
    writes: u64,
    pub(super) dropped: u64,
    pub(super) repeated: u64,
    connections: u64,
}

/// A peer, shared by its tasks and by [`Peers`](super::peers::Peers). When the membership changes,
/// another node may get its number.
pub(crate) type Shared = Rc<RefCell<Peer>>;

pub(crate) struct Peer {
    node: NodeId,
    /// `host:port`; resolved when it is dialled.
    address: String,
    name: Option<String>,
    link: Option<Rc<Link>>,
    /// Why the peer last refused this node; removed when it accepts this node.
    refusal: Option<String>,
    pub(super) outgoing: Outgoing,
    /// For a peer at another site: when waiting bytes may be written, of short and of large
    /// messages.
    shapers: Option<Box<[LinkShaper; 2]>>,
    /// Whether messages were queued since the last write.
    pub(super) dirty: bool,
    /// Whether a task waits until more can be written.
    draining: bool,
    /// Since when messages wait for a connection.
    held_since: Instant,
    pub(super) counters: Counters,
}

/// The result of writing to a connection.
enum Written {
    Everything,
    Blocked,
    Failed(std::io::Error),
}

impl Peer {
    pub(super) fn new(node: NodeId, address: String) -> Shared {
        Rc::new(RefCell::new(Peer {
            node,
            address,
            name: None,
            link: None,
            refusal: None,
            outgoing: Outgoing::default(),
            shapers: None,
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

    pub(super) fn link(&self) -> Option<Rc<Link>> {
        self.link.clone()
    }

    fn is_on(&self, link: &Rc<Link>) -> bool {
        self.link
            .as_ref()
            .is_some_and(|current| Rc::ptr_eq(current, link))
    }

    /// Stores why the peer refuses this node; returns whether the reason is new.
    pub(crate) fn refused(&mut self, reason: &str) -> bool {
        let is_new = self.refusal.as_deref() != Some(reason);
        self.refusal = Some(reason.to_owned());
        is_new
    }

    pub(crate) fn count_in(&mut self, bytes: usize, frames: u64) {
        self.counters.bytes_in += bytes as u64;
        self.counters.frames_in += frames;
    }

    /// It has sent what is no frame or no message.
    pub(super) fn count_malformed(&mut self) {
        self.counters.malformed += 1;
    }

    /// Queues a message, encoded straight into the buffer of this peer. Returns whether it was
    /// queued.
    pub(super) fn push(&mut self, members: Members, message: &impl Wire, now: Instant) -> bool {
        let limit = self.limit(now);
        let start = self.outgoing.short.tail().len();
        if let Err(error) = encode_frame(self.outgoing.short.tail(), members, message) {
            tracing::error!("a message to node {} is dropped: {error}", self.node.0);
            self.counters.dropped += 1;
            return false;
        }
        // The length of a message is known only after it is encoded.
        if let Some(message) = self.outgoing.short.take_large(start) {
            return self.push_large_within(limit, members, message);
        }
        if self.outgoing.short.len() > limit {
            self.outgoing.short.tail().truncate(start);
            self.counters.dropped += 1;
            return false;
        }
        self.counters.frames_out += 1;
        true
    }

    /// Queues an encoded short frame. Returns whether it was queued.
    pub(super) fn push_frame(&mut self, members: Members, frame: &[u8], now: Instant) -> bool {
        // The limit first: it drops held messages that are too old.
        let limit = self.limit(now);
        if self.outgoing.short.len() + frame.len() > limit {
            self.counters.dropped += 1;
            return false;
        }
        let tail = self.outgoing.short.tail();
        let start = tail.len();
        tail.extend_from_slice(frame);
        set_members(&mut tail[start..], members);
        self.counters.frames_out += 1;
        true
    }

    /// Queues a large message. Returns whether it was queued.
    pub(super) fn push_large(&mut self, members: Members, message: Bytes, now: Instant) -> bool {
        let limit = self.limit(now);
        self.push_large_within(limit, members, message)
    }

    fn push_large_within(&mut self, limit: usize, members: Members, message: Bytes) -> bool {
        debug_assert!(message.len() >= LARGE_FROM, "a short message in pieces");
        let large = &mut self.outgoing.large;
        if large.has(members, &message) {
            // A role sends it again while the first copy waits here: one answer is enough.
            self.counters.repeated += 1;
            return false;
        }
        if large.len() > LARGE_LIMIT || large.len() + message.len() > limit {
            self.counters.dropped += 1;
            return false;
        }
        large.push(members, message);
        self.counters.frames_out += 1;
        true
    }

    /// Queues an announcement of the membership behind the other messages.
    pub(super) fn push_announcement(&mut self, frame: &[u8]) {
        self.outgoing.short.tail().extend_from_slice(frame);
        self.counters.frames_out += 1;
    }

    /// How many bytes may wait now. Drops messages that have waited too long for a connection.
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

    /// Drops all waiting messages, and counts them.
    fn drop_waiting(&mut self) {
        self.counters.dropped += self.outgoing.clear();
        if let Some(shapers) = &mut self.shapers {
            shapers.iter_mut().for_each(LinkShaper::clear);
        }
    }

    /// Takes over a new connection. It replaces an earlier one: the peer would not have made it if
    /// it had not given up the other. If the peer may not know the present membership,
    /// `announcement` is the first frame.
    pub(super) fn connect(
        &mut self,
        name: String,
        output: Output,
        announcement: Option<&[u8]>,
    ) -> Rc<Link> {
        let link = Link::new(output);
        if let Some(old) = self.link.replace(link.clone()) {
            self.drop_waiting();
            old.close("the peer has made a new connection".into());
        }
        tracing::info!(
            "node {} ('{name}', {}) is connected",
            self.node.0,
            self.address
        );
        (self.draining, self.refusal, self.name) = (false, None, Some(name));
        self.counters.connections += 1;
        if let Some(frame) = announcement {
            self.counters.frames_out += 1;
            self.outgoing.short.put_first(frame);
        }
        link
    }

    /// A connection has ended.
    pub(super) fn disconnect(&mut self, link: &Rc<Link>) {
        if self.is_on(link) {
            self.link = None;
            self.draining = false;
            // The rest may begin with half a frame, and the peer has lost what came before it.
            self.drop_waiting();
        }
    }

    /// Closes the connection of a node that has left the cluster, after what was written.
    pub(super) fn leave(&mut self) {
        if let Some(link) = self.link.take() {
            link.finish("the node has left the cluster".into());
        }
    }

    /// Sets the delay and bandwidth of the link; bytes on their way start again if that changes.
    pub(super) fn set_distance(&mut self, distance: Option<Distance>) {
        let present = self.shapers.as_ref().map(|shapers| shapers[0].distance());
        if present != distance {
            self.shapers = distance
                .map(|distance| Box::new([LinkShaper::new(distance), LinkShaper::new(distance)]));
        }
    }

    /// Allows all waiting bytes to be written at once.
    pub(super) fn disable_link_shaping(&mut self) {
        if self.shapers.take().is_some() {
            self.draining = false;
        }
    }

    /// Shows the link shapers how many bytes wait now.
    fn observe(&mut self) {
        if let Some(shapers) = &mut self.shapers {
            let now = tokio::time::Instant::now();
            let [short, large] = &mut **shapers;
            let busy = short.observe(now, self.outgoing.short.len());
            // Short messages go first.
            large.hold_up(now, busy);
            large.observe(now, self.outgoing.large.len());
        }
    }

    /// Writes what can be written now. Returns whether a task must write the rest with
    /// [`write_rest`].
    pub(super) fn flush(&mut self, link: &Link) -> bool {
        self.observe();
        if self.draining {
            return false;
        }
        if self.shapers.is_none() {
            match self.write(link) {
                Written::Everything => return false,
                Written::Failed(error) => {
                    link.close(format!("cannot write: {error}"));
                    return false;
                }
                Written::Blocked => {}
            }
        }
        self.draining = true;
        true
    }

    /// Writes as much as the connection accepts now.
    fn write(&mut self, link: &Link) -> Written {
        loop {
            let ready = self.shapers.as_ref().map_or([usize::MAX; 2], |shapers| {
                [shapers[0].ready(), shapers[1].ready()]
            });
            let Some(next) = self.outgoing.next(ready) else {
                return match link.output.try_flush() {
                    Ok(()) => Written::Everything,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => Written::Blocked,
                    Err(error) => Written::Failed(error),
                };
            };
            let class = usize::from(matches!(next, Next::Large(..)));
            match next.write(ready[class], |slices| link.output.try_write(slices)) {
                Ok(count) => {
                    match class {
                        0 => self.outgoing.short.advance(count),
                        _ => self.outgoing.large.advance(count),
                    }
                    if let Some(shapers) = &mut self.shapers {
                        shapers[class].wrote(count);
                    }
                    self.counters.bytes_out += count as u64;
                    self.counters.writes += 1;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Written::Blocked,
                Err(error) => return Written::Failed(error),
            }
        }
    }

    pub(super) fn status(&self) -> PeerStatus {
        let Counters {
            bytes_in,
            bytes_out,
            frames_in,
            malformed,
            frames_out,
            writes,
            dropped,
            repeated,
            connections,
        } = self.counters;
        let state = match (&self.link, &self.refusal) {
            (Some(_), _) => PeerState::Connected,
            (None, Some(_)) => PeerState::Refused,
            (None, None) => PeerState::Disconnected,
        };
        PeerStatus {
            node: self.node.0,
            name: self.name.clone(),
            address: self.address.clone(),
            state,
            refusal: self.refusal.clone(),
            connections,
            bytes_in,
            bytes_out,
            frames_in,
            malformed,
            frames_out,
            writes,
            dropped,
            repeated,
            backlog_bytes: self.outgoing.len() as u64,
        }
    }
}

/// Writes as the connection accepts bytes, and to a peer at another site when the link shapers
/// allow it, until nothing is left or the connection ends.
pub(super) async fn write_rest(peer: Shared, link: Rc<Link>) {
    loop {
        let next = {
            let mut peer = peer.borrow_mut();
            if !peer.is_on(&link) {
                return;
            }
            peer.observe();
            let written = peer.write(&link);
            let shapers = peer.shapers.as_ref();
            let next = shapers.and_then(|both| both.iter().filter_map(LinkShaper::next).min());
            match (written, next) {
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
            None => drop(link.output.writable().await),
        }
    }
}

/// Writes everything that waits and closes the connection for writing, when the node stops.
pub(super) async fn write_and_close(peer: &Shared) {
    loop {
        let Some(link) = peer.borrow().link.clone() else {
            return;
        };
        let written = {
            let mut peer = peer.borrow_mut();
            peer.disable_link_shaping();
            peer.write(&link)
        };
        match written {
            Written::Blocked => {
                if link.output.writable().await.is_err() {
                    return;
                }
            }
            Written::Failed(_) => return,
            Written::Everything => return link.shut_down_writing(),
        }
    }
}
