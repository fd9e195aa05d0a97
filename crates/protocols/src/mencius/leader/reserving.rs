//! What a leader asks acceptors to note, so that it may skip it.

use super::{Leader, Range, Served};
use crate::mencius::message::Reserved;
use crate::mencius::stripe::{Stripe, StripePosition};
use crate::mencius::{Envelope, acceptor, branch};
use ionian_kernel::id::*;
use ionian_kernel::role::Out;
use ionian_kernel::time::Instant;

impl Leader {
    /// What acceptors have not noted in time is asked again.
    pub(super) fn reserve_again(&mut self, now: Instant, place: usize, out: &mut Out<'_, Self>) {
        let served = &mut self.served[place];
        let Some(round) = served.round else { return };
        let (stripe, start) = (served.stripe, served.vacant_at_start().0);
        let acceptors = self.config.acceptors_of(stripe, round);
        let overdue =
            served
                .reservation
                .overdue(now, acceptors, self.config.options().resend_after);
        if let Some((acceptors, end)) = overdue {
            reserve(
                self.id,
                stripe,
                Reserved { round, start, end },
                acceptors,
                out,
            );
        }
    }

    /// What earlier leaders left below the watermark is reserved, to be skipped as the rest is.
    pub(super) fn reserve_gaps(&mut self, now: Instant, place: usize, out: &mut Out<'_, Self>) {
        let served = &mut self.served[place];
        let Some(round) = served
            .round
            .filter(|_| served.gaps.next_timer().is_some_and(|at| at <= now))
        else {
            return;
        };
        let stripe = served.stripe;
        let acceptors = self.config.acceptors_of(stripe, round);
        for (start, end, of) in
            served
                .gaps
                .overdue(now, acceptors, self.config.options().resend_after)
        {
            reserve(self.id, stripe, Reserved { round, start, end }, of, out);
        }
    }

    pub(super) fn on_reserved(
        &mut self,
        now: Instant,
        from: AcceptorId,
        stripe: Stripe,
        reserved: Reserved,
        out: &mut Out<'_, Self>,
    ) {
        let Some(place) = self.place(stripe) else {
            return;
        };
        let served = &mut self.served[place];
        if served.round != Some(reserved.round) {
            return;
        }
        let Some(quorums) = self.config.of(stripe).quorums_of(reserved.round) else {
            return;
        };
        let Reserved { start, end, .. } = reserved;
        if served.gaps.has(start, end) {
            if served.gaps.on_reserved(from, start, quorums) {
                out.reached(branch::GAP_SKIPPED);
                self.skips
                    .add(now, Range { stripe, start, end }, self.config.replicas());
                self.prompt = self.config.replicas();
            }
        } else if start == served.vacant_at_start().0
            && let Some(granted) = served.reservation.on_reserved(now, from, end, quorums)
        {
            // Suggestions too are made in reserved slots only: a later leader can then make nothing
            // of them but what they are, or noops, and replicas can rely on it.
            self.call(now, place, out, |core, port| {
                core.open_below(now, granted.in_part(), port);
            });
        }
    }
}

impl Served {
    /// The position of the next proposal.
    pub(super) fn next(&self) -> StripePosition {
        StripePosition::of_part(self.core.next_slot())
    }

    /// When it began to lead: from the first of these positions up to the other one it proposed
    /// nothing, and no other leader can have proposed anything but a noop.
    pub(super) fn vacant_at_start(&self) -> (StripePosition, StripePosition) {
        let (start, end) = self.core.vacant();
        (StripePosition::of_part(start), StripePosition::of_part(end))
    }

    /// Some replica has executed the positions below this one.
    pub(super) fn executed(&self) -> StripePosition {
        StripePosition::of_part(self.core.executed())
    }

    /// From this position on, the end of those that it has left and that may be skipped: nothing
    /// when they may not be yet.
    pub(super) fn left_until(&self, position: StripePosition) -> Option<StripePosition> {
        match self.gaps.around(position) {
            Some((end, granted)) => Some(if granted { end } else { position }),
            None => match self.core.left_until(position.in_part()) {
                Some(end) => Some(StripePosition::of_part(end).min(self.reservation.granted())),
                None => self.long_skips.end_of(position),
            },
        }
    }
}

/// Asks these acceptors to note that positions may be skipped.
pub(super) fn reserve(
    me: LeaderId,
    stripe: Stripe,
    reserved: Reserved,
    of: AcceptorSet,
    out: &mut Out<'_, Leader>,
) {
    out.send(Envelope::ToAcceptors(
        of,
        acceptor::In::Reserve {
            from: me,
            stripe,
            reserved,
        },
    ));
}
