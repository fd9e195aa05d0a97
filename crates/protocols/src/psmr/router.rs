//! Which group a command goes to (P-SMR, section IV-C: the command-to-groups function, C-G).
//!
//! It follows from what the machine says that a command touches, and from the number of groups
//! alone, so all client lanes agree and a retry stays in its group: a command on one part of the
//! machine goes to the group of that part, one on several parts to g_all, and one that touches
//! nothing to any. Two commands that depend on each other have a key in common. So they share the
//! group of the part which has that key, or one of them is in g_all.

use super::branch;
use super::config::Config;
use super::groups::{Groups, Sends};
use crate::multipaxos;
use alloc::boxed::Box;
use alloc::sync::Arc;
use ionian_kernel::client::{Operation, ReadLevel, Request};
use ionian_kernel::guard::{Call, Guard, Unguarded};
use ionian_kernel::machine::{Footprint, StateMachine};
use ionian_kernel::protocol::{Birth, Instance as _, Message as _};
use ionian_kernel::time::Instant;

/// See the top of this file.
pub(super) struct Router {
    /// An empty machine, which says what commands touch.
    machine: Box<dyn StateMachine>,
    guard: Arc<dyn Guard>,
    /// How many parts it has: as many as there are groups, or none if it cannot be divided.
    parts: usize,
    /// Where a command goes that touches nothing.
    any: usize,
    /// Reused.
    footprint: Footprint,
}

impl Router {
    pub(super) fn new(config: &Config, birth: &Birth<'_>) -> Self {
        let mut machine = (birth.machine)();
        let parts = parts(&mut *machine, config.count());
        Router {
            machine,
            guard: birth.guard.cloned().unwrap_or_else(|| Arc::new(Unguarded)),
            any: usize::from(birth.address.index) % parts.max(1),
            parts,
            footprint: Footprint::default(),
        }
    }

    /// Hands a request to the lane of its group.
    pub(super) fn submit(
        &mut self,
        now: Instant,
        mut request: Request,
        groups: &mut Groups,
        out: &mut Sends,
    ) {
        let all = groups.all();
        let group = match request.operation {
            Operation::Change => all,
            Operation::Read(_) if self.is_answered_by_any(&request.payload) => self.any,
            Operation::Write | Operation::Read(_) => self.group_of(&request.payload, all),
        };
        if group == all && self.parts > 0 && matches!(request.operation, Operation::Read(_)) {
            out.reached(branch::SPANNING_READ);
        }
        // What a lane has seen it knows of each log apart: a read of another log must ask.
        if request.operation == Operation::Read(ReadLevel::Sequential) {
            request.operation = Operation::Read(ReadLevel::Linearizable);
        }
        let message = multipaxos::Message::submit(request);
        groups.call(group, out, |lane, outbox| {
            lane.on_message(now, message, outbox)
        });
    }

    /// Whether a read needs no log: each part would give the answer of the whole machine. What such
    /// an answer depends on is changed by commands of g_all alone that touch all parts, and each
    /// group stops for these. So a read of any group sees what was acknowledged before it.
    fn is_answered_by_any(&mut self, query: &[u8]) -> bool {
        let parts = self.machine.parts().filter(|_| self.parts > 0);
        parts.is_some_and(|parts| parts.each_answers(query))
    }

    fn group_of(&mut self, payload: &[u8], all: usize) -> usize {
        if self.parts == 0 {
            return all;
        }
        let Router {
            machine,
            guard,
            footprint,
            ..
        } = self;
        footprint.everything = false;
        footprint.reads.clear();
        footprint.writes.clear();
        let asked = guard.call(Call::Footprint(None), &mut || {
            machine.footprint(payload, footprint);
        });
        if asked.is_err() || footprint.everything {
            return all;
        }
        let parts = machine.parts().expect("it has parts");
        let mut keys = footprint.reads.iter().chain(&footprint.writes);
        let Some(first) = keys.next() else {
            return self.any;
        };
        let part = parts.part_of(*first);
        match keys.all(|key| parts.part_of(*key) == part) {
            true => part,
            false => all,
        }
    }
}

/// Divides a machine into `count` parts; gives how many it has then, or 0 if it has no parts.
pub(super) fn parts(machine: &mut dyn StateMachine, count: usize) -> usize {
    machine.parts().map_or(0, |parts| parts.divide(count))
}
