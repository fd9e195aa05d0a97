//! The connection of one mount: one task reads requests, another writes answers.

use super::{IDLE, IN_FLIGHT, Server, UNFINISHED};
use crate::wire::frame::{self, GREETING};
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::timeout;

/// What a client of another protocol gets. A Redis client shows it as the error of its command.
const NOT_REDIS: &[u8] = b"-ERR this cluster replicates netfs, a file system: \
    mount it with `ionian mount DIR`\r\n";

/// The room that a request takes until its answer is written, at the server and at the connection.
pub(super) type Room = (OwnedSemaphorePermit, OwnedSemaphorePermit);

/// An answer to write.
pub(super) struct Answer {
    pub(super) bytes: Vec<u8>,
    /// Given back when it is written.
    pub(super) _room: Room,
}

pub(super) struct Connection {
    server: Server,
    input: OwnedReadHalf,
    output: OwnedWriteHalf,
    room: Arc<Semaphore>,
}

/// An error if the peer is too slow.
async fn in_time<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    match timeout(UNFINISHED, work).await {
        Ok(done) => done,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

fn malformed(why: crate::Malformed) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

impl Connection {
    pub(super) fn new(server: &Server, stream: TcpStream) -> Connection {
        let (input, output) = stream.into_split();
        Connection {
            server: server.clone(),
            input,
            output,
            room: Arc::new(Semaphore::new(IN_FLIGHT)),
        }
    }

    /// Serves the mount until it disconnects, or the node drains.
    pub(super) async fn run(mut self) -> io::Result<()> {
        in_time(self.greet()).await?;
        let (answers, queue) = mpsc::unbounded_channel();
        let writer = tokio::task::spawn_local(write_answers(self.output, queue));
        let mut drains = self.server.0.drains.subscribe();
        let read = read_requests(&self.server, &mut self.input, &self.room, answers);
        let done = tokio::select! {
            done = read => done,
            // Beyond this point nothing is read. A request that has arrived in part is sent to
            // another node.
            _ = drains.wait_for(|drains| *drains) => Ok(()),
        };
        if done.is_ok() {
            // The answers to what has been submitted.
            let _ = self.room.acquire_many(IN_FLIGHT as u32).await;
        }
        writer.abort();
        done
    }

    async fn greet(&mut self) -> io::Result<()> {
        let mut greeting = [0; GREETING.len()];
        // The first byte decides: another client may wait for an answer to fewer bytes.
        self.input.read_exact(&mut greeting[..1]).await?;
        if greeting[0] == GREETING[0] {
            self.input.read_exact(&mut greeting[1..]).await?;
        }
        if greeting != *GREETING {
            self.output.write_all(NOT_REDIS).await?;
            self.output.shutdown().await?;
            // What it has sent is read, or its system would drop the error.
            let mut ignored = [0; 1024];
            while self.input.read(&mut ignored).await? > 0 {}
            return Err(io::Error::other("it is no mount"));
        }
        let payload = self.server.0.limits.payload_bytes.min(frame::MAX_PAYLOAD);
        let mut answer = GREETING.to_vec();
        answer.extend_from_slice(&(payload as u32).to_le_bytes());
        self.output.write_all(&answer).await
    }
}

async fn read_requests(
    server: &Server,
    input: &mut OwnedReadHalf,
    own_room: &Arc<Semaphore>,
    answers: mpsc::UnboundedSender<Answer>,
) -> io::Result<()> {
    loop {
        let Ok(length) = timeout(IDLE, input.read_u32_le()).await else {
            return Err(io::ErrorKind::TimedOut.into());
        };
        let length = match length {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            length => frame::check_length(length?).map_err(malformed)?,
        };
        let room = (acquire(own_room).await, acquire(&server.0.room).await);
        let mut frame = vec![0; length];
        in_time(input.read_exact(&mut frame)).await?;
        server.submit(&frame, &answers, room).map_err(malformed)?;
    }
}

async fn acquire(room: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    let acquired = room.clone().acquire_owned().await;
    acquired.expect("it is never closed")
}

async fn write_answers(mut output: OwnedWriteHalf, mut queue: mpsc::UnboundedReceiver<Answer>) {
    while let Some(answer) = queue.recv().await {
        if in_time(output.write_all(&answer.bytes)).await.is_err() {
            // The reader learns it from the closed socket. Dropping the queue gives its room back.
            return;
        }
    }
}
