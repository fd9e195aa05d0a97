//! What a node has noted for traces: one JSON document, and the request to note more.

use super::contact::Contact;
use super::query::{QueryError, ask, connect};
use crate::traces::{CommandName, NodeNotes};
use crate::transport::hello::{self, AdminRequest, HANDSHAKE_LIMIT, HandshakeError};
use crate::transport::stream::NodeStream;
use ionian_kernel::wire_struct;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// The largest document that a query takes in.
const MAX_DOCUMENT: u64 = 16 << 20;

/// How long a node records at most, until it is asked again.
pub const LONGEST: Duration = Duration::from_secs(3600);

/// The most commands that a request may name.
pub const MOST_COMMANDS: usize = 128;

/// A request to note messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// One in this number of commands; with 1 all. Zero is taken for 1.
    pub one_in: u64,
    /// For how long from now: at most [`LONGEST`].
    pub lasting: Duration,
}

/// A request for notes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TraceRequest {
    /// One in this number of commands, if the node is to record.
    pub(crate) one_in: Option<u64>,
    /// For how long, in milliseconds.
    pub(crate) for_ms: u64,
    /// The commands whose events are wanted.
    pub(crate) commands: Vec<CommandName>,
}

wire_struct! { TraceRequest { one_in, for_ms, commands } }
wire_struct! { CommandName { lane, sessionless, number } }

/// Asks a node to record, if it is to, and for the events about these commands that it has noted
/// so far: at most [`MOST_COMMANDS`].
///
/// # Errors
/// If the node cannot be reached or does not answer within `limit`, or if the answer is no such
/// document.
pub async fn query_notes(
    contact: impl Into<Contact>,
    record: Option<Record>,
    commands: &[CommandName],
    limit: Duration,
) -> Result<NodeNotes, QueryError> {
    let request = TraceRequest {
        one_in: record.map(|record| record.one_in),
        for_ms: record.map_or(0, |record| record.lasting.as_millis() as u64),
        commands: commands.to_vec(),
    };
    let contact = contact.into();
    let document = ask(limit, async {
        let stream = connect(&contact, AdminRequest::Notes(request)).await?;
        let mut document = Vec::new();
        stream.take(MAX_DOCUMENT).read_to_end(&mut document).await?;
        Ok(document)
    });
    serde_json::from_slice(&document.await?)
        .map_err(|error| QueryError::Malformed(format!("the answer is not a trace: {error}")))
}

/// Answers a query, within the limit of a handshake.
pub(crate) async fn send_notes(
    stream: &mut NodeStream,
    notes: &NodeNotes,
) -> Result<(), HandshakeError> {
    let document = serde_json::to_vec(notes).expect("notes are made of numbers and strings");
    let answer = async {
        hello::accept(stream, notes.node.as_bytes()).await?;
        stream.write_all(&document).await?;
        Ok(stream.shutdown().await?)
    };
    tokio::time::timeout(HANDSHAKE_LIMIT, answer)
        .await
        .map_err(|_| HandshakeError::TimedOut)?
}
