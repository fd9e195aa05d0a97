//! Connections: one for each pair of nodes, dialled by the one with the higher number.
//!
//! One connection carries both directions, so that answers take the acknowledgements of requests
//! along and a node has half as many sockets to watch. Who dials is fixed, so two nodes never dial
//! each other at once and need no rule for which of the two connections stays. The higher number
//! dials because nodes are mostly started in order: the lower one listens already.

use crate::admission::{Admission, Objection};
use crate::backup::Backups;
use crate::frame::{FrameError, FrameReader};
use crate::handshake::{self, Acceptance, Gatekeeper, HANDSHAKE_LIMIT, HandshakeError, Hello, Introduction, Text};
use crate::peer::{Link, Peers};
use crate::settings::Identity;
use crate::status::{NodeStatus, send_status};
use crate::tasks::Tasks;
use bytes::Bytes;
use ionian_kernel::layout::NodeId;
use ionian_kernel::random::Random;
use ionian_kernel::role::Picture;
use ionian_kernel::wire::{WireError, decode_all, encode_all};
use socket2::{SockRef, TcpKeepalive};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::io::AsyncReadExt;
use tokio::net::tcp::OwnedReadHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

/// The pauses between attempts to reach a peer: short at first, for a process that is just being
/// started, and never so long that its return goes unnoticed.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));

/// A connection that lasted this long was a good one: the next pause is the shortest again.
const STABLE: Duration = Duration::from_secs(1);

/// The pause after a refusal, which only a human being's action can change.
const REFUSED_PAUSE: Duration = Duration::from_secs(2);

/// How long the other side may leave bytes unacknowledged before the connection is given up. Without
/// it a cut network would be noticed after a quarter of an hour, and its repair up to two minutes late.
const UNACKNOWLEDGED_LIMIT: Duration = Duration::from_secs(10);

/// How many callers may be in the handshake at once. When one more comes, the one that has been there
/// longest has to go: peers take a millisecond, strangers who say nothing stay.
const STRANGERS_LIMIT: usize = 64;

/// After so many bytes a reader lets the pump run, however much more there is: no connection starves
/// the others, and what waits for the pump stays bounded.
const TURN_BYTES: usize = 1 << 20;

/// The event loop as connections see it.
pub(crate) trait Host {
    /// Takes in one message.
    fn ingest(&self, members: u64, message: &Bytes) -> Result<(), WireError>;

    /// Everything that was readable has been taken in, as far as the caller is concerned.
    fn ingested(&self);

    fn status(&self) -> NodeStatus;

    /// A picture of the state with everything below the stamp `at`.
    fn freeze(&self, at: u64) -> Picture;
}

/// What every connection of a node knows.
pub(crate) struct Transport {
    pub(crate) identity: Identity,
    pub(crate) node: NodeId,
    pub(crate) name: String,
    pub(crate) peers: Rc<Peers>,
    pub(crate) host: Rc<dyn Host>,
    pub(crate) admission: Rc<Admission>,
    pub(crate) tasks: Rc<Tasks>,
    pub(crate) seed: u64,
    pub(crate) backups: Backups,
}

/// A caller whose business takes longer than a handshake.
enum Caller {
    Peer(Introduction),
    /// Wants a snapshot with everything below this stamp.
    Backup(u64),
}

impl Transport {
    /// Starts to listen and to dial. Returns the task that listens.
    pub(crate) fn start(self: Rc<Self>, listener: TcpListener) -> AbortHandle {
        for lower in 0..self.node.0 {
            self.tasks.spawn(self.clone().dial_for_ever(NodeId(lower)));
        }
        self.tasks.spawn(self.clone().accept_for_ever(listener))
    }

    async fn dial_for_ever(self: Rc<Self>, peer: NodeId) {
        let mut random = Random::new(self.seed ^ peer.0 as u64);
        let mut backoff = BACKOFF.0;
        let mut reached_before = true;
        while !self.peers.is_stopping() {
            match within_limit(self.dial(peer)).await {
                Ok((stream, name)) => {
                    let began = Instant::now();
                    self.serve(peer, name, stream).await;
                    if began.elapsed() > STABLE {
                        backoff = BACKOFF.0;
                    }
                    reached_before = true;
                }
                Err(HandshakeError::Estranged { reason, .. }) => {
                    self.estranged(peer, &reason);
                    sleep(REFUSED_PAUSE).await;
                    continue;
                }
                Err(HandshakeError::Refused(reason)) => {
                    self.note_refusal(peer, &reason);
                    sleep(REFUSED_PAUSE).await;
                    continue;
                }
                Err(HandshakeError::Unwanted(reason)) => {
                    if core::mem::take(&mut reached_before) {
                        tracing::error!("node {} is refused by this node: {reason}", peer.0);
                    }
                    sleep(REFUSED_PAUSE).await;
                    continue;
                }
                Err(error) => {
                    // Said once, not every half second.
                    if core::mem::take(&mut reached_before) {
                        let address = self.peers.address(peer);
                        tracing::info!("node {} at {address} cannot be reached yet: {error}", peer.0);
                    }
                }
            }
            sleep(random.duration(backoff / 2, backoff)).await;
            backoff = (backoff * 2).min(BACKOFF.1);
        }
    }

