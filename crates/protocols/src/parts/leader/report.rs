//! What a leader reports of itself.

use super::{LeaderCore, Notes};
use ionian_kernel::status::{Leads, Status};

impl<N: Notes> LeaderCore<N> {
    /// Reports all of its metrics.
    pub(crate) fn report_status(&self, status: &mut Status) {
        status.leads = Some(Leads {
            own: self.is_leading(),
            others: 0,
            elections: self.elections,
        });
        status.add([self.window.next_slot.0, self.progress.executed().0]);
        self.report_work(status);
    }

    /// How often it has begun a round.
    pub fn elections(&self) -> u64 {
        self.elections
    }

    /// Reports its round and [its work](crate::parts::metrics::LEADER).
    pub(crate) fn report_work(&self, status: &mut Status) {
        status.round = Some(self.round);
        status.add([
            u64::from(self.succession.drains()),
            self.window.len() as u64,
            self.window.room() as u64,
            self.window.flow.bytes() as u64,
            self.carried.len(),
            self.queue.len() as u64,
            self.window.handed_over,
            self.window.failing() as u64,
            self.repaired,
            self.dropped,
            self.repeated,
            self.clock.correction_ms().unsigned_abs(),
        ]);
    }
}
