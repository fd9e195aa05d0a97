//! The side of a handshake that was called.

use super::admission::Objection;
use super::connection::Transport;
use super::handshake::{HandshakeValidator, Rejected};
use super::hello::{self, HandshakeError, Introduction};
use super::membership_exchange::receive_membership;
use super::peer::Shared;
use super::security::NodeTls;
use super::stream::NodeStream;
use bytes::Bytes;
use ionian_kernel::layout::NodeId;
use ionian_kernel::wire::encode_all;

/// Answers a node that wants to be a peer. Returns the peer if both sides accept each other, `None`
/// if one of them had to learn the membership first and dials again.
///
/// # Errors
/// [`HandshakeError::Refused`] only if this node refuses the caller.
pub(crate) async fn welcome(
    transport: &Transport,
    stream: &mut NodeStream,
    caller: &Introduction,
) -> Result<Option<Shared>, HandshakeError> {
    let epoch = transport.peers.epoch();
    let sender = NodeId(caller.sender);
    let peer = transport.peers.peer(sender);
    let validator = HandshakeValidator {
        identity: &transport.identity,
        node: transport.node,
        name: &transport.name,
        epoch,
        caller_name: peer.as_ref().map(|_| transport.handler.name_of(sender)),
        skips: &transport.skips,
    };
    match (validator.check(caller), peer) {
        (Ok(()), Some(peer)) => {
            let met = transport
                .admission
                .accept_peer(&caller.sender_name.0, caller.directory)
                .await;
            answer(transport, stream, (&peer, caller), met).await?;
            return Ok(Some(peer));
        }
        (Err(Rejected::Outdated), _) => {
            tracing::info!(
                "sending epoch {} to node '{}', which knows epoch {}",
                epoch.0,
                caller.sender_name.0,
                caller.epoch.0
            );
            hello::refuse_epoch(stream, true).await?;
            transport.send_membership(stream).await?;
        }
        // Without TLS there is no identity to rely on.
        (Err(Rejected::Ahead), _) if transport.tls.is_some() && !is_member(transport, caller) => {
            transport.tls.iter().for_each(NodeTls::has_refused);
            let reason = format!(
                "node '{}' is not a member in epoch {}, the latest that this node knows",
                caller.sender_name.0, epoch.0
            );
            hello::decline(stream, &reason).await?;
            return Err(refused(sender, &reason));
        }
        (Err(Rejected::Ahead), _) => {
            hello::refuse_epoch(stream, false).await?;
            let membership = receive_membership(stream).await?;
            transport.handler.learn(membership);
        }
        (Err(Rejected::Refused(reason)), _) => {
            hello::decline(stream, &reason).await?;
            return Err(refused(sender, &reason));
        }
        (Ok(()), None) => unreachable!("only known nodes pass"),
    }
    Ok(None)
}

/// Whether this node knows the caller's name as that of a member. Other nodes may be removed ones:
/// they do not decide which membership this node knows.
fn is_member(transport: &Transport, caller: &Introduction) -> bool {
    let known = transport.handler.configuration();
    known.is_some_and(|known| known.member(&caller.sender_name.0).is_some())
}

/// Tells the caller whether this node accepts it, and reads whether the caller accepts in turn.
async fn answer(
    transport: &Transport,
    stream: &mut NodeStream,
    (peer, caller): (&Shared, &Introduction),
    met: Result<(), Objection>,
) -> Result<(), HandshakeError> {
    let sender = peer.borrow().node();
    match &met {
        Ok(()) => hello::accept(stream, &encode_all(&transport.acceptance())).await?,
        Err(objection) => hello::refuse(stream, objection, &transport.acceptance()).await?,
    }
    // A caller that is refused for its directory may refuse this node for the same reason.
    let theirs = match &met {
        Err(Objection::Other(_)) => Ok(Bytes::new()),
        Ok(()) | Err(Objection::IdentityMismatch(_)) => hello::receive_answer(stream).await,
    };
    if let Err(HandshakeError::IdentityMismatch { reason, .. }) = &theirs {
        transport.on_identity_mismatch(peer, reason);
    }
    if let Err(objection) = met {
        // The connection ends here whether or not the caller closes it in order.
        let _ = hello::hang_up(stream).await;
        return Err(refused(sender, &objection.into_text()));
    }
    theirs.map_err(|error| match error {
        HandshakeError::Refused(reason) => HandshakeError::RefusedByCaller(reason),
        error => error,
    })?;
    let (name, directory) = (&caller.sender_name.0, caller.directory);
    let done = transport.admission.handshake_done(sender, name, directory);
    done.map_err(|objection| refused(sender, &objection.into_text()))
}

fn refused(sender: NodeId, reason: &str) -> HandshakeError {
    HandshakeError::Refused(format!("node {}: {reason}", sender.0))
}
