//! The replicas that a leader names to answer clients: those that send reports, and by their last
//! one have executed what another had executed a while before. One that installs a snapshot would
//! answer when it has it.

use ionian_kernel::id::*;
use ionian_kernel::time::Instant;
use ionian_replication::suspicion::{PRESENT_FOR, Presence};

/// See the top of this file.
pub(super) struct Repliers {
    present: Presence<ReplicaId>,
    behind: Set<ReplicaId>,
    /// The most that any has executed.
    executed: Slot,
    /// The same at `marked_at`, and at least `PRESENT_FOR` before that.
    marks: [Slot; 2],
    marked_at: Instant,
}

impl Repliers {
    pub(super) fn new(all: Set<ReplicaId>) -> Self {
        Repliers {
            present: Presence::new(all, PRESENT_FOR),
            behind: Set::EMPTY,
            executed: Slot::ZERO,
            marks: [Slot::ZERO; 2],
            marked_at: Instant::ZERO,
        }
    }

    /// The membership has changed.
    pub(super) fn reconfigure(&mut self, all: Set<ReplicaId>) {
        self.present.reconfigure(all);
        self.behind = self.behind.and(all);
    }

    /// Counts all as present at `now`.
    pub(super) fn start(&mut self, now: Instant) {
        self.present.start(now);
    }

    /// A replica has executed every slot below `executed`.
    pub(super) fn heard(&mut self, from: ReplicaId, executed: Slot, now: Instant) {
        self.present.heard(from, now);
        self.executed = self.executed.max(executed);
        if now.since(self.marked_at) >= PRESENT_FOR {
            self.marks = [self.executed, self.marks[0]];
            self.marked_at = now;
        }
        self.behind.remove(from);
        if executed < self.marks[1] {
            self.behind.insert(from);
        }
    }

    /// Those that have sent a report lately.
    pub(super) fn present(&self, now: Instant) -> Set<ReplicaId> {
        self.present.present(now)
    }

    /// Whether none has sent a report lately.
    pub(super) fn is_cut_off(&self, now: Instant) -> bool {
        self.present.is_cut_off(now)
    }

    /// One that is to answer, of `near` if any of them can; `turn` spreads the work.
    pub(super) fn pick(&self, near: Set<ReplicaId>, now: Instant, turn: u64) -> Option<ReplicaId> {
        let present = self.present(now);
        let able = present.preferring(present.without(self.behind));
        able.preferring(near).pick(turn)
    }
}
