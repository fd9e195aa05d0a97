//! Connections: one for each pair of nodes, dialled by the one with the higher number.
//!
//! One connection carries both directions, so that answers take the acknowledgements of requests
//! along and a node has half as many sockets to watch. Who dials is fixed, so two nodes never dial
//! each other at once and need no rule for which of the two connections stays. The higher number
//! dials because nodes are mostly started in order: the lower one listens already.

use crate::admission::{Admission, Objection};
use crate::backup::Backups;
use crate::frame::{Encoded, FrameError, FrameReader};
use crate::handshake::{self, Acceptance, Gatekeeper, HANDSHAKE_LIMIT, HandshakeError, Hello};
use crate::handshake::{Introduction, Text, Unwelcome};
use crate::membership::{Response, query_membership, receive_bytes, receive_membership};
use crate::membership::{send_bytes, send_document, send_membership};
use crate::peer::{Link, Peers, Shared};
use crate::settings::Identity;
use crate::status::{NodeStatus, send_status};
use crate::tasks::Tasks;
use bytes::Bytes;
use ionian_deployment::Configuration;
use ionian_kernel::client::Refusal;
use ionian_kernel::id::Epoch;
use ionian_kernel::layout::NodeId;
use ionian_kernel::membership::{Change, Membership};
use ionian_kernel::random::Random;
use ionian_kernel::role::Picture;
use ionian_kernel::wire::{WireError, decode_all, encode_all};
use socket2::{SockRef, TcpKeepalive};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::OwnedReadHalf;
use tokio::net::{TcpListener, TcpStream, lookup_host};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

/// The pauses between attempts to reach a peer: short at first, for a process that is just being
/// started, and never so long that its return goes unnoticed.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));

/// A connection that lasted this long was a good one: the next pause is the shortest again.
const STABLE: Duration = Duration::from_secs(1);

/// The pause after a refusal, which only a human being's action can change.
const REFUSED_PAUSE: Duration = Duration::from_secs(2);

/// How long the other side may leave bytes unacknowledged before the connection is given up.
/// Without it a cut network would be noticed after a quarter of an hour, and its repair up to two
/// minutes late.
const UNACKNOWLEDGED_LIMIT: Duration = Duration::from_secs(10);

/// How often a node that is not dialled asks whether it should be.
const ASK_EVERY: Duration = Duration::from_secs(2);

/// How many callers may be in the handshake at once. When one more comes, the one that has been
/// there longest has to go: peers take a millisecond, strangers who say nothing stay.
const STRANGERS_LIMIT: usize = 64;

/// So much may wait in a socket without being sent: what is said next is not behind more than that.
#[cfg(target_os = "linux")]
const UNSENT_LIMIT: u32 = 256 << 10;

/// After so many bytes a reader lets the pump run, however much more there is: no connection
/// starves the others, and what waits for the pump stays bounded.
const TURN_BYTES: usize = 1 << 20;

/// The event loop as connections see it.
pub(crate) trait Host {
    /// Takes in one message.
    fn ingest(&self, members: u64, message: Encoded<'_>) -> Result<(), WireError>;

    /// Takes in what somebody else knows of the membership.
    fn learn(&self, membership: Membership);

    /// What is known of it; none where the membership cannot change.
    fn configuration(&self) -> Option<Configuration>;

    /// Submits a change of the membership; the channel brings what the log says.
    fn submit(
        &self,
        change: &Change,
    ) -> Result<oneshot::Receiver<Result<Bytes, Refusal>>, Response>;

    /// Everything that was readable has been taken in, as far as the caller is concerned.
    fn ingested(&self);

    /// What a node is called; empty where nobody says.
    fn name_of(&self, node: NodeId) -> String;

    fn status(&self) -> NodeStatus;

    /// The node is to do without clients and leadership, or no longer.
    fn drain(&self, drains: bool);

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
    /// The commands that this node leaves out.
    pub(crate) skips: String,
}

impl Transport {
    /// Starts to listen and to dial. Returns the task that listens.
    pub(crate) fn start(self: Rc<Self>, listener: TcpListener) -> AbortHandle {
        self.tasks.spawn(self.clone().look_after_peers());
        self.tasks.spawn(self.clone().accept_for_ever(listener))
    }

    /// Gives every peer a task of its own, those too that join later.
    async fn look_after_peers(self: Rc<Self>) {
        let mut known: Vec<Shared> = Vec::new();
        loop {
            let peers = self.peers.all();
            for peer in peers
                .iter()
                .filter(|peer| !known.iter().any(|known| Rc::ptr_eq(known, peer)))
            {
                if peer.borrow().node() < self.node {
                    self.tasks.spawn(self.clone().dial_for_ever(peer.clone()));
                }
                self.tasks.spawn(self.clone().ask_for_ever(peer.clone()));
            }
            known = peers;
            self.peers.changed.notified().await;
        }
    }

