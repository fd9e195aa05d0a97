//! Which groups the next slots of g_all touch: the workers of the others need not stop for them.
//!
//! A slot has a *place* in g_all, with which what groups stop for is compared: its number, or,
//! where workers take turns, how many messages came before it since the counting began.

use super::config::Config;
use crate::parts::replica::{ReplicaCore, skipped};
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use ionian_kernel::id::Slot;
use ionian_replication::batch::Batch;
use ionian_replication::executor::Executor;

/// See the top of this file.
pub(super) struct Touches {
    takes_turns: bool,
    /// Every slot of g_all below this one is executed.
    first: Slot,
    /// Its place.
    place: Slot,
    /// The slots from `first` on that are known without a hole. There are at most as many as the
    /// replica of g_all keeps.
    known: VecDeque<Known>,
    /// For each group the first of these slots that touches it, or else the slot behind the last;
    /// and the place of that.
    next: Vec<(Slot, Slot)>,
}

#[derive(Clone, Copy)]
struct Known {
    /// The groups that it touches, as bits.
    set: u64,
    /// How many messages it counts for.
    weight: u64,
}

impl Touches {
    pub(super) fn new(config: &Config) -> Self {
        Touches {
            takes_turns: config.turns().is_some(),
            first: Slot::ZERO,
            place: Slot::ZERO,
            known: VecDeque::new(),
            next: vec![(Slot::ZERO, Slot::ZERO); config.count()],
        }
    }

    /// All groups, as bits.
    pub(super) fn everything(&self) -> u64 {
        (1 << self.next.len()) - 1
    }

    /// The place of the first slot that is not executed.
    pub(super) fn place(&self) -> Slot {
        self.place
    }

    /// Every slot of g_all below this one is executed: its state was taken over.
    pub(super) fn begin_at(&mut self, done: Slot) {
        self.known.clear();
        self.first = done;
        self.count_anew();
    }

    /// What touches all parts was executed: there turns are counted anew.
    pub(super) fn count_anew(&mut self) {
        self.place = match self.takes_turns {
            true => Slot::ZERO,
            false => self.first,
        };
        self.next.fill((self.first, self.place));
        self.seek();
    }

    /// Every slot of g_all below this one is executed. They were known.
    pub(super) fn executed(&mut self, done: Slot) {
        while self.first < done
            && let Some(known) = self.known.pop_front()
        {
            self.first = self.first.next();
            self.place = self.place.plus(known.weight);
        }
        self.seek();
    }

    /// Looks at what is known of g_all, up to a place. The machine has `parts` parts.
    pub(super) fn look(&mut self, end: Slot, whole: &mut ReplicaCore, parts: usize) {
        let mut slot = self.first.plus(self.known.len() as u64);
        let weights = self.known.iter().map(|known| known.weight);
        let mut place = weights.fold(self.place, Slot::plus);
        while place < end {
            let Some((_, value)) = whole.chosen_from(slot).next().filter(|it| it.0 == slot) else {
                break;
            };
            let batch = value.batch.clone();
            let known = self.known(&batch, whole.executor_mut(), parts);
            (slot, place) = (slot.next(), place.plus(known.weight));
            self.known.push_back(known);
        }
        self.seek();
    }

    /// What touches no part at all, but for skips, is there for all workers to stop.
    fn known(&self, batch: &Batch, executor: &mut Executor, parts: usize) -> Known {
        let weight = match skipped(batch).filter(|_| self.takes_turns) {
            Some(weight) => return Known { set: 0, weight },
            None => 1,
        };
        let set = match parts {
            0 => 0,
            _ => touched(batch, executor),
        };
        let set = if set == 0 { u64::MAX } else { set };
        let set = set & self.everything();
        Known { set, weight }
    }

    fn seek(&mut self) {
        for (group, (next, place)) in self.next.iter_mut().enumerate() {
            if *next < self.first {
                (*next, *place) = (self.first, self.place);
            }
            let from = next.distance(self.first) as usize;
            let known = self.known.range(from.min(self.known.len())..);
            for free in known.take_while(|known| known.set & 1 << group == 0) {
                (*next, *place) = (next.next(), place.plus(free.weight));
            }
        }
    }

    /// The groups, as bits, that the next slot touches, if that is known.
    pub(super) fn next_set(&self) -> Option<u64> {
        self.known.front().map(|known| known.set)
    }

    /// Every slot before this place is executed, or does not touch the group.
    pub(super) fn free_until(&self, group: usize) -> Slot {
        self.next[group].1
    }

    /// The slots that can be executed while groups have stopped for what comes before these
    /// places: up to which slot, and the groups that they touch, all of them the same.
    pub(super) fn run(&self, stopped: &[Option<Slot>]) -> Option<(u64, Slot)> {
        let set = self.next_set()?;
        let (mut end, mut place) = (self.first, self.place);
        for known in &self.known {
            let has_stopped = |group: usize| stopped[group].is_some_and(|until| until > place);
            if known.set != set || !members(set).all(has_stopped) {
                break;
            }
            (end, place) = (end.next(), place.plus(known.weight));
            if self.takes_turns && set == self.everything() {
                break;
            }
        }
        (end > self.first).then_some((set, end))
    }
}

/// The groups, as bits, whose parts the commands of a batch touch.
fn touched(batch: &Batch, executor: &mut Executor) -> u64 {
    let footprint = executor.footprint(batch);
    let parts = executor.machine_mut().parts();
    let Some(parts) = parts.filter(|_| !footprint.everything) else {
        return u64::MAX;
    };
    let keys = footprint.reads.iter().chain(&footprint.writes);
    keys.fold(0, |set, key| set | 1 << parts.part_of(*key))
}

/// The groups in a set of bits.
pub(super) fn members(set: u64) -> impl Iterator<Item = usize> {
    (0..u64::BITS as usize).filter(move |group| set & 1 << group != 0)
}
