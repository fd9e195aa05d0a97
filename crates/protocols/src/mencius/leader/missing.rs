//! What replicas miss of the stripes that a leader leads.

use super::Leader;
use crate::mencius::{Envelope, branch, replica};
use crate::parts::message::RECOVER_SLOTS;
use ionian_kernel::id::*;
use ionian_kernel::role::Out;
use ionian_kernel::time::Instant;

impl Leader {
    /// A replica misses slots. What this leader skipped it says again; what it has not used yet it
    /// skips now; all else is repaired as in MultiPaxos, except that here a slot without votes
    /// holds a noop.
    pub(super) fn on_recover(
        &mut self,
        now: Instant,
        from: ReplicaId,
        slots: &[Slot],
        out: &mut Out<'_, Self>,
    ) {
        for slot in slots.iter().copied().take(RECOVER_SLOTS) {
            let (stripe, start) = self.config.stripes.place(slot);
            let Some(place) = self
                .place(stripe)
                .filter(|place| self.served[*place].round.is_some())
            else {
                continue;
            };
            let served = &self.served[place];
            if start >= served.next() {
                out.reached(branch::SKIPS_FOR_REPLICA);
                self.reach(slot.next(), Set::one(from));
            } else if let Some(end) = served.left_until(start) {
                if start < end {
                    out.reached(branch::SAYS_SKIP_AGAIN);
                    let message = replica::In::Skip { stripe, start, end };
                    // Unfenced: as when it was said for the first time.
                    out.send_unfenced(Envelope::ToReplicas(Set::one(from), message));
                }
            } else {
                self.call(now, place, out, |core, port| {
                    core.on_recover(now, &[start.in_part()], port);
                });
            }
        }
    }
}
