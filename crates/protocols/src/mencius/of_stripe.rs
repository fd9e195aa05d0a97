//! Roles of MultiPaxos that work here as they do there: to a client lane or a batcher its stripe
//! looks like the log of a MultiPaxos cluster, with a leader of its own and others that stand in.

use super::config::Config;
use super::stripe::{Stripe, Stripes};
use super::{Envelope, striped};
use crate::multipaxos;
use alloc::sync::Arc;
use ionian_kernel::adapted::{Adapted, Translate};
use ionian_kernel::id::Index;
use ionian_kernel::layout::NodeId;
use ionian_kernel::protocol::Birth;
use ionian_kernel::role::Role;

/// A role that speaks to the leaders of one stripe, if it speaks to leaders.
pub type OfStripe<R> = Adapted<R, InStripe>;

/// All messages are of this stripe.
pub struct InStripe {
    index: Index,
    node: NodeId,
    stripes: Stripes,
    stripe: Stripe,
}

impl Translate for InStripe {
    type From = multipaxos::Envelope;
    type To = Envelope;
    type Config = Arc<Config>;
    type Within = Arc<multipaxos::config::Config>;

    fn within(&mut self, config: &Arc<Config>) -> Self::Within {
        // The leader beside it may be another, or have left.
        self.stripe = config.stripe_near(self.index, self.node);
        config.of(self.stripe).clone()
    }

    fn translate(&self, envelope: multipaxos::Envelope) -> Envelope {
        striped(self.stripes, self.stripe, envelope)
    }
}

/// The role that `make` makes. It proposes in the stripe of a leader beside it, or in one of all.
pub(super) fn of_stripe<
    R: Role<Send = multipaxos::Envelope, Config = Arc<multipaxos::config::Config>>,
>(
    config: &Config,
    birth: &Birth<'_>,
    make: impl FnOnce(Arc<multipaxos::config::Config>, &Birth<'_>) -> R,
) -> OfStripe<R> {
    let stripe = config.stripe_near(birth.address.index, birth.node);
    let role = make(config.of(stripe).clone(), birth);
    Adapted::new(
        role,
        birth.keeps_records,
        InStripe {
            index: birth.address.index,
            node: birth.node,
            stripes: config.stripes,
            stripe,
        },
    )
}
