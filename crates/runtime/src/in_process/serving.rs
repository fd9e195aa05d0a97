//! The application of a node in this process: takes over the calls of other threads, on the node's
//! event loop.

use super::freshness::{Freshness, LocalReadError, Receipt};
use super::local_reads::{Called, Desk, LocalRead, is_of_another_process};
use crate::node::application::{Application, LaneHandle};
use bytes::Bytes;
use ionian_kernel::client::{Operation, ReadLevel, Refusal, Reply, Request};
use ionian_kernel::id::ClientId;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

/// How many calls of other threads the node takes over at once.
const CALLS_AT_ONCE: usize = 256;

/// For how long a closure is sent again to a replica in this process while others answer.
const FINDS_WITHIN: Duration = Duration::from_secs(5);

/// The pauses between: each twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// The result of a call.
pub(crate) type Answer = Result<(Bytes, Receipt), Refusal>;

/// The result of a read by a closure.
pub(crate) type LocalAnswer = Result<Called, LocalReadError>;

pub(crate) struct Call {
    /// `None`: the first lane that the node has at the time; a change of the membership can give it
    /// another.
    pub(crate) lane: Option<ClientId>,
    pub(crate) work: Work,
}

pub(crate) enum Work {
    /// A request for the lane.
    Request {
        operation: Operation,
        payload: Bytes,
        answer: oneshot::Sender<Answer>,
    },
    /// A query that must see what a receipt stands for.
    ReadAfter {
        receipt: Receipt,
        query: Bytes,
        answer: oneshot::Sender<Answer>,
    },
    /// A read by a closure.
    Local {
        freshness: Freshness,
        read: LocalRead,
        answer: oneshot::Sender<LocalAnswer>,
    },
}

/// See the top of this file.
struct Serving(Rc<Lanes>);

/// The lanes of the node, and what they have not answered.
struct Lanes {
    handle: LaneHandle,
    desk: Arc<Desk>,
    open: RefCell<HashMap<u64, oneshot::Sender<Answer>>>,
    token: Cell<u64>,
    drains: Cell<bool>,
}

pub(crate) fn serve_calls(
    handle: LaneHandle,
    desk: Arc<Desk>,
    mut queue: mpsc::UnboundedReceiver<Call>,
) -> Box<dyn Application> {
    let lanes = Rc::new(Lanes {
        handle,
        desk,
        open: RefCell::default(),
        token: Cell::new(0),
        drains: Cell::new(false),
    });
    let serving = Serving(lanes.clone());
    tokio::task::spawn_local(async move {
        let mut batch = Vec::new();
        while queue.recv_many(&mut batch, CALLS_AT_ONCE).await > 0 {
            for call in batch.drain(..) {
                take_over(&lanes, call);
            }
            if lanes.handle.is_closed() {
                // Callers that wait learn from the closed channel that there will be no answer.
                return lanes.open.borrow_mut().clear();
            }
        }
    });
    Box::new(serving)
}

fn take_over(lanes: &Rc<Lanes>, Call { lane, work }: Call) {
    let lane = lanes.lane(lane);
    match work {
        Work::Request {
            operation,
            payload,
            answer,
        } => lanes.submit(lane, operation, payload, answer),
        Work::ReadAfter {
            receipt,
            query,
            answer,
        } => {
            let lanes = lanes.clone();
            let read = async move {
                let level = lanes.level(lane, Freshness::After(receipt)).await?;
                lanes.read(lane, level, query).await
            };
            work_for(answer, read);
        }
        Work::Local {
            freshness,
            read,
            answer,
        } => work_for(answer, read_locally(lanes.clone(), lane, freshness, read)),
    }
}

/// Works for a caller as long as that waits.
fn work_for<T: 'static>(mut caller: oneshot::Sender<T>, work: impl Future<Output = T> + 'static) {
    tokio::task::spawn_local(async move {
        tokio::select! {
            done = work => drop(caller.send(done)),
            () = caller.closed() => {}
        }
    });
}

