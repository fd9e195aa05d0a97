//! The dialling side of a connection.

use super::connection::{Transport, log_refusal};
use super::hello::{
    self, Acceptance, HandshakeError, Hello, Introduction, Text, within_handshake_limit,
};
use super::membership_exchange::receive_membership;
use super::peer::Shared;
use super::security;
use super::stream::NodeStream;
use ionian_kernel::id::Epoch;
use ionian_kernel::layout::NodeId;
use ionian_kernel::level::Level;
use ionian_kernel::random::Random;
use ionian_kernel::wire::decode_all;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// The shortest and the longest pause between attempts to reach a peer: short at first, for a
/// process that is just being started, and never so long that its return goes unnoticed.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));

/// After a connection that lasted this long the next pause is the shortest again.
const STABLE: Duration = Duration::from_secs(1);

/// The pause after a refusal, which only an operator's action can change.
const REFUSED_PAUSE: Duration = Duration::from_secs(2);

/// Keeps a connection to one peer.
pub(crate) struct Dialler {
    transport: Rc<Transport>,
    peer: Shared,
    node: NodeId,
    address: String,
}

impl Dialler {
    pub(crate) fn new(transport: Rc<Transport>, peer: Shared) -> Self {
        let (node, address) = {
            let peer = peer.borrow();
            (peer.node(), peer.address().to_owned())
        };
        Dialler {
            transport,
            peer,
            node,
            address,
        }
    }

    /// Dials the peer and serves the connection, again and again, while it is a peer of this node.
    pub(crate) async fn run(self) {
        let Transport { peers, seed, .. } = &*self.transport;
        let mut random = Random::new(seed ^ u64::from(self.node.0));
        let mut backoff = BACKOFF.0;
        let mut reached_before = true;
        while !peers.is_stopping() && peers.has(&self.peer) {
            match within_handshake_limit(self.dial()).await {
                Ok((stream, name, agreed)) => {
                    let began = Instant::now();
                    self.transport.serve(&self.peer, name, agreed, stream).await;
                    if began.elapsed() > STABLE {
                        backoff = BACKOFF.0;
                    }
                    reached_before = true;
                }
                Err(HandshakeError::Outdated | HandshakeError::Behind) if !peers.is_leaving() => {
                    backoff = BACKOFF.0;
                }
                Err(error) => {
                    if self.log_failure(error, &mut reached_before) {
                        sleep(REFUSED_PAUSE).await;
                        continue;
                    }
                }
            }
            sleep(random.duration(backoff / 2, backoff)).await;
            backoff = (backoff * 2).min(BACKOFF.1);
        }
    }

    /// Logs why there is no connection: a refusal by the peer once for each reason, everything else
    /// only if the peer was `reached_before`, not every half second. Returns whether one of the two
    /// nodes refuses the other.
    fn log_failure(&self, error: HandshakeError, reached_before: &mut bool) -> bool {
        match error {
            HandshakeError::IdentityMismatch { reason, .. } => {
                self.transport.on_identity_mismatch(&self.peer, &reason);
                true
            }
            HandshakeError::Refused(_) if self.transport.peers.is_leaving() => true,
            HandshakeError::Refused(reason) => {
                log_refusal(&self.peer, &reason);
                true
            }
            HandshakeError::RefusedHere(reason) => {
                if core::mem::take(reached_before) {
                    tracing::error!("node {} is refused by this node: {reason}", self.node.0);
                }
                true
            }
            error => {
                if core::mem::take(reached_before) {
                    let Dialler { node, address, .. } = self;
                    tracing::info!(
                        "node {} at {address} cannot be reached yet: {error}",
                        node.0
                    );
                }
                false
            }
        }
    }

    async fn dial(&self) -> Result<(NodeStream, String, Epoch), HandshakeError> {
        let transport = &*self.transport;
        let named = transport.handler.name_of(self.node);
        let expected = Some(&*named).filter(|name| !name.is_empty());
        let mut stream = security::dial(&self.address, transport.tls.as_ref(), expected).await?;
        let epoch = transport.peers.epoch();
        let level = transport.handler.configuration();
        let level = level.map_or(Level::FIRST, |known| known.membership.level);
        let introduction = Hello::Peer(level, self.introduction(epoch));
        hello::send_hello(&mut stream, &introduction).await?;
        let answer = hello::receive_answer(&mut stream).await;
        match &answer {
            Err(HandshakeError::Outdated) => {
                let membership = receive_membership(&mut stream).await?;
                transport.handler.learn(membership);
            }
            Err(HandshakeError::Behind) => transport.send_membership(&mut stream).await?,
            Err(HandshakeError::IdentityMismatch { by, .. }) => {
                if let Some(objection) = transport.admission.objection(&by.name.0, by.directory) {
                    hello::refuse(&mut stream, &objection, &transport.acceptance()).await?;
                }
            }
            _ => {}
        }
        let Acceptance {
            name: Text(name),
            directory,
        } = decode_all(&answer?)?;
        security::check_name(&stream, &transport.identity.cluster, &name)?;
        if let Err(objection) = transport.admission.accept_peer(&name, directory).await {
            hello::refuse(&mut stream, &objection, &transport.acceptance()).await?;
            let _ = hello::hang_up(&mut stream).await;
            return Err(HandshakeError::RefusedHere(objection.into_text()));
        }
        hello::accept(&mut stream, &[]).await?;
        let done = transport
            .admission
            .handshake_done(self.node, &name, directory);
        done.map_err(|objection| HandshakeError::RefusedHere(objection.into_text()))?;
        Ok((stream, name, epoch))
    }

    fn introduction(&self, epoch: Epoch) -> Introduction {
        let Transport {
            identity,
            node,
            name,
            admission,
            skips,
            ..
        } = &*self.transport;
        Introduction {
            cluster: identity.cluster.as_str().into(),
            protocol: identity.protocol.as_str().into(),
            founding: identity.founding,
            epoch,
            sender: node.0,
            sender_name: name.as_str().into(),
            target: self.node.0,
            directory: admission.own(),
            skips: skips.as_str().into(),
        }
    }
}
