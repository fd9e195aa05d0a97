//! What a node runs at its `gateway` address: it takes requests of mounts from sockets and submits
//! them to the node's client lane. All of it runs on the node's event loop.
//!
//! | limit | when it is reached |
//! |---|---|
//! | [`ServeLimits::connections`] | one more is closed |
//! | [`ServeLimits::memory_bytes`] | no further request is read before another is answered |
//! | [`IN_FLIGHT`] of a connection | the same, for this connection |
//! | [`UNFINISHED`] | a peer that sends or takes a frame more slowly is closed |
//! | [`IDLE`] | a peer that sends nothing for this long is closed |

mod connection;

use crate::errno::Errno;
use crate::wire::Command;
use crate::wire::frame::{self, MAX_FRAME, MAX_PAYLOAD, Outcome, Sort};
use crate::wire::reply;
use bytes::Bytes;
use connection::{Answer, Connection};
use ionian_kernel::client::{DiskRoom, Operation, ReadLevel, Reply, Request};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinHandle;

/// Requests of one connection that are not answered.
const IN_FLIGHT: usize = 32;

/// How long a peer may take for a frame that has begun.
const UNFINISHED: Duration = Duration::from_secs(10);

/// How long a mount may send nothing. It renews its lease more often; what is silent for longer is
/// gone without a word, or connects again.
const IDLE: Duration = Duration::from_secs(300);

/// The pause after a failure to accept a connection, for example without free file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Limits of a server.
#[derive(Clone, Copy, Debug)]
pub struct ServeLimits {
    /// Open connections.
    pub connections: usize,
    /// Bytes of requests and answers of all connections.
    pub memory_bytes: usize,
    /// Bytes of a payload that the lane accepts.
    pub payload_bytes: usize,
}

/// Serves mounts. Clones are handles of the same server.
#[derive(Clone)]
pub struct Server(Rc<Inner>);

struct Inner {
    limits: ServeLimits,
    submit: Box<dyn Fn(Request)>,
    /// The connections that wait for an answer, by the token of the request.
    waiting: RefCell<HashMap<u64, Waiting>>,
    next_token: Cell<u64>,
    connections: Cell<usize>,
    /// One for each request that may be in memory, with its answer.
    room: Arc<Semaphore>,
    drains: watch::Sender<bool>,
    /// Whether commands that need room are refused, because the disk of the node is full.
    disk_room: Cell<DiskRoom>,
}

/// A request that is not answered.
struct Waiting {
    id: u64,
    answers: mpsc::UnboundedSender<Answer>,
    room: connection::Room,
}

impl Server {
    /// A server that passes its requests to `submit`, which must queue them and wake the node's
    /// loop.
    pub fn new(limits: ServeLimits, submit: Box<dyn Fn(Request)>) -> Server {
        let requests = (limits.memory_bytes / (2 * MAX_FRAME)).max(1);
        Server(Rc::new(Inner {
            limits,
            submit,
            waiting: RefCell::default(),
            next_token: Cell::new(0),
            connections: Cell::new(0),
            room: Arc::new(Semaphore::new(requests.min(Semaphore::MAX_PERMITS))),
            drains: watch::Sender::new(false),
            disk_room: Cell::default(),
        }))
    }

    /// Accepts mounts until the task is aborted. Call it in a tokio `LocalSet`.
    pub fn serve(&self, listener: TcpListener) -> JoinHandle<()> {
        let server = self.clone();
        tokio::task::spawn_local(async move {
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => server.accept(stream),
                    Err(error) => {
                        tracing::warn!(id = "E0701", %error, "cannot accept a mount");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
        })
    }

    fn accept(&self, stream: TcpStream) {
        let inner = &self.0;
        let is_full = inner.connections.get() >= inner.limits.connections;
        if is_full || *inner.drains.borrow() {
            // The mount connects to another node.
            return;
        }
        // Frames are written as a whole, so the system must not delay them.
        let _ = stream.set_nodelay(true);
        inner.connections.set(inner.connections.get() + 1);
        let server = self.clone();
        tokio::task::spawn_local(async move {
            if let Err(why) = Connection::new(&server, stream).run().await {
                tracing::debug!("the connection of a mount is closed: {why}");
            }
            let inner = &server.0;
            inner.connections.set(inner.connections.get() - 1);
        });
    }

    /// Passes the answer to the mount that waits for it, if it still does.
    pub fn on_reply(&self, reply: Reply) {
        let Some(waiting) = self.0.waiting.borrow_mut().remove(&reply.token) else {
            return;
        };
        let (outcome, payload) = match reply.outcome {
            Ok(payload) if payload.len() <= MAX_PAYLOAD => (Outcome::Answered, payload),
            // No answer of the state machine is as long.
            Ok(_) => (Outcome::Refused, Bytes::new()),
            Err(refusal) => (Outcome::of(refusal), Bytes::new()),
        };
        let mut bytes = Vec::with_capacity(payload.len() + 13);
        frame::push_answer(waiting.id, outcome, &payload, &mut bytes);
        // Fails if the connection is closed.
        let _ = waiting.answers.send(Answer {
            bytes,
            _room: waiting.room,
        });
    }

    /// While it drains it accepts no mounts, and closes each connection that has its answers: the
    /// mount goes on at another node.
    pub fn drain(&self, drains: bool) {
        self.0.drains.send_replace(drains);
    }

    /// Commands for which the disk of the node has no room are answered with `ENOSPC` from now on,
    /// and not submitted.
    pub fn set_disk_room(&self, room: DiskRoom) {
        self.0.disk_room.set(room);
    }

    /// Open connections.
    pub fn connections(&self) -> usize {
        self.0.connections.get()
    }

    /// Submits a request; its answer is sent to `answers`.
    fn submit(
        &self,
        frame: &[u8],
        answers: &mpsc::UnboundedSender<Answer>,
        room: connection::Room,
    ) -> Result<(), crate::Malformed> {
        let (id, sort, payload) = frame::request(frame)?;
        let inner = &self.0;
        let needs_room = || match inner.disk_room.get() {
            DiskRoom::Enough => false,
            DiskRoom::Little => Command::decode(payload).is_ok_and(|command| command.grows()),
            DiskRoom::None => true,
        };
        if sort == Sort::Command && needs_room() {
            let (mut refusal, mut bytes) = (Vec::new(), Vec::new());
            reply::encode(&Err(Errno::ENOSPC), &mut refusal);
            frame::push_answer(id, Outcome::Answered, &refusal, &mut bytes);
            // Fails if the connection is closed.
            let _ = answers.send(Answer { bytes, _room: room });
            return Ok(());
        }
        let token = inner.next_token.get();
        inner.next_token.set(token + 1);
        let answers = answers.clone();
        let waiting = Waiting { id, answers, room };
        inner.waiting.borrow_mut().insert(token, waiting);
        let operation = match sort {
            Sort::Command => Operation::Write,
            Sort::Query => Operation::Read(ReadLevel::Linearizable),
        };
        let payload = Bytes::copy_from_slice(payload);
        (inner.submit)(Request {
            token,
            operation,
            payload,
        });
        Ok(())
    }
}
