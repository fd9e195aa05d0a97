//! The role loops of a node as its main loop uses them.

use super::super::clock::Clock;
use super::super::loop_roles;
use super::queue::Queue;
use super::thread::{Ends, Order, Report, RoleThread, Sent};
use ionian_kernel::id::Members;
use ionian_kernel::layout::Address;
use ionian_kernel::node::Node;
use ionian_kernel::node::homes::{Homes, Hub, spread};
use ionian_kernel::node::role_loop::{Burst, Input, RoleLoop};
use ionian_kernel::protocol::Protocol;
use ionian_kernel::role::Lsn;
use std::panic::resume_unwind;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use tokio::sync::Notify;

/// See the top of this file. The threads end when this is dropped.
pub(crate) struct Loops<P: Protocol> {
    /// Which instances run where, and where the records of each role loop are in the log.
    pub(crate) homes: Homes,
    threads: Vec<Thread<P>>,
    reports: Receiver<(usize, Report)>,
    /// Notified when there is room for more input.
    room: Rc<Notify>,
}

/// One role loop.
struct Thread<P: Protocol> {
    /// None when it has to end.
    orders: Option<Sender<Sent>>,
    /// Messages that are to be handed over, and how many bytes they were encoded in.
    staged: Vec<(Members, P::Message)>,
    staged_bytes: usize,
    queue: Arc<Queue>,
    /// How often it was passed that drain starts or ends, and what it last reported of that.
    drains: u64,
    drained: Option<(u64, bool)>,
    handle: Option<JoinHandle<()>>,
}

impl<P: Protocol> Loops<P> {
    /// Starts `loops` less one role loops, to which instances of `node` move. They have recovered
    /// from a log up to `opened`.
    ///
    /// # Errors
    /// If the operating system gives no thread.
    pub(crate) fn start(
        node: &mut Node<P>,
        loops: usize,
        opened: Lsn,
        clock: Clock,
        wake: &Arc<Notify>,
    ) -> std::io::Result<Self> {
        let kinds = spread::<P>(|kind| !node.local(kind).is_empty(), loops);
        let (homes, nodes) = Homes::split(node, kinds, loops - 1, opened);
        let (reports, reported) = channel();
        let start = |(place, node)| {
            let (orders, given) = channel();
            let queue = Arc::new(Queue::default());
            let ends = Ends {
                place,
                orders: given,
                reports: reports.clone(),
                queue: queue.clone(),
                wake: wake.clone(),
            };
            let read = Box::new(move || clock.now());
            let thread = RoleThread::new(RoleLoop::new(node, opened, read), clock, ends);
            let handle = std::thread::Builder::new()
                .name(format!("loop{}", place + 1))
                .spawn(move || thread.run())?;
            Ok(Thread {
                orders: Some(orders),
                staged: Vec::new(),
                staged_bytes: 0,
                queue,
                drains: 0,
                drained: None,
                handle: Some(handle),
            })
        };
        let threads = nodes.into_iter().enumerate().map(start);
        Ok(Loops {
            homes,
            threads: threads.collect::<std::io::Result<_>>()?,
            reports: reported,
            room: Rc::default(),
        })
    }

    /// Queues a message for the members on role loops. Returns it if there are others. `bytes` is
    /// its length if it was decoded.
    pub(crate) fn pass(
        &mut self,
        members: Members,
        message: P::Message,
        bytes: usize,
    ) -> Option<(Members, P::Message)> {
        let Loops { homes, threads, .. } = self;
        homes.pass(members, message, |place, theirs, message| {
            threads[place].staged_bytes += bytes;
            threads[place].staged.push((theirs, message));
        })
    }

    /// Hands over what is queued.
    pub(crate) fn hand_over(&mut self) {
        self.threads.iter_mut().for_each(Thread::hand_over);
    }

    /// Drain starts or ends.
    pub(crate) fn drain(&mut self, drains: bool) {
        self.threads
            .iter_mut()
            .for_each(|thread| thread.drains += 1);
        self.give_all(|| Input::Drain(drains));
    }

    /// Whether the cluster no longer needs the instances of role loops, which drain.
    pub(crate) fn are_drained(&self) -> bool {
        let is_drained = |thread: &Thread<P>| thread.drained == Some((thread.drains, true));
        self.threads.iter().all(is_drained)
    }

    pub(crate) fn has_drained(&mut self, place: usize, drained: (u64, bool)) {
        self.threads[place].drained = Some(drained);
    }

    /// The role loop of an instance; `None` if it runs on the main loop.
    pub(crate) fn home(&self, address: Address) -> Option<usize> {
        self.homes.home(address)
    }

    /// The next burst that a role loop has handed over.
    ///
    /// # Panics
    /// If its thread has, with the same.
    pub(crate) fn next_burst(&mut self) -> Option<(usize, Box<Burst<P>>)> {
        let (place, report) = self.reports.try_recv().ok()?;
        let thread = &self.threads[place];
        match report {
            Report::Failed(panic) => resume_unwind(panic),
            Report::Burst(burst) => {
                if thread.queue.burst_taken() {
                    thread.unpark();
                }
                Some((place, burst.downcast().expect("a burst of this protocol")))
            }
        }
    }

    /// What a reader has to wait for if a role loop has too much to do.
    pub(crate) fn must_wait(&self) -> Option<Rc<Notify>> {
        let must_wait = self.threads.iter().any(|thread| thread.queue.must_wait());
        must_wait.then(|| self.room.clone())
    }

    /// Lets readers look again whether there is room, if any wait.
    pub(crate) fn offer_room(&self) {
        let mut queues = self.threads.iter().map(|thread| &thread.queue);
        if queues.any(|queue| queue.is_waited_for()) {
            self.threads
                .iter()
                .for_each(|thread| thread.queue.stop_waiting());
            self.room.notify_waiters();
        }
    }

    /// Gives every role loop something to do, behind what was passed before. One that has ended
    /// does nothing.
    pub(crate) fn order(&mut self, order: &mut dyn FnMut() -> loop_roles::Order) {
        for thread in &mut self.threads {
            thread.hand_over();
            thread.send(Order::Do(order()));
        }
    }
}

impl<P: Protocol> Hub<P> for Loops<P> {
    fn homes(&mut self) -> &mut Homes {
        &mut self.homes
    }

    /// Passes an input to a role loop, behind what is queued.
    fn give(&mut self, place: usize, input: Input<P>) {
        let thread = &mut self.threads[place];
        thread.hand_over();
        thread.send(Order::Input(input));
    }
}

impl<P: Protocol> Thread<P> {
    fn hand_over(&mut self) {
        if self.staged.is_empty() {
            return;
        }
        let messages = core::mem::take(&mut self.staged);
        let (count, bytes) = (messages.len(), core::mem::take(&mut self.staged_bytes));
        self.queue.put(count, bytes);
        self.send(Order::Messages(messages, bytes));
    }

    /// Sends an order and wakes the thread. If the thread has panicked, the main loop learns it
    /// from its report.
    fn send(&self, order: Order<P>) {
        if let Some(orders) = &self.orders {
            let _ = orders.send(Box::new(order));
            self.unpark();
        }
    }

    fn unpark(&self) {
        if let Some(handle) = &self.handle {
            handle.thread().unpark();
        }
    }
}

impl<P: Protocol> Drop for Thread<P> {
    fn drop(&mut self) {
        self.queue.close();
        self.orders = None;
        self.unpark();
        if let Some(handle) = self.handle.take() {
            // What it panicked with is in its report.
            let _ = handle.join();
        }
    }
}
