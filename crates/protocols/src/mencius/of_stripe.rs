//! Roles of MultiPaxos that work here as they do there: to a client lane or a batcher its stripe looks like the log of
//! a MultiPaxos cluster, with a leader of its own and others that stand in.

use super::config::Config;
use super::stripe::{Stripe, Stripes};
use super::{Envelope, striped};
use crate::multipaxos;
use alloc::sync::Arc;
use core::ops::Deref;
use ionian_kernel::inner::{Inner, Untagged};
use ionian_kernel::protocol::Birth;
use ionian_kernel::role::{Out, Role};
use ionian_kernel::time::Instant;
use ionian_kernel::wire::Never;

/// A role without records that speaks to the leaders of one stripe, if it speaks to leaders.
pub struct OfStripe<R: Role> {
    stripes: Stripes,
    stripe: Stripe,
    inner: Inner<R>,
}

impl<R: Role> Deref for OfStripe<R> {
    type Target = R;
    fn deref(&self) -> &R {
        &self.inner
    }
}

impl<R> OfStripe<R>
where
    R: Role<Send = multipaxos::Envelope, Record = Never, Config = Arc<multipaxos::config::Config>>,
{
    /// The role that `make` makes. It proposes in the stripe that is led nearest to it.
    pub fn new(config: &Config, birth: &Birth<'_>, make: impl FnOnce(R::Config, &Birth<'_>) -> R) -> Self {
        let stripe = config.stripe_near(birth.address.index, birth.node);
        let role = make(config.of(stripe).clone(), birth);
        OfStripe { stripes: config.stripes, stripe, inner: Inner::new(role, birth.keeps_records) }
    }

    fn call(&mut self, out: &mut Out<'_, Self>, act: impl FnOnce(&mut R, &mut Out<'_, R>)) {
        self.inner.call(act);
        let OfStripe { stripes, stripe, inner } = self;
        inner.pour(out, &Untagged, |envelope, relay| relay.send(striped(*stripes, *stripe, envelope))).pass_on(out);
    }
}

impl<R> Role for OfStripe<R>
where
    R: Role<Send = multipaxos::Envelope, Record = Never, Config = Arc<multipaxos::config::Config>>,
{
    type In = R::In;
    type Send = Envelope;
    type Config = Arc<Config>;
    type Record = Never;

    fn recover(&mut self, record: Never) {
        match record {}
    }

    fn on_start(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        self.call(out, |role, out| role.on_start(now, out));
    }

    fn on_message(&mut self, now: Instant, message: R::In, out: &mut Out<'_, Self>) {
        self.call(out, |role, out| role.on_message(now, message, out));
    }

    fn on_timer(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        self.call(out, |role, out| role.on_timer(now, out));
    }

    fn next_timer(&self) -> Option<Instant> {
        self.inner.next_timer()
    }

    fn on_burst_end(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        self.call(out, |role, out| role.on_burst_end(now, out));
    }

    fn invariants(&self) {
        self.inner.invariants();
    }

    fn status(&self, report: &mut dyn FnMut(&'static str, u64)) {
        self.inner.status(report);
    }
}