    fn note_refusal(&self, peer: NodeId, reason: &str) {
        if self.peers.refused(peer, reason) {
            tracing::error!("node {} at {} refuses this node: {reason}", peer.0, self.peers.address(peer));
        }
    }

    /// A peer knows this node by another data directory.
    fn estranged(&self, peer: NodeId, reason: &str) {
        self.note_refusal(peer, reason);
        self.admission.refused(peer, reason);
    }

    /// Who this is, for those who dial.
    fn acceptance(&self) -> Acceptance {
        Acceptance { name: self.name.as_str().into(), directory: self.admission.own() }
    }

    async fn dial(&self, peer: NodeId) -> Result<(TcpStream, String), HandshakeError> {
        let mut stream = TcpStream::connect(self.peers.address(peer)).await?;
        prepare(&stream)?;
        let introduction = Introduction {
            cluster: self.identity.cluster.as_str().into(),
            protocol: self.identity.protocol.as_str().into(),
            deployment: self.identity.deployment,
            sender: self.node.0,
            sender_name: self.name.as_str().into(),
            target: peer.0,
            directory: self.admission.own(),
        };
        handshake::send_hello(&mut stream, &Hello::Peer(introduction)).await?;
        let answer = handshake::receive_answer(&mut stream).await;
        if let Err(HandshakeError::Estranged { by, .. }) = &answer
            && let Some(objection) = self.admission.objection(&by.name.0, by.directory)
        {
            handshake::refuse(&mut stream, &objection, &self.acceptance()).await?;
        }
        let Acceptance { name: Text(name), directory } = decode_all(&answer?)?;
        if let Err(objection) = self.admission.meet(&name, directory).await {
            handshake::refuse(&mut stream, &objection, &self.acceptance()).await?;
            let _ = handshake::hang_up(&mut stream).await;
            return Err(HandshakeError::Unwanted(objection.into_text()));
        }
        handshake::accept(&mut stream, &[]).await?;
        self.admission.shook_hands(peer);
        Ok((stream, name))
    }

    async fn accept_for_ever(self: Rc<Self>, listener: TcpListener) {
        let strangers = Rc::new(Strangers::default());
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let (number, task) = strangers.next();
                    let greet = self.clone().greet(stream, Stranger { number, among: strangers.clone() });
                    task(self.tasks.spawn(greet));
                }
                Err(error) => {
                    // Mostly: too many open files. Others end in time.
                    tracing::warn!("cannot accept a connection: {error}");
                    sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }

    async fn greet(self: Rc<Self>, mut stream: TcpStream, stranger: Stranger) {
        let from = stream.peer_addr().map_or_else(|_| "an unknown address".to_owned(), |address| address.to_string());
        match within_limit(self.welcome(&mut stream)).await {
            Ok(Some(Caller::Peer(caller))) => {
                drop(stranger);
                self.serve(NodeId(caller.sender), caller.sender_name.0, stream).await;
            }
            Ok(Some(Caller::Backup(at))) => {
                drop(stranger);
                if let Err(error) = self.backups.serve(&mut stream, &*self.host, &self.name, at).await {
                    tracing::warn!("a snapshot for {from} was not finished: {error}");
                }
            }
            Ok(None) => {}
            Err(HandshakeError::Refused(reason)) => tracing::warn!("refused a connection from {from}: {reason}"),
            // It was noted already, in more words.
            Err(HandshakeError::Estranged { .. }) => {}
            Err(HandshakeError::Silent) => tracing::debug!("{from} connected and left"),
            Err(error) => tracing::warn!("dropped a connection from {from} that was no peer's: {error}"),
        }
    }

    /// Finds out who calls and answers; a caller is returned if there is more to do: a peer was accepted.
    async fn welcome(&self, stream: &mut TcpStream) -> Result<Option<Caller>, HandshakeError> {
        prepare(stream)?;
        match handshake::receive_hello(stream).await? {
            Hello::Status => {
                send_status(stream, &self.host.status()).await?;
                Ok(None)
            }
            Hello::Snapshot(at) => Ok(Some(Caller::Backup(at))),
            Hello::Peer(caller) => {
                let (identity, node, name) = (&self.identity, self.node, self.name.as_str());
                let gatekeeper = Gatekeeper { identity, node, name, nodes: self.peers.count() };
                let checked = match gatekeeper.check(&caller) {
                    Ok(()) => self.admission.meet(&caller.sender_name.0, caller.directory).await,
                    Err(reason) => Err(Objection::Other(reason)),
                };
                self.answer(stream, &caller, checked).await?;
                Ok(Some(Caller::Peer(caller)))
            }
        }
    }

