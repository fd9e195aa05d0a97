//! A leader's part in merging the logs where workers take turns (Multi-Ring Paxos, on which P-SMR
//! is built): each log is kept at the same rate by *skips*, which stand for messages without
//! effect.
//!
//! Every so often a leader compares how many slots it has proposed in a group with how many there
//! should be, and proposes one skip for the difference, as soon as there is room. A log falls
//! behind another for good when it had no leader for a while. Then replicas say how much is
//! missing.

use super::config::Config;
use super::groups::{Groups, Sends};
use super::markers::{leader, propose};
use super::settings::Turns;
use crate::parts::replica::skip;
use alloc::vec;
use alloc::vec::Vec;
use ionian_kernel::id::Slot;
use ionian_kernel::time::{Duration, Instant};

/// The most messages that one skip stands for.
const MOST: u64 = 1 << 20;

/// What was proposed for a replica that has not seen it is not proposed again before this time.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// A leader that was stopped for longer makes up for this.
const LONGEST: Duration = Duration::from_secs(1);

/// See the top of this file.
pub(super) struct Skips {
    turns: Turns,
    /// When it looked last.
    looked_at: Instant,
    /// What is due and is less than a message: in millionths.
    rest: u64,
    /// Of each group that it led then: the slot that was next.
    before: Vec<Option<Slot>>,
    /// Of each group: the messages that are due and were not proposed, because there was no room.
    owed: Vec<u64>,
    /// When a skip was last proposed because a replica had asked, and the slot that was next then.
    asked: Vec<Option<(Instant, Slot)>>,
}

impl Skips {
    pub(super) fn new(turns: Turns, config: &Config) -> Self {
        let groups = config.count() + 1;
        Skips {
            turns,
            looked_at: Instant::ZERO,
            rest: 0,
            before: vec![None; groups],
            owed: vec![0; groups],
            asked: vec![None; groups],
        }
    }

    /// When it next looks whether skips are due.
    pub(super) fn next_timer(&self, groups: &Groups) -> Option<Instant> {
        let leads = (0..self.before.len()).any(|group| leader(groups, group).is_some());
        let at = self.looked_at + self.turns.every;
        (leads && self.turns.rate > 0).then_some(at)
    }

    /// Proposes the skips that are due.
    pub(super) fn on_timer(&mut self, now: Instant, groups: &mut Groups, out: &mut Sends) {
        let since = now.since(self.looked_at);
        if since < self.turns.every || self.turns.rate == 0 {
            return;
        }
        self.looked_at = now;
        let since = since.min(LONGEST).as_micros() as u64;
        let due = self.rest + self.turns.rate * since;
        self.rest = due % 1_000_000;
        for group in 0..self.before.len() {
            let next = leader(groups, group).map(|leader| leader.next_slot());
            let made = next.zip(self.before[group]);
            let made = made.map(|(next, before)| next.distance(before));
            let owed = made.map(|made| (self.owed[group] + due / 1_000_000).saturating_sub(made));
            let owed = owed.unwrap_or(0);
            // In a queue they would be before what clients propose.
            let has_room = leader(groups, group).is_some_and(|leader| leader.has_room());
            if owed > 0 && has_room {
                propose(now, group, skip(owed), groups, out);
            }
            self.owed[group] = if has_room { 0 } else { owed.min(MOST) };
            self.before[group] = leader(groups, group).map(|leader| leader.next_slot());
        }
    }

    /// A replica that has a log below the slot `end` lacks this many messages of it. It does not
    /// know what was proposed from there on.
    pub(super) fn on_want(
        &mut self,
        now: Instant,
        group: usize,
        (end, count): (Slot, u64),
        groups: &mut Groups,
        out: &mut Sends,
    ) {
        let Some(asked) = self.asked.get_mut(group) else {
            return;
        };
        let is_coming = |(at, slot): (Instant, Slot)| end <= slot && now.since(at) < AGAIN_AFTER;
        let Some(leader) = leader(groups, group) else {
            return;
        };
        if count > 0 && !asked.is_some_and(is_coming) {
            *asked = Some((now, leader.next_slot()));
            propose(now, group, skip(count.min(MOST)), groups, out);
        }
    }
}
