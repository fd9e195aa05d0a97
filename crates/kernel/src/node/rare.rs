//! What few calls of a role ask for.

use super::{Node, World};
use crate::protocol::Protocol;
use crate::role::Outbox;

impl<P: Protocol> Node<P> {
    /// Does what few calls ask for.
    pub(super) fn carry_out_rare(&mut self, place: usize, world: &mut impl World<P>) {
        let hosted = &mut self.hosted[place];
        if let Some(released) = self.outbox.release.take() {
            hosted.keyed.release_below(released);
        }
        if let Some((stamp, frozen)) = self.outbox.snapshot.take() {
            world.store_snapshot(hosted.address, stamp, frozen);
        }
        if let Some(membership) = self.outbox.membership.take() {
            world.announce(membership);
        }
        for branch in self.outbox.reached.drain(..) {
            world.reached(branch);
        }
        self.drop_overdue(world);
    }

    /// Drops what may not be sent any more.
    fn drop_overdue(&mut self, world: &impl World<P>) {
        let Outbox {
            sends, deadlines, ..
        } = &mut self.outbox;
        if deadlines.is_empty() {
            return;
        }
        let now = world.clock();
        // From the last to the first: the places of the others stay.
        for (place, until) in deadlines.drain(..).rev() {
            if until <= now {
                sends.remove(place);
                self.overdue += 1;
            }
        }
    }
}
