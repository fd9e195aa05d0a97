//! The membership that a node knows, for operators, tools, and nodes that have missed changes.

use super::contact::Contact;
use super::query::{QueryError, ask, connect};
use crate::transport::hello::{self, AdminRequest, HANDSHAKE_LIMIT, HandshakeError};
use crate::transport::membership_exchange::{receive_bytes, send_bytes};
use crate::transport::security::NodeTls;
use crate::transport::stream::NodeStream;
use ionian_deployment::Configuration;
use std::fmt::Display;
use std::time::Duration;
use tokio::io::AsyncWriteExt;

/// Asks a node for the membership that it knows.
///
/// # Errors
/// If the node cannot be reached, does not answer within `limit`, or the answer is not a
/// membership.
pub async fn query_membership(
    contact: impl Into<Contact>,
    limit: Duration,
) -> Result<Configuration, QueryError> {
    let contact = contact.into();
    let document = ask(limit, async {
        let mut stream = connect(&contact, AdminRequest::Membership).await?;
        receive_bytes(&mut stream).await
    });
    let document = document.await?;
    let text = str::from_utf8(&document).map_err(|error| malformed(&error))?;
    Configuration::parse(text).map_err(|error| malformed(&error))
}

/// As [`query_membership`], of the node at an address that may be a name. None without an answer.
pub(crate) async fn membership_at(
    address: String,
    name: String,
    tls: Option<NodeTls>,
    limit: Duration,
) -> Option<Configuration> {
    let contact = Contact {
        address,
        socket: None,
        tls,
        name: Some(name).filter(|name| !name.is_empty()),
    };
    query_membership(contact, limit).await.ok()
}

fn malformed(error: &dyn Display) -> QueryError {
    QueryError::Malformed(format!("the answer is not a membership: {error}"))
}

/// Answers a query for the membership.
pub(crate) async fn send_document(
    stream: &mut NodeStream,
    name: &str,
    document: &str,
) -> Result<(), HandshakeError> {
    let answer = async {
        hello::accept(stream, name.as_bytes()).await?;
        send_bytes(stream, document.as_bytes()).await?;
        Ok(stream.shutdown().await?)
    };
    tokio::time::timeout(HANDSHAKE_LIMIT, answer)
        .await
        .map_err(|_| HandshakeError::TimedOut)?
}
