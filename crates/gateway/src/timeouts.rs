//! Connections whose time is over: coarse timers, which run only while they are needed.

use crate::host::count;
use crate::serve::Inner;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Number of timer ticks per deadline, which determines the precision of the deadline.
const TICKS_PER_DEADLINE: u32 = 32;

impl Inner {
    /// Checks for timeouts: a coarse timer, which runs only while a command is incomplete, a client
    /// does not read its error, or clients may not rest as long as they like.
    pub(crate) fn start_watch(self: Rc<Self>) {
        if self.watch_runs.replace(true) {
            return;
        }
        tokio::task::spawn_local(async move {
            let limits = &self.host.limits;
            let shortest = limits.unfinished.min(limits.linger).min(limits.login);
            let shortest = match limits.idle.is_zero() {
                true => shortest,
                false => shortest.min(limits.idle),
            };
            let period = (shortest / 8).min(limits.login_delay);
            while self.watch_runs.get() {
                tokio::time::sleep(period.clamp(Duration::from_millis(1), Duration::from_secs(1)))
                    .await;
                let (now, mut any) = (Instant::now(), false);
                let mut slots = self.slots.borrow_mut();
                let indices: Vec<u32> = slots.open().collect();
                for index in indices {
                    let Some(open) = slots.get(index) else {
                        continue;
                    };
                    let has_deadline = open.connection.has_deadline();
                    any |= has_deadline || !limits.idle.is_zero();
                    if open.connection.leave_if_idle(now) || has_deadline {
                        open.connection.on_time(now);
                        self.mark_dirty(index, open);
                    }
                }
                drop(slots);
                self.watch_runs.set(any);
                // A login that has waited may have a question for the cluster.
                self.clone().flush();
            }
        });
    }

    /// The deadlines of all connections: a coarse timer, which runs only while a request is in
    /// flight.
    pub(crate) fn start_timer(self: Rc<Self>) {
        if self.timer_runs.replace(true) {
            return;
        }
        tokio::task::spawn_local(async move {
            let period = self.host.limits.deadline / TICKS_PER_DEADLINE;
            while self.timer_runs.get() {
                tokio::time::sleep(period.max(Duration::from_millis(1))).await;
                self.clone().on_tick();
            }
        });
    }

    fn on_tick(self: Rc<Self>) {
        let (now, deadline) = (Instant::now(), self.host.limits.deadline);
        let mut any_in_flight = false;
        {
            let mut slots = self.slots.borrow_mut();
            let indices: Vec<u32> = slots.open().collect();
            for index in indices {
                let Some(open) = slots.get(index) else {
                    continue;
                };
                let Some(since) = open.connection.in_flight_since() else {
                    continue;
                };
                any_in_flight = true;
                if now.saturating_duration_since(since) > deadline {
                    count(&self.host.stats.deadlines_passed, 1);
                    open.connection.give_up();
                    open.waits = false;
                    self.mark_dirty(index, open);
                }
            }
        }
        self.timer_runs.set(any_in_flight);
        self.flush();
    }
}
