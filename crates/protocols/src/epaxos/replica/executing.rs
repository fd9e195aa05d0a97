//! Executing decided instances after what they depend on.

use super::Replica;
use crate::epaxos::instance::InstanceId;
use crate::epaxos::message::{Choice, Replier};
use ionian_kernel::role::Out;
use ionian_kernel::time::Instant;

/// The most decided instances that wait for others, and their bytes. Beyond either
/// only those are taken in that others wait for; the rest is fetched later.
const MAX_PENDING: usize = 1 << 18;
const MAX_PENDING_BYTES: usize = 64 << 20;

/// This number of bytes of commands calls for a barrier as one instance does: acceptors keep both
/// until then.
const INSTANCE_BYTES: usize = 16 << 10;

/// A decided instance that is not executed.
pub(super) struct Pending {
    pub(super) choice: Choice,
    replier: Replier,
}

impl Pending {
    pub(super) fn byte_len(&self) -> usize {
        self.choice.byte_len()
    }
}

impl Replica {
    /// An instance is decided.
    pub(super) fn on_committed(
        &mut self,
        now: Instant,
        id: InstanceId,
        choice: Choice,
        replier: Replier,
        out: &mut Out<'_, Self>,
    ) {
        self.missing.note_id(id);
        if self.executed().contains(id) {
            self.stale += 1;
            return;
        }
        if let Some(known) = self.pending.get(&id) {
            assert_eq!(known.choice, choice, "two values chosen in {id:?}");
            self.stale += 1;
            return;
        }
        if !self.snapshots.is_installing() && self.graph.execute_alone(id, choice.deps()) {
            self.learned += 1;
            self.execute(id, Pending { choice, replier });
            self.answer_waiting(now, id);
            return self.flush_if_due(out);
        }
        if !self.has_room(id, choice.byte_len()) {
            self.stale += 1;
            return;
        }
        self.learned += 1;
        let deps = choice.deps().clone();
        self.missing.note_deps(&deps);
        let pending = Pending { choice, replier };
        self.pending_bytes += pending.byte_len();
        self.pending.insert(id, pending);
        self.graph.commit(now, id, deps, ());
        self.give_up_install(out);
        self.execute_ready(now, out);
    }

    fn has_room(&self, id: InstanceId, bytes: usize) -> bool {
        let fits = self.pending_bytes + bytes <= MAX_PENDING_BYTES;
        let few = self.pending.len() < MAX_PENDING;
        (few && fits) || self.pending.is_empty() || self.graph.is_missing(id)
    }

    /// Executes what waits for nothing more. While a snapshot is on its way nothing is executed,
    /// so that the snapshot has all that was.
    pub(super) fn execute_ready(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let mut ready = core::mem::take(&mut self.ready);
        while !self.snapshots.is_installing() && self.graph.pop(&mut ready) {
            for (id, ()) in &ready {
                let pending = self.pending.remove(id).expect("it is decided");
                self.pending_bytes -= pending.byte_len();
                self.execute(*id, pending);
            }
            // The graph says of a component as a whole that it is executed.
            for (id, ()) in ready.drain(..) {
                self.answer_waiting(now, id);
            }
            self.flush_if_due(out);
        }
        self.ready = ready;
    }

    /// Answers leave with the state they were taken from; a burst may execute much more.
    fn flush_if_due(&mut self, out: &mut Out<'_, Self>) {
        if self.executed().count() >= self.flush_at || self.answers.is_full() {
            self.flush_answers(out);
        }
    }

    fn execute(&mut self, id: InstanceId, Pending { choice, replier }: Pending) {
        self.snapshots.executed(choice.byte_len());
        self.note_progress(id.space, replier);
        if let Choice::Command { payload, deps } = &choice {
            let answers = (replier == Some(self.id)).then(|| {
                self.answered.insert(id.space.leader);
                &mut self.answers
            });
            let barrier = payload.is_barrier();
            self.executor
                .execute_unordered(&payload.value, barrier, answers);
            if barrier {
                self.snapshots.passed(deps);
                self.passed_barrier(payload);
            }
            self.since_barrier = match barrier {
                true => 0,
                false => self.since_barrier + 1 + (payload.byte_len() / INSTANCE_BYTES) as u64,
            };
        }
    }
}