    /// Tells a peer that has called whether it is accepted, and hears whether it accepts in turn.
    async fn answer(
        &self,
        stream: &mut TcpStream,
        caller: &Introduction,
        checked: Result<(), Objection>,
    ) -> Result<(), HandshakeError> {
        let sender = NodeId(caller.sender);
        match &checked {
            Ok(()) => handshake::accept(stream, &encode_all(&self.acceptance())).await?,
            Err(objection) => handshake::refuse(stream, objection, &self.acceptance()).await?,
        }
        // One that is refused for its directory may refuse this node for the same reason.
        let theirs = match &checked {
            Err(Objection::Other(_)) => Ok(Bytes::new()),
            Ok(()) | Err(Objection::Estranged(_)) => handshake::receive_answer(stream).await,
        };
        if let Err(HandshakeError::Estranged { reason, .. }) = &theirs {
            self.estranged(sender, reason);
        }
        if let Err(objection) = checked {
            // How the conversation ends does not matter any more.
            let _ = handshake::hang_up(stream).await;
            let reason = objection.into_text();
            return Err(HandshakeError::Refused(format!("node {} was told: {reason}", sender.0)));
        }
        theirs?;
        self.admission.shook_hands(sender);
        Ok(())
    }

    /// Carries messages until the connection ends.
    async fn serve(&self, peer: NodeId, name: String, stream: TcpStream) {
        let (reader, writer) = stream.into_split();
        let standing = Standing { peer, link: self.peers.connected(peer, name, writer), peers: &self.peers };
        // Roles that are not started yet take nothing in: until then it waits with the sender.
        self.admission.admitted().await;
        let end = self.read(peer, reader).await;
        match (standing.link.take_reason(), end) {
            (Some(reason), _) => tracing::info!("the connection to node {} is closed: {reason}", peer.0),
            (None, End::Closed) => tracing::info!("node {} has closed the connection", peer.0),
            (None, End::Io(error)) => tracing::info!("the connection to node {} broke: {error}", peer.0),
            (None, End::Frame(error)) => {
                tracing::error!("the connection to node {} is closed, it sent no valid frame: {error}", peer.0);
            }
            (None, End::Message(error)) => {
                tracing::error!("the connection to node {} is closed, it sent no valid message: {error}", peer.0);
            }
        }
    }

    async fn read(&self, peer: NodeId, mut stream: OwnedReadHalf) -> End {
        let mut frames = FrameReader::default();
        let mut turn = 0;
        loop {
            let count = match stream.read_buf(frames.space()).await {
                Ok(0) => return End::Closed,
                Ok(count) => count,
                Err(error) => return End::Io(error),
            };
            let taken = self.take_in(&mut frames);
            self.peers.count_in(peer, count, taken.frames);
            if let Some(end) = taken.end {
                return end;
            }
            turn += count;
            if turn >= TURN_BYTES {
                turn = 0;
                tokio::task::yield_now().await;
            }
        }
    }

    /// Takes in every whole frame.
    fn take_in(&self, frames: &mut FrameReader) -> Taken {
        let mut taken = Taken { frames: 0, end: None };
        loop {
            match frames.next_frame() {
                Ok(None) => break,
                Ok(Some(frame)) => {
                    if let Err(error) = self.host.ingest(frame.members, &frame.message) {
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
            self.host.ingested();
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

/// A connection that stands; when this goes, in whatever way, it does no longer.
struct Standing<'a> {
    peer: NodeId,
    link: Rc<Link>,
    peers: &'a Peers,
}

impl Drop for Standing<'_> {
    fn drop(&mut self) {
        self.peers.disconnected(self.peer, &self.link);
    }
}

async fn within_limit<T>(talk: impl Future<Output = Result<T, HandshakeError>>) -> Result<T, HandshakeError> {
    timeout(HANDSHAKE_LIMIT, talk).await.unwrap_or(Err(HandshakeError::TimedOut))
}

/// A lone message goes out at once, and a dead machine is noticed.
fn prepare(stream: &TcpStream) -> Result<(), std::io::Error> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(UNACKNOWLEDGED_LIMIT).with_interval(STABLE))?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED_LIMIT))?;
    Ok(())
}

/// The callers in the handshake, the longest there first.
#[derive(Default)]
struct Strangers {
    waiting: RefCell<VecDeque<(u64, AbortHandle)>>,
    numbers: std::cell::Cell<u64>,
}

impl Strangers {
    /// A number for the next caller, and where to put its task.
    fn next(self: &Rc<Self>) -> (u64, impl FnOnce(AbortHandle)) {
        let number = self.numbers.get();
        self.numbers.set(number + 1);
        (number, move |task| {
            let mut waiting = self.waiting.borrow_mut();
            waiting.push_back((number, task));
            if waiting.len() > STRANGERS_LIMIT {
                let (_, longest) = waiting.pop_front().expect("there are some");
                longest.abort();
            }
        })
    }
}

/// One caller in the handshake.
struct Stranger {
    number: u64,
    among: Rc<Strangers>,
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.among.waiting.borrow_mut().retain(|(number, _)| *number != self.number);
    }
}
