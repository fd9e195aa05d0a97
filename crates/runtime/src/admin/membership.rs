//! The membership that a node knows, for operators, tools, and nodes that have missed changes.

use super::query::{QueryError, ask, connect};
use crate::transport::hello::{self, AdminRequest, HANDSHAKE_LIMIT, HandshakeError};
use crate::transport::membership_exchange::{receive_bytes, send_bytes};
use ionian_deployment::Configuration;
use std::fmt::Display;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, lookup_host};

/// Asks the node that listens at `address` for the membership that it knows.
///
/// # Errors
/// If the node cannot be reached, does not answer within `limit`, or the answer is not a
/// membership.
pub async fn query_membership(
    address: SocketAddr,
    limit: Duration,
) -> Result<Configuration, QueryError> {
    let document = ask(limit, async {
        let mut stream = connect(address, AdminRequest::Membership).await?;
        receive_bytes(&mut stream).await
    });
    let document = document.await?;
    let text = str::from_utf8(&document).map_err(|error| malformed(&error))?;
    Configuration::parse(text).map_err(|error| malformed(&error))
}

/// As [`query_membership`], of the node at an address that may be a name. None without an answer.
pub(crate) async fn membership_at(address: String, limit: Duration) -> Option<Configuration> {
    let found = lookup_host(address).await.ok()?.next()?;
    query_membership(found, limit).await.ok()
}

fn malformed(error: &dyn Display) -> QueryError {
    QueryError::Malformed(format!("the answer is not a membership: {error}"))
}

/// Answers a query for the membership.
pub(crate) async fn send_document(
    stream: &mut TcpStream,
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
