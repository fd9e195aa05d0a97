//! One connection for each pair of nodes, dialled by the node with the higher number.
//!
//! A connection carries messages in both directions: answers carry the acknowledgements of
//! requests, and a node has half as many sockets to watch. The dialling side is fixed, so two nodes
//! never dial each other at once and need no rule for which of two connections to keep. The higher
//! number dials because nodes are mostly started in order: the lower one listens already.

use super::admission::Admission;
use super::channel::{Input, split};
use super::frame::{Encoded, FrameError, FrameReader};
use super::handshake::Identity;
use super::hello::{Acceptance, HandshakeError};
use super::membership_exchange::send_membership;
use super::peer::{Link, Shared};
use super::peers::Peers;
use super::security::NodeTls;
use super::stream::NodeStream;
use crate::tasks::Tasks;
use ionian_deployment::Configuration;
use ionian_kernel::id::{Epoch, Members};
use ionian_kernel::layout::NodeId;
use ionian_kernel::membership::Membership;
use ionian_kernel::wire::WireError;
use socket2::{SockRef, TcpKeepalive};
use std::rc::Rc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::Notify;

/// How long the other side may leave bytes unacknowledged before the connection is closed. Without
/// this limit a node notices a cut network after a quarter of an hour, and its repair up to two
/// minutes late.
const UNACKNOWLEDGED_LIMIT: Duration = Duration::from_secs(10);

/// The time between two keepalive probes.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// How many unsent bytes may wait in a socket: later messages are not behind more than that.
#[cfg(target_os = "linux")]
const UNSENT_LIMIT: u32 = 256 << 10;

/// After this many bytes a reader yields to the event loop, however much more has arrived: no
/// connection starves the others, and the loop's input stays bounded.
const TURN_BYTES: usize = 1 << 20;

/// The event loop, as connections to peers use it.
pub(crate) trait PeerHandler {
    /// Takes in one message.
    fn ingest(&self, members: Members, message: Encoded<'_>) -> Result<(), WireError>;

    /// Called after a batch of [`ingest`](Self::ingest) calls: the connection has no whole message
    /// left.
    fn ingested(&self);

    /// What a reader has to wait for before it looks again, if roles have too much to do.
    fn must_wait(&self) -> Option<Rc<Notify>>;

    /// Takes in a membership that a peer knows.
    fn learn(&self, membership: Membership);

    /// The configuration that this node knows; `None` where the membership cannot change.
    fn configuration(&self) -> Option<Configuration>;

    /// The name of a node; empty if it is not known.
    fn name_of(&self, node: NodeId) -> String;
}

/// What all connections of a node share.
pub(crate) struct Transport {
    pub(crate) identity: Identity,
    pub(crate) node: NodeId,
    pub(crate) name: String,
    pub(crate) peers: Rc<Peers>,
    pub(crate) handler: Rc<dyn PeerHandler>,
    pub(crate) admission: Rc<Admission>,
    pub(crate) tasks: Rc<Tasks>,
    pub(crate) seed: u64,
    /// The commands that this node skips.
    pub(crate) skips: String,
    /// How connections are secured; `None` if they are not.
    pub(crate) tls: Option<NodeTls>,
}

impl Transport {
    /// A peer knows this node by another data directory.
    pub(super) fn on_identity_mismatch(&self, peer: &Shared, reason: &str) {
        log_refusal(peer, reason);
        self.admission.refused(peer.borrow().node(), reason);
    }

    /// This node, as it introduces itself to the other side of a handshake.
    pub(super) fn acceptance(&self) -> Acceptance {
        Acceptance {
            name: self.name.as_str().into(),
            directory: self.admission.own(),
        }
    }

    /// Sends the membership that this node knows.
    pub(super) async fn send_membership(
        &self,
        stream: &mut NodeStream,
    ) -> Result<(), HandshakeError> {
        let membership = self
            .handler
            .configuration()
            .map(|known| known.membership)
            .unwrap_or_default();
        send_membership(stream, &membership).await?;
        Ok(stream.shutdown().await?)
    }

