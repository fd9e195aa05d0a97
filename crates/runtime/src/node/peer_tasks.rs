//! The tasks that a node has for each peer: one dials it, one asks it for the membership.

use crate::admin::membership::membership_at;
use crate::transport::connection::Transport;
use crate::transport::dial::Dialler;
use crate::transport::hello::HANDSHAKE_LIMIT;
use crate::transport::peer::Shared;
use ionian_kernel::random::Random;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::sleep;

/// How often a node that is not dialled asks for the membership.
const ASK_EVERY: Duration = Duration::from_secs(2);

/// Starts the tasks of every peer, including those that join later.
pub(crate) async fn start_for_all(transport: Rc<Transport>) {
    let mut known: Vec<Shared> = Vec::new();
    loop {
        let peers = transport.peers.all();
        for peer in peers
            .iter()
            .filter(|peer| !known.iter().any(|known| Rc::ptr_eq(known, peer)))
        {
            if peer.borrow().node() < transport.node {
                let dialler = Dialler::new(transport.clone(), peer.clone());
                transport.tasks.spawn(dialler.run());
            }
            transport
                .tasks
                .spawn(ask_for_membership(transport.clone(), peer.clone()));
        }
        known = peers;
        transport.peers.changed.notified().await;
    }
}

/// If no other node knows this one any more, no other node dials it. So a node that waits to be
/// dialled asks now and then for the membership; so does a node that is not admitted yet, which
/// reads no messages.
async fn ask_for_membership(transport: Rc<Transport>, peer: Shared) {
    let Transport {
        peers,
        handler,
        admission,
        identity,
        tls,
        ..
    } = &*transport;
    let mut random = Random::new(transport.seed ^ u64::from(peer.borrow().node().0));
    while !peers.is_stopping() && peers.has(&peer) {
        sleep(random.duration(ASK_EVERY / 2, ASK_EVERY)).await;
        let is_dialled = peer.borrow().node() < transport.node;
        let has_to_ask = match peer.borrow().is_connected() {
            true => !admission.is_admitted(),
            false => !is_dialled,
        };
        if !has_to_ask || handler.configuration().is_none() {
            continue;
        }
        let address = peer.borrow().address().to_owned();
        let name = handler.name_of(peer.borrow().node());
        if let Some(theirs) = membership_at(address, name, tls.clone(), HANDSHAKE_LIMIT).await
            && theirs.founding == identity.founding
            && theirs.deployment.cluster == identity.cluster
        {
            handler.learn(theirs.membership);
        }
    }
}
