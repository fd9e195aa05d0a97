//! Reads, and the answers that wait to leave.

use super::{ReplicaCore, ReplicaPort};
use ionian_kernel::id::*;
use ionian_kernel::time::Instant;
use ionian_replication::batch::{AnswersByClient, Batch};
use ionian_replication::suspicion::Presence;

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
        self.want(now, executed);
    }

    pub(super) fn answer_deferred(&mut self, now: Instant) {
        while !self.answers.is_full()
            && let Some((since, reads)) = self.deferred.pop_ready(self.executed)
        {
            self.answer_or_defer(now, since, reads, self.executed);
        }
    }

    /// Sends the answers that there are, or (`all`) those to all that was begun.
    pub(super) fn flush_answers(&mut self, now: Instant, all: bool, port: &mut impl ReplicaPort) {
        let mut exit = Exit {
            from: self.id.0,
            executed: self.early.seen(self.executed),
            unbatchers: self.unbatchers,
            now,
            present: &self.present,
            turn: &mut self.turn,
        };
        let give = &mut |answers: &mut _| exit.send(answers, port);
        match all {
            true => self.executor.finish(give),
            false => self.executor.collect(give),
        }
        give(&mut self.answers);
    }
}

/// Where answers leave.
struct Exit<'a> {
    from: Index,
    executed: Slot,
    unbatchers: Set<UnbatcherId>,
    now: Instant,
    present: &'a Presence<UnbatcherId>,
    turn: &'a mut u64,
}

impl Exit<'_> {
    /// Sends answers: to one unbatcher if there are any, to the clients otherwise.
    fn send(&mut self, answers: &mut AnswersByClient, port: &mut impl ReplicaPort) {
        if answers.is_empty() {
            return;
        }
        let (from, executed) = (self.from, self.executed);
        *self.turn += 1;
        match self.present.pick(self.unbatchers, self.now, *self.turn) {
            Some(unbatcher) => {
                while !answers.is_empty() {
                    port.results(unbatcher, answers.take_some(from, executed));
                }
            }
            None => {
                for (client, answers) in answers.drain(from, executed) {
                    port.answers(client, answers);
                }
            }
        }
    }
}
