//! After the level of the cluster is lowered, programs of that level take over. They must not
//! execute what came before: the commands that changed the level, and those of the level above. So
//! the replica stores a snapshot at once, and gives no peer the slots before: a peer that is behind
//! gets a snapshot. An operator exchanges the programs when all replicas
//! [say](super::snapshots::Snapshots::have_level) that their snapshot has the change in it.
//!
//! (A program of the level below may still find the votes of these slots in the logs of acceptors,
//! and a leader that has not heard of replicas yet may propose them again. No replica takes them:
//! each begins behind them.)

use super::{ReplicaCore, Slot};
use ionian_kernel::level::Level;

impl ReplicaCore {
    /// The membership is another.
    pub(super) fn follow_level(&mut self) {
        self.compare_by_level();
        let at = self.executor.level_changed();
        if self.snapshots.level_changed(at) && self.executor.membership().level < Level::LATEST {
            self.forget_below(at);
        }
    }

    /// Retains no slot below this one, all of which are executed.
    fn forget_below(&mut self, end: Slot) {
        for (slot, chosen) in self.log.iter().take_while(|(slot, _)| *slot < end) {
            debug_assert!(slot < self.executed);
            self.retained_bytes -= chosen.value.batch.byte_len();
        }
        // A snapshot of the level before; a peer that takes it asks for the next.
        self.offer = None;
        if self.log.base() < end {
            self.log.advance_to(end);
        }
    }
}
