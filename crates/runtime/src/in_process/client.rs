//! Calls from other threads to the client lanes of a node.

use crate::node::application::{Application, LaneHandle};
use bytes::Bytes;
use ionian_kernel::client::{Operation, ReadLevel, Refusal, Reply, Request};
use ionian_kernel::id::ClientId;
use ionian_kernel::layout::NodeId;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, RwLock};
use tokio::sync::{mpsc, oneshot};

/// How many calls of other threads the node takes over at once.
const CALLS_AT_ONCE: usize = 256;

/// The result of a call.
type Answer = Result<Bytes, Refusal>;

pub(crate) struct Call {
    /// `None`: the first lane that the node has at the time; a change of the membership can give it
    /// another.
    lane: Option<ClientId>,
    operation: Operation,
    payload: Bytes,
    answer: oneshot::Sender<Answer>,
}

/// Sends calls to the client lanes of a node, as long as it runs.
#[derive(Clone)]
pub struct Calls(mpsc::UnboundedSender<Call>);

impl Calls {
    pub(crate) fn new(queue: mpsc::UnboundedSender<Call>) -> Self {
        Calls(queue)
    }

    /// A handle on the node's first client lane.
    pub fn client(&self) -> Client {
        let lane = Lane {
            id: None,
            node: NodeId(0),
            calls: RwLock::new(self.clone()),
        };
        Client {
            lanes: Arc::new(vec![lane]),
            lane: 0,
        }
    }
}

/// A client lane, and how to reach its node.
pub(crate) struct Lane {
    id: Option<ClientId>,
    pub(crate) node: NodeId,
    /// Replaced when the node starts again.
    calls: RwLock<Calls>,
}

impl Lane {
    /// A lane of a node that does not run yet.
    pub(crate) fn closed(id: ClientId, node: NodeId) -> Self {
        Lane {
            id: Some(id),
            node,
            calls: RwLock::new(Calls(mpsc::unbounded_channel().0)),
        }
    }

    /// The node has started.
    pub(crate) fn lead_to(&self, calls: Calls) {
        *self.calls.write().expect("no holder of this lock panics") = calls;
    }
}

/// The application of an in-process node: takes over calls of other threads.
struct Serving {
    open: Rc<RefCell<HashMap<u64, oneshot::Sender<Answer>>>>,
    drains: Rc<Cell<bool>>,
}

pub(crate) fn serve_calls(
    handle: LaneHandle,
    mut queue: mpsc::UnboundedReceiver<Call>,
) -> Box<dyn Application> {
    let open = Rc::new(RefCell::new(HashMap::new()));
    let drains = Rc::new(Cell::new(false));
    let serving = Serving {
        open: open.clone(),
        drains: drains.clone(),
    };
    tokio::task::spawn_local(async move {
        let mut batch = Vec::new();
        let mut token = 0;
        while queue.recv_many(&mut batch, CALLS_AT_ONCE).await > 0 {
            for Call {
                lane,
                operation,
                payload,
                answer,
            } in batch.drain(..)
            {
                let lane = lane.or_else(|| handle.first_lane());
                let Some(lane) = lane.filter(|_| !drains.get()) else {
                    // The node is about to stop, or has no lane. Sending fails if the caller no
                    // longer waits.
                    let _ = answer.send(Err(Refusal::Unavailable));
                    continue;
                };
                token += 1;
                open.borrow_mut().insert(token, answer);
                handle.submit(
                    lane,
                    Request {
                        token,
                        operation,
                        payload,
                    },
                );
            }
            if handle.is_closed() {
                // Callers that wait learn from the closed channel that there will be no answer.
                return open.borrow_mut().clear();
            }
        }
    });
    Box::new(serving)
}

impl Application for Serving {
    fn on_reply(&mut self, _: ClientId, reply: Reply) {
        if let Some(answer) = self.open.borrow_mut().remove(&reply.token) {
            // Sending fails if the caller no longer waits.
            let _ = answer.send(reply.outcome);
        }
    }

    fn drain(&mut self, drains: bool) {
        self.drains.set(drains);
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.open.borrow_mut().clear();
    }
}

/// A handle on one client lane, for use from any thread. Clones share the lane, and with it the
/// order that sequential reads guarantee.
#[derive(Clone)]
pub struct Client {
    lanes: Arc<Vec<Lane>>,
    lane: usize,
}

impl Client {
    pub(crate) fn new(lanes: Arc<Vec<Lane>>, lane: usize) -> Self {
        Client { lanes, lane }
    }

    /// The lane, in a cluster in one process. For a single node the membership decides the lane.
    pub fn lane(&self) -> Option<ClientId> {
        self.lanes[self.lane].id
    }

    /// Executes a command exactly once on every replica and returns the state machine's reply.
    ///
    /// # Errors
    /// [`Refusal::Unavailable`] at once if the lane's node does not run, [`Refusal::Unknown`] if it
    /// stops meanwhile; otherwise the refusal of the lane.
    pub async fn write(&self, command: impl Into<Bytes>) -> Result<Bytes, Refusal> {
        self.call(Operation::Write, command.into()).await
    }

    /// Has one replica answer a query.
    ///
    /// # Errors
    /// As [`write`](Self::write), and [`Refusal::NotARead`].
    pub async fn read(&self, query: impl Into<Bytes>, level: ReadLevel) -> Result<Bytes, Refusal> {
        self.call(Operation::Read(level), query.into()).await
    }

    /// As [`write`](Self::write), but blocks the calling thread, which must not run an async
    /// runtime.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_blocking(&self, command: impl Into<Bytes>) -> Result<Bytes, Refusal> {
        self.begin(Operation::Write, command.into())?
            .blocking_recv()
            .unwrap_or(Err(Refusal::Unknown))
    }

    /// As [`read`](Self::read), but blocks the calling thread, which must not run an async runtime.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_blocking(
        &self,
        query: impl Into<Bytes>,
        level: ReadLevel,
    ) -> Result<Bytes, Refusal> {
        self.begin(Operation::Read(level), query.into())?
            .blocking_recv()
            .unwrap_or(Err(Refusal::Unknown))
    }

    async fn call(&self, operation: Operation, payload: Bytes) -> Result<Bytes, Refusal> {
        self.begin(operation, payload)?
            .await
            .unwrap_or(Err(Refusal::Unknown))
    }

    /// Hands the request over; the channel brings the answer.
    fn begin(
        &self,
        operation: Operation,
        payload: Bytes,
    ) -> Result<oneshot::Receiver<Answer>, Refusal> {
        let Lane { id, calls, .. } = &self.lanes[self.lane];
        let (answer, answered) = oneshot::channel();
        let call = Call {
            lane: *id,
            operation,
            payload,
            answer,
        };
        let calls = calls.read().expect("no holder of this lock panics");
        calls.0.send(call).map_err(|_| Refusal::Unavailable)?;
        Ok(answered)
    }
}
