//! The server side of administration: answers the requests of operators and tools.

use super::backup::Backups;
use super::change::Response;
use super::control::NodeControl;
use super::membership::send_document;
use super::status::send_status;
use super::traces::send_notes;
use crate::status::NodeStatus;
use crate::transport::hello::{self, AdminRequest, DrainRequest, HandshakeError};
use crate::transport::membership_exchange::{receive_bytes, send_bytes};
use crate::transport::stream::NodeStream;
use bytes::Bytes;
use ionian_kernel::client::Refusal;
use ionian_kernel::membership::Change;
use ionian_kernel::wire::decode_all;
use std::rc::Rc;
use tokio::io::AsyncWriteExt;

/// Answers requests about one node.
pub(crate) struct AdminServer {
    node: Rc<dyn NodeControl>,
    name: String,
    backups: Backups,
}

/// A request whose answer may take longer than a handshake.
pub(crate) enum LongRequest {
    /// A change of the membership.
    Change(Change),
    /// A snapshot with everything below this stamp.
    Snapshot(Option<u64>),
}

/// Why a request to drain does not mean the node with this status, if so.
fn mistaken(request: &DrainRequest, own: &NodeStatus) -> Option<String> {
    let DrainRequest {
        cluster,
        node,
        process,
        ..
    } = request;
    let here = format!("this is node {} of cluster {}", own.name, own.cluster);
    if (&cluster.0, &node.0) != (&own.cluster, &own.name) {
        Some(format!(
            "{here}, not node {} of cluster {}",
            node.0, cluster.0
        ))
    } else {
        process
            .filter(|process| *process != own.pid)
            .map(|process| format!("{here} in process {}, not in process {process}", own.pid))
    }
}

impl AdminServer {
    pub(crate) fn new(node: Rc<dyn NodeControl>, name: String, backups: Backups) -> Self {
        AdminServer {
            node,
            name,
            backups,
        }
    }

    /// Answers a request, or reads the rest of one that may take longer than a handshake.
    pub(crate) async fn answer(
        &self,
        stream: &mut NodeStream,
        request: AdminRequest,
    ) -> Result<Option<LongRequest>, HandshakeError> {
        match request {
            AdminRequest::Status => send_status(stream, &self.node.status().await).await?,
            AdminRequest::Notes(request) => {
                send_notes(stream, &self.node.notes(request).await).await?;
            }
            AdminRequest::Drain(request) => {
                if let Some(reason) = mistaken(&request, &self.node.status().await) {
                    // It is refused, whether or not the caller learns that.
                    let _ = hello::decline(stream, &reason).await;
                    return Err(HandshakeError::Refused(reason));
                }
                self.node.drain(request.drains);
                send_status(stream, &self.node.status().await).await?;
            }
            AdminRequest::Membership => match self.node.membership_document() {
                Some(document) => send_document(stream, &self.name, &document).await?,
                None => {
                    hello::decline(stream, "the membership of this cluster cannot change").await?;
                }
            },
            AdminRequest::Snapshot(at) => return Ok(Some(LongRequest::Snapshot(at))),
            AdminRequest::Change => {
                let change = decode_all(&receive_bytes(stream).await?)?;
                return Ok(Some(LongRequest::Change(change)));
            }
        }
        Ok(None)
    }

    /// Sends a snapshot with everything below the stamp `at`.
    pub(crate) async fn send_snapshot(
        &self,
        stream: &mut NodeStream,
        at: Option<u64>,
    ) -> Result<(), HandshakeError> {
        self.backups
            .serve(stream, &*self.node, &self.name, at)
            .await
    }

    /// Puts a change into the log. Returns what the log decides.
    ///
    /// # Errors
    /// Why it did not decide, as far as this node knows.
    pub(crate) async fn carry_out(&self, change: &Change) -> Result<Bytes, Response> {
        let answer = self.node.submit(change)?.await;
        // The lane has a time limit. No answer at all means that the node stops.
        answer
            .unwrap_or(Err(Refusal::Unknown))
            .map_err(|refusal| Response::Undecided(refusal.to_string()))
    }

    /// Sends what became of a change.
    pub(crate) async fn tell(
        &self,
        stream: &mut NodeStream,
        answer: Result<Bytes, Response>,
    ) -> Result<(), HandshakeError> {
        match answer {
            Err(Response::Refused(reason)) => return hello::decline(stream, &reason).await,
            Err(response) => hello::leave_undecided(stream, &response.to_string()).await?,
            Ok(verdict) => {
                hello::accept(stream, self.name.as_bytes()).await?;
                send_bytes(stream, &verdict).await?;
            }
        }
        Ok(stream.shutdown().await?)
    }
}
