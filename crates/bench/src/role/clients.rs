//! The clients of a deployment whose nodes run on the thread of the bench.

use ionian_costs::Commands;
use ionian_kernel::client::{Reply, Request};
use ionian_kernel::id::ClientId;
use ionian_runtime::{Application, LaneHandle};
use std::cell::Cell;
use std::rc::Rc;

/// Keeps a number of commands of its node's lane in flight; none where the node has no lane.
pub(super) struct Clients {
    handle: LaneHandle,
    commands: Rc<Commands>,
    /// Commands that any lane has had answered.
    done: Rc<Cell<u64>>,
    next: Cell<u64>,
}

impl Clients {
    pub(super) fn begin(
        handle: LaneHandle,
        window: u64,
        commands: Rc<Commands>,
        done: Rc<Cell<u64>>,
    ) -> Self {
        let clients = Clients {
            handle,
            commands,
            done,
            next: Cell::new(0),
        };
        if let Some(lane) = clients.handle.first_lane() {
            (0..window).for_each(|_| clients.ask(lane));
        }
        clients
    }

    fn ask(&self, lane: ClientId) {
        let token = self.next.replace(self.next.get() + 1);
        let (operation, payload) = self.commands.get(token as usize);
        self.handle.submit(
            lane,
            Request {
                token,
                operation,
                payload,
            },
        );
    }
}

impl Application for Clients {
    fn on_reply(&mut self, lane: ClientId, reply: Reply) {
        // One that was refused, before a leader is known, is asked again as any other.
        let answered = u64::from(reply.outcome.is_ok());
        self.done.set(self.done.get() + answered);
        self.ask(lane);
    }
}
