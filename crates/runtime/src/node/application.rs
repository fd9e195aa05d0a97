//! The interface for users of a node's client lanes: the Redis gateway, a cluster handle, a load
//! generator.

use crate::status::ClientsStatus;
use ionian_kernel::client::{DiskRoom, Reply, Request};
use ionian_kernel::id::ClientId;
use ionian_kernel::level::Level;
use ionian_kernel::protocol::AnyProtocol;
use ionian_kernel::trace::{CommandId, TraceParent};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// A user of the client lanes of a node. It runs on the node's event loop and must not block.
pub trait Application {
    /// The reply to a request that was submitted to `lane`. Called while the loop runs, so the
    /// application should only store the reply here; it may submit further requests.
    fn on_reply(&mut self, lane: ClientId, reply: Reply);

    /// The loop has finished a burst: the application can now write out, once, what the replies of
    /// this burst have produced.
    fn on_burst_end(&mut self) {}

    /// The node is about to stop or starts to drain (`drains`): the application accepts no new
    /// clients, and closes each client that has its answers. With `false` it serves clients again.
    fn drain(&mut self, drains: bool) {
        let _ = drains;
    }

    /// The disk of the node gets full, or has room again: the application accepts only what there
    /// is room for.
    fn disk_has_room(&mut self, room: DiskRoom) {
        let _ = room;
    }

    /// The number of clients that a node which drains has to wait for.
    fn clients(&self) -> usize {
        0
    }

    /// Keeps the times of one in this number of commands, by their names
    /// ([`CommandId::is_sampled`]), for this long.
    fn keep(&mut self, one_in: u64, lasting: Duration) {
        let _ = (one_in, lasting);
    }

    /// The commands whose times it has kept, the oldest first.
    fn kept(&self) -> Vec<Kept> {
        Vec::new()
    }

    /// What it has measured of its clients, for the node's status.
    fn measured(&self) -> Option<ClientsStatus> {
        None
    }
}

/// A command of a client, with the times of its way through an application.
#[derive(Clone, Copy, Debug)]
pub struct Kept {
    /// Its name, without arguments.
    pub name: &'static str,
    /// How many commands went with it, itself included.
    pub together: usize,
    /// Its name in the cluster; none if the cluster has not answered.
    pub command: Option<CommandId>,
    /// The trace and the span that it is a part of, if its client gave them.
    pub parent: Option<TraceParent>,
    /// Whether it is kept because it was slow.
    pub slow: bool,
    /// When it was received.
    pub received: Instant,
    /// When it was given to the lane.
    pub submitted: Instant,
    /// When its reply was there.
    pub answered: Instant,
    /// When its reply was written to its connection; none if it is not yet.
    pub written: Option<Instant>,
    /// A number of its own, of this process.
    pub id: u64,
}

/// For a node whose lanes are not used.
impl Application for () {
    fn on_reply(&mut self, _: ClientId, _: Reply) {}
}

/// Wakes the event loop.
#[derive(Default)]
pub(crate) struct Wake {
    notify: Notify,
    scheduled: Cell<bool>,
}

impl Wake {
    /// Makes the loop run once more, however often it is called before that.
    pub(crate) fn wake(&self) {
        if !self.scheduled.replace(true) {
            self.notify.notify_one();
        }
    }

    pub(crate) async fn woken(&self) {
        self.notify.notified().await;
    }

    /// Whether the loop has to run once more.
    pub(crate) fn is_scheduled(&self) -> bool {
        self.scheduled.get()
    }

    /// A run begins: later calls of [`wake`](Self::wake) cause another run.
    pub(crate) fn begin(&self) {
        self.scheduled.set(false);
    }
}

/// The level by which applications judge what clients may use, such as users and a limit of memory.
/// With a protocol that cannot change its level it is the first: such features are untested there.
pub(crate) fn level_of_features(protocol: &dyn AnyProtocol, level: Level) -> Level {
    match protocol.check_level() {
        Ok(()) => level,
        Err(_) => Level::FIRST,
    }
}

pub(crate) struct Submissions {
    pub(crate) wake: Wake,
    queue: RefCell<Vec<(ClientId, Request)>>,
    /// The client lanes of this node, according to the membership.
    pub(crate) lanes: RefCell<Vec<ClientId>>,
    /// See [`level_of_features`].
    pub(crate) level: Cell<Level>,
    closed: Cell<bool>,
}

impl Submissions {
    pub(crate) fn new(lanes: Vec<ClientId>, level: Level) -> Rc<Self> {
        Rc::new(Submissions {
            wake: Wake::default(),
            queue: RefCell::default(),
            lanes: RefCell::new(lanes),
            level: Cell::new(level),
            closed: Cell::new(false),
        })
    }

    /// Exchanges the queue for an empty vector.
    pub(crate) fn swap(&self, empty: &mut Vec<(ClientId, Request)>) {
        debug_assert!(empty.is_empty());
        core::mem::swap(&mut *self.queue.borrow_mut(), empty);
    }

    /// Queues a request and wakes the loop.
    pub(crate) fn submit(&self, lane: ClientId, request: Request) {
        if !self.closed.get() {
            self.queue.borrow_mut().push((lane, request));
            self.wake.wake();
        }
    }

    /// The first lane of this node.
    pub(crate) fn first_lane(&self) -> Option<ClientId> {
        self.lanes.borrow().first().copied()
    }

    pub(crate) fn close(&self) {
        self.closed.set(true);
        self.queue.borrow_mut().clear();
    }
}

/// Submits requests to the client lanes of a node. For use on its event loop only.
#[derive(Clone)]
pub struct LaneHandle {
    submissions: Rc<Submissions>,
}

impl LaneHandle {
    pub(crate) fn new(submissions: Rc<Submissions>) -> Self {
        LaneHandle { submissions }
    }

    /// The client lanes of this node. A change of the membership can remove lanes and add others.
    pub fn lanes(&self) -> Vec<ClientId> {
        self.submissions.lanes.borrow().clone()
    }

    /// The first lane at this moment.
    pub fn first_lane(&self) -> Option<ClientId> {
        self.submissions.first_lane()
    }

    /// The level by which clients are served at this moment: that of the cluster, as far as this
    /// node knows, or the first one if the protocol cannot change it.
    pub fn level(&self) -> Level {
        self.submissions.level.get()
    }

    /// Queues a request and wakes the loop. It never enters a role, so it can be called from
    /// anywhere on the loop's thread, [`Application::on_reply`] included. Exactly one reply
    /// follows; a lane that is not on this node replies
    /// [`Refusal::Unavailable`](ionian_kernel::client::Refusal::Unavailable). Only when the node
    /// stops are there no more replies. Tokens from 2^63 on are reserved.
    pub fn submit(&self, lane: ClientId, request: Request) {
        self.submissions.submit(lane, request);
    }

    /// Whether the node has stopped: later requests get no reply.
    pub fn is_closed(&self) -> bool {
        self.submissions.closed.get()
    }
}
