//! Slots that are executed before their turn, and runs of slots that are known to hold noops
//! without a message for each. Where a protocol knows of neither there are none.
//!
//! The state is then not that of a prefix of the log. It must be wherever it is taken for that: in
//! a snapshot, and for a read of several keys, which could see of two commands the one here and the
//! other at another replica. Such a user *holds*: nothing more is executed early until the log has
//! caught up.

use super::{Chosen, ReplicaCore, ReplicaPort};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use ionian_kernel::id::Slot;
use ionian_kernel::time::{Duration, Instant};
use ionian_replication::batch::{Batch, Value};
use ionian_replication::executor::Executor;

/// A peer that holds and is not heard of again for so long is forgotten.
const HELD_FOR: Duration = Duration::from_secs(1);

/// The slots executed early, and who waits for there to be none.
#[derive(Default)]
pub(super) struct Early {
    slots: BTreeSet<Slot>,
    held_until: Instant,
}

impl Early {
    /// The turn of a slot has come; whether it was executed early.
    pub(super) fn pass(&mut self, slot: Slot) -> bool {
        !self.slots.is_empty() && self.slots.remove(&slot)
    }

    /// The state is another one.
    pub(super) fn forget(&mut self) {
        self.slots.clear();
    }

    /// A reader of the state may have seen effects of slots below this one.
    pub(super) fn seen(&self, executed: Slot) -> Slot {
        self.slots.last().map_or(executed, |last| last.next())
    }
}

impl ReplicaCore {
    /// The value that it holds in a slot.
    pub fn value(&self, slot: Slot) -> Option<&Value> {
        self.log.get(slot).map(|chosen| &chosen.value)
    }

    /// It holds no value in this slot or a later one.
    pub fn held_until(&self) -> Slot {
        self.log.end()
    }

    /// Its state machine.
    pub fn executor(&self) -> &Executor {
        &self.executor
    }

    /// Whether a slot was executed early.
    pub fn was_early(&self, slot: Slot) -> bool {
        self.early.slots.contains(&slot)
    }

    /// Finishes what other threads have begun, and answers it. A query that waited beyond this
    /// would see what is executed early from now on.
    pub fn finish(&mut self, now: Instant, port: &mut impl ReplicaPort) {
        if self.executor.is_parallel() {
            self.flush_answers(now, true, port);
        }
    }

    /// Whether no peer waits for the state to be that of a prefix.
    pub fn may_run_ahead(&self, now: Instant) -> bool {
        self.early.held_until <= now
    }

    /// Executes a slot whose value it holds, and answers for it if it is to.
    pub fn execute_early(&mut self, slot: Slot) {
        let Some(chosen) = self.log.get(slot).filter(|_| slot >= self.executed) else {
            return;
        };
        let answers = (chosen.replier == Some(self.id)).then_some(&mut self.answers);
        self.executor.execute_early(slot, &chosen.value, answers);
        let new = self.early.slots.insert(slot);
        assert!(new, "{slot:?} was executed twice");
    }

    /// The slots from the one that is executed next up to `end` hold noops, but for those whose
    /// value is here.
    pub fn skip_to(&mut self, now: Instant, end: Slot, port: &mut impl ReplicaPort) {
        let retained = self.config.options().retained_slots as u64;
        // Where the log holds much already there is no room for as much again.
        let fits = end
            .0
            .checked_sub(1)
            .is_none_or(|last| self.log.admits(Slot(last)));
        if end.distance(self.executed) <= retained && fits {
            for slot in self
                .executed
                .until(end)
                .filter(|slot| self.log.get(*slot).is_none())
                .collect::<Vec<_>>()
            {
                self.log.insert(
                    slot,
                    Chosen {
                        value: Value::default(),
                        replier: None,
                    },
                );
                self.learned += 1;
            }
            self.find_missing();
        } else {
            let from = self.executed;
            self.pass_over(end);
            self.note_passed(from);
            self.answer_deferred(now);
        }
        self.execute_ready(now, port);
    }

    /// Whether it does not hear the leader of some slots: what is missing is then asked of peers at
    /// once, which answer as soon as they have it.
    pub fn set_cut_off(&mut self, cut_off: bool) {
        self.catch_up.set_cut_off(cut_off);
    }

    /// Whether the state is that of a prefix of the log. If not, it will be soon: ask again.
    pub(super) fn is_a_prefix(&mut self, now: Instant) -> bool {
        let is = self.early.slots.is_empty();
        self.early.held_until = if is { Instant::ZERO } else { now + HELD_FOR };
        is
    }

    /// What must be executed before these reads can be answered, if it is `executed` without early
    /// slots.
    pub(super) fn early_horizon(&mut self, now: Instant, reads: &Batch, executed: Slot) -> Slot {
        if self.early.slots.is_empty() || self.executor.reads_single_keys(reads) {
            return executed;
        }
        self.early.held_until = now + HELD_FOR;
        // What they must see may be behind the last slot that was executed early.
        executed.max(self.early.seen(executed))
    }
}
