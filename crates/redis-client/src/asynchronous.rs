//! A connection that does not block the thread, with any number of requests on their way.

use crate::{Error, Reply, push_request, take_reply};
use bytes::BytesMut;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

const CONNECT_LIMIT: Duration = Duration::from_millis(500);

/// A client's connection. Requests are gathered and sent together. The caller limits how long it
/// waits for replies.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    input: BytesMut,
    output: Vec<u8>,
}

impl Connection {
    /// Connects, within half a second: a process that stands still accepts no connection.
    ///
    /// # Errors
    /// Those of the system; when it takes longer.
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

    /// Gathers a request.
    pub fn push(&mut self, words: &[&[u8]]) {
        push_request(words, &mut self.output);
    }

    /// Gathers bytes as they are.
    pub fn push_raw(&mut self, bytes: &[u8]) {
        self.output.extend_from_slice(bytes);
    }

    /// Sends what was gathered.
    ///
    /// # Errors
    /// When the connection breaks.
    pub async fn flush(&mut self) -> Result<(), Error> {
        self.stream.write_all(&self.output).await?;
        self.output.clear();
        Ok(())
    }

    /// The next reply.
    ///
    /// # Errors
    /// When none comes any more.
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
    /// When there is none.
    pub async fn call(&mut self, words: &[&[u8]]) -> Result<Reply, Error> {
        self.push(words);
        self.flush().await?;
        self.reply().await
    }

    /// Sends one request whose reply is a simple string, such as OK.
    ///
    /// # Errors
    /// When there is another reply, or none.
    pub async fn call_ok(&mut self, words: &[&[u8]]) -> Result<(), Error> {
        match self.call(words).await? {
            Reply::SimpleString(_) => Ok(()),
            other => Err(Error::Unexpected(other)),
        }
    }
}