    /// Nobody may know this node any more, and then nobody dials it. So one that waits to be
    /// dialled asks now and then what the membership is; and one that is not admitted yet, and
    /// reads nothing, asks too.
    async fn ask_for_ever(self: Rc<Self>, peer: Shared) {
        let mut random = Random::new(self.seed ^ u64::from(peer.borrow().node().0));
        while !self.peers.is_stopping() && self.peers.has(&peer) {
            sleep(random.duration(ASK_EVERY / 2, ASK_EVERY)).await;
            let is_dialled = peer.borrow().node() < self.node;
            let has_to_ask = match peer.borrow().is_connected() {
                true => !self.admission.is_admitted(),
                false => !is_dialled,
            };
            if !has_to_ask || self.host.configuration().is_none() {
                continue;
            }
            let address = peer.borrow().address().to_owned();
            let Some(found) = lookup_host(address)
                .await
                .ok()
                .and_then(|mut found| found.next())
            else {
                continue;
            };
            if let Ok(theirs) = query_membership(found, HANDSHAKE_LIMIT).await
                && theirs.founding == self.identity.founding
                && theirs.deployment.cluster == self.identity.cluster
            {
                self.host.learn(theirs.membership);
            }
        }
    }

    async fn dial_for_ever(self: Rc<Self>, peer: Shared) {
        let node = peer.borrow().node();
        let address = peer.borrow().address().to_owned();
        let mut random = Random::new(self.seed ^ u64::from(node.0));
        let mut backoff = BACKOFF.0;
        let mut reached_before = true;
        while !self.peers.is_stopping() && self.peers.has(&peer) {
            match within_limit(self.dial(node, &address)).await {
                Ok((stream, name, agreed)) => {
                    let began = Instant::now();
                    self.serve(&peer, name, agreed, stream).await;
                    if began.elapsed() > STABLE {
                        backoff = BACKOFF.0;
                    }
                    reached_before = true;
                }
                Err(HandshakeError::Outdated | HandshakeError::Behind) => backoff = BACKOFF.0,
                Err(HandshakeError::Estranged { reason, .. }) => {
                    self.estranged(&peer, &reason);
                    sleep(REFUSED_PAUSE).await;
                    continue;
                }
                Err(HandshakeError::Refused(reason)) => {
                    note_refusal(&peer, &reason);
                    sleep(REFUSED_PAUSE).await;
                    continue;
                }
                Err(HandshakeError::Unwanted(reason)) => {
                    if core::mem::take(&mut reached_before) {
                        tracing::error!("node {} is refused by this node: {reason}", node.0);
                    }
                    sleep(REFUSED_PAUSE).await;
                    continue;
                }
                Err(error) => {
                    // Said once, not every half second.
                    if core::mem::take(&mut reached_before) {
                        tracing::info!(
                            "node {} at {address} cannot be reached yet: {error}",
                            node.0
                        );
                    }
                }
            }
            sleep(random.duration(backoff / 2, backoff)).await;
            backoff = (backoff * 2).min(BACKOFF.1);
        }
    }

    /// A peer knows this node by another data directory.
    fn estranged(&self, peer: &Shared, reason: &str) {
        note_refusal(peer, reason);
        self.admission.refused(peer.borrow().node(), reason);
    }

    /// Who this is, for those who dial.
    fn acceptance(&self) -> Acceptance {
        Acceptance {
            name: self.name.as_str().into(),
            directory: self.admission.own(),
        }
    }

    async fn dial(
        &self,
        peer: NodeId,
        address: &str,
    ) -> Result<(TcpStream, String, Epoch), HandshakeError> {
        let mut stream = TcpStream::connect(address).await?;
        prepare(&stream)?;
        let epoch = self.peers.epoch();
        let introduction = Introduction {
            cluster: self.identity.cluster.as_str().into(),
            protocol: self.identity.protocol.as_str().into(),
            founding: self.identity.founding,
            epoch,
            sender: self.node.0,
            sender_name: self.name.as_str().into(),
            target: peer.0,
            directory: self.admission.own(),
            skips: self.skips.as_str().into(),
        };
        handshake::send_hello(&mut stream, &Hello::Peer(introduction)).await?;
        let answer = handshake::receive_answer(&mut stream).await;
        match &answer {
            Err(HandshakeError::Outdated) => {
                self.host.learn(receive_membership(&mut stream).await?)
            }
            Err(HandshakeError::Behind) => self.tell(&mut stream).await?,
            Err(HandshakeError::Estranged { by, .. }) => {
                if let Some(objection) = self.admission.objection(&by.name.0, by.directory) {
                    handshake::refuse(&mut stream, &objection, &self.acceptance()).await?;
                }
            }
            _ => {}
        }
        let Acceptance {
            name: Text(name),
            directory,
        } = decode_all(&answer?)?;
        if let Err(objection) = self.admission.meet(&name, directory).await {
            handshake::refuse(&mut stream, &objection, &self.acceptance()).await?;
            let _ = handshake::hang_up(&mut stream).await;
            return Err(HandshakeError::Unwanted(objection.into_text()));
        }
        handshake::accept(&mut stream, &[]).await?;
        self.admission.shook_hands(peer);
        Ok((stream, name, epoch))
    }

