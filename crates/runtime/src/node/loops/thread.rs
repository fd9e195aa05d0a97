//! A role loop: a thread that takes in what the main loop passes, runs its roles until no message
//! is queued, and hands over what they ask for. It sleeps when nothing is left to do, until it is
//! woken or a timer is due.

use super::super::clock::Clock;
use super::super::event_log::EventLog;
use super::super::loop_roles::{self, LoopRoles, RoleLoopView};
use super::queue::{MAX_TAKEN, Queue};
use crate::admin::status::cpu_time_us;
use crate::status::{LogStatus, RoleLoopStatus};
use ionian_kernel::id::Members;
use ionian_kernel::node::role_loop::{Burst, Input, RoleLoop};
use ionian_kernel::protocol::Protocol;
use ionian_kernel::time::Instant;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::thread::{park, park_timeout};
use tokio::sync::Notify;

/// What the main loop passes to a role loop.
pub(super) enum Order<P: Protocol> {
    Input(Input<P>),
    /// Messages, and how many bytes those of them were encoded in that came from other nodes.
    Messages(Vec<(Members, P::Message)>, usize),
    /// Something to do on its thread.
    Do(loop_roles::Order),
}

/// An [`Order`] on its way: channels are compiled once, and not for each protocol.
pub(super) type Sent = Box<dyn Any + Send>;

/// What a role loop hands to the main loop.
pub(super) enum Report {
    /// A [`Burst`] of the protocol.
    Burst(Box<dyn Any + Send>),
    /// It has panicked with this, and ended.
    Failed(Box<dyn Any + Send>),
}

/// See the top of this file.
pub(super) struct RoleThread<P: Protocol> {
    role_loop: RoleLoop<P>,
    clock: Clock,
    place: usize,
    orders: Receiver<Sent>,
    reports: Sender<(usize, Report)>,
    queue: Arc<Queue>,
    /// Wakes the main loop.
    wake: Arc<Notify>,
    event_log: EventLog,
    status: RoleLoopStatus,
}

/// The thread has to end: so has the main loop.
struct Ended;

/// What connects a role loop to the main loop.
pub(super) struct Ends {
    pub(super) place: usize,
    pub(super) orders: Receiver<Sent>,
    pub(super) reports: Sender<(usize, Report)>,
    pub(super) queue: Arc<Queue>,
    pub(super) wake: Arc<Notify>,
}

impl<P: Protocol> RoleThread<P> {
    pub(super) fn new(role_loop: RoleLoop<P>, clock: Clock, ends: Ends) -> Self {
        let Ends {
            place,
            orders,
            reports,
            queue,
            wake,
        } = ends;
        let status = RoleLoopStatus {
            number: place as u64 + 1,
            ..RoleLoopStatus::default()
        };
        RoleThread {
            role_loop,
            clock,
            place,
            orders,
            reports,
            queue,
            wake,
            event_log: EventLog::default(),
            status,
        }
    }

    /// The body of the thread.
    pub(super) fn run(mut self) {
        let ran = catch_unwind(AssertUnwindSafe(|| while self.run_once().is_ok() {}));
        if let Err(panic) = ran {
            // If the main loop has ended there is none to report it to.
            let _ = self.reports.send((self.place, Report::Failed(panic)));
            self.wake.notify_one();
        }
    }

    fn run_once(&mut self) -> Result<(), Ended> {
        let has_taken = self.take_in()?;
        let now = self.clock.now();
        self.role_loop.run(now);
        let statuses = || self.role_loop.node.statuses();
        self.event_log
            .log_changes(now, P::KINDS, &statuses, &LogStatus::default);
        if let Some(burst) = self.role_loop.burst() {
            self.hand_over(burst)?;
        } else if !has_taken {
            self.sleep();
        }
        Ok(())
    }

    /// Takes in what the main loop has passed, if anything.
    fn take_in(&mut self) -> Result<bool, Ended> {
        let mut taken = 0;
        while taken < MAX_TAKEN {
            let order = match self.orders.try_recv() {
                Ok(order) => *order.downcast().expect("an order of this protocol"),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return Err(Ended),
            };
            taken += 1;
            match order {
                Order::Input(input) => self.role_loop.take(self.clock.now(), input),
                Order::Messages(messages, bytes) => {
                    taken += messages.len();
                    self.take_in_messages(messages, bytes);
                }
                Order::Do(order) => order(self),
            }
        }
        self.status.pumps += u64::from(taken > 0);
        Ok(taken > 0)
    }

    fn take_in_messages(&mut self, messages: Vec<(Members, P::Message)>, bytes: usize) {
        let count = messages.len();
        self.status.messages_in += count as u64;
        self.role_loop
            .take(self.clock.now(), Input::Messages(messages));
        if self.queue.taken(count, bytes) {
            self.wake.notify_one();
        }
    }

    /// Hands a burst to the main loop, and waits while that has too many.
    fn hand_over(&mut self, burst: Burst<P>) -> Result<(), Ended> {
        self.status.messages_out += burst.sends.len() as u64;
        self.status.records += burst.records.count() as u64;
        self.queue.put_burst();
        let report = Report::Burst(Box::new(burst));
        self.reports.send((self.place, report)).map_err(|_| Ended)?;
        self.wake.notify_one();
        while self.queue.has_too_many_bursts() {
            if self.queue.is_closed() {
                return Err(Ended);
            }
            park();
        }
        Ok(())
    }

    /// Until a timer is due or something has been passed. If that was before it sleeps, it does
    /// not: the thread then has a token.
    fn sleep(&self) {
        match self.role_loop.next_timer() {
            None => park(),
            Some(timer) => {
                let due = self.clock.at(timer);
                park_timeout(due.saturating_duration_since(std::time::Instant::now()));
            }
        }
    }
}

impl<P: Protocol> RoleLoopView for RoleThread<P> {
    fn now(&self) -> Instant {
        self.clock.now()
    }

    fn status(&self) -> RoleLoopStatus {
        RoleLoopStatus {
            cpu_us: cpu_time_us().1,
            ignored: self.role_loop.node.ignored(),
            overdue: self.role_loop.node.overdue(),
            ..self.status.clone()
        }
    }

    fn roles(&mut self) -> &mut dyn LoopRoles {
        &mut self.role_loop.node
    }
}
