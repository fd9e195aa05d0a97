//! When a server reports, and to which aggregator.
//!
//! What is new is reported at once while fewer reports are under way than batches may be
//! (`batches_in_flight`), which means that their lengths are not all ordered: a lone command waits
//! for nothing. One report under way would be too few for that: where two servers of a shard have a
//! command each, both report their own, and none of that is ordered before each has reported the
//! other's too. Otherwise a report waits for what comes meanwhile, but not longer than a batch may
//! (`batch_delay_us`). And all aggregators hear once in each heartbeat interval that the server is
//! there: with what it holds, so that a report that was lost costs no more than that.
//!
//! **Which aggregator.** All servers of a shard must ask the same one: the minimum is taken where
//! all of them report. So they have a *turn*, of which backups tell the peers; the highest is that
//! of all. A server that turns says so to all servers, for what one shard has found out the others
//! need not. Those of other shards follow unless cuts order what they report: a shard whose own
//! server is slow turns too. One that follows gives the next aggregator its whole time. While
//! nothing more is ordered although something waits, the report is sent again after
//! `resend_after_ms`, and at each second time to the next aggregator, which is the next turn. Cuts
//! do not clear the aggregator of that at once: they may come of the reports to all. And the time
//! to the next report is longer after each turn: the aggregator may not be the cause.

use crate::scalog::aggregator::In;
use crate::scalog::config::Config;
use crate::scalog::id::AggregatorId;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use ionian_kernel::id::Set;
use ionian_kernel::time::{Instant, earliest};
use ionian_replication::backoff::doubled;

/// With how many reports that led to nothing in time an aggregator is left.
const PATIENCE: u32 = 2;

/// How often the time for a report to lead to something is doubled.
const MOST_DOUBLED: u32 = 4;

/// After how many of these times without a silent report the earlier ones are forgotten.
const FORGIVEN_AFTER: u32 = 16;

/// See the top of this file.
#[derive(Default)]
pub(super) struct Reporting {
    /// The lengths that were reported last, and when.
    lengths: Vec<u64>,
    at: Instant,
    /// Whether there are others by now.
    is_new: bool,
    /// What is known to be ordered, and since when.
    ordered: Vec<u64>,
    ordered_at: Instant,
    /// Since when what was reported waits, and no more is ordered.
    waits_since: Option<Instant>,
    /// The lengths of reports under way.
    under_way: VecDeque<Vec<u64>>,
    /// How many reports led to nothing in time, and when the last of them was found to.
    silent: (u32, Instant),
    /// How often in a row another aggregator was asked for that reason.
    turns: u32,
    alive_at: Instant,
    /// The aggregator that is asked.
    turn: u64,
    /// Whether what it reported last is to be reported again: to another aggregator, perhaps.
    is_turned: bool,
    sent: u64,
}

/// A report that is due.
pub(super) struct Due {
    /// The aggregators that get it, if it is due at all.
    pub(super) to: Set<AggregatorId>,
    /// Whether another aggregator is asked than before, which peers do not know yet.
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
        self.follow(now, ordered, config);
        let mut due = Due {
            to: Set::EMPTY,
            turns: self.doubt(now, config),
        };
        if self.next_report(config).is_some_and(|at| at <= now) || due.turns {
            let one = config.aggregators.pick(self.turn);
            due.to = one.map_or(Set::EMPTY, Set::one);
        }
        if self.alive_at <= now {
            self.alive_at = now + config.options().heartbeat;
            due.to = config.aggregators;
        }
        if !due.to.is_empty() {
            self.note_sent(now, lengths, config);
        }
        due
    }

    /// What is ordered by now.
    fn follow(&mut self, now: Instant, ordered: &[u64], config: &Config) {
        let is_ordered = |it: &Vec<u64>| !waits(it, ordered);
        while self.under_way.front().is_some_and(is_ordered) {
            self.under_way.pop_front();
        }
        let is_more = self.ordered != ordered;
        if is_more {
            (self.ordered, self.ordered_at) = (ordered.to_vec(), now);
            let forgiven = config.options().resend_after * FORGIVEN_AFTER;
            if now.since(self.silent.1) > forgiven {
                (self.silent.0, self.turns) = (0, 0);
            }
        }
        self.waits_since = match waits(&self.lengths, ordered) {
            true if !is_more => self.waits_since.or(Some(now)),
            true => Some(now),
            false => None,
        };
    }

    /// Whether it asks another aggregator from now on, because too much has led to nothing.
    fn doubt(&mut self, now: Instant, config: &Config) -> bool {
        if self.doubts_at(config).is_none_or(|at| at > now) {
            return false;
        }
        // It is sent again.
        (self.waits_since, self.is_turned) = (Some(now), true);
        self.silent = (self.silent.0 + 1, now);
        let turns = self.silent.0.is_multiple_of(PATIENCE);
        if turns {
            self.turn = self.turn.saturating_add(1);
            self.turns = self.turns.saturating_add(1);
        }
        turns
    }

    fn doubts_at(&self, config: &Config) -> Option<Instant> {
        let after = doubled(config.options().resend_after, self.turns, MOST_DOUBLED);
        self.waits_since.map(|since| since + after)
    }

    fn note_sent(&mut self, now: Instant, lengths: &Vec<u64>, config: &Config) {
        self.sent += 1;
        self.is_turned = false;
        self.at = now;
        if !waits(lengths, &self.ordered) {
            self.waits_since = None;
        } else if core::mem::take(&mut self.is_new) {
            let most = config.options().batches_in_flight.max(1);
            self.under_way.truncate(most - 1);
            self.under_way.push_back(lengths.clone());
            self.waits_since = self.waits_since.or(Some(now));
        }
        self.is_new = false;
        self.lengths.clone_from(lengths);
    }

    /// When there is something to report to one aggregator.
    fn next_report(&self, config: &Config) -> Option<Instant> {
        let options = config.options();
        let is_idle = self.under_way.len() < options.batches_in_flight;
        match self.is_new {
            _ if self.is_turned => Some(Instant::ZERO),
            true if is_idle => Some(Instant::ZERO),
            true => Some(self.at + options.batch_delay),
            false => None,
        }
    }

    /// When the next report is due.
    pub(super) fn next_timer(&self, config: &Config) -> Option<Instant> {
        let report = earliest(self.next_report(config), self.doubts_at(config));
        earliest(Some(self.alive_at), report)
    }

    /// The turn of its aggregator.
    pub(super) fn turn(&self) -> u64 {
        self.turn
    }

    /// Another server of the shard asks the aggregator of this turn. If that is a later one, this
    /// server asks it too, and it has as much time as if this server had turned itself.
    pub(super) fn agree(&mut self, now: Instant, turn: u64) {
        if turn > self.turn {
            (self.turn, self.is_turned) = (turn, self.waits_since.is_some());
            self.waits_since = self.waits_since.map(|_| now);
            self.silent.0 -= self.silent.0 % PATIENCE;
        }
    }

    /// The same of a server of another shard. It may have turned because a server of its shard is
    /// slow: so this one keeps an aggregator that has led to a cut lately, and leaves nothing
    /// unanswered.
    pub(super) fn follow_shard(&mut self, now: Instant, turn: u64, config: &Config) {
        let lately = now.since(self.ordered_at) < config.options().resend_after * PATIENCE;
        let works = lately && self.silent.0.is_multiple_of(PATIENCE);
        if !works {
            self.agree(now, turn);
        }
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
