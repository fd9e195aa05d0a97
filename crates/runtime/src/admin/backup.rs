//! Snapshots for whoever asks a running node for one: the state at one slot, while the node goes
//! on.
//!
//! After the handshake: `u64` stamp; pieces, each a `u32` length that is not zero and as many
//! bytes; a zero length; `u64` sum of the lengths. Little-endian.

use super::control::NodeControl;
use super::query::{QueryError, ask, connect};
use crate::transport::hello::{self, AdminRequest, HandshakeError};
use ionian_kernel::machine::Frozen;
use ionian_kernel::role::Picture;
use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// How long a node tries to reach what it is asked for. A replica that was left behind needs a
/// while, but whoever waits longer had better ask another.
const REACH_LIMIT: Duration = Duration::from_secs(10);

/// How often it looks whether it has.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Whoever takes nothing for this long is given up: as long as a picture is not written out, the
/// state changes by copying.
const STALLED: Duration = Duration::from_secs(20);

/// The largest piece. A machine of the user's may hand over everything at once.
const MAX_PIECE: usize = 4 << 20;

/// What a node knows of its backups.
pub(crate) struct Backups {
    bytes_per_second: u64,
    /// Each picture costs memory, so there is one at a time.
    busy: Cell<bool>,
}

impl Backups {
    /// Each is sent with so many bytes a second at most.
    pub(crate) fn new(bytes_per_second: usize) -> Self {
        Backups {
            bytes_per_second: bytes_per_second.max(1) as u64,
            busy: Cell::new(false),
        }
    }

    /// Sends a snapshot that holds everything below the stamp `at`, or says why not.
    pub(crate) async fn serve(
        &self,
        stream: &mut TcpStream,
        node: &dyn NodeControl,
        name: &str,
        at: u64,
    ) -> Result<(), HandshakeError> {
        if self.busy.replace(true) {
            return refuse(
                stream,
                "this node is sending a snapshot already: ask another, or later",
            )
            .await;
        }
        let _idle = Idle(&self.busy);
        match reach(node, at).await {
            Ok((stamp, frozen)) => {
                within(hello::accept(stream, name.as_bytes())).await?;
                self.send(stream, stamp, frozen).await
            }
            Err(reason) => refuse(stream, &reason).await,
        }
    }

    async fn send(
        &self,
        stream: &mut TcpStream,
        stamp: u64,
        mut frozen: Box<dyn Frozen>,
    ) -> Result<(), HandshakeError> {
        within(write(stream, &stamp.to_le_bytes())).await?;
        let (began, mut sent, mut written) = (Instant::now(), 0, Vec::new());
        while frozen.write_some(&mut written) {
            for piece in written.chunks(MAX_PIECE) {
                within(write(stream, &(piece.len() as u32).to_le_bytes())).await?;
                within(write(stream, piece)).await?;
                sent += piece.len() as u64;
                // Even where there is nothing to wait for, everybody else has a turn.
                tokio::task::yield_now().await;
                sleep_until(
                    began
                        + Duration::from_micros(
                            sent.saturating_mul(1_000_000) / self.bytes_per_second,
                        ),
                )
                .await;
            }
            written.clear();
        }
        within(write(stream, &0u32.to_le_bytes())).await?;
        within(write(stream, &sent.to_le_bytes())).await?;
        Ok(stream.shutdown().await?)
    }
}

/// However a backup ends, the next may begin.
struct Idle<'a>(&'a Cell<bool>);

impl Drop for Idle<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

/// Waits until the node's state holds everything below `at`.
async fn reach(node: &dyn NodeControl, at: u64) -> Result<(u64, Box<dyn Frozen>), String> {
    let deadline = Instant::now() + REACH_LIMIT;
    loop {
        match node.freeze(at) {
            Picture::Never => return Err("no role that keeps the state lives on this node".into()),
            Picture::Taken(stamp, frozen) => return Ok((stamp, frozen)),
            Picture::NotYet(reached) if Instant::now() >= deadline => {
                return Err(format!(
                    "this node has executed {reached} slots and not {at} within {} s: ask another node, or later",
                    REACH_LIMIT.as_secs()
                ));
            }
            Picture::NotYet(_) => sleep(LOOK_EVERY).await,
        }
    }
}

async fn refuse(stream: &mut TcpStream, reason: &str) -> Result<(), HandshakeError> {
    within(hello::decline(stream, reason)).await?;
    Err(HandshakeError::Refused(reason.into()))
}

async fn write(stream: &mut TcpStream, bytes: &[u8]) -> Result<(), HandshakeError> {
    Ok(stream.write_all(bytes).await?)
}

async fn within(
    step: impl Future<Output = Result<(), HandshakeError>>,
) -> Result<(), HandshakeError> {
    let stalled = || io::Error::new(io::ErrorKind::TimedOut, "the other side has stalled");
    timeout(STALLED, step)
        .await
        .unwrap_or_else(|_| Err(stalled().into()))
}

/// A snapshot on its way from a node.
#[derive(Debug)]
pub struct RemoteSnapshot {
    stream: TcpStream,
    stamp: u64,
    received: u64,
}

/// Asks the node that listens at `address` for a snapshot that holds everything below the stamp
/// `at` (for a replica: every slot below). The node may take ten seconds to reach it.
///
/// # Errors
/// When nobody listens, nobody answers, or the node has no such snapshot.
pub async fn query_snapshot(address: SocketAddr, at: u64) -> Result<RemoteSnapshot, QueryError> {
    let exchange = async {
        let mut stream = connect(address, AdminRequest::Snapshot(at)).await?;
        let stamp = stream.read_u64_le().await?;
        Ok(RemoteSnapshot {
            stream,
            stamp,
            received: 0,
        })
    };
    ask(REACH_LIMIT + STALLED, exchange).await
}

impl RemoteSnapshot {
    /// It holds everything below this stamp and nothing above.
    pub fn stamp(&self) -> u64 {
        self.stamp
    }

    /// The next piece; `None` when it is whole.
    ///
    /// # Errors
    /// When the connection breaks, or is too slow.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, QueryError> {
        ask(STALLED, self.read_piece()).await
    }

    async fn read_piece(&mut self) -> Result<Option<Vec<u8>>, HandshakeError> {
        let wrong =
            |what: &str| HandshakeError::Io(io::Error::new(io::ErrorKind::InvalidData, what));
        let length = self.stream.read_u32_le().await? as usize;
        if length == 0 {
            return match self.stream.read_u64_le().await? == self.received {
                true => Ok(None),
                false => Err(wrong("the snapshot is not as long as its end says")),
            };
        }
        if length > MAX_PIECE {
            return Err(wrong("a piece of the snapshot is too large"));
        }
        let mut piece = vec![0; length];
        self.stream.read_exact(&mut piece).await?;
        self.received += length as u64;
        Ok(Some(piece))
    }
}
