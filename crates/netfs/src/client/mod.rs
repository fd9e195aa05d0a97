//! Sends requests to any node of the cluster, and to another one if it does not answer.
//!
//! | file | job |
//! |---|---|
//! | `mod` | how a request is tried again, and when it is given up |
//! | `connection` | one connection to one node |
//! | `link` | which connection is used |

mod connection;
mod link;

use crate::wire::frame::{Outcome, Sort};
use connection::Waited;
use link::Link;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a request is tried. Then its caller gets EIO.
pub const PATIENCE: Duration = Duration::from_secs(8);

/// How long a request is tried after another was given up, until one is answered: a program that
/// asks for a thousand files of a dead cluster should not wait for each.
const IMPATIENCE: Duration = Duration::from_millis(1500);

/// How long to wait for a node's answer. Longer than an election takes; then another node is asked.
const ANSWER_LIMIT: Duration = Duration::from_millis(2500);

/// The pause before a request that was not executed is sent again.
const PAUSE: Duration = Duration::from_millis(20);

/// A way to a state machine.
pub trait Transport: Send + Sync + 'static {
    /// Executes a command, at least once if there is an answer.
    ///
    /// # Errors
    /// If there is no answer in time: the command may have been executed.
    fn command(&self, payload: &[u8]) -> Result<Answer, Unanswered>;

    /// Answers a query from a state that has every command that was answered before.
    ///
    /// # Errors
    /// If there is no answer in time.
    fn query(&self, payload: &[u8]) -> Result<Answer, Unanswered>;

    /// The most bytes of a payload.
    fn payload_bytes(&self) -> usize;
}

impl<T: Transport> Transport for Arc<T> {
    fn command(&self, payload: &[u8]) -> Result<Answer, Unanswered> {
        T::command(self, payload)
    }

    fn query(&self, payload: &[u8]) -> Result<Answer, Unanswered> {
        T::query(self, payload)
    }

    fn payload_bytes(&self) -> usize {
        T::payload_bytes(self)
    }
}

/// An answer of the state machine.
#[derive(Debug)]
pub struct Answer {
    /// As the state machine wrote it.
    pub bytes: Vec<u8>,
    /// Whether no copy of the request was sent before that may have been executed.
    pub is_first: bool,
}

/// The cluster did not answer in time, or refuses the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the cluster did not answer in time")]
pub struct Unanswered;

/// Why there is no connection at the start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// A node speaks another protocol.
    #[error("{0} does not serve mounts of this version: its cluster replicates another machine")]
    Foreign(String),
    /// No node can be reached; each with its reason.
    #[error("no node can be reached: {0}")]
    Unreachable(String),
    /// The cluster carries too small commands.
    #[error("the cluster carries commands of {0} bytes (options.payload_bytes); a mount needs {1}")]
    TooSmall(usize, usize),
}

/// The smallest payload that a mount can work with: a block of a page, or two long names.
const MIN_PAYLOAD: usize = (4 << 10) + (1 << 10);

/// A client of a cluster. Any number of threads may use it.
pub struct Client {
    link: Link,
    payload_bytes: usize,
    /// A request was given up, and none was answered since.
    is_down: AtomicBool,
}

impl Client {
    /// Connects to one of these nodes, each `HOST:PORT` of its gateway.
    ///
    /// # Errors
    /// If none can be reached, or one does not serve netfs.
    pub fn connect(nodes: Vec<String>) -> Result<Client, ConnectError> {
        let link = Link::new(nodes);
        let payload_bytes = link.open_any()?;
        if payload_bytes < MIN_PAYLOAD {
            return Err(ConnectError::TooSmall(payload_bytes, MIN_PAYLOAD));
        }
        Ok(Client {
            link,
            payload_bytes,
            is_down: AtomicBool::new(false),
        })
    }

    /// The nodes to connect to from now on; none changes nothing. The connection of now is kept
    /// while it works.
    pub fn set_nodes(&self, nodes: Vec<String>) {
        self.link.set_nodes(nodes);
    }

    fn call(&self, sort: Sort, payload: &[u8]) -> Result<Answer, Unanswered> {
        let patience = match self.is_down.load(Ordering::Relaxed) {
            true => IMPATIENCE,
            false => PATIENCE,
        };
        let deadline = Instant::now() + patience;
        let mut is_first = true;
        let given_up = loop {
            let Some(connection) = self.link.connection(deadline) else {
                break true;
            };
            let limit = deadline.min(Instant::now() + ANSWER_LIMIT);
            match connection.call(sort, payload, limit) {
                Waited::Answer(Outcome::Answered, bytes) => {
                    self.is_down.store(false, Ordering::Relaxed);
                    return Ok(Answer { bytes, is_first });
                }
                Waited::Answer(Outcome::Refused, _) => break false,
                Waited::Answer(Outcome::NotExecuted, _) => {}
                Waited::Answer(Outcome::Unknown, _) => is_first = false,
                Waited::Broken => is_first = false,
                Waited::TooLong => {
                    is_first = false;
                    connection.close();
                }
            }
            if Instant::now() >= deadline {
                break true;
            }
            std::thread::sleep(PAUSE);
        };
        self.is_down.fetch_or(given_up, Ordering::Relaxed);
        Err(Unanswered)
    }
}

impl Transport for Client {
    fn command(&self, payload: &[u8]) -> Result<Answer, Unanswered> {
        self.call(Sort::Command, payload)
    }

    fn query(&self, payload: &[u8]) -> Result<Answer, Unanswered> {
        self.call(Sort::Query, payload)
    }

    fn payload_bytes(&self) -> usize {
        self.payload_bytes
    }
}