    /// Carries messages until the connection ends. In the handshake both sides were in the epoch
    /// `agreed`.
    pub(crate) async fn serve(
        &self,
        shared: &Shared,
        name: String,
        agreed: Epoch,
        stream: NodeStream,
    ) {
        if !self.peers.has(shared) {
            return;
        }
        let Ok((reader, writer)) = split(stream) else {
            return;
        };
        let peer = shared.borrow().node();
        let link = self.peers.connected(shared, name, agreed, writer);
        let guard = ConnectionGuard {
            peer: shared,
            link,
            peers: &self.peers,
        };
        // Roles that are not started yet process nothing: until then messages wait with the sender.
        self.admission.admitted().await;
        let end = self.read(shared, reader).await;
        if matches!(end, End::Frame(_) | End::Message(_)) {
            shared.borrow_mut().count_malformed();
        }
        match (guard.link.take_reason(), end) {
            (Some(reason), _) => {
                tracing::info!("the connection to node {} is closed: {reason}", peer.0)
            }
            (None, End::Closed) => tracing::info!("node {} has closed the connection", peer.0),
            (None, End::Io(error)) => {
                tracing::info!("the connection to node {} broke: {error}", peer.0)
            }
            (None, End::Frame(error)) => {
                tracing::error!(
                    "the connection to node {} is closed, it sent no valid frame: {error}",
                    peer.0
                );
            }
            (None, End::Message(error)) => {
                tracing::error!(
                    "the connection to node {} is closed, it sent no valid message: {error}",
                    peer.0
                );
            }
        }
    }

    async fn read(&self, peer: &Shared, mut input: Input) -> End {
        let mut frames = FrameReader::default();
        let mut turn = 0;
        loop {
            let count = match input.read(&mut frames).await {
                Ok(None) => return End::Closed,
                Ok(Some(count)) => count,
                Err(error) => return End::Io(error),
            };
            let taken = self.take_in(&mut frames);
            peer.borrow_mut().count_in(count, taken.frames);
            if let Some(end) = taken.end {
                return end;
            }
            turn += count;
            if turn >= TURN_BYTES {
                turn = 0;
                tokio::task::yield_now().await;
                while let Some(room) = self.handler.must_wait() {
                    room.notified().await;
                }
            }
        }
    }

    /// Takes in every whole frame.
    fn take_in(&self, frames: &mut FrameReader) -> Taken {
        let mut taken = Taken {
            frames: 0,
            end: None,
        };
        loop {
            match frames.next_frame() {
                Ok(None) => break,
                Ok(Some(frame)) => {
                    if let Err(error) = self.handler.ingest(frame.members, frame.message) {
                        taken.end = Some(End::Message(error));
                        break;
                    }
                    taken.frames += 1;
                }
                Err(error) => {
                    taken.end = Some(End::Frame(error));
                    break;
                }
            }
        }
        if taken.frames > 0 {
            self.handler.ingested();
        }
        taken
    }
}

struct Taken {
    frames: u64,
    end: Option<End>,
}

/// How a connection ended.
enum End {
    Closed,
    Io(std::io::Error),
    Frame(FrameError),
    Message(WireError),
}

/// An open connection. Dropping it tells [`Peers`] that the connection has ended, even if its task
/// is aborted.
struct ConnectionGuard<'a> {
    peer: &'a Shared,
    link: Rc<Link>,
    peers: &'a Peers,
}

impl Drop for ConnectionGuard<'_> {
    fn drop(&mut self) {
        self.peers.disconnected(self.peer, &self.link);
    }
}

/// Logs why a peer refuses this node, once for each reason.
pub(super) fn log_refusal(peer: &Shared, reason: &str) {
    let mut peer = peer.borrow_mut();
    if peer.refused(reason) {
        tracing::error!(
            "node {} at {} refuses this node: {reason}",
            peer.node().0,
            peer.address()
        );
    }
}

/// Sets the options of a new socket: no delay for small messages, and a dead machine is noticed.
pub(crate) fn set_socket_options(stream: &TcpStream) -> Result<(), std::io::Error> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(
        &TcpKeepalive::new()
            .with_time(UNACKNOWLEDGED_LIMIT)
            .with_interval(PROBE_INTERVAL),
    )?;
    #[cfg(target_os = "linux")]
    {
        socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED_LIMIT))?;
        socket.set_tcp_notsent_lowat(UNSENT_LIMIT)?;
    }
    Ok(())
}
