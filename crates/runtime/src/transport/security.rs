//! Secures connections to nodes: TLS before the first message, on both sides.

use super::connection::set_socket_options;
use super::hello::{self, HandshakeError};
use super::names;
use super::stream::NodeStream;
use ionian_tls::rustls::pki_types::ServerName;
use ionian_tls::rustls::{AlertDescription, Error};
use ionian_tls::{ClientAuth, Expected, Files, Kind, Live, TlsError, name_of, readable};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio_rustls::{TlsAcceptor as TlsServer, TlsConnector, TlsStream};

/// The first byte of every TLS connection: a record of a handshake.
const TLS_HANDSHAKE: u8 = 0x16;

/// Why a node with TLS refuses a caller without.
pub const ONLY_TLS: &str = "this node accepts only TLS connections";

/// A record with the fatal alert `protocol_version` (RFC 8446, 6): this side does not speak TLS.
const NO_TLS: [u8; 7] = [0x15, 3, 3, 0, 2, 2, 70];

/// Which connections a node accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsMode {
    /// With TLS and without; it dials with TLS first. It protects nothing, and is for the time in
    /// which the nodes of a running cluster are switched one by one.
    Permissive,
    /// With TLS only.
    Required,
}

impl TlsMode {
    /// The word for it in flags and reports.
    pub fn word(self) -> &'static str {
        match self {
            TlsMode::Permissive => "permissive",
            TlsMode::Required => "required",
        }
    }
}

/// How a node, or a tool that asks nodes, secures its connections.
#[derive(Clone, Debug)]
pub struct NodeTls {
    /// Which connections it accepts.
    pub mode: TlsMode,
    /// Its certificate and the authorities that it trusts.
    pub live: Arc<Live>,
    /// Notified when the files should be read again at once.
    pub reload: Arc<Notify>,
    /// Its waiters are notified when they were read for that.
    pub(crate) was_read: Arc<Notify>,
    /// How many callers were refused for their certificate.
    refused: Arc<AtomicU64>,
}

impl NodeTls {
    /// With the certificates in force in `live`.
    pub fn new(mode: TlsMode, live: Arc<Live>) -> Self {
        NodeTls {
            mode,
            live,
            reload: Arc::default(),
            was_read: Arc::default(),
            refused: Arc::default(),
        }
    }

    /// That of the node `name`, in a directory with `tls.crt`, `tls.key` and `ca.crt`; `clients`
    /// says which certificates its gateway asks clients for. The cluster is checked when it is
    /// known, by [`check_cluster`](Self::check_cluster). `begin` is called with each file before it
    /// is read.
    ///
    /// # Errors
    /// If it cannot be used, or is of another node.
    pub fn of_node(
        directory: &Path,
        name: &str,
        mode: TlsMode,
        clients: ClientAuth,
        begin: &dyn Fn(&Path),
    ) -> Result<Self, TlsError> {
        let expected = Expected {
            cluster: None,
            kinds: vec![Kind::Node],
            name: Some(name.to_owned()),
        };
        let live = Live::open_by((Files::within(directory), expected), clients, begin)?;
        Ok(Self::new(mode, Arc::new(live)))
    }

    /// Checks that the certificate is of the node `name` of this cluster.
    ///
    /// # Errors
    /// If it is of another, with both names.
    pub fn check_cluster(&self, cluster: &str, name: &str) -> Result<(), TlsError> {
        Expected::node(cluster, Some(name)).check(self.live.loaded().set.name())
    }

    /// A caller has no valid certificate, or not one for what it wants.
    pub(crate) fn has_refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// How many callers were refused for that since the start.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Has the node that runs with it read the files again. Completes when new ones are in force or
    /// refused. Only one task of a process calls this.
    pub async fn read_again(&self) {
        // It counts from here, so no later notification is missed.
        let read = self.was_read.notified();
        self.reload.notify_one();
        read.await;
    }
}

/// Begins a connection that was accepted: with TLS if the caller speaks it.
///
/// # Errors
/// If the caller has no valid certificate, or does not speak what it must.
pub(crate) async fn accept(
    stream: TcpStream,
    tls: Option<&NodeTls>,
) -> Result<NodeStream, HandshakeError> {
    set_socket_options(&stream)?;
    let mut first = [0];
    if stream.peek(&mut first).await? == 0 {
        return Err(HandshakeError::ClosedBeforeHello);
    }
    match (tls, first[0] == TLS_HANDSHAKE) {
        (Some(tls), true) => accept_tls(stream, tls).await,
        (None, true) => {
            let mut stream = NodeStream::Plain(stream);
            stream.write_all(&NO_TLS).await?;
            hello::hang_up(&mut stream).await?;
            let reason = "it speaks TLS, and TLS is off on this node";
            Err(HandshakeError::Refused(reason.to_owned()))
        }
        (Some(tls), false) if tls.mode == TlsMode::Required => {
            let mut stream = NodeStream::Plain(stream);
            if !hello::is_ours(first[0]) {
                return Err(HandshakeError::NotIonian);
            }
            tls.has_refused();
            hello::decline(&mut stream, ONLY_TLS).await?;
            Err(HandshakeError::Refused(ONLY_TLS.to_owned()))
        }
        (_, false) => Ok(NodeStream::Plain(stream)),
    }
}

