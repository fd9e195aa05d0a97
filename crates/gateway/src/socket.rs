//! The socket of a client, plain or encrypted, in two halves.

use bytes::{Bytes, BytesMut};
use ionian_tls::rustls::ServerConnection;
use ionian_tls::{Kind, Live, Session, name_of, readable};
use std::future::poll_fn;
use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio_rustls::TlsAcceptor as TlsServer;

/// The first byte of every TLS connection; no command begins with it.
pub(crate) const TLS_HANDSHAKE: u8 = 0x16;

/// How the gateway secures the connections of clients.
#[derive(Clone, Debug)]
pub struct ClientTls {
    /// The certificate that clients see.
    pub live: Arc<Live>,
    /// Whether clients without TLS are served too.
    pub permissive: bool,
    /// Whether a client is the user that its certificate names. Only where `live` requires
    /// certificates of clients.
    pub certificates_log_in: bool,
}

/// The halves of a connection, and the user that the client's certificate names, if that counts.
pub(crate) type Greeted = ((Input, Output), Option<String>);

/// A client that is not served.
pub(crate) enum Refused {
    /// It has connected and left without a byte, as probes do.
    Silent,
    /// It does not speak TLS, which is required.
    Plain(TcpStream),
    /// The handshake has failed.
    Handshake(io::Error),
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        Refused::Handshake(error)
    }
}

/// The reading half.
pub(crate) struct Input {
    socket: OwnedReadHalf,
    session: Option<Rc<Session>>,
    /// Whether bytes may have arrived behind the handshake.
    is_new: bool,
}

/// The writing half.
pub(crate) struct Output {
    socket: OwnedWriteHalf,
    session: Option<Rc<Session>>,
}

/// The halves of a plain connection.
pub(crate) fn plain(stream: TcpStream) -> (Input, Output) {
    halves(stream, None)
}

fn halves(stream: TcpStream, session: Option<Session>) -> (Input, Output) {
    let session = session.map(Rc::new);
    let (input, output) = stream.into_split();
    let input = Input {
        socket: input,
        is_new: session.is_some(),
        session: session.clone(),
    };
    let output = Output {
        socket: output,
        session,
    };
    (input, output)
}

/// Begins a connection of a client, with TLS if the client speaks it, within a limit of time.
///
/// # Errors
/// Why the client is not served.
pub(crate) async fn accept(
    stream: TcpStream,
    tls: &ClientTls,
    limit: Duration,
) -> Result<Greeted, Refused> {
    let late = |_| {
        let why = format!("no TLS handshake within {} s", limit.as_secs_f64());
        io::Error::new(ErrorKind::TimedOut, why)
    };
    tokio::time::timeout(limit, greet(stream, tls))
        .await
        .map_err(late)?
}

async fn greet(stream: TcpStream, tls: &ClientTls) -> Result<Greeted, Refused> {
    let mut first = [0];
    if stream.peek(&mut first).await? == 0 {
        return Err(Refused::Silent);
    }
    match first[0] == TLS_HANDSHAKE {
        true => {
            let server = TlsServer::from(tls.live.loaded().gateway_server.clone());
            let (stream, session) = server.accept(stream).await.map_err(readable)?.into_inner();
            let chain = session.peer_certificates();
            tls.live.has_admitted(chain.unwrap_or_default());
            let user = tls.certificates_log_in.then(|| user_of(&session)).flatten();
            Ok((halves(stream, Some(Session::new(session.into()))), user))
        }
        false if tls.permissive => Ok((plain(stream), None)),
        false => Err(Refused::Plain(stream)),
    }
}

/// The name in the certificate of a client. Those of operators name no user.
fn user_of(session: &ServerConnection) -> Option<String> {
    let certificate = session.peer_certificates()?.first()?;
    let owner = name_of(certificate).ok()?;
    (owner.kind == Kind::Client).then_some(owner.name)
}

impl Input {
    /// Reads what has arrived, at most as much as `scratch` holds. No bytes mean the end. The copy
    /// has the exact size: an idle connection has no buffer, and a retained word retains only what
    /// arrived with it.
    pub(crate) fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        scratch: &mut [u8],
    ) -> Poll<io::Result<Bytes>> {
        loop {
            let is_new = core::mem::take(&mut self.is_new);
            let mut buffer = ReadBuf::new(scratch);
            if !is_new {
                ready!(Pin::new(&mut self.socket).poll_read(context, &mut buffer))?;
            }
            let arrived = buffer.filled();
            let Some(session) = self
                .session
                .as_ref()
                .filter(|_| is_new || !arrived.is_empty())
            else {
                return Poll::Ready(Ok(Bytes::copy_from_slice(arrived)));
            };
            let mut opened = BytesMut::with_capacity(arrived.len());
            session.open(arrived, |bytes| opened.extend_from_slice(bytes))?;
            if !opened.is_empty() {
                return Poll::Ready(Ok(opened.freeze()));
            }
        }
    }

    /// Reads and drops bytes of the socket. Returns how many; none at the end.
    pub(crate) async fn drop_some(&mut self, scratch: &mut [u8]) -> io::Result<usize> {
        poll_fn(|context| {
            let mut buffer = ReadBuf::new(scratch);
            ready!(Pin::new(&mut self.socket).poll_read(context, &mut buffer))?;
            Poll::Ready(Ok(buffer.filled().len()))
        })
        .await
    }
}

impl Output {
    pub(crate) fn stream(&self) -> &TcpStream {
        self.socket.as_ref()
    }

    /// Writes as much as the socket accepts now.
    ///
    /// # Errors
    /// `WouldBlock`, and errors of the connection.
    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match &self.session {
            None => self.socket.try_write(bytes),
            Some(session) => session.write(&[IoSlice::new(bytes)], &self.socket),
        }
    }

    /// Whether encrypted bytes wait for the socket.
    pub(crate) fn has_records(&self) -> bool {
        self.session
            .as_ref()
            .is_some_and(|session| session.has_records())
    }

    /// Writes bytes, or registers for the moment when the socket accepts some.
    pub(crate) fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.session.is_none() {
            return Pin::new(&mut self.socket).poll_write(context, bytes);
        }
        self.poll_ready(context, |output| output.try_write(bytes))
    }

    /// Writes the encrypted bytes that wait.
    pub(crate) fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_ready(context, |output| match &output.session {
            None => Ok(()),
            Some(session) => session.flush(&output.socket),
        })
    }

    fn poll_ready<T>(
        &mut self,
        context: &mut Context<'_>,
        attempt: impl Fn(&Self) -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        loop {
            match attempt(self) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    ready!(self.stream().poll_write_ready(context))?;
                }
                result => return Poll::Ready(result),
            }
        }
    }

    /// Closes this side of the connection in order.
    pub(crate) fn poll_shutdown(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(session) = &self.session {
            session.close();
            ready!(self.poll_flush(context))?;
        }
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}
