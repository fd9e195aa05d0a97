//! A connection that blocks the calling thread.

use crate::{Error, Reply, push_request, readable, take_reply};
use bytes::BytesMut;
use rustls::pki_types::{InvalidDnsNameError, ServerName};
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// Time and size limits of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Time limit for connecting.
    pub connect: Duration,
    /// Time limit for further bytes of a reply.
    pub reply: Duration,
    /// Maximum size of a reply in bytes.
    pub reply_bytes: usize,
}

#[derive(Debug)]
enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Stream::Plain(stream) => stream.write_all(bytes),
            Stream::Tls(stream) => {
                let sent = stream.write_all(bytes).and_then(|()| stream.flush());
                sent.map_err(readable)
            }
        }
    }

    fn read(&mut self, piece: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.read(piece),
            Stream::Tls(stream) => stream.read(piece).map_err(readable),
        }
    }
}

/// A connection with one request at a time.
#[derive(Debug)]
pub struct Connection {
    stream: Stream,
    limits: Limits,
    input: BytesMut,
}

impl Connection {
    /// Connects.
    ///
    /// # Errors
    /// The system's errors, and a timeout.
    pub fn open(address: SocketAddr, limits: Limits) -> io::Result<Self> {
        let stream = Stream::Plain(connect(address, limits)?);
        Ok(Connection {
            stream,
            limits,
            input: BytesMut::new(),
        })
    }

    /// Connects with TLS. The certificate of the server must have the name or address `host`.
    ///
    /// # Errors
    /// As [`open`](Self::open); the first call reports what is wrong with a certificate.
    pub fn open_tls(
        address: SocketAddr,
        host: &str,
        config: Arc<ClientConfig>,
        limits: Limits,
    ) -> io::Result<Self> {
        let wrong = |error: InvalidDnsNameError| io::Error::new(ErrorKind::InvalidInput, error);
        let host = ServerName::try_from(host.to_owned()).map_err(wrong)?;
        let session = ClientConnection::new(config, host).map_err(io::Error::other)?;
        let stream = StreamOwned::new(session, connect(address, limits)?);
        Ok(Connection {
            stream: Stream::Tls(Box::new(stream)),
            limits,
            input: BytesMut::new(),
        })
    }

    /// Does the handshake of TLS now, and not with the first call.
    ///
    /// # Errors
    /// If it fails, or the server does not answer in time.
    pub fn greet(&mut self) -> io::Result<()> {
        if let Stream::Tls(stream) = &mut self.stream {
            let done = stream.conn.complete_io(&mut stream.sock);
            done.map_err(readable)?;
        }
        Ok(())
    }

    /// Asks whether the server answers at all, within `limit`: one whose process is stopped accepts
    /// connections.
    ///
    /// # Errors
    /// If there is no reply. The connection cannot be used afterwards.
    pub fn ping(&mut self, limit: Duration) -> Result<(), Error> {
        let usual = self.limits.reply;
        self.limit_replies(limit)?;
        // An error of the server, such as NOAUTH, is an answer too.
        self.call(&[b"PING"])?;
        Ok(self.limit_replies(usual)?)
    }

    fn limit_replies(&mut self, limit: Duration) -> io::Result<()> {
        self.limits.reply = limit;
        let stream = match &self.stream {
            Stream::Plain(stream) => stream,
            Stream::Tls(stream) => &stream.sock,
        };
        stream.set_read_timeout(Some(limit))
    }

    /// Whether the server has neither closed the connection nor sent anything since the last
    /// reply: client libraries look before they use a connection again.
    pub fn is_open(&self) -> bool {
        let stream = match &self.stream {
            Stream::Plain(stream) => stream,
            Stream::Tls(stream) => &stream.sock,
        };
        let peek = || {
            stream.set_nonblocking(true)?;
            let peeked = stream.peek(&mut [0]);
            stream.set_nonblocking(false)?;
            peeked
        };
        matches!(peek(), Err(error) if error.kind() == ErrorKind::WouldBlock)
    }

