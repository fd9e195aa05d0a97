//! Slots in which a leader proposes nothing: for protocols in which they need no votes.

use super::{LeaderCore, LeaderPort, Notes};
use ionian_kernel::id::*;
use ionian_kernel::time::Instant;

impl<N: Notes> LeaderCore<N> {
    /// The slot of the next proposal.
    pub fn next_slot(&self) -> Slot {
        self.window.next_slot
    }

    /// When it began to lead: from the first of these slots up to the other one it proposed
    /// nothing, and no other leader can have proposed anything but a noop.
    pub fn vacant(&self) -> (Slot, Slot) {
        self.vacant
    }

    /// The runs of slots that it has [left out](Notes::left_out): as above.
    pub fn left_out(&self) -> &[(Slot, Slot)] {
        &self.left_out
    }

    /// Goes on at `slot` and leaves all slots below it that it has not used.
    pub fn skip_to(&mut self, slot: Slot) {
        self.window.next_slot = self.window.next_slot.max(slot);
    }

    /// New values can be proposed in slots below `limit`.
    pub fn open_below(&mut self, now: Instant, limit: Slot, port: &mut impl LeaderPort) {
        self.window.limit = limit;
        self.propose_queued(now, port);
    }

    /// From `slot` on, the end of the slots that it has left: `None` when `slot` is not one, or so
    /// old that this leader cannot know.
    pub fn left_until(&self, slot: Slot) -> Option<Slot> {
        let knows = self.is_leading() && !self.carried.has(slot);
        knows.then(|| self.window.left_until(slot)).flatten()
    }
}
