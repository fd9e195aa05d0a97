//! A connection to a gateway that speaks the Redis protocol.

use anyhow::{Context, Result, bail};
use bytes::{Bytes, BytesMut};
use redis_protocol::resp2::decode::decode_bytes_mut;
use redis_protocol::resp2::types::BytesFrame;
use std::io::Write;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long to wait for a connection: a process that stands still accepts none.
const CONNECT_LIMIT: Duration = Duration::from_millis(500);

/// A client's connection. Requests are gathered and sent together.
pub(crate) struct Connection {
    stream: TcpStream,
    input: BytesMut,
    output: Vec<u8>,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> Result<Self> {
        let stream = timeout(CONNECT_LIMIT, TcpStream::connect(address)).await??;
        stream.set_nodelay(true)?;
        Ok(Connection {
            stream,
            input: BytesMut::new(),
            output: Vec::new(),
        })
    }

    /// Gathers a command.
    pub(crate) fn push(&mut self, words: &[&[u8]]) {
        // Into memory: cannot fail.
        let _ = write!(self.output, "*{}\r\n", words.len());
        for word in words {
            let _ = write!(self.output, "${}\r\n", word.len());
            self.output.extend_from_slice(word);
            self.output.extend_from_slice(b"\r\n");
        }
    }

    /// Gathers bytes as they are.
    pub(crate) fn push_raw(&mut self, bytes: &[u8]) {
        self.output.extend_from_slice(bytes);
    }

    /// Sends what was gathered.
    pub(crate) async fn flush(&mut self) -> Result<()> {
        self.stream
            .write_all(&self.output)
            .await
            .context("the connection broke")?;
        self.output.clear();
        Ok(())
    }

    /// The next reply.
    pub(crate) async fn reply(&mut self) -> Result<BytesFrame> {
        loop {
            if let Some((frame, _, _)) =
                decode_bytes_mut(&mut self.input).context("the reply makes no sense")?
            {
                return Ok(frame);
            }
            if self
                .stream
                .read_buf(&mut self.input)
                .await
                .context("no reply")?
                == 0
            {
                bail!("the connection was closed before the reply came");
            }
        }
    }

    /// Sends one command and waits for its reply.
    pub(crate) async fn call(&mut self, words: &[&[u8]]) -> Result<BytesFrame> {
        self.push(words);
        self.flush().await?;
        self.reply().await
    }

    /// Sends one command that is answered with a simple string, such as OK; any other reply is an
    /// error.
    pub(crate) async fn call_ok(&mut self, words: &[&[u8]]) -> Result<()> {
        match self.call(words).await? {
            BytesFrame::SimpleString(_) => Ok(()),
            other => bail!("{other:?}"),
        }
    }
}

/// What GET told.
pub(crate) fn bulk(frame: BytesFrame) -> Result<Option<Bytes>> {
    match frame {
        BytesFrame::BulkString(bytes) => Ok(Some(bytes)),
        BytesFrame::Null => Ok(None),
        other => bail!("not a value: {other:?}"),
    }
}
