//! The client side of administration: sends requests to a running node.

use super::contact::Contact;
use crate::transport::hello::{self, AdminRequest, HandshakeError, Hello};
use crate::transport::stream::NodeStream;
use std::time::Duration;
use tokio::time::timeout;

/// Why a node did not answer. The caller adds the name or address of the node.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// The connection could not be made, or broke.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The node did not answer within this time.
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    /// The node refused, for this reason.
    #[error("{0}")]
    Refused(String),
    /// What answers is another program, or says nothing before it closes the connection.
    #[error("{0}")]
    Foreign(String),
    /// The answer is not that of an Ionian node of this version.
    #[error("{0}")]
    Malformed(String),
}

impl From<HandshakeError> for QueryError {
    fn from(error: HandshakeError) -> Self {
        match error {
            HandshakeError::Io(source) => QueryError::Io(source),
            HandshakeError::Refused(reason) | HandshakeError::RefusedHere(reason) => {
                QueryError::Refused(reason)
            }
            HandshakeError::NotIonian => QueryError::Foreign(
                "another program answers there, or the gateway of a node".to_owned(),
            ),
            HandshakeError::ClosedBeforeHello => {
                QueryError::Foreign("the connection was closed without an answer".to_owned())
            }
            other => QueryError::Malformed(other.to_string()),
        }
    }
}

/// Runs one exchange with a node, for at most `limit`.
pub(super) async fn ask<T>(
    limit: Duration,
    exchange: impl Future<Output = Result<T, HandshakeError>>,
) -> Result<T, QueryError> {
    let result = timeout(limit, exchange)
        .await
        .map_err(|_| QueryError::TimedOut(limit))?;
    Ok(result?)
}

/// Connects to a node and asks it for something. Returns the connection after the node has
/// accepted: the answer follows.
pub(super) async fn connect(
    contact: &Contact,
    request: AdminRequest,
) -> Result<NodeStream, HandshakeError> {
    let mut stream = contact.connect().await?;
    hello::send_hello(&mut stream, &Hello::Admin(request)).await?;
    hello::receive_answer(&mut stream).await?;
    Ok(stream)
}
