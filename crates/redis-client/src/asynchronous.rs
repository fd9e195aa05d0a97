//! A non-blocking connection with any number of requests in flight.

use crate::{Error, Reply, push_request, take_reply};
use bytes::BytesMut;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

const CONNECT_LIMIT: Duration = Duration::from_millis(500);

/// A client's connection. Requests are buffered and sent together. The caller limits the wait for
/// replies.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    input: BytesMut,
    output: Vec<u8>,
}

impl Connection {
    /// Connects, within half a second: a paused process accepts no connection.
    ///
    /// # Errors
    /// The system's errors, and a timeout.
    pub async fn open(address: SocketAddr) -> Result<Self, Error> {
        let connected = timeout(CONNECT_LIMIT, TcpStream::connect(address)).await;
        let stream = connected.map_err(|_| Error::TimedOut(CONNECT_LIMIT))??;
        stream.set_nodelay(true)?;
        Ok(Connection {
            stream,
            input: BytesMut::new(),
            output: Vec::new(),
        })
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
            if self.stream.read_buf(&mut self.input).await? == 0 {
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
