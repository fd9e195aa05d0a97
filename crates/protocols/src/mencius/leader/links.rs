//! The links between leaders. Leaders tell each other their index. If the link between two running
//! leaders breaks, neither is suspected and both would wait. So a leader that has received nothing
//! from another for an election timeout asks the rest to pass on what they receive from it. If that
//! other one has failed there is nothing to pass on.

use ionian_kernel::id::*;
use ionian_kernel::small_map::SmallMap;
use ionian_kernel::time::{Duration, Instant};

/// See the top of this file.
#[derive(Default)]
pub(super) struct Links {
    /// When it began to listen.
    since: Instant,
    /// When each of the others was heard last.
    heard: SmallMap<LeaderId, Instant>,
    /// Who does not hear whom, and until when that holds if it is not said again.
    asked: SmallMap<LeaderId, (Set<LeaderId>, Instant)>,
}

impl Links {
    /// It begins to live.
    pub(super) fn start(&mut self, now: Instant) {
        self.since = now;
    }

    /// The membership has changed: what was said of leaders that are none any more is forgotten,
    /// and new ones are given the time to be heard of.
    pub(super) fn reconfigure(&mut self, now: Instant, others: Set<LeaderId>) {
        self.heard.retain(|leader, _| others.contains(*leader));
        self.asked.retain(|leader, _| others.contains(*leader));
        for leader in others.iter() {
            self.heard.entry(leader).or_insert(now);
        }
    }

    /// Another leader was heard.
    pub(super) fn heard(&mut self, from: LeaderId, now: Instant) {
        self.heard.insert(from, now);
    }

    /// Those of the others that were not heard for so long.
    pub(super) fn missing(
        &self,
        now: Instant,
        others: Set<LeaderId>,
        timeout: Duration,
    ) -> Set<LeaderId> {
        let last = |leader: &LeaderId| self.heard.get(leader).copied().unwrap_or(self.since);
        others
            .iter()
            .filter(|leader| now.since(last(leader)) > timeout)
            .collect()
    }

    /// `from` does not hear these.
    pub(super) fn asks(&mut self, from: LeaderId, missing: Set<LeaderId>, until: Instant) {
        self.asked.insert(from, (missing, until));
    }

    /// Who is to be told what is heard of a leader.
    pub(super) fn those_that_miss(&mut self, leader: LeaderId, now: Instant) -> Set<LeaderId> {
        if self.asked.is_empty() {
            return Set::EMPTY;
        }
        self.asked.retain(|_, (_, until)| now < *until);
        let missing = self
            .asked
            .iter()
            .filter(|(_, (missing, _))| missing.contains(leader));
        missing.map(|(asker, _)| *asker).collect()
    }
}
