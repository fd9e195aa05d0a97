//! A connection during its handshake: plain TCP, TLS, or the node's own Unix socket.

use ionian_tls::rustls::pki_types::CertificateDer;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsStream;

/// See the top of this file.
#[derive(Debug)]
pub(crate) enum NodeStream {
    Plain(TcpStream),
    /// Both sides have shown valid certificates.
    Tls {
        stream: Box<TlsStream<TcpStream>>,
        /// The generation of the trusted authorities that admitted the other side.
        generation: u64,
    },
    /// From a process of the same machine that this node trusts.
    Local(UnixStream),
}

impl NodeStream {
    /// The certificate of the other side, if it has shown one.
    pub(crate) fn certificate(&self) -> Option<&[u8]> {
        self.chain().first().map(|leaf| &leaf[..])
    }

    /// The same with the certificates that lead to its authority.
    pub(crate) fn chain(&self) -> &[CertificateDer<'static>] {
        let NodeStream::Tls { stream, .. } = self else {
            return &[];
        };
        let (_, session) = stream.get_ref();
        session.peer_certificates().unwrap_or_default()
    }
}

impl AsyncRead for NodeStream {
    /// A TLS connection that ends without notice ends like any other: each message of a handshake
    /// and each answer says how long it is.
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            NodeStream::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            NodeStream::Local(stream) => Pin::new(stream).poll_read(context, buffer),
            NodeStream::Tls { stream, .. } => {
                match ready!(Pin::new(stream).poll_read(context, buffer)) {
                    Err(error) if error.kind() == ErrorKind::UnexpectedEof => Poll::Ready(Ok(())),
                    result => Poll::Ready(result),
                }
            }
        }
    }
}

impl AsyncWrite for NodeStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            NodeStream::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            NodeStream::Local(stream) => Pin::new(stream).poll_write(context, bytes),
            NodeStream::Tls { stream, .. } => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            NodeStream::Plain(stream) => Pin::new(stream).poll_flush(context),
            NodeStream::Local(stream) => Pin::new(stream).poll_flush(context),
            NodeStream::Tls { stream, .. } => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            NodeStream::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            NodeStream::Local(stream) => Pin::new(stream).poll_shutdown(context),
            NodeStream::Tls { stream, .. } => Pin::new(stream).poll_shutdown(context),
        }
    }
}
