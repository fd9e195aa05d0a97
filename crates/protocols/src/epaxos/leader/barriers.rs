//! When a leader proposes an empty barrier: a command that conflicts with everything.
//!
//! It gives the state machine the time, when a deadline has passed; and it lets acceptors forget
//! what their indexes hold, and instances, when enough was executed since the last one. The first
//! leader whose time has come does it for all.
//!
//! Every command that arrives while a barrier is under way waits for it, and it is under way for
//! two round trips or more: what little was executed is therefore kept for longer.

use super::Leader;
use crate::epaxos::branch;
use ionian_kernel::random::Random;
use ionian_kernel::role::Out;
use ionian_kernel::time::{Duration, Instant, Timestamp};

/// A barrier is due at once after this number of instances.
const INSTANCES: u64 = 100_000;

/// The time since the last barrier after which one is due, at the earliest, if `retained_slots`
/// instances were executed or keys will expire. Up to twice as long, so that one leader is first.
const EVERY: Duration = Duration::from_secs(1);

/// How much later one is due after fewer instances.
const LATER: Duration = Duration::from_secs(10);

/// A leader proposes one for a deadline at most so often.
const CLOCK_EVERY: Duration = Duration::from_millis(50);

/// See the top of this file.
#[derive(Default)]
pub(super) struct Barriers {
    /// When the next is due if enough was executed.
    due: Instant,
    /// Not before this time for a deadline.
    clock_at: Instant,
}

impl Barriers {
    pub(super) fn start(&mut self, now: Instant, random: &mut Random) {
        self.due = now + random.duration(EVERY, 2 * EVERY);
    }
}

impl Leader {
    /// What a replica of this node has executed.
    pub(super) fn on_executed(
        &mut self,
        now: Instant,
        time: Timestamp,
        deadline: Option<Timestamp>,
        since_barrier: u64,
        out: &mut Out<'_, Self>,
    ) {
        self.clock.executed(now, time);
        if self.amnesiac || self.has_barrier() || !self.may_propose(now) {
            return;
        }
        let tells_time = deadline.is_some_and(|at| self.clock.is_due(now, at, false))
            && self.barriers.clock_at <= now;
        if since_barrier == 0 {
            self.barriers.start(now, &mut self.random);
        }
        let enough = self.config.options().retained_slots as u64;
        let wait = match deadline.is_some() || since_barrier >= enough {
            true => Duration::ZERO,
            false => LATER,
        };
        let is_due = since_barrier >= INSTANCES || self.barriers.due + wait <= now;
        if tells_time || is_due {
            self.barriers.start(now, &mut self.random);
            self.barriers.clock_at = now + CLOCK_EVERY;
            out.reached(branch::PROPOSES_BARRIER);
            self.propose_barrier(now, out);
        }
    }

    /// Whether a barrier of this leader is under way.
    fn has_barrier(&self) -> bool {
        self.unexecuted.has_barrier() || self.waiting.has_barrier()
    }

    /// Whether it knows enough clocks to stamp anything (of those of f + 1 nodes one is right), and
    /// is not cut off: whatever it proposed then would hold up what conflicts.
    pub(super) fn may_propose(&self, now: Instant) -> bool {
        self.peers.known() >= self.config.f() && !self.is_cut_off(now)
    }
}
