//! The proxy leader (compartmentalization 6.2): MultiPaxos's own, once for each stripe, since every
//! stripe has a round of its own.
//!
//! Stands between leader and acceptors, and between acceptors and replicas.

use super::config::Config;
use super::stripe::Stripe;
use super::{Envelope, leader, striped};
use crate::multipaxos;
use alloc::sync::Arc;
use alloc::vec::Vec;
use ionian_kernel::inner::{Inner, Untagged};
use ionian_kernel::messages;
use ionian_kernel::protocol::Birth;
use ionian_kernel::role::{Out, Role};
use ionian_kernel::status::{Metrics, Status};
use ionian_kernel::time::{Instant, earliest};
use ionian_kernel::wire::Never;

messages! {
    /// What a proxy leader is told.
    "proxy_leader" In {
        /// What MultiPaxos's is told, of the slots of a stripe.
        0 => InStripe via message {
            /// The stripe.
            stripe: Stripe,
            /// The message.
            message: multipaxos::proxy_leader::In,
        },
    }
}

/// A proxy leader.
pub struct ProxyLeader {
    config: Arc<Config>,
    stripes: Vec<Inner<multipaxos::proxy_leader::ProxyLeader>>,
    /// The stripes of which something came in this burst, as bits.
    touched: u64,
}

impl ProxyLeader {
    /// The proxy leader of this birth.
    pub fn new(config: Arc<Config>, birth: &Birth<'_>) -> Self {
        let of =
            |stripe| multipaxos::proxy_leader::ProxyLeader::new(config.of(stripe).clone(), birth);
        let stripes = config
            .stripes
            .iter()
            .map(|stripe| Inner::new(of(stripe), birth.keeps_records))
            .collect();
        ProxyLeader {
            stripes,
            touched: 0,
            config,
        }
    }

    fn call(
        &mut self,
        stripe: Stripe,
        out: &mut Out<'_, Self>,
        act: impl FnOnce(
            &mut multipaxos::proxy_leader::ProxyLeader,
            &mut Out<'_, multipaxos::proxy_leader::ProxyLeader>,
        ),
    ) {
        let ProxyLeader {
            config, stripes, ..
        } = self;
        let inner = &mut stripes[usize::from(stripe.0)];
        inner.call(act);
        let left = inner.pour(out, &Untagged, |envelope, relay| match envelope {
            // One who says that it lives is enough.
            multipaxos::Envelope::ToLeaders(_, multipaxos::leader::In::ProxyAlive { from }) => {
                if stripe == Stripe(0) {
                    relay.send(Envelope::ToLeaders(
                        config.leaders(),
                        leader::In::ProxyAlive { from },
                    ));
                }
            }
            envelope => relay.send(striped(config.stripes, stripe, envelope)),
        });
        left.pass_on(out);
    }

    fn each(&self) -> impl Iterator<Item = Stripe> + use<> {
        self.config.stripes.iter()
    }
}

impl Role for ProxyLeader {
    type In = In;
    type Send = Envelope;
    type Config = Arc<Config>;
    type Record = Never;

    fn recover(&mut self, record: Never) {
        match record {}
    }

    fn on_start(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        for stripe in self.each() {
            self.call(stripe, out, |role, out| role.on_start(now, out));
        }
    }

    fn on_reconfigure(&mut self, now: Instant, config: Arc<Config>, out: &mut Out<'_, Self>) {
        for stripe in self.each() {
            let within = config.of(stripe).clone();
            self.call(stripe, out, |role, out| {
                role.on_reconfigure(now, within, out)
            });
        }
        self.config = config;
    }

    fn on_message(&mut self, now: Instant, message: In, out: &mut Out<'_, Self>) {
        let In::InStripe { stripe, message } = message;
        if self.config.knows(stripe) {
            self.touched |= 1 << stripe.0;
            self.call(stripe, out, |role, out| role.on_message(now, message, out));
        }
    }

    fn on_timer(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        for stripe in self.each() {
            self.call(stripe, out, |role, out| role.on_timer(now, out));
        }
    }

    fn next_timer(&self) -> Option<Instant> {
        self.stripes
            .iter()
            .fold(None, |next, stripe| earliest(next, stripe.next_timer()))
    }

    fn on_burst_end(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let touched = core::mem::take(&mut self.touched);
        for stripe in self.each().filter(|stripe| touched & 1 << stripe.0 != 0) {
            self.call(stripe, out, |role, out| role.on_burst_end(now, out));
        }
    }

    fn invariants(&self) {
        self.stripes.iter().for_each(|stripe| stripe.invariants());
    }

    const METRICS: Metrics = &[multipaxos::metrics::PROXY_LEADER];

    fn status(&self, status: &mut Status) {
        let each = self.stripes.iter().map(|stripe| Status::of(&**stripe));
        *status = Status::of_all(each, multipaxos::metrics::PROXY_LEADER);
    }
}
