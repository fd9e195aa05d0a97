//! Where clients connect to, and with which certificate.

use ionian_redis_client::asynchronous::Connection;
use ionian_redis_client::{Connection as Blocking, Error, Limits};
use ionian_tls::Live;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

/// A gateway. With the certificate of a client, connections use TLS.
#[derive(Clone)]
pub(crate) struct Gateway {
    address: SocketAddr,
    client: Option<Arc<Live>>,
}

impl Gateway {
    pub(crate) fn new(address: SocketAddr, client: Option<Arc<Live>>) -> Self {
        Gateway { address, client }
    }

    /// Connects, with the certificate that the client has now.
    pub(crate) async fn open(&self) -> Result<Connection, Error> {
        match &self.client {
            None => Connection::open(self.address).await,
            Some(client) => {
                let config = client.loaded().gateway_client.clone();
                Connection::open_tls(self.address, config).await
            }
        }
    }

    /// Connects in a thread that may wait.
    pub(crate) fn open_blocking(&self, limits: Limits) -> std::io::Result<Blocking> {
        let Some(client) = &self.client else {
            return Blocking::open(self.address, limits);
        };
        let (host, config) = (self.address.ip().to_string(), client.loaded());
        let config = config.gateway_client.clone();
        let mut connection = Blocking::open_tls(self.address, &host, config, limits)?;
        connection.greet()?;
        Ok(connection)
    }
}

impl From<SocketAddr> for Gateway {
    fn from(address: SocketAddr) -> Self {
        Gateway::new(address, None)
    }
}

impl fmt::Display for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}