    /// Tells what this node knows of the membership.
    async fn tell(&self, stream: &mut TcpStream) -> Result<(), HandshakeError> {
        let membership = self
            .host
            .configuration()
            .map(|known| known.membership)
            .unwrap_or_default();
        send_membership(stream, &membership).await?;
        Ok(stream.shutdown().await?)
    }

    async fn accept_for_ever(self: Rc<Self>, listener: TcpListener) {
        let strangers = Rc::new(Strangers::default());
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let (number, task) = strangers.next();
                    let greet = self.clone().greet(
                        stream,
                        Stranger {
                            number,
                            among: strangers.clone(),
                        },
                    );
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
        let from = stream.peer_addr().map_or_else(
            |_| "an unknown address".to_owned(),
            |address| address.to_string(),
        );
        match within_limit(self.welcome(&mut stream)).await {
            Ok(Welcome::Peer(caller, peer)) => {
                drop(stranger);
                self.serve(&peer, caller.sender_name.0, caller.epoch, stream)
                    .await;
            }
            Ok(Welcome::Change(change)) => {
                if let Err(error) = self.answer_change(&mut stream, &change).await {
                    tracing::warn!(
                        "{from} was not told what became of its change of the membership: {error}"
                    );
                }
            }
            Ok(Welcome::Backup(at)) => {
                drop(stranger);
                if let Err(error) = self
                    .backups
                    .serve(&mut stream, &*self.host, &self.name, at)
                    .await
                {
                    tracing::warn!("a snapshot for {from} was not finished: {error}");
                }
            }
            Ok(Welcome::Over) => {}
            Err(HandshakeError::Refused(reason)) => {
                tracing::warn!("refused a connection from {from}: {reason}")
            }
            // It was noted already, in more words.
            Err(HandshakeError::Estranged { .. }) => {}
            Err(HandshakeError::Silent) => tracing::debug!("{from} connected and left"),
            Err(error) => {
                tracing::warn!("dropped a connection from {from} that was no peer's: {error}")
            }
        }
    }

    /// Finds out who calls and answers.
    async fn welcome(&self, stream: &mut TcpStream) -> Result<Welcome, HandshakeError> {
        prepare(stream)?;
        match handshake::receive_hello(stream).await? {
            Hello::Status => send_status(stream, &self.host.status()).await?,
            Hello::Drain(drains) => {
                self.host.drain(drains);
                send_status(stream, &self.host.status()).await?;
            }
            Hello::Snapshot(at) => return Ok(Welcome::Backup(at)),
            Hello::Membership => match self.host.configuration() {
                Some(known) => send_document(stream, &self.name, &known.to_toml()).await?,
                None => {
                    handshake::decline(stream, "the membership of this cluster cannot change")
                        .await?
                }
            },
            Hello::Change => {
                return Ok(Welcome::Change(decode_all(&receive_bytes(stream).await?)?));
            }
            Hello::Peer(caller) => return self.welcome_peer(stream, caller).await,
        }
        Ok(Welcome::Over)
    }

    async fn welcome_peer(
        &self,
        stream: &mut TcpStream,
        caller: Introduction,
    ) -> Result<Welcome, HandshakeError> {
        let (identity, node, name, epoch) = (
            &self.identity,
            self.node,
            self.name.as_str(),
            self.peers.epoch(),
        );
        let peer = self.peers.peer(NodeId(caller.sender));
        let caller_name = peer
            .as_ref()
            .map(|_| self.host.name_of(NodeId(caller.sender)));
        let skips = &self.skips;
        match (
            Gatekeeper {
                identity,
                node,
                name,
                epoch,
                caller_name,
                skips,
            }
            .check(&caller),
            peer,
        ) {
            (Ok(()), Some(peer)) => {
                let checked = self
                    .admission
                    .meet(&caller.sender_name.0, caller.directory)
                    .await;
                self.answer(stream, &peer, checked).await?;
                return Ok(Welcome::Peer(caller, peer));
            }
            (Err(Unwelcome::Outdated), _) => {
                let Introduction {
                    sender_name: Text(called),
                    epoch: theirs,
                    ..
                } = &caller;
                tracing::info!(
                    "node '{called}', which knew of epoch {}, is told of epoch {}",
                    theirs.0,
                    epoch.0
                );
                handshake::tell_epoch(stream, true).await?;
                self.tell(stream).await?;
            }
            (Err(Unwelcome::Ahead), _) => {
                handshake::tell_epoch(stream, false).await?;
                self.host.learn(receive_membership(stream).await?);
            }
            (Err(Unwelcome::Refused(reason)), _) => {
                handshake::decline(stream, &reason).await?;
                return Err(HandshakeError::Refused(format!(
                    "node {} was told: {reason}",
                    caller.sender
                )));
            }
            (Ok(()), None) => unreachable!("only known nodes pass"),
        }
        Ok(Welcome::Over)
    }

