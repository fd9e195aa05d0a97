//! Keeps the gateway's copies of the users and of the limit of memory up to date, also without
//! commands of clients: a client whose user was deleted or switched off is closed about a second
//! later on every gateway. Closes those that CLIENT KILL has named, too.

use crate::serve::Inner;
use ionian_kernel::client::{Operation, ReadLevel, Reply, Request};
use ionian_machines::kv::Compound;
use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How often the gateway asks for the users and the memory, while it has clients.
const EVERY: Duration = Duration::from_secs(1);

/// The upper half of the tokens of these questions: no connection has this index.
const POLLING: u64 = i32::MAX as u64 - 1;

/// The same for the questions for the memory.
const MEASURING: u64 = i32::MAX as u64 - 2;

impl Inner {
    /// Asks for the level, the users and the memory from time to time, without end.
    pub(crate) async fn follow_users(&self) {
        loop {
            if let Some(level) = &*self.level.borrow() {
                self.host.set_level(level());
            }
            let has_clients = self.slots.borrow().len() > 0;
            let now = Instant::now();
            // An answer may be lost with the lane that asked.
            let is_open = |asked: &Cell<Option<Instant>>| {
                let asked = asked.get().map(|at| now.saturating_duration_since(at));
                asked.is_some_and(|waits| waits < self.host.limits.deadline)
            };
            if self.host.rights.are_checked() && has_clients && !is_open(&self.polling) {
                self.polling.set(Some(now));
                let read = Operation::Read(ReadLevel::Linearizable);
                self.ask_for_itself(POLLING, (read, self.host.rights.question()));
            }
            // The clients that have written may be gone.
            // A node that stops waits for nothing of its own.
            let asks =
                self.drain.leave().is_none() && (has_clients || self.host.memory.has_written());
            if self.host.rights.are_checked() && asks && !is_open(&self.measuring) {
                self.measure();
            }
            tokio::time::sleep(EVERY).await;
        }
    }

    fn measure(&self) {
        self.measuring.set(Some(Instant::now()));
        if self.demands.borrow_mut().ask(self.next_token(MEASURING)) {
            self.host.memory.note_write();
        }
        self.ask_for_itself(MEASURING, self.host.memory.question());
    }

    /// The token of the next question of this kind.
    fn next_token(&self, index: u64) -> u64 {
        index << 32 | u64::from(self.polls.get().wrapping_add(1))
    }

    /// Has a measurement made at once if a client waits for it.
    pub(crate) fn measure_growth(&self) {
        if self.measuring.get().is_none() && self.demands.borrow().is_awaited() {
            self.measure();
        }
    }

    fn ask_for_itself(&self, index: u64, (operation, question): (Operation, Compound)) {
        let token = self.next_token(index);
        self.polls.set(token as u32);
        (self.submit)(Request {
            token,
            operation,
            payload: question.encode().into(),
        });
    }

    /// Takes the reply to such a question; false if it is the reply to something else.
    pub(crate) fn on_polled(&self, reply: &Reply) -> bool {
        let answer = reply.outcome.as_ref();
        match reply.token >> 32 {
            POLLING => {
                self.polling.set(None);
                answer.into_iter().for_each(|users| {
                    self.host.rights.learn(users);
                });
            }
            // One that was given up comes late: another was asked for.
            MEASURING if !self.demands.borrow().is_asked(reply.token) => {}
            MEASURING => {
                self.measuring.set(None);
                self.demands.borrow_mut().measured(answer.is_ok());
                match answer {
                    Ok(room) => self.host.memory.learn(room),
                    // What was to be measured may not have been.
                    Err(_) => self.host.memory.note_write(),
                }
            }
            _ => return false,
        }
        true
    }

    /// Closes the clients that CLIENT KILL has named.
    pub(crate) fn close_killed(&self) {
        let mut slots = self.slots.borrow_mut();
        let indices: Vec<u32> = slots.open().collect();
        for index in indices {
            if let Some(open) = slots.get(index).filter(|open| open.connection.is_killed()) {
                open.go_on(self.drain.leave());
            }
        }
    }

    /// Closes the clients whose users are gone, if the users have changed. Clients whose
    /// certificates name users that are not looked up have this done.
    pub(crate) fn part_from_users(self: &Rc<Self>) {
        if !self.host.rights.take_changed() {
            return;
        }
        let mut slots = self.slots.borrow_mut();
        let indices: Vec<u32> = slots.open().collect();
        for index in indices {
            let Some(open) = slots.get(index) else {
                continue;
            };
            open.connection.leave_if_gone();
            open.connection.look_up_user();
            if open.connection.is_closing() || open.connection.has_request() {
                self.mark_dirty(index, open);
            }
        }
    }
}
