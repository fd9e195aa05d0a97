//! When a server reports, and to which aggregator.
//!
//! What is new is reported at once while fewer reports are under way than batches may be
//! (`batches_in_flight`), which means that their lengths are not all ordered: a lone command waits
//! for nothing. One report under way would be too few for that: where two servers of a shard have a
//! command each, both report their own, and none of that is ordered before each has reported the
//! other's too. Otherwise a report waits for what comes meanwhile, but not longer than a batch may
//! (`batch_delay_us`). A report whose lengths are not ordered is sent again, less and less often,
//! and at every third time to the next aggregator. And all aggregators hear once in each heartbeat
//! interval that the server is there: with what it holds, so that a report that was lost costs no
//! more than that.

use crate::scalog::aggregator::In;
use crate::scalog::config::Config;
use crate::scalog::id::AggregatorId;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use ionian_kernel::id::Set;
use ionian_kernel::time::{Instant, earliest};
use ionian_replication::backoff::doubled;

/// With how many silent reports an aggregator is left.
const PATIENCE: u32 = 3;

/// See the top of this file.
#[derive(Default)]
pub(super) struct Reporting {
    /// The lengths that were reported last, and when.
    lengths: Vec<u64>,
    at: Instant,
    /// Whether there are others by now.
    is_new: bool,
    /// Whether these are not all ordered.
    waits: bool,
    /// The lengths of reports under way.
    under_way: VecDeque<Vec<u64>>,
    /// How often the last were reported.
    attempts: u32,
    alive_at: Instant,
    /// The aggregator that is asked.
    turn: u64,
    sent: u64,
}

/// A report that is due.
pub(super) struct Due {
    /// The aggregators that get it, if it is due at all.
    pub(super) to: Set<AggregatorId>,
    /// Whether another aggregator is asked than before.
    pub(super) turns: bool,
}

impl Reporting {
    /// To whom this report is to be sent now; `ordered` is what is known to be ordered.
    pub(super) fn due(
        &mut self,
        now: Instant,
        report: &In,
        ordered: &[u64],
        config: &Config,
    ) -> Due {
        let In::Report { lengths, .. } = report else {
            unreachable!("a server reports nothing else");
        };
        self.is_new = self.lengths != *lengths;
        let waited = self.waits;
        self.waits = waits(&self.lengths, ordered);
        if waited && !self.waits {
            self.attempts = 0;
        }
        let is_ordered = |it: &Vec<u64>| !waits(it, ordered);
        while self.under_way.front().is_some_and(is_ordered) {
            self.under_way.pop_front();
        }
        let mut due = Due {
            to: Set::EMPTY,
            turns: false,
        };
        let is_due = self.next_report(config).is_some_and(|at| at <= now);
        if is_due {
            // Not new: it was sent, and did not lead to a cut.
            self.attempts = if self.is_new { 0 } else { self.attempts + 1 };
            due.turns = !self.is_new && self.attempts.is_multiple_of(PATIENCE);
            self.turn += u64::from(due.turns);
            due.to = config
                .aggregators
                .pick(self.turn)
                .map_or(Set::EMPTY, Set::one);
        }
        if self.alive_at <= now {
            self.alive_at = now + config.options().heartbeat;
            due.to = config.aggregators;
        }
        if !due.to.is_empty() {
            self.sent += 1;
            // One that says nothing new to all is none of those that lead to no cut.
            if is_due || self.is_new {
                self.at = now;
            }
            if core::mem::take(&mut self.is_new) && waits(lengths, ordered) {
                let most = config.options().batches_in_flight.max(1);
                self.under_way.truncate(most - 1);
                self.under_way.push_back(lengths.clone());
            }
            self.lengths.clone_from(lengths);
            self.waits = waits(lengths, ordered);
        }
        due
    }

    /// When there is something to report to one aggregator.
    fn next_report(&self, config: &Config) -> Option<Instant> {
        let options = config.options();
        let is_idle = self.under_way.len() < options.batches_in_flight;
        match (self.is_new, self.waits) {
            (true, _) if is_idle => Some(Instant::ZERO),
            (true, _) => Some(self.at + options.batch_delay),
            (false, true) => Some(self.at + doubled(options.resend_after, self.attempts, 4)),
            (false, false) => None,
        }
    }

    /// When the next report is due.
    pub(super) fn next_timer(&self, config: &Config) -> Option<Instant> {
        earliest(Some(self.alive_at), self.next_report(config))
    }

    /// How many were sent.
    pub(super) fn sent(&self) -> u64 {
        self.sent
    }
}

/// Whether not all of these is ordered. Nothing is of a generation that is over.
fn waits(lengths: &[u64], ordered: &[u64]) -> bool {
    let mut pairs = lengths.iter().zip(ordered);
    lengths.len() == ordered.len() && pairs.any(|(length, ordered)| length > ordered)
}