    /// Tells a peer that has called whether it is accepted, and hears whether it accepts in turn.
    async fn answer(
        &self,
        stream: &mut TcpStream,
        peer: &Shared,
        checked: Result<(), Objection>,
    ) -> Result<(), HandshakeError> {
        let sender = peer.borrow().node();
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
            self.estranged(peer, reason);
        }
        if let Err(objection) = checked {
            // How the conversation ends does not matter any more.
            let _ = handshake::hang_up(stream).await;
            let reason = objection.into_text();
            return Err(HandshakeError::Refused(format!(
                "node {} was told: {reason}",
                sender.0
            )));
        }
        theirs?;
        self.admission.shook_hands(sender);
        Ok(())
    }

    /// Puts a change into the log and says what came of it.
    async fn answer_change(
        &self,
        stream: &mut TcpStream,
        change: &Change,
    ) -> Result<(), HandshakeError> {
        let outcome = match self.host.submit(change) {
            Err(Response::Refused(reason)) => return handshake::decline(stream, &reason).await,
            Err(response) => Err(response.to_string()),
            // The lane has patience of its own. No answer at all means that the node stops.
            Ok(answer) => answer
                .await
                .unwrap_or(Err(Refusal::Unknown))
                .map_err(|refusal| refusal.to_string()),
        };
        match outcome {
            Err(reason) => handshake::leave_undecided(stream, &reason).await?,
            Ok(verdict) => {
                handshake::accept(stream, self.name.as_bytes()).await?;
                send_bytes(stream, &verdict).await?;
            }
        }
        Ok(stream.shutdown().await?)
    }

    /// Carries messages until the connection ends. In the handshake both sides were of the epoch
    /// `agreed`.
    async fn serve(&self, shared: &Shared, name: String, agreed: Epoch, stream: TcpStream) {
        if !self.peers.has(shared) {
            return;
        }
        let peer = shared.borrow().node();
        let (reader, writer) = stream.into_split();
        let link = self.peers.connected(shared, name, agreed, writer);
        let standing = Standing {
            peer: shared,
            link,
            peers: &self.peers,
        };
        // Roles that are not started yet take nothing in: until then it waits with the sender.
        self.admission.admitted().await;
        let end = self.read(shared, reader).await;
        match (standing.link.take_reason(), end) {
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

    async fn read(&self, peer: &Shared, mut stream: OwnedReadHalf) -> End {
        let mut frames = FrameReader::default();
        let mut turn = 0;
        loop {
            let count = match stream.read_buf(frames.space()).await {
                Ok(0) => return End::Closed,
                Ok(count) => count,
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
                    if let Err(error) = self.host.ingest(frame.members, frame.message) {
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

/// What a caller wants further.
enum Welcome {
    /// To be this peer.
    Peer(Introduction, Shared),
    /// To change the membership.
    Change(Change),
    /// A snapshot with everything below this stamp.
    Backup(u64),
    /// Nothing.
    Over,
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
    peer: &'a Shared,
    link: Rc<Link>,
    peers: &'a Peers,
}

impl Drop for Standing<'_> {
    fn drop(&mut self) {
        self.peers.disconnected(self.peer, &self.link);
    }
}

fn note_refusal(peer: &Shared, reason: &str) {
    let mut peer = peer.borrow_mut();
    if peer.refused(reason) {
        tracing::error!(
            "node {} at {} refuses this node: {reason}",
            peer.node().0,
            peer.address()
        );
    }
}

async fn within_limit<T>(
    talk: impl Future<Output = Result<T, HandshakeError>>,
) -> Result<T, HandshakeError> {
    timeout(HANDSHAKE_LIMIT, talk)
        .await
        .unwrap_or(Err(HandshakeError::TimedOut))
}

/// A lone message goes out at once, and a dead machine is noticed.
fn prepare(stream: &TcpStream) -> Result<(), std::io::Error> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(
        &TcpKeepalive::new()
            .with_time(UNACKNOWLEDGED_LIMIT)
            .with_interval(STABLE),
    )?;
    #[cfg(target_os = "linux")]
    {
        socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED_LIMIT))?;
        socket.set_tcp_notsent_lowat(UNSENT_LIMIT)?;
    }
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
        self.among
            .waiting
            .borrow_mut()
            .retain(|(number, _)| *number != self.number);
    }
}
