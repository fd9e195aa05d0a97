//! The roles of one event loop without the type of their protocol, as administration uses them.

use super::notes::{Notes, Question};
use crate::status::RoleLoopStatus;
use ionian_kernel::layout::Address;
use ionian_kernel::node::Node;
use ionian_kernel::protocol::{Instance, Protocol};
use ionian_kernel::role::{Cover, Picture};
use ionian_kernel::status::Status;
use ionian_kernel::time::Instant;

/// What is asked of the roles of one event loop.
pub(crate) trait LoopRoles {
    /// What each role reports.
    fn statuses(&self) -> Vec<(Address, Status)>;

    /// See [`Node::freeze`].
    fn freeze(&mut self, now: Instant, cover: Cover) -> Picture;

    /// What is noted for traces.
    fn notes(&mut self, question: &Question) -> Notes;
}

/// A role loop, on its thread.
pub(crate) trait RoleLoopView {
    /// What the clock shows.
    fn now(&self) -> Instant;

    /// What the loop has done.
    fn status(&self) -> RoleLoopStatus;

    /// Its roles.
    fn roles(&mut self) -> &mut dyn LoopRoles;
}

/// Something to do on the thread of a role loop.
pub(crate) type Order = Box<dyn FnOnce(&mut dyn RoleLoopView) + Send>;

impl<P: Protocol> LoopRoles for Node<P> {
    fn statuses(&self) -> Vec<(Address, Status)> {
        let statuses = self.instances().map(|(at, it)| (at, it.status()));
        statuses.collect()
    }

    fn freeze(&mut self, now: Instant, cover: Cover) -> Picture {
        Node::freeze(self, now, cover)
    }

    fn notes(&mut self, question: &Question) -> Notes {
        question.ask(self)
    }
}