/// Has a replica in this process call a closure.
///
/// The query goes the way of all queries of its level, which prefers the replica on the lane's own
/// node. If another node's replica answers a linearizable one instead, a sequential one follows: it
/// sees at least what that replica had executed, because the lane has seen its answer, and so every
/// write that was acknowledged before this read began. It asks no quorum, and goes to the replica
/// on this node unless that has left requests unanswered. Then both are repeated for a while:
/// with a linearizable one a lane asks also a replica that it does not trust, now and then, but
/// with EPaxos not with a sequential one.
async fn read_locally(
    lanes: Rc<Lanes>,
    lane: Option<ClientId>,
    freshness: Freshness,
    read: LocalRead,
) -> LocalAnswer {
    if !lanes.desk.has_machine() {
        return Err(LocalReadError::NoReplica);
    }
    let ticket = lanes.desk.put(read).ok_or(Refusal::Busy)?;
    let (began, mut pause) = (Instant::now(), FIRST_PAUSE);
    let mut level = lanes.level(lane, freshness).await?;
    loop {
        let reads_all = match lanes.read(lane, level, ticket.query()).await {
            Ok((answer, _)) => {
                if let Some(called) = ticket.take(&answer) {
                    return Ok(called);
                }
                is_of_another_process(&answer)
            }
            // Thus a machine may answer that knows no closures, such as one of an earlier program.
            // To it the query reads nothing, so that with CRAQ and EPaxos it waits for nothing.
            Err(Refusal::NotARead | Refusal::Failed) => false,
            Err(refusal) => return Err(refusal.into()),
        };
        if level == ReadLevel::Linearizable && reads_all {
            level = ReadLevel::Sequential;
            continue;
        }
        if began.elapsed() >= FINDS_WITHIN {
            return Err(LocalReadError::NoReplica);
        }
        tokio::time::sleep(pause).await;
        pause = LONGEST_PAUSE.min(pause * 2);
        if level == ReadLevel::Sequential {
            level = ReadLevel::Linearizable;
        }
    }
}

impl Lanes {
    /// The lane that a call is for; none while the node is about to stop, or has none.
    fn lane(&self, asked: Option<ClientId>) -> Option<ClientId> {
        asked
            .or_else(|| self.handle.first_lane())
            .filter(|_| !self.drains.get())
    }

    fn submit(
        &self,
        lane: Option<ClientId>,
        operation: Operation,
        payload: Bytes,
        answer: oneshot::Sender<Answer>,
    ) {
        let Some(lane) = lane else {
            // Sending fails if the caller no longer waits.
            let _ = answer.send(Err(Refusal::Unavailable));
            return;
        };
        let token = self.token.get() + 1;
        self.token.set(token);
        self.open.borrow_mut().insert(token, answer);
        let request = Request {
            token,
            operation,
            payload,
        };
        self.handle.submit(lane, request);
    }

    async fn read(&self, lane: Option<ClientId>, level: ReadLevel, query: Bytes) -> Answer {
        let (answer, answered) = oneshot::channel();
        self.submit(lane, Operation::Read(level), query, answer);
        answered.await.unwrap_or(Err(Refusal::Unavailable))
    }

    /// The level of a read that is to be so fresh.
    ///
    /// After a receipt, the lane asks a replica, preferably its own, how far it is: by a query for
    /// which it does not wait, and which has no effect. If the lane has then seen as much of the
    /// log as the receipt stands for, a sequential read sees that too. Otherwise a linearizable one
    /// does: what the receipt stands for was executed before this read began.
    async fn level(
        &self,
        lane: Option<ClientId>,
        freshness: Freshness,
    ) -> Result<ReadLevel, Refusal> {
        let receipt = match freshness {
            Freshness::Level(level) => return Ok(level),
            Freshness::After(receipt) => receipt,
        };
        let has_log = receipt.position() > 0;
        if has_log {
            let query = self.desk.no_query();
            let (_, seen) = self.read(lane, ReadLevel::Eventual, query).await?;
            if seen >= receipt {
                return Ok(ReadLevel::Sequential);
            }
        }
        Ok(ReadLevel::Linearizable)
    }
}

impl Application for Serving {
    fn on_reply(&mut self, _: ClientId, reply: Reply) {
        if let Some(answer) = self.0.open.borrow_mut().remove(&reply.token) {
            let receipt = Receipt::from(reply.seen);
            // Sending fails if the caller no longer waits.
            let _ = answer.send(reply.outcome.map(|outcome| (outcome, receipt)));
        }
    }

