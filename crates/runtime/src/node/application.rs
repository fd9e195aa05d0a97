//! The border to whoever uses a node's client lanes: the Redis gateway, a cluster handle, a load
//! generator.

use ionian_kernel::client::{Reply, Request};
use ionian_kernel::id::ClientId;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use tokio::sync::Notify;

/// What uses the client lanes of a node. It lives on the node's event loop and must not block.
pub trait Application {
    /// The answer to a request that was submitted to `lane`. Called while the loop runs, so this is
    /// the place to note the answer; a further request can be submitted from here.
    fn on_reply(&mut self, lane: ClientId, reply: Reply);

    /// The loop has done everything that there was to do: the place to write out, once, what the
    /// replies of this burst have led to.
    fn on_burst_end(&mut self) {}

    /// The node is about to stop, or is told to do without clients (`drains`): from now on none is
    /// taken in, and those that are here leave when they have their answers. Or it may serve them
    /// again.
    fn drain(&mut self, drains: bool) {
        let _ = drains;
    }

    /// How many clients are here that a node which drains waits for.
    fn clients(&self) -> usize {
        0
    }
}

/// The application of a node whose lanes nobody uses.
impl Application for () {
    fn on_reply(&mut self, _: ClientId, _: Reply) {}
}

/// Makes the event loop run once more.
#[derive(Default)]
pub(crate) struct Wake {
    notify: Notify,
    scheduled: Cell<bool>,
}

impl Wake {
    /// However often it is called before the loop runs, the loop runs once.
    pub(crate) fn wake(&self) {
        if !self.scheduled.replace(true) {
            self.notify.notify_one();
        }
    }

    pub(crate) async fn woken(&self) {
        self.notify.notified().await;
    }

    /// Whether the loop is to run once more.
    pub(crate) fn is_scheduled(&self) -> bool {
        self.scheduled.get()
    }

    /// The loop runs now: whoever calls from here on wants it to run again.
    pub(crate) fn begin(&self) {
        self.scheduled.set(false);
    }
}

pub(crate) struct Submissions {
    pub(crate) wake: Wake,
    queue: RefCell<Vec<(ClientId, Request)>>,
    /// The client lanes of this node, which the membership says.
    pub(crate) lanes: RefCell<Vec<ClientId>>,
    closed: Cell<bool>,
}

impl Submissions {
    pub(crate) fn new(lanes: Vec<ClientId>) -> Rc<Self> {
        let (wake, queue, closed) = Default::default();
        Rc::new(Submissions {
            wake,
            queue,
            lanes: RefCell::new(lanes),
            closed,
        })
    }

    /// Exchanges the queue for an empty vector.
    pub(crate) fn swap(&self, empty: &mut Vec<(ClientId, Request)>) {
        debug_assert!(empty.is_empty());
        core::mem::swap(&mut *self.queue.borrow_mut(), empty);
    }

    /// Queues a request and sees to it that the loop takes it up.
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

/// The way to the client lanes of a node, for use on its event loop only.
#[derive(Clone)]
pub struct LaneHandle {
    submissions: Rc<Submissions>,
}

impl LaneHandle {
    pub(crate) fn new(submissions: Rc<Submissions>) -> Self {
        LaneHandle { submissions }
    }

    /// The client lanes of this node. A change of the membership can take some away and bring
    /// others.
    pub fn lanes(&self) -> Vec<ClientId> {
        self.submissions.lanes.borrow().clone()
    }

    /// The first of them, at this moment.
    pub fn first_lane(&self) -> Option<ClientId> {
        self.submissions.first_lane()
    }

    /// Queues a request and sees to it that the loop takes it up. Can be called from anywhere on
    /// the loop's thread, [`Application::on_reply`] included: it never enters a role. Exactly one
    /// reply follows; from a lane that is not of this node it is
    /// [`Refusal::Unavailable`](ionian_kernel::client::Refusal::Unavailable). Only when the node
    /// stops, or the lane leaves it, there are no more replies. Tokens from 2^63 on are not for
    /// applications.
    pub fn submit(&self, lane: ClientId, request: Request) {
        self.submissions.submit(lane, request);
    }

    /// Whether the node has stopped: nothing that is submitted is answered any more.
    pub fn is_closed(&self) -> bool {
        self.submissions.closed.get()
    }
}
