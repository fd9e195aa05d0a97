//! What a replica does about what does not come: markers or skips, executions in g_all that are
//! needed for a picture, peers that do not ask again.

use super::backup::Backup;
use super::branch;
use super::groups::{Groups, Sends, send};
use super::merge::{Merge, core, replica};
use super::message::Message;
use super::settings::Turns;
use super::touches::members;
use crate::multipaxos::kind;
use alloc::vec::Vec;
use ionian_kernel::time::{Duration, Instant, earliest};
use ionian_replication::backoff::doubled;

/// An execution in g_all that is needed for a snapshot is asked for again after this time.
const BARRIER_EVERY: Duration = Duration::from_millis(500);

/// A peer that waits for a picture asks again sooner.
const WAITS_FOR: Duration = Duration::from_secs(10);

/// Where nodes keep nothing through a crash, the workers stop this long after they have executed
/// something, so that it can be forgotten elsewhere.
const KEPT_AFTER: Duration = Duration::from_secs(1);

impl Merge {
    /// What is to be asked of leaders, because it does not come.
    fn lacks(&self, groups: &Groups) -> Vec<Message> {
        if let Some(turns) = self.config.turns() {
            return self.lacks_turns(turns, groups);
        }
        let until = core(groups, groups.all()).known_end();
        if until <= self.done {
            return Vec::new();
        }
        let set = self.touches.next_set();
        let set = set.unwrap_or(self.touches.everything());
        let runs = members(set).filter(|group| core(groups, *group).stopped_until().is_none());
        let ask = |group| Message::WantMarker {
            group: group as u8,
            until,
        };
        runs.map(ask).collect()
    }

    /// The same where workers take turns: one log has more messages at hand than another.
    fn lacks_turns(&self, turns: Turns, groups: &Groups) -> Vec<Message> {
        let (all, place) = (groups.all(), self.touches.place().0);
        let until = |group| core(groups, group).stopped_until();
        let lack = |group, at_hand: u64, wanted: u64| {
            let count = wanted.saturating_sub(at_hand);
            let (end, log) = (core(groups, group).known_end(), core(groups, group));
            let group = group as u8;
            let lasts = count > turns.in_two_skips() && log.is_complete();
            lasts.then_some(Message::WantSkip { group, end, count })
        };
        let Some(set) = self.touches.next_set() else {
            let stopped = (0..all).filter(|group| until(*group).is_some());
            let most = stopped.map(|group| core(groups, group).messages_at_hand());
            let most = most.max().unwrap_or(0);
            return lack(all, place, most).into_iter().collect();
        };
        let wanted = place + core(groups, all).messages_at_hand() + turns.slots;
        let runs = members(set).filter(|group| until(*group).is_none());
        let lacks = |group| lack(group, core(groups, group).messages_at_hand(), wanted);
        runs.filter_map(lacks).collect()
    }

    /// Watches for markers that do not come, and for what must be executed in g_all.
    pub(super) fn watch(&mut self, now: Instant, groups: &mut Groups, out: &mut Sends) {
        let resend_after = self.config.options().resend_after;
        if self.lacks(groups).is_empty() {
            (self.markers_at, self.attempts) = (None, 0);
        } else if self.markers_at.is_none() {
            out.reached(branch::WAITS_FOR_MARKERS);
            self.markers_at = Some(now + resend_after);
        }
        let is_not_kept = |group| core(groups, group).is_ahead_of_kept();
        if self.is_snapshot_due(groups) {
            self.barrier_at = self.barrier_at.or(Some(now));
        } else if !self.keeps_records && (0..groups.all()).any(is_not_kept) {
            self.barrier_at = self.barrier_at.or(Some(now + KEPT_AFTER));
        } else if self.waiting.is_empty() {
            self.barrier_at = None;
        }
        self.waiting
            .retain(|_, (_, since)| now.since(*since) < WAITS_FOR);
        if !core(groups, groups.all()).has_offer() {
            for group in 0..groups.all() {
                if core(groups, group).retains_more() {
                    replica(groups.member(group)).core_mut().retain_as_ever();
                }
            }
        }
    }

    /// Does what is due.
    pub(super) fn on_timer(&mut self, now: Instant, groups: &mut Groups, out: &mut Sends) {
        self.delivery.finish(groups);
        groups.on_timer(now, out);
        let leaders = self.config.leaders();
        if self.markers_at.is_some_and(|at| at <= now) {
            for message in self.lacks(groups) {
                out.reached(match self.attempts {
                    0 => branch::WANTS_MARKER,
                    _ => branch::WANTS_MARKER_AGAIN,
                });
                send(out, kind::Leader, leaders, message);
            }
            let after = doubled(self.config.options().resend_after, self.attempts, 3);
            self.attempts += 1;
            self.markers_at = Some(now + self.random.duration(after, 2 * after));
        }
        if self.barrier_at.is_some_and(|at| at <= now) {
            send(
                out,
                kind::Leader,
                leaders,
                Message::WantBarrier { number: 0 },
            );
            self.barrier_at = Some(now + BARRIER_EVERY);
        }
        self.ask_for_mark(now, out);
    }

    pub(super) fn next_timer(&self) -> Option<Instant> {
        let backup = self.backup.as_ref().map(Backup::next_timer);
        earliest(earliest(self.markers_at, self.barrier_at), backup)
    }
}
