//! Delivery to groups: each group's messages are taken in, and its log is executed, by a worker of
//! its own. The replica's thread only passes messages on, as they come from the network.
//!
//! A worker has the group's replica of MultiPaxos, with its log, its sessions and its part of the
//! machine, while it is at work; everything that was begun in a burst is finished at its end.

use super::groups::{Groups, Member};
use super::merge::of;
use crate::multipaxos;
use crate::multipaxos::replica::In;
use crate::parts::replica::{Gate, Resumption};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::any::Any;
use ionian_kernel::protocol::{Birth, Instance as _};
use ionian_kernel::role::Out;
use ionian_kernel::time::Instant;
use ionian_kernel::work::{Inline, Task, Workers};

/// See the top of this file.
pub(super) struct Delivery {
    workers: Box<dyn Workers>,
    inboxes: Vec<Inbox>,
    /// The groups, as bits, whose members workers have.
    away: u64,
    given: u64,
}

/// What a group's member is to do.
#[derive(Default)]
struct Inbox {
    now: Instant,
    /// First: its state was replaced.
    replaced: Option<Resumption>,
    /// Then: another gate holds.
    gate: Option<Gate>,
    /// Then: these messages have come.
    messages: Vec<multipaxos::Message>,
    /// How many commands and queries are in them.
    pieces: usize,
}

impl Inbox {
    fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.gate.is_none() && self.replaced.is_none()
    }
}

/// A member at work.
struct AtWork {
    member: Box<Member>,
    inbox: Inbox,
}

impl Task for AtWork {
    fn run(&mut self) {
        let Member { instance, outbox } = &mut *self.member;
        let now = self.inbox.now;
        if let Some(resumption) = self.inbox.replaced.take() {
            of(instance).was_replaced(now, resumption, &mut Out::new(outbox));
        }
        if let Some(gate) = self.inbox.gate.take() {
            of(instance).open(now, gate, &mut Out::new(outbox));
        }
        for message in self.inbox.messages.drain(..) {
            instance.on_message(now, message, outbox);
        }
        self.inbox.pieces = 0;
        instance.on_burst_end(now, outbox);
    }
}

impl Delivery {
    pub(super) fn new(groups: usize, birth: &Birth<'_>) -> Self {
        let workers = birth.workers.unwrap_or(&Inline::hire)(groups);
        Delivery {
            workers,
            inboxes: (0..groups).map(|_| Inbox::default()).collect(),
            away: 0,
            given: 0,
        }
    }

    /// A message has come for a group.
    pub(super) fn queue(
        &mut self,
        now: Instant,
        group: usize,
        message: multipaxos::Message,
        groups: &mut Groups,
    ) {
        let inbox = &mut self.inboxes[group];
        inbox.now = now;
        inbox.pieces += pieces(&message);
        inbox.messages.push(message);
        if self.is_worth(group) && self.is_free(group, groups) {
            self.start(group, groups);
        }
    }

    /// Another gate holds for a group from now on.
    pub(super) fn open(&mut self, now: Instant, group: usize, gate: Gate) {
        self.inboxes[group].now = now;
        self.inboxes[group].gate = Some(gate);
    }

    /// The state of a group was replaced.
    pub(super) fn replaced(&mut self, now: Instant, group: usize, resumption: Resumption) {
        self.inboxes[group].now = now;
        self.inboxes[group].replaced = Some(resumption);
    }

    /// Finishes all that was begun, and takes the members back.
    pub(super) fn finish(&mut self, groups: &mut Groups) {
        loop {
            let mut here = None;
            for group in 0..self.inboxes.len() {
                if !self.is_worth(group) {
                    here = here.or((!self.inboxes[group].is_empty()).then_some(group));
                } else if self.is_free(group, groups) {
                    self.start(group, groups);
                }
            }
            // This thread does what is not worth a worker, and waits for them when nothing is left.
            match here {
                Some(group) => {
                    self.wait(group, groups);
                    self.run(group, groups);
                }
                None if self.away == 0 => return,
                None => self.wait(self.away.trailing_zeros() as usize, groups),
            }
        }
    }

    /// How many threads execute commands, and how many commands and queries they were given.
    pub(super) fn work(&self) -> (u64, u64) {
        (self.workers.count() as u64 + 1, self.given)
    }

    fn is_worth(&mut self, group: usize) -> bool {
        let pieces = self.inboxes[group].pieces;
        pieces > 0 && group < self.workers.count() && pieces >= self.workers.worth()
    }

    /// Whether the member of a group is here, or its worker is done with it.
    fn is_free(&mut self, group: usize, groups: &mut Groups) -> bool {
        if self.away & 1 << group == 0 {
            return true;
        }
        let done = self.workers.poll(group);
        let is_done = done.is_some();
        if let Some(task) = done {
            self.put_back(group, task, groups);
        }
        is_done
    }

    fn start(&mut self, group: usize, groups: &mut Groups) {
        let member = groups.lend(group);
        let inbox = core::mem::take(&mut self.inboxes[group]);
        let pieces = inbox.pieces;
        self.given += pieces as u64;
        self.away |= 1 << group;
        let task = Box::new(AtWork { member, inbox });
        self.workers.start(group, pieces, task);
    }

    /// Takes back the member of a group if a worker has it.
    fn wait(&mut self, group: usize, groups: &mut Groups) {
        if self.away & 1 << group != 0 {
            let task = self.workers.wait(group);
            self.put_back(group, task, groups);
        }
    }

    fn put_back(&mut self, group: usize, task: Box<dyn Task>, groups: &mut Groups) {
        let task: Box<dyn Any> = task;
        let task = task
            .downcast::<AtWork>()
            .expect("workers give back members");
        self.away &= !(1 << group);
        groups.take_back(group, task.member);
        // The inbox that came in the meantime stays; of this one only the memory is of use.
        if self.inboxes[group].is_empty() {
            self.inboxes[group] = task.inbox;
        }
    }

    /// Does here what the member of a group is to do.
    fn run(&mut self, group: usize, groups: &mut Groups) {
        let mut task = AtWork {
            member: groups.lend(group),
            inbox: core::mem::take(&mut self.inboxes[group]),
        };
        task.run();
        groups.take_back(group, task.member);
        self.inboxes[group] = task.inbox;
    }
}

/// How many commands or queries a message brings.
fn pieces(message: &multipaxos::Message) -> usize {
    match message {
        multipaxos::Message::Replica(In::Chosen { value, .. }) => value.batch.len(),
        multipaxos::Message::Replica(In::Read { reads, .. }) => reads.len(),
        multipaxos::Message::Replica(In::Fetched { slots, .. }) => {
            slots.iter().map(|(_, value)| value.batch.len()).sum()
        }
        _ => 1,
    }
}
