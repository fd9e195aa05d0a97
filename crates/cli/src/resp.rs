//! A connection that speaks the Redis protocol, waiting on the calling thread.

use anyhow::{Context, Result, bail};
use bytes::BytesMut;
use redis_protocol::resp2::decode::decode_bytes_mut;
use redis_protocol::resp2::types::BytesFrame;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// How long to wait for a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);

/// How long to wait for a reply: longer than any gateway lets a client wait.
const REPLY_LIMIT: Duration = Duration::from_secs(60);

/// A client's connection.
pub(crate) struct Connection {
    stream: TcpStream,
    input: BytesMut,
}

impl Connection {
    pub(crate) fn open(address: SocketAddr) -> std::io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, CONNECT_LIMIT)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(REPLY_LIMIT))?;
        Ok(Connection {
            stream,
            input: BytesMut::new(),
        })
    }

    /// Sends a command and waits for its reply.
    pub(crate) fn call(&mut self, words: &[&[u8]]) -> Result<BytesFrame> {
        self.stream
            .write_all(&request(words))
            .context("the connection broke")?;
        loop {
            if let Some((frame, _, _)) =
                decode_bytes_mut(&mut self.input).context("the reply makes no sense")?
            {
                return Ok(frame);
            }
            let mut piece = [0; 16 << 10];
            let length = self.stream.read(&mut piece).context("no reply")?;
            if length == 0 {
                bail!("the connection was closed before the reply came");
            }
            self.input.extend_from_slice(&piece[..length]);
        }
    }
}

/// A command as an array of bulk strings.
fn request(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}