async fn accept_tls(stream: TcpStream, tls: &NodeTls) -> Result<NodeStream, HandshakeError> {
    let loaded = tls.live.loaded();
    let server = TlsServer::from(loaded.node_server.clone());
    match server.accept(stream).into_fallible().await {
        Ok(stream) => Ok(NodeStream::Tls {
            stream: Box::new(TlsStream::Server(stream)),
            generation: loaded.generation,
        }),
        Err((error, stream)) => {
            tls.has_refused();
            // The alert says why, and arrives only if this side closes in order.
            let _ = hello::hang_up(&mut NodeStream::Plain(stream)).await;
            Err(readable(error).into())
        }
    }
}

/// Connects to the node at `host:port`. With TLS, its certificate must be that of the node with the
/// name `expected`, or of any node of the cluster.
///
/// # Errors
/// If it cannot be reached, or is not that node.
pub(crate) async fn dial(
    address: &str,
    tls: Option<&NodeTls>,
    expected: Option<&str>,
) -> Result<NodeStream, HandshakeError> {
    let addresses = names::addresses(address).await?;
    let connect = async || {
        let stream = TcpStream::connect(&addresses[..]).await?;
        set_socket_options(&stream)?;
        Ok::<_, HandshakeError>(stream)
    };
    let Some(tls) = tls else {
        return Ok(NodeStream::Plain(connect().await?));
    };
    match dial_tls(connect().await?, tls, expected).await {
        Err(HandshakeError::Io(error)) if speaks_no_tls(&error) => match tls.mode {
            TlsMode::Permissive => Ok(NodeStream::Plain(connect().await?)),
            TlsMode::Required if is_closed(&error) => Err(HandshakeError::ClosedBeforeHello),
            TlsMode::Required => {
                let reason = "it does not speak TLS, which is required here";
                Err(HandshakeError::RefusedHere(reason.to_owned()))
            }
        },
        Err(HandshakeError::Io(error)) if is_no_record(&error) => Err(HandshakeError::NotIonian),
        result => result,
    }
}

/// Whether a TLS handshake failed because the answer is no record of TLS.
fn is_no_record(error: &io::Error) -> bool {
    let source = error.get_ref().and_then(|source| source.downcast_ref());
    matches!(source, Some(Error::InvalidMessage(_)))
}

async fn dial_tls(
    stream: TcpStream,
    tls: &NodeTls,
    expected: Option<&str>,
) -> Result<NodeStream, HandshakeError> {
    let loaded = tls.live.loaded();
    let connector = TlsConnector::from(loaded.node_client.clone());
    // Certificates of nodes are checked by their names in the cluster, not by names of hosts.
    let host = ServerName::try_from("node.ionian.invalid").expect("a name of a host");
    let stream = connector.connect(host, stream).await.map_err(readable)?;
    let stream = NodeStream::Tls {
        stream: Box::new(TlsStream::Client(stream)),
        generation: loaded.generation,
    };
    let found = stream.certificate().map_or_else(
        || Err("it has shown no certificate".to_owned()),
        |leaf| name_of(leaf).map_err(|error| error.to_string()),
    );
    let expected = Expected::node(&loaded.set.name().cluster, expected);
    found
        .and_then(|found| expected.check(&found).map_err(|error| error.to_string()))
        .map_err(HandshakeError::RefusedHere)?;
    Ok(stream)
}

/// Checks that a node that has answered has the name in its certificate, if it has shown one.
///
/// # Errors
/// If it has another name, with both.
pub(crate) fn check_name(
    stream: &NodeStream,
    cluster: &str,
    name: &str,
) -> Result<(), HandshakeError> {
    let Some(leaf) = stream.certificate() else {
        return Ok(());
    };
    name_of(leaf)
        .and_then(|found| Expected::node(cluster, Some(name)).check(&found))
        .map_err(|error| HandshakeError::RefusedHere(error.to_string()))
}

/// Whether a TLS handshake failed because the other side does not speak TLS: it says so, or it is
/// a program without TLS, which closes the connection.
fn speaks_no_tls(error: &io::Error) -> bool {
    let source = error.get_ref().and_then(|source| source.downcast_ref());
    is_closed(error)
        || matches!(
            source,
            Some(Error::AlertReceived(AlertDescription::ProtocolVersion))
        )
}

/// Whether the other side has closed the connection.
fn is_closed(error: &io::Error) -> bool {
    use ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), UnexpectedEof | ConnectionReset | BrokenPipe)
}
