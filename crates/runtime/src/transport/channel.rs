//! The two halves of a connection that carries frames, plain or encrypted.

use super::frame::FrameReader;
use super::stream::NodeStream;
use ionian_tls::Session;
use socket2::SockRef;
use std::io::{self, ErrorKind, IoSlice};
use std::net::Shutdown;
use std::rc::Rc;
use tokio::io::AsyncReadExt;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio_rustls::TlsStream;
use tokio_rustls::rustls::Connection;

/// How many encrypted bytes one read takes in.
const READ_BYTES: usize = 64 << 10;

/// The reading half.
pub(crate) struct Input {
    socket: OwnedReadHalf,
    sealed: Option<Sealed>,
}

/// Encrypted bytes that have arrived.
struct Sealed {
    session: Rc<Session>,
    /// The buffer of one read.
    arrived: Box<[u8]>,
    /// Whether bytes may have arrived behind the handshake.
    is_new: bool,
}

/// The writing half.
pub(crate) struct Output {
    socket: OwnedWriteHalf,
    session: Option<Rc<Session>>,
    /// The generation of the trusted authorities that admitted the other side; `None` without TLS.
    generation: Option<u64>,
}

/// Splits a connection after its handshake.
///
/// # Errors
/// If it is a Unix socket: peers are other machines.
pub(crate) fn split(stream: NodeStream) -> io::Result<(Input, Output)> {
    let (socket, session, generation) = match stream {
        NodeStream::Plain(socket) => (socket, None, None),
        NodeStream::Tls { stream, generation } => {
            let (socket, session) = into_parts(*stream);
            (
                socket,
                Some(Rc::new(Session::new(session))),
                Some(generation),
            )
        }
        NodeStream::Local(_) => {
            let reason = "frames of peers do not use the Unix socket";
            return Err(io::Error::new(ErrorKind::Unsupported, reason));
        }
    };
    let (input, output) = socket.into_split();
    let sealed = session.clone().map(|session| Sealed {
        session,
        arrived: vec![0; READ_BYTES].into(),
        is_new: true,
    });
    let input = Input {
        socket: input,
        sealed,
    };
    let output = Output {
        socket: output,
        session,
        generation,
    };
    Ok((input, output))
}

fn into_parts(stream: TlsStream<tokio::net::TcpStream>) -> (tokio::net::TcpStream, Connection) {
    match stream {
        TlsStream::Client(stream) => {
            let (socket, session) = stream.into_inner();
            (socket, session.into())
        }
        TlsStream::Server(stream) => {
            let (socket, session) = stream.into_inner();
            (socket, session.into())
        }
    }
}

impl Input {
    /// Waits for bytes and appends them to `frames`. Returns how many bytes of the connection were
    /// read; `None` at its end.
    pub(crate) async fn read(&mut self, frames: &mut FrameReader) -> io::Result<Option<usize>> {
        let Some(sealed) = &mut self.sealed else {
            let count = self.socket.read_buf(frames.space()).await?;
            return Ok((count > 0).then_some(count));
        };
        let count = match core::mem::take(&mut sealed.is_new) {
            true => 0,
            false => match self.socket.read(&mut sealed.arrived).await? {
                0 => return Ok(None),
                count => count,
            },
        };
        let arrived = &sealed.arrived[..count];
        sealed
            .session
            .open(arrived, |bytes| frames.space().extend_from_slice(bytes))?;
        Ok(Some(count))
    }
}

impl Output {
    /// The generation of the trusted authorities that admitted the other side; `None` without TLS.
    pub(crate) fn generation(&self) -> Option<u64> {
        self.generation
    }

    /// Writes bytes, as many as the connection accepts now; those that were encrypted count as
    /// written.
    ///
    /// # Errors
    /// `WouldBlock` if it accepts none, and errors of the connection.
    pub(crate) fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match &self.session {
            None => self.socket.try_write_vectored(slices),
            Some(session) => session.write(slices, &self.socket),
        }
    }

    /// Writes what is encrypted and not yet written.
    ///
    /// # Errors
    /// `WouldBlock` if something is left, and errors of the connection.
    pub(crate) fn try_flush(&self) -> io::Result<()> {
        match &self.session {
            None => Ok(()),
            Some(session) => session.flush(&self.socket),
        }
    }

    /// Waits until the connection accepts bytes.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        self.socket.writable().await
    }

    /// Closes the connection. A failure means that the other side was faster.
    pub(crate) fn shut_down(&self, how: Shutdown) {
        let _ = SockRef::from(self.socket.as_ref()).shutdown(how);
    }
}
