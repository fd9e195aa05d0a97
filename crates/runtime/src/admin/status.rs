//! The status of a node: one JSON document.

use super::contact::Contact;
use super::query::{QueryError, ask, connect};
use crate::status::NodeStatus;
use crate::transport::hello::{
    self, AdminRequest, DrainRequest, HANDSHAKE_LIMIT, HandshakeError, Text,
};
use crate::transport::stream::NodeStream;
use nix::time::{ClockId, clock_gettime};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// The largest document that a query takes in.
const MAX_DOCUMENT: u64 = 16 << 20;

/// Asks a node for its status.
///
/// # Errors
/// If the node cannot be reached, does not answer within `limit`, or the answer is not a status
/// report.
pub async fn query_status(
    contact: impl Into<Contact>,
    limit: Duration,
) -> Result<NodeStatus, QueryError> {
    query(contact.into(), AdminRequest::Status, limit).await
}

/// A node as an operator knows it. At its former address there may be another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addressee {
    /// The name of its cluster.
    pub cluster: String,
    /// Its name.
    pub node: String,
    /// The id of its process; `None` if any process of the node is meant.
    pub process: Option<u32>,
}

/// Has a node start to drain (`drains`) or end it. The node answers at
/// once; its status reports the progress.
///
/// # Errors
/// As [`query_status`], and if the node at this address is another.
pub async fn request_drain(
    contact: impl Into<Contact>,
    node: &Addressee,
    drains: bool,
    limit: Duration,
) -> Result<NodeStatus, QueryError> {
    let request = DrainRequest {
        cluster: Text::from(node.cluster.as_str()),
        node: Text::from(node.node.as_str()),
        process: node.process,
        drains,
    };
    query(contact.into(), AdminRequest::Drain(request), limit).await
}

async fn query(
    contact: Contact,
    request: AdminRequest,
    limit: Duration,
) -> Result<NodeStatus, QueryError> {
    let document = ask(limit, async {
        let stream = connect(&contact, request).await?;
        let mut document = Vec::new();
        stream.take(MAX_DOCUMENT).read_to_end(&mut document).await?;
        Ok(document)
    });
    serde_json::from_slice(&document.await?).map_err(|error| {
        QueryError::Malformed(format!("the answer is not a status report: {error}"))
    })
}

/// Answers a query, within the limit of a handshake.
pub(crate) async fn send_status(
    stream: &mut NodeStream,
    status: &NodeStatus,
) -> Result<(), HandshakeError> {
    let document =
        serde_json::to_vec(status).expect("a status is made of numbers, strings and lists");
    let answer = async {
        hello::accept(stream, status.name.as_bytes()).await?;
        stream.write_all(&document).await?;
        Ok(stream.shutdown().await?)
    };
    tokio::time::timeout(HANDSHAKE_LIMIT, answer)
        .await
        .map_err(|_| HandshakeError::TimedOut)?
}

/// Processor time of this process and of this thread, in microseconds.
pub(crate) fn cpu_time_us() -> (u64, u64) {
    let read = |clock| {
        // These clocks exist on every supported system; zero means that the time is not known.
        let time = clock_gettime(clock).map_or(Duration::ZERO, Duration::from);
        time.as_micros() as u64
    };
    (
        read(ClockId::CLOCK_PROCESS_CPUTIME_ID),
        read(ClockId::CLOCK_THREAD_CPUTIME_ID),
    )
}
