//! What operators and tools ask of a running node: the client side of administration.

use crate::transport::hello::{self, AdminRequest, HandshakeError, Hello};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Why there is no answer to a query.
#[derive(Debug, thiserror::Error)]
pub enum StatusError {
    /// Nobody listens there, or the connection broke.
    #[error("{address}: {source}")]
    Io {
        /// Who was asked.
        address: SocketAddr,
        /// What went wrong.
        source: std::io::Error,
    },
    /// The node did not answer in time.
    #[error("{address}: no answer within {limit:?}")]
    TimedOut {
        /// Who was asked.
        address: SocketAddr,
        /// The time limit.
        limit: Duration,
    },
    /// The node answered that it has nothing of the kind.
    #[error("{address}: {text}")]
    Refused {
        /// Who was asked.
        address: SocketAddr,
        /// Why not.
        text: String,
    },
    /// Something answered that is no node of Ionian.
    #[error("{address}: {text}")]
    NoNode {
        /// Who was asked.
        address: SocketAddr,
        /// What was wrong with the answer.
        text: String,
    },
}

impl StatusError {
    pub(crate) fn of(address: SocketAddr, error: HandshakeError) -> Self {
        match error {
            HandshakeError::Io(source) => StatusError::Io { address, source },
            HandshakeError::Refused(text) => StatusError::Refused { address, text },
            other => StatusError::NoNode {
                address,
                text: other.to_string(),
            },
        }
    }
}

/// Runs one exchange with a node, for at most `limit`.
pub(super) async fn ask<T>(
    address: SocketAddr,
    limit: Duration,
    exchange: impl Future<Output = Result<T, HandshakeError>>,
) -> Result<T, StatusError> {
    timeout(limit, exchange)
        .await
        .map_err(|_| StatusError::TimedOut { address, limit })?
        .map_err(|error| StatusError::of(address, error))
}

/// Connects to a node and asks it for something. Returns the connection after the node has
/// accepted: the answer follows.
pub(super) async fn connect(
    address: SocketAddr,
    request: AdminRequest,
) -> Result<TcpStream, HandshakeError> {
    let mut stream = TcpStream::connect(address).await?;
    hello::send_hello(&mut stream, &Hello::Admin(request)).await?;
    hello::receive_answer(&mut stream).await?;
    Ok(stream)
}
