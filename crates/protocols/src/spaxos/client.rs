//! The client lane: that of MultiPaxos, whose commands go to a batcher, or to a disseminator where the deployment has
//! no batchers.
//!
//! Stands at both ends of the chart.

use super::config::Config;
use super::{Envelope, batcher, disseminator};
use crate::multipaxos;
use crate::multipaxos::client::ClientLane as Ordered;
pub use crate::multipaxos::client::In;
use ionian_kernel::id::*;
use ionian_kernel::inner::{Inner, Untagged};
use ionian_kernel::protocol::Birth;
use ionian_kernel::role::{Out, Role};
use ionian_kernel::time::Instant;
use ionian_kernel::wire::Never;

/// A client lane.
pub struct ClientLane {
    inner: Inner<Ordered>,
    config: Config,
}

impl ClientLane {
    /// The lane of this birth.
    pub fn new(config: Config, birth: &Birth<'_>) -> Self {
        ClientLane { inner: Inner::new(Ordered::new(config.lanes.clone(), birth), birth.keeps_records), config }
    }

    fn call(&mut self, out: &mut Out<'_, Self>, act: impl FnOnce(&mut Ordered, &mut Out<'_, Ordered>)) {
        self.inner.call(act);
        let by_batchers = self.config.has_batchers();
        let left = self.inner.pour(out, &Untagged, |envelope, relay| {
            relay.send(match envelope {
                multipaxos::Envelope::ToBatchers(batchers, multipaxos::batcher::In::Commands { commands }) => {
                    match by_batchers {
                        true => Envelope::ToBatchers(batchers, batcher::In::Commands { commands }),
                        false => {
                            let disseminators = Set::from_bits(batchers.bits());
                            Envelope::ToDisseminators(disseminators, disseminator::In::Commands { commands })
                        }
                    }
                }
                envelope => envelope.into(),
            });
        });
        left.pass_on(out);
    }
}

impl Role for ClientLane {
    type In = In;
    type Send = Envelope;
    type Config = Config;
    type Record = Never;

    fn recover(&mut self, record: Never) {
        match record {}
    }

    fn on_start(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        self.call(out, |lane, out| lane.on_start(now, out));
    }

    fn on_message(&mut self, now: Instant, message: In, out: &mut Out<'_, Self>) {
        self.call(out, |lane, out| lane.on_message(now, message, out));
    }

    fn on_timer(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        self.call(out, |lane, out| lane.on_timer(now, out));
    }

    fn next_timer(&self) -> Option<Instant> {
        self.inner.next_timer()
    }

    fn on_burst_end(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        self.call(out, |lane, out| lane.on_burst_end(now, out));
    }

    fn invariants(&self) {
        self.inner.invariants();
    }

    fn status(&self, report: &mut dyn FnMut(&'static str, u64)) {
        self.inner.status(report);
    }
}
