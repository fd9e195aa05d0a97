//! A non-blocking connection with any number of requests in flight.

use crate::{Error, Reply, push_request, readable, take_reply};
use bytes::BytesMut;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

const CONNECT_LIMIT: Duration = Duration::from_millis(500);

/// How long a handshake may take, as long as a gateway waits for it.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(5);

#[derive(Debug)]
enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Stream::Plain(stream) => stream.write_all(bytes).await,
            Stream::Tls(stream) => {
                stream.write_all(bytes).await?;
                stream.flush().await
            }
        }
    }

    async fn read(&mut self, input: &mut BytesMut) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.read_buf(input).await,
            Stream::Tls(stream) => stream.read_buf(input).await,
        }
    }
}

/// A client's connection. Requests are buffered and sent together. The caller limits the wait for
/// replies.
#[derive(Debug)]
pub struct Connection {
    stream: Stream,
    input: BytesMut,
    output: Vec<u8>,
}

impl Connection {
    /// Connects, within half a second: a paused process accepts no connection.
    ///
    /// # Errors
    /// The system's errors, and a timeout.
    pub async fn open(address: SocketAddr) -> Result<Self, Error> {
        Ok(Self::over(Stream::Plain(connect(address).await?)))
    }

    /// Connects with TLS. The certificate of the server must have its IP address.
    ///
    /// # Errors
    /// As [`open`](Self::open), and if the handshake fails or takes longer than 5 s.
    pub async fn open_tls(address: SocketAddr, config: Arc<ClientConfig>) -> Result<Self, Error> {
        let stream = connect(address).await?;
        let host = ServerName::from(address.ip());
        let greeted = TlsConnector::from(config).connect(host, stream);
        let greeted = timeout(HANDSHAKE_LIMIT, greeted).await;
        let greeted = greeted.map_err(|_| Error::TimedOut(HANDSHAKE_LIMIT))?;
        let stream = greeted.map_err(readable)?;
        Ok(Self::over(Stream::Tls(Box::new(stream))))
    }

    fn over(stream: Stream) -> Self {
        Connection {
            stream,
            input: BytesMut::new(),
            output: Vec::new(),
        }
    }

    /// Buffers a request.
    pub fn push(&mut self, words: &[&[u8]]) {
        push_request(words, &mut self.output);
    }

    /// Buffers raw bytes.
    pub fn push_raw(&mut self, bytes: &[u8]) {
        self.output.extend_from_slice(bytes);
    }

    /// Sends the buffered requests.
    ///
    /// # Errors
    /// If the connection breaks.
    pub async fn flush(&mut self) -> Result<(), Error> {
        self.stream.write_all(&self.output).await?;
        self.output.clear();
        Ok(())
    }

    /// The next reply.
    ///
    /// # Errors
    /// If the connection ends before it.
    pub async fn reply(&mut self) -> Result<Reply, Error> {
        loop {
            if let Some(reply) = take_reply(&mut self.input)? {
                return Ok(reply);
            }
            if self.stream.read(&mut self.input).await? == 0 {
                return Err(Error::Closed);
            }
        }
    }

    /// Sends one request and waits for its reply.
    ///
    /// # Errors
    /// If there is no reply.
    pub async fn call(&mut self, words: &[&[u8]]) -> Result<Reply, Error> {
        self.push(words);
        self.flush().await?;
        self.reply().await
    }

    /// Sends one request whose reply is a simple string, such as OK.
    ///
    /// # Errors
    /// If the reply is another one, or missing.
    pub async fn call_ok(&mut self, words: &[&[u8]]) -> Result<(), Error> {
        match self.call(words).await? {
            Reply::SimpleString(_) => Ok(()),
            other => Err(Error::Unexpected(other)),
        }
    }
}

async fn connect(address: SocketAddr) -> Result<TcpStream, Error> {
    let connected = timeout(CONNECT_LIMIT, TcpStream::connect(address)).await;
    let stream = connected.map_err(|_| Error::TimedOut(CONNECT_LIMIT))??;
    stream.set_nodelay(true)?;
    Ok(stream)
}
