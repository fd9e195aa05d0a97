//! A leader's part in merging the logs: it proposes markers in the groups that it leads, or
//! [skips](super::skips) where workers take turns.
//!
//! The leader of g_all tells all leaders how far it has proposed as soon as it has, so the groups
//! order their markers while g_all orders its commands. An announcement can be lost, and so can a
//! leader: then replicas ask for the markers that they wait for. A marker is only a number, of
//! which replicas take the highest: one too many does no harm.

use super::branch;
use super::config::Config;
use super::groups::{Groups, Sends, send};
use super::message::Message;
use super::skips::Skips;
use crate::multipaxos::leader::In;
use crate::multipaxos::message::Proposer;
use crate::multipaxos::{self, kind};
use crate::parts::replica::marker;
use alloc::vec;
use alloc::vec::Vec;
use ionian_kernel::id::{LeaderId, Set, Slot};
use ionian_kernel::protocol::Instance as _;
use ionian_kernel::time::{Duration, Instant};
use ionian_replication::batch::{Batch, Purpose};

/// A marker that is asked for is proposed again after this time: the queue was full, say.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// While the leader of g_all has commands under way, it has all workers stop at most this often.
const BARRIER_AFTER: Duration = Duration::from_millis(250);

/// See the top of this file.
pub(super) struct Markers {
    /// Where workers take turns there are no markers, but these.
    skips: Option<Skips>,
    leaders: Set<LeaderId>,
    /// How far g_all is known to have proposed.
    until: Slot,
    /// Of each group that it leads: the last marker that it has proposed, and when.
    proposed: Vec<(Slot, Instant)>,
    /// What it has told the other leaders, as leader of g_all.
    announced: Slot,
    /// When it last had all workers stop, as leader of g_all.
    barrier_at: Option<Instant>,
}

impl Markers {
    pub(super) fn new(config: &Config) -> Self {
        Markers {
            skips: config.turns().map(|turns| Skips::new(turns, config)),
            leaders: config.leaders(),
            until: Slot::ZERO,
            proposed: vec![(Slot::ZERO, Instant::ZERO); config.count()],
            announced: Slot::ZERO,
            barrier_at: None,
        }
    }

    /// The leader of g_all has proposed below this slot.
    pub(super) fn on_announce(
        &mut self,
        now: Instant,
        until: Slot,
        groups: &mut Groups,
        out: &mut Sends,
    ) {
        self.until = self.until.max(until.min(limit(groups)));
        for group in 0..self.proposed.len() {
            self.mark(now, group, self.until, groups, out);
        }
    }

    /// A replica waits for a marker.
    pub(super) fn on_want_marker(
        &mut self,
        now: Instant,
        (group, until): (usize, Slot),
        groups: &mut Groups,
        out: &mut Sends,
    ) {
        let Some((last, at)) = self.proposed.get_mut(group) else {
            return;
        };
        if *last > Slot::ZERO && now.since(*at) >= AGAIN_AFTER {
            out.reached(branch::MARKS_AGAIN);
            *last = Slot::ZERO;
        }
        let until = until.min(limit(groups));
        self.mark(now, group, until, groups, out);
    }

    /// A replica waits for skips: see [`Skips::on_want`].
    pub(super) fn on_want_skip(
        &mut self,
        now: Instant,
        group: usize,
        lacks: (Slot, u64),
        groups: &mut Groups,
        out: &mut Sends,
    ) {
        if let Some(skips) = &mut self.skips {
            skips.on_want(now, group, lacks, groups, out);
        }
    }

    /// A replica wants something to be executed in g_all: what has this number, or (0) anything.
    pub(super) fn on_want_barrier(
        &mut self,
        now: Instant,
        number: u64,
        groups: &mut Groups,
        out: &mut Sends,
    ) {
        let all = groups.all();
        let Some(leader) = leader(groups, all) else {
            return;
        };
        if number > 0 {
            return propose(now, all, marker(Slot(number)), groups, out);
        }
        // What is under way may be for some workers only.
        let recent = |at: Instant| now.since(at) < BARRIER_AFTER;
        if leader.is_busy() && self.barrier_at.is_some_and(recent) {
            return out.reached(branch::BARRIER_COMES);
        }
        self.barrier_at = Some(now);
        out.reached(branch::BARRIER);
        propose(now, all, Batch::default(), groups, out);
    }

    fn mark(
        &mut self,
        now: Instant,
        group: usize,
        until: Slot,
        groups: &mut Groups,
        out: &mut Sends,
    ) {
        if self.skips.is_some()
            || until <= self.proposed[group].0
            || leader(groups, group).is_none()
        {
            return;
        }
        self.proposed[group] = (until, now);
        propose(now, group, marker(until), groups, out);
    }

    /// Does what is due.
    pub(super) fn on_timer(&mut self, now: Instant, groups: &mut Groups, out: &mut Sends) {
        if let Some(skips) = &mut self.skips {
            skips.on_timer(now, groups, out);
        }
    }

    pub(super) fn next_timer(&self, groups: &Groups) -> Option<Instant> {
        self.skips.as_ref()?.next_timer(groups)
    }

    /// Announces what was proposed in g_all in this burst. What this instance proposed in a group
    /// that it leads no more, g_all included, may be lost.
    pub(super) fn on_burst_end(&mut self, now: Instant, groups: &mut Groups, out: &mut Sends) {
        for group in 0..self.proposed.len() {
            if self.proposed[group].0 > Slot::ZERO && leader(groups, group).is_none() {
                self.proposed[group] = (Slot::ZERO, now);
            }
        }
        let all = leader(groups, groups.all()).filter(|_| self.skips.is_none());
        let Some(all) = all else {
            self.announced = Slot::ZERO;
            return;
        };
        let next = all.next_slot();
        if next > self.announced {
            self.announced = next;
            let message = Message::Announce { until: next };
            send(out, kind::Leader, self.leaders, message);
        }
    }
}

/// What a marker says at most: a higher number, from a faulty node, would stop a group for good.
/// The leader of g_all proposes nothing beyond this. A leader that has no part in g_all cannot know
/// how far that is.
fn limit(groups: &Groups) -> Slot {
    match groups.get(groups.all()).map(|member| &member.instance) {
        Some(multipaxos::Instance::Leader(leader)) => leader.reach(),
        _ => Slot(u64::MAX),
    }
}

/// Whether a batch may be proposed: only leaders write markers.
pub(super) fn is_allowed(message: &multipaxos::Message) -> bool {
    match message {
        multipaxos::Message::Leader(In::Propose {
            proposer: Proposer::Client { .. } | Proposer::Batcher { .. },
            batch,
            ..
        }) => batch
            .commands()
            .next()
            .is_none_or(|first| first.purpose != Purpose::Internal),
        _ => true,
    }
}

/// The leader of a group, if this instance leads it.
pub(super) fn leader(groups: &Groups, group: usize) -> Option<&multipaxos::leader::Leader> {
    match groups.get(group).map(|member| &member.instance) {
        Some(multipaxos::Instance::Leader(leader)) if leader.is_leading() => Some(leader),
        _ => None,
    }
}

/// Proposes a batch in a group that this instance leads.
pub(super) fn propose(
    now: Instant,
    group: usize,
    batch: Batch,
    groups: &mut Groups,
    out: &mut Sends,
) {
    let message = multipaxos::Message::Leader(In::Propose {
        proposer: Proposer::Leader {},
        near: Set::EMPTY,
        batch,
        again: false,
    });
    groups.call(group, out, |leader, outbox| {
        leader.on_message(now, message, outbox);
    });
}
