//! Sends a snapshot of the state at one slot while the node goes on.
//!
//! After the handshake: `u64` stamp; pieces, each a `u32` length that is not zero and that many
//! bytes; a zero length; `u64` sum of the lengths. Little-endian.

use super::contact::Contact;
use super::control::NodeControl;
use super::query::{QueryError, ask, connect};
use crate::transport::hello::{self, AdminRequest, HandshakeError};
use crate::transport::stream::NodeStream;
use ionian_kernel::machine::Frozen;
use ionian_kernel::role::{Cover, Picture};
use std::cell::Cell;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// How long a node tries to reach the requested stamp. A replica that lags needs some time; after
/// this limit the operator does better to ask another node.
const REACH_LIMIT: Duration = Duration::from_secs(10);

/// How often the node checks whether it has.
const CHECK_EVERY: Duration = Duration::from_millis(10);

/// A receiver that takes nothing for this long is given up: while a snapshot is being sent, the
/// state machine copies what it changes.
const STALLED: Duration = Duration::from_secs(20);

/// The largest piece. A user's state machine may return all of its state at once.
const MAX_PIECE: usize = 4 << 20;

/// The snapshots that a node sends.
pub(crate) struct Backups {
    bytes_per_second: u64,
    /// Each frozen state costs memory, so the node sends one snapshot at a time.
    busy: Cell<bool>,
    /// How many were asked for.
    requests: Cell<u64>,
}

impl Backups {
    /// `bytes_per_second` limits each snapshot.
    pub(crate) fn new(bytes_per_second: usize) -> Self {
        Backups {
            bytes_per_second: bytes_per_second.max(1) as u64,
            busy: Cell::new(false),
            requests: Cell::new(0),
        }
    }

    /// Sends a snapshot that contains everything below the stamp `at`, or without one everything
    /// that was acknowledged before; or the reason why it cannot.
    pub(crate) async fn serve(
        &self,
        stream: &mut NodeStream,
        node: &dyn NodeControl,
        name: &str,
        at: Option<u64>,
    ) -> Result<(), HandshakeError> {
        if self.busy.replace(true) {
            return refuse(
                stream,
                "this node is sending a snapshot already: ask another node, or try later",
            )
            .await;
        }
        let _idle = Idle(&self.busy);
        self.requests.set(self.requests.get() + 1);
        let cover = match at {
            Some(at) => Cover::Below(at),
            None => Cover::Acknowledged(self.requests.get()),
        };
        match reach(node, cover).await {
            Ok((stamp, frozen)) => {
                within(hello::accept(stream, name.as_bytes())).await?;
                self.send(stream, stamp, frozen).await
            }
            Err(reason) => refuse(stream, &reason).await,
        }
    }

    async fn send(
        &self,
        stream: &mut NodeStream,
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
                // Other tasks run here even if this one does not have to wait.
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

/// Allows the next backup, however this one ends.
struct Idle<'a>(&'a Cell<bool>);

impl Drop for Idle<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

/// Waits until the node's state contains what it must.
async fn reach(node: &dyn NodeControl, cover: Cover) -> Result<(u64, Box<dyn Frozen>), String> {
    let deadline = Instant::now() + REACH_LIMIT;
    loop {
        match node.freeze(cover).await {
            Picture::Never => return Err("no role on this node keeps the state".into()),
            Picture::Taken(stamp, frozen) => return Ok((stamp, frozen)),
            Picture::NotYet(reached) if Instant::now() >= deadline => {
                let lacks = match cover {
                    Cover::Below(at) => format!("has executed {reached} slots and not {at}"),
                    Cover::Acknowledged(_) => {
                        "could not execute all that was acknowledged".to_owned()
                    }
                };
                let limit = REACH_LIMIT.as_secs();
                return Err(format!(
                    "this node {lacks} within {limit} s: ask another node, or try later"
                ));
            }
            Picture::NotYet(_) => sleep(CHECK_EVERY).await,
        }
    }
}

async fn refuse(stream: &mut NodeStream, reason: &str) -> Result<(), HandshakeError> {
    within(hello::decline(stream, reason)).await?;
    Err(HandshakeError::Refused(reason.into()))
}

async fn write(stream: &mut NodeStream, bytes: &[u8]) -> Result<(), HandshakeError> {
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

/// A snapshot that a node is sending.
#[derive(Debug)]
pub struct RemoteSnapshot {
    stream: NodeStream,
    stamp: u64,
    received: u64,
}

/// Asks a node for a snapshot that contains everything below the stamp
/// `at` (for a replica: every slot below); without one, everything that was acknowledged before:
/// that is for protocols without a log. The node may take ten seconds to reach it.
///
/// # Errors
/// If the node cannot be reached, does not answer, or has no such snapshot.
pub async fn query_snapshot(
    contact: impl Into<Contact>,
    at: Option<u64>,
) -> Result<RemoteSnapshot, QueryError> {
    let contact = contact.into();
    let exchange = async {
        let mut stream = connect(&contact, AdminRequest::Snapshot(at)).await?;
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
    /// The snapshot contains everything below this stamp and nothing above.
    pub fn stamp(&self) -> u64 {
        self.stamp
    }

    /// The next piece; `None` at the end.
    ///
    /// # Errors
    /// If the connection breaks or is too slow.
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
