//! How a tool reaches a node.

use crate::transport::hello::HandshakeError;
use crate::transport::security::{self, NodeTls};
use crate::transport::stream::NodeStream;
use std::net::SocketAddr;
use std::path::PathBuf;
use tokio::net::UnixStream;

/// The address of a node, and how the connection is secured. A plain address is one without TLS.
#[derive(Clone, Debug)]
pub struct Contact {
    /// `host:port` where the node listens for other nodes.
    pub address: String,
    /// Its Unix socket, if the node may be on this machine. It is tried first.
    pub socket: Option<PathBuf>,
    /// The identity of the caller.
    pub tls: Option<NodeTls>,
    /// The name of the node, if it is known: with TLS, its certificate must have it.
    pub name: Option<String>,
}

impl From<SocketAddr> for Contact {
    fn from(address: SocketAddr) -> Self {
        Contact {
            address: address.to_string(),
            socket: None,
            tls: None,
            name: None,
        }
    }
}

impl Contact {
    pub(crate) async fn connect(&self) -> Result<NodeStream, HandshakeError> {
        if let Some(path) = &self.socket
            && let Ok(stream) = UnixStream::connect(path).await
        {
            return Ok(NodeStream::Local(stream));
        }
        security::dial(&self.address, self.tls.as_ref(), self.name.as_deref()).await
    }
}
