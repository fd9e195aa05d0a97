//! Calls from other threads to the client lanes of a node.

use super::freshness::{Freshness, LocalReadError, Receipt};
use super::local_reads::{Called, LocalRead};
use super::serving::{Answer, Call, LocalAnswer, Work};
use bytes::Bytes;
use ionian_kernel::client::{Operation, Refusal};
use ionian_kernel::id::ClientId;
use ionian_kernel::layout::NodeId;
use ionian_kernel::machine::StateMachine;
use std::panic::resume_unwind;
use std::sync::{Arc, RwLock};
use tokio::sync::{mpsc, oneshot};

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
        let (reply, _) = self.write_with_receipt(command).await?;
        Ok(reply)
    }

    /// As [`write`](Self::write), with a [`Receipt`]: a read after it, through any node of the
    /// cluster, sees this write.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub async fn write_with_receipt(
        &self,
        command: impl Into<Bytes>,
    ) -> Result<(Bytes, Receipt), Refusal> {
        let answered = self.request(Operation::Write, command.into())?;
        answered.await.unwrap_or(Err(Refusal::Unknown))
    }

    /// Has one replica answer a query, which is as fresh as a [`ReadLevel`] or a [`Receipt`] asks.
    ///
    /// [`ReadLevel`]: ionian_kernel::client::ReadLevel
    ///
    /// # Errors
    /// As [`write`](Self::write), and [`Refusal::NotARead`].
    pub async fn read(
        &self,
        query: impl Into<Bytes>,
        freshness: impl Into<Freshness>,
    ) -> Result<Bytes, Refusal> {
        let answered = self.query(query.into(), freshness.into())?;
        let (reply, _) = answered.await.unwrap_or(Err(Refusal::Unknown))?;
        Ok(reply)
    }

    /// Reads by a closure, which a replica in this process calls with its state machine, of type
    /// `M`: nothing is encoded. It sees what a query of that freshness sees.
    ///
    /// The closure runs on the thread of a node, which does nothing else meanwhile: it must be
    /// short, and must not wait for anything, least of all for the cluster. It may be called more
    /// than once, by several replicas; one of the results is returned. If the call panics whose
    /// result this would be, that panic goes on here; the node is not affected.
    ///
    /// With P-SMR reads pass the log, and a replica near the batcher answers: a node of several
    /// machines needs a batcher beside its replica.
    ///
    /// # Errors
    /// [`LocalReadError::NoReplica`] if this process has no replica, or none that keeps up;
    /// [`LocalReadError::OtherMachine`] if `M` is not the type of the machines; otherwise the
    /// refusal of the lane: [`Refusal::Busy`] also when too many closures wait, and
    /// [`Refusal::Unavailable`] if the node stops.
    pub async fn read_with<M: StateMachine, R: Send + 'static>(
        &self,
        freshness: impl Into<Freshness>,
        read: impl Fn(&M) -> R + Send + 'static,
    ) -> Result<R, LocalReadError> {
        let called = self.local(freshness.into(), LocalRead::new(read))?.await;
        returned(called.unwrap_or(Err(Refusal::Unavailable.into())))
    }

    /// As [`write`](Self::write), but blocks the calling thread, which must not run an async
    /// runtime.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_blocking(&self, command: impl Into<Bytes>) -> Result<Bytes, Refusal> {
        let (reply, _) = self.write_with_receipt_blocking(command)?;
        Ok(reply)
    }

    /// As [`write_with_receipt`](Self::write_with_receipt), but blocks the calling thread, which
    /// must not run an async runtime.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_with_receipt_blocking(
        &self,
        command: impl Into<Bytes>,
    ) -> Result<(Bytes, Receipt), Refusal> {
        let answered = self.request(Operation::Write, command.into())?;
        answered.blocking_recv().unwrap_or(Err(Refusal::Unknown))
    }

    /// As [`read`](Self::read), but blocks the calling thread, which must not run an async runtime.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_blocking(
        &self,
        query: impl Into<Bytes>,
        freshness: impl Into<Freshness>,
    ) -> Result<Bytes, Refusal> {
        let answered = self.query(query.into(), freshness.into())?;
        let (reply, _) = answered.blocking_recv().unwrap_or(Err(Refusal::Unknown))?;
        Ok(reply)
    }

    /// As [`read_with`](Self::read_with), but blocks the calling thread, which must not run an
    /// async runtime.
    ///
    /// # Errors
    /// As [`read_with`](Self::read_with).
    pub fn read_with_blocking<M: StateMachine, R: Send + 'static>(
        &self,
        freshness: impl Into<Freshness>,
        read: impl Fn(&M) -> R + Send + 'static,
    ) -> Result<R, LocalReadError> {
        let called = self.local(freshness.into(), LocalRead::new(read))?;
        returned(
            called
                .blocking_recv()
                .unwrap_or(Err(Refusal::Unavailable.into())),
        )
    }

    fn request(
        &self,
        operation: Operation,
        payload: Bytes,
    ) -> Result<oneshot::Receiver<Answer>, Refusal> {
        self.begin(|answer| Work::Request {
            operation,
            payload,
            answer,
        })
    }

    fn query(
        &self,
        query: Bytes,
        freshness: Freshness,
    ) -> Result<oneshot::Receiver<Answer>, Refusal> {
        match freshness {
            Freshness::Level(level) => self.request(Operation::Read(level), query),
            Freshness::After(receipt) => self.begin(|answer| Work::ReadAfter {
                receipt,
                query,
                answer,
            }),
        }
    }

    fn local(
        &self,
        freshness: Freshness,
        read: LocalRead,
    ) -> Result<oneshot::Receiver<LocalAnswer>, Refusal> {
        self.begin(|answer| Work::Local {
            freshness,
            read,
            answer,
        })
    }

    /// Hands work over; the channel brings the answer.
    fn begin<T>(
        &self,
        work: impl FnOnce(oneshot::Sender<T>) -> Work,
    ) -> Result<oneshot::Receiver<T>, Refusal> {
        let Lane { id, calls, .. } = &self.lanes[self.lane];
        let (answer, answered) = oneshot::channel();
        let call = Call {
            lane: *id,
            work: work(answer),
        };
        let calls = calls.read().expect("no holder of this lock panics");
        calls.0.send(call).map_err(|_| Refusal::Unavailable)?;
        Ok(answered)
    }
}

/// What a closure returned.
fn returned<R: 'static>(answer: LocalAnswer) -> Result<R, LocalReadError> {
    match answer? {
        Called::Returned(value) => Ok(*value.downcast().expect("the closure returns this type")),
        Called::Panicked(panic) => resume_unwind(panic),
        Called::OtherMachine => Err(LocalReadError::OtherMachine),
    }
}
