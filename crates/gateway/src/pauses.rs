//! Wakes the connections whose commands wait for the quotas of their users.

use crate::serve::Inner;
use crate::slots::Open;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The longest time between two looks at the clock: a pause may begin while the timer sleeps.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The connections that pause: at most one entry for each.
#[derive(Default)]
pub(crate) struct Pauses {
    until: RefCell<BTreeSet<(Instant, u32)>>,
    timer_runs: Cell<bool>,
}

impl Inner {
    /// Notes when to look at a connection again, if it pauses.
    pub(crate) fn note_pause(self: &Rc<Self>, index: u32, open: &mut Open) {
        let Some(at) = open.connection.paused_until() else {
            return;
        };
        if open.paused_until.is_none() {
            open.paused_until = Some(at);
            self.pauses.until.borrow_mut().insert((at, index));
            self.clone().start_pauses();
        }
    }

    /// The connection is closed.
    pub(crate) fn forget_pause(&self, index: u32, open: &Open) {
        if let Some(at) = open.paused_until {
            self.pauses.until.borrow_mut().remove(&(at, index));
        }
    }

    /// A timer that runs only while a connection pauses.
    fn start_pauses(self: Rc<Self>) {
        if self.pauses.timer_runs.replace(true) {
            return;
        }
        tokio::task::spawn_local(async move {
            loop {
                let first = self.pauses.until.borrow().first().copied();
                let Some((at, _)) = first else {
                    break;
                };
                let wait = at.saturating_duration_since(self.host.now());
                tokio::time::sleep(wait.clamp(Duration::from_millis(1), LOOK_EVERY)).await;
                self.end_pauses();
                self.clone().flush();
            }
            self.pauses.timer_runs.set(false);
        });
    }

    /// Marks the connections whose pauses are over.
    fn end_pauses(&self) {
        let (now, mut slots) = (self.host.now(), self.slots.borrow_mut());
        let mut until = self.pauses.until.borrow_mut();
        while let Some(&(at, index)) = until.first().filter(|(at, _)| *at <= now) {
            until.remove(&(at, index));
            if let Some(open) = slots.get(index) {
                open.paused_until = None;
                self.mark_dirty(index, open);
            }
        }
    }
}
