//! Reads, and the answers that wait to leave.

use super::{MAX_AHEAD, ReplicaCore, ReplicaPort};
use ionian_kernel::id::*;
use ionian_kernel::time::Instant;
use ionian_replication::batch::Batch;

impl ReplicaCore {
    /// Reads to answer once every slot below `executed` is executed.
    pub fn on_read(&mut self, now: Instant, reads: Batch, executed: Slot) {
        self.reads += reads.len() as u64;
        self.answer_or_defer(now, now, reads, executed);
    }

    /// Answers reads that came at `since`, as far as the answers leave at once and every slot below
    /// `executed` is executed.
    pub(super) fn answer_or_defer(
        &mut self,
        now: Instant,
        since: Instant,
        reads: Batch,
        executed: Slot,
    ) {
        let executed = self.early_horizon(now, &reads, executed);
        if self.executed >= executed {
            let Some(rest) = self
                .executor
                .read(self.log_time(now), &reads, &mut self.answers)
            else {
                return;
            };
            // They are answered when these answers have left.
            if !self.deferred.push(since, self.executed, rest) {
                self.stale += 1;
            }
            return;
        }
        if !self.deferred.push(since, executed, reads) {
            self.stale += 1;
            return;
        }
        // Something was voted for in the slots that it waits for: whatever is missing there counts
        // as a hole (l5). The limit prevents a forged slot from causing allocation (b4 in
        // docs/defects.md).
        self.wanted = self
            .wanted
            .max(executed.min(self.executed.plus(MAX_AHEAD as u64)));
        self.catch_up.watch(now, self.executed, self.wanted);
    }

    pub(super) fn answer_deferred(&mut self, now: Instant) {
        while !self.answers.is_full()
            && let Some((since, reads)) = self.deferred.pop_ready(self.executed)
        {
            self.answer_or_defer(now, since, reads, self.executed);
        }
    }

    /// Sends the answers: to one unbatcher if there are any, to the clients otherwise.
    pub(super) fn flush_answers(&mut self, now: Instant, port: &mut impl ReplicaPort) {
        if self.answers.is_empty() {
            return;
        }
        let (from, executed) = (self.id.0, self.early.seen(self.executed));
        self.turn += 1;
        match self.present.pick(self.unbatchers, now, self.turn) {
            Some(unbatcher) => {
                let answers = self.answers.take_all(from, executed);
                port.results(unbatcher, answers);
            }
            None => {
                for (client, answers) in self.answers.drain(from, executed) {
                    port.answers(client, answers);
                }
            }
        }
    }
}
