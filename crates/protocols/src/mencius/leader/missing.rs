//! What replicas miss of the stripes that a leader leads.

use super::Leader;
use crate::mencius::message::Reserved;
use crate::mencius::stripe::{Stripe, StripePosition};
use crate::mencius::{Envelope, branch, replica};
use crate::parts::message::{RECOVER_SLOTS, Votes};
use alloc::vec::Vec;
use ionian_kernel::id::*;
use ionian_kernel::role::Out;
use ionian_kernel::time::{Instant, Timestamp};

/// Fewer slots of a stripe than this are not taken for many: single messages are lost now and then.
const FEWEST: usize = 2;

impl Leader {
    /// A replica misses slots. What this leader skipped it says again; what it has not used yet it
    /// skips now; all else is repaired as in MultiPaxos, except that here a slot without votes
    /// holds a noop. A replica that asks for as many slots as it may lacks many more: then each
    /// stripe is repaired in stretches, because a revocation can leave hundreds of thousands of
    /// slots without votes. It does not ask for what it knows to be skipped: if that is all but one
    /// stripe, the slots of that one are as many as a stripe has among those that it may ask for.
    pub(super) fn on_recover(
        &mut self,
        now: Instant,
        from: ReplicaId,
        slots: &[Slot],
        out: &mut Out<'_, Self>,
    ) {
        let slots = &slots[..slots.len().min(RECOVER_SLOTS)];
        let stripes = self.config.stripes;
        let most = (RECOVER_SLOTS / stripes.count()).max(FEWEST);
        let lacks_many = |stripe| {
            let of_stripe = slots
                .iter()
                .filter(|slot| stripes.place(**slot).0 == stripe);
            slots.len() == RECOVER_SLOTS || of_stripe.count() >= most
        };
        for slot in slots.iter().copied() {
            let (stripe, start) = stripes.place(slot);
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
                let (slot, lacks_many) = (start.in_part(), lacks_many(stripe));
                self.call(now, place, out, |core, port| match lacks_many {
                    true => core.recover_stretch(now, slot, port),
                    false => core.on_recover(now, &[slot], port),
                });
            }
        }
    }

    /// An acceptor has promised a round, or tells what a repair asks for. Replicas learn at once
    /// which slots of a stretch hold noops.
    pub(super) fn on_phase1b(
        &mut self,
        now: Instant,
        (from, stripe, round): (AcceptorId, Stripe, Round),
        told: (Votes, Vec<Reserved>),
        clock: Timestamp,
        out: &mut Out<'_, Self>,
    ) {
        let Some(place) = self.place(stripe) else {
            return;
        };
        let mut noops = Vec::new();
        self.call(now, place, out, |core, port| {
            noops = core.on_phase1b(now, (from, round), told, clock, port);
        });
        for (start, end) in noops {
            let message = replica::In::Skip {
                stripe,
                start: StripePosition::of_part(start),
                end: StripePosition::of_part(end),
            };
            // Unfenced: these noops are chosen, whatever this leader forgets.
            out.send_unfenced(Envelope::ToReplicas(self.config.replicas(), message));
        }
    }
}