    /// Sends a request and waits for its reply, which may be an error of the server.
    ///
    /// # Errors
    /// If there is no reply. The connection cannot be used afterwards.
    pub fn call(&mut self, words: &[&[u8]]) -> Result<Reply, Error> {
        let mut request = Vec::new();
        push_request(words, &mut request);
        self.stream.write_all(&request)?;
        loop {
            if let Some(reply) = take_reply(&mut self.input)? {
                return Ok(reply);
            }
            if self.input.len() > self.limits.reply_bytes {
                return Err(Error::TooLong(self.limits.reply_bytes));
            }
            self.read()?;
        }
    }

    /// Appends received bytes to the input.
    fn read(&mut self) -> Result<(), Error> {
        let mut piece = [0; 16 << 10];
        match self.stream.read(&mut piece) {
            Ok(0) => Err(Error::Closed),
            Ok(length) => {
                self.input.extend_from_slice(&piece[..length]);
                Ok(())
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                Err(Error::TimedOut(self.limits.reply))
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The socket, for other uses, with the session of TLS if it has one. Its reads have no time
    /// limit.
    ///
    /// # Errors
    /// The system's errors.
    pub fn into_parts(self) -> io::Result<(TcpStream, Option<ClientConnection>)> {
        let (stream, session) = match self.stream {
            Stream::Plain(stream) => (stream, None),
            Stream::Tls(stream) => {
                let (session, stream) = stream.into_parts();
                (stream, Some(session))
            }
        };
        stream.set_read_timeout(None)?;
        Ok((stream, session))
    }
}

fn connect(address: SocketAddr, limits: Limits) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, limits.connect)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(limits.reply))?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    const LIMITS: Limits = Limits {
        connect: Duration::from_secs(20),
        reply: Duration::from_secs(20),
        reply_bytes: 100,
    };

    /// The result of a request to a server that sends these bytes in two pieces and closes the
    /// connection.
    fn called(first: &'static [u8], second: Vec<u8>) -> Result<Reply, Error> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 14];
            stream.read_exact(&mut request).unwrap();
            assert_eq!(&request, b"*1\r\n$4\r\nPING\r\n");
            // The client may have closed the connection already.
            let _ = stream
                .write_all(first)
                .and_then(|()| stream.write_all(&second));
        });
        let reply = Connection::open(address, LIMITS).unwrap().call(&[b"PING"]);
        server.join().unwrap();
        reply
    }

    #[test]
    fn a_call_returns_the_reply_or_says_why_there_is_none() {
        let pong = called(b"+PO", b"NG\r\n".to_vec()).unwrap();
        assert_eq!(pong, Reply::SimpleString("PONG".into()));
        let error = called(b"-ERR", b" no\r\n".to_vec()).unwrap();
        assert_eq!(error, Reply::Error("ERR no".into()));
        let closed = called(b"", Vec::new()).unwrap_err();
        assert!(matches!(closed, Error::Closed), "{closed}");
        let half = called(b"$4\r\nab", Vec::new()).unwrap_err();
        assert!(matches!(half, Error::Closed), "{half}");
        let other = called(b"SSH-2.0\r\n", Vec::new()).unwrap_err();
        assert!(matches!(other, Error::NotRedis(text) if text == "SSH-2.0"));
        let endless = called(b"+", vec![b'x'; 200]).unwrap_err();
        assert!(matches!(endless, Error::TooLong(100)), "{endless}");
    }

    #[test]
    fn a_connection_that_the_server_has_closed_is_not_open() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut connection = Connection::open(listener.local_addr().unwrap(), LIMITS).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        assert!(connection.is_open());
        drop(accepted);
        connection.call(&[b"PING"]).unwrap_err();
        assert!(!connection.is_open());
    }

    #[test]
    fn silence_ends_with_the_limit() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let limits = Limits {
            reply: Duration::from_millis(20),
            ..LIMITS
        };
        let mut connection = Connection::open(listener.local_addr().unwrap(), limits).unwrap();
        let error = connection.call(&[b"PING"]).unwrap_err();
        assert!(matches!(error, Error::TimedOut(_)), "{error}");
    }
}
