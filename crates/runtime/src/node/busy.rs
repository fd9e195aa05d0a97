//! How much time role instances spend on messages: estimated from a few runs of the loop, because
//! to look at the clock for each message of each run would cost more than one percent.

use ionian_kernel::layout::Address;
use ionian_kernel::node::{Node, World};
use ionian_kernel::protocol::Protocol;
use ionian_kernel::time::Instant;
use std::collections::BTreeMap;
use std::time::Duration;

/// One of this many runs is measured. No divisor of what a protocol may do periodically.
const ONE_IN: u32 = 31;

/// The estimates.
#[derive(Debug, Default)]
pub(crate) struct Busy {
    runs: u32,
    measured: BTreeMap<Address, Duration>,
}

impl Busy {
    /// Handles everything that is queued and what follows from it, as [`Node::settle`].
    pub(crate) fn settle<P: Protocol>(
        &mut self,
        now: Instant,
        node: &mut Node<P>,
        world: &mut impl World<P>,
    ) {
        self.runs += 1;
        match self.runs < ONE_IN {
            true => node.settle(now, world),
            false => {
                self.runs = 0;
                self.settle_measured(now, node, world);
            }
        }
    }

    fn settle_measured<P: Protocol>(
        &mut self,
        now: Instant,
        node: &mut Node<P>,
        world: &mut impl World<P>,
    ) {
        loop {
            let mut before = std::time::Instant::now();
            while let Some((address, _)) = node.front() {
                node.run(now, 1, world);
                let after = std::time::Instant::now();
                *self.measured.entry(address).or_default() += after - before;
                before = after;
            }
            node.end_burst(now, world);
            if node.queued() == 0 {
                return;
            }
        }
    }

    /// The estimated time of an instance, in microseconds.
    pub(crate) fn of(&self, address: Address) -> u64 {
        let measured = self.measured.get(&address).copied().unwrap_or_default();
        (measured * ONE_IN).as_micros() as u64
    }
}