    fn drain(&mut self, drains: bool) {
        self.0.drains.set(drains);
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.open.borrow_mut().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::application::Submissions;
    use ionian_kernel::id::Slot;
    use ionian_kernel::level::Level;
    use ionian_kernel::machine::{NotARead, RestoreError, StateMachine};
    use ionian_kernel::time::Timestamp;
    use tokio::task::LocalSet;

    struct Answers;

    impl StateMachine for Answers {
        fn apply(&mut self, _: Timestamp, _: &[u8], _: &mut Vec<u8>) {}
        fn read(&self, _: Timestamp, _: &[u8], _: &mut Vec<u8>) -> Result<(), NotARead> {
            Ok(())
        }
        fn snapshot(&self, _: &mut Vec<u8>) {}
        fn restore(&mut self, _: &[u8]) -> Result<(), RestoreError> {
            Ok(())
        }
    }

    /// What a lane answers: a replica of this process, that of another, or a refusal; and how much
    /// of the log the lane has seen then.
    enum Lane {
        Here(u64),
        Elsewhere(u64),
        Refuses(Refusal),
    }

    /// The levels at which a closure is sent to a lane that answers so, and what comes of it.
    fn sent(freshness: impl Into<Freshness>, answers: Vec<Lane>) -> (Vec<ReadLevel>, bool) {
        let freshness = freshness.into();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("a runtime");
        LocalSet::new().block_on(&runtime, async {
            let desk = Desk::new();
            let (here, there) = (
                desk.serve(Box::new(Answers)),
                Desk::new().serve(Box::new(Answers)),
            );
            let submissions = Submissions::new(vec![ClientId(0)], Level::LATEST);
            let (calls, queue) = mpsc::unbounded_channel();
            let handle = LaneHandle::new(submissions.clone());
            let mut serving = serve_calls(handle, desk, queue);
            let (answer, answered) = oneshot::channel();
            let read = LocalRead::new(|_: &Answers| ());
            let work = Work::Local {
                freshness,
                read,
                answer,
            };
            assert!(calls.send(Call { lane: None, work }).is_ok());
            let mut levels = Vec::new();
            for lane in answers {
                submissions.wake.woken().await;
                submissions.wake.begin();
                let mut requests = Vec::new();
                submissions.swap(&mut requests);
                let (_, request) = requests.pop().expect("a request");
                let Operation::Read(level) = request.operation else {
                    panic!("{request:?} is no read");
                };
                levels.push(level);
                let (machine, seen) = match lane {
                    Lane::Here(seen) => (&here, seen),
                    Lane::Elsewhere(seen) => (&there, seen),
                    Lane::Refuses(refusal) => {
                        serving.on_reply(ClientId(0), Reply::refused(request.token, refusal));
                        continue;
                    }
                };
                let mut bytes = Vec::new();
                let now = Timestamp(1);
                assert_eq!(machine.read(now, &request.payload, &mut bytes), Ok(()));
                let reply = Reply {
                    outcome: Ok(bytes.into()),
                    seen: Slot(seen),
                    ..Reply::refused(request.token, Refusal::Unknown)
                };
                serving.on_reply(ClientId(0), reply);
            }
            let called = answered.await.expect("an answer");
            (levels, matches!(called, Ok(Called::Returned(_))))
        })
    }

    use Lane::{Elsewhere, Here, Refuses};
    use ReadLevel::{Eventual, Linearizable, Sequential};

    /// The replica of this node need not have executed what the other one had; the lane has seen
    /// that, so a sequential read does.
    #[test]
    fn a_linearizable_read_answered_elsewhere_goes_on_as_a_sequential_one() {
        let answers = || vec![Elsewhere(5), Elsewhere(5), Here(5)];
        let after = vec![Linearizable, Sequential, Linearizable];
        assert_eq!(sent(Linearizable, answers()), (after, true));
        let after = vec![Sequential, Linearizable, Sequential];
        assert_eq!(sent(Sequential, answers()), (after, true));
        assert_eq!(sent(Eventual, answers()), (vec![Eventual; 3], true));
    }

    #[test]
    fn a_machine_that_knows_no_closures_is_not_the_last_word_but_a_refusal_is() {
        let unknown = vec![
            Refuses(Refusal::NotARead),
            Refuses(Refusal::Failed),
            Here(5),
        ];
        assert_eq!(sent(Linearizable, unknown), (vec![Linearizable; 3], true));
        let refused = sent(Linearizable, vec![Refuses(Refusal::Unavailable)]);
        assert_eq!(refused, (vec![Linearizable], false));
    }

    /// It first asks how far the lane's replica is.
    #[test]
    fn a_read_after_a_receipt_is_sequential_only_if_the_lane_has_seen_as_much() {
        let after = |seen, receipt| {
            let (levels, done) = sent(Receipt::at(receipt), vec![Here(seen), Here(seen)]);
            assert!(done);
            levels
        };
        assert_eq!(after(7, 7), [Eventual, Sequential]);
        assert_eq!(after(6, 7), [Eventual, Linearizable]);
        let no_log = sent(Receipt::at(0), vec![Here(0)]);
        assert_eq!(no_log, (vec![Linearizable], true), "no log orders receipts");
    }
}
