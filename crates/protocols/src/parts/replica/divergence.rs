//! Whether this replica and the others are in the same state: a defect of the state machine, or of
//! the memory, can make one of them execute something else than the others.
//!
//! A replica sums up the results of all commands in stretches of the log
//! ([`Executor::tally`](ionian_replication::executor::Executor::tally)) and tells the other
//! replicas the sum of each. Replicas that have executed a stretch from its first slot to its last
//! have the same sum, unless one of them has diverged. If more than half of all replicas have one
//! sum, another one is wrong. A replica that finds itself wrong is *out*: it says nothing more, as
//! if it had failed, so no client hears from it, no peer takes its snapshot, no leader counts on
//! what it keeps, and it stores no further snapshot itself. After a restart it goes on from its
//! last snapshot: if that is right, and what went wrong does not go wrong again, it is healed. As
//! long as no sum has a majority it is not known who is right, and it is only reported: often
//! because one replica has not told its sum yet.
//!
//! What is compared are results, not states: a difference is found when a command shows it.
//!
//! Nodes before level 18 do not know the message, so nothing is summed up before the log has
//! raised the level: in the same slot everywhere.

use super::{ReplicaCore, ReplicaPort};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use ionian_kernel::id::{ReplicaId, Set, Slot};
use ionian_kernel::layout::Options;
use ionian_kernel::level::Level;
use ionian_kernel::small_map::SmallMap;
use ionian_kernel::status::Agreement;
use ionian_replication::executor::Executor;

/// The first level whose nodes understand the message.
const SINCE: Level = Level(18);

/// A stretch is as long as the slots between two snapshots, divided by this, but not longer than
/// [`LONGEST`], and a power of two.
const PER_SNAPSHOT: usize = 16;
const LONGEST: u32 = 12;

/// Of how many stretches the sums are kept, of each replica. A replica that is further behind than
/// that compares when it has caught up.
const KEPT: usize = 8;

/// What a stretch of the log has led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Its first slot.
    pub start: Slot,
    /// The slot after its last.
    pub end: Slot,
    /// The sum of the results.
    pub sum: u64,
}

/// What a stretch has led to here.
#[derive(Clone, Copy)]
struct Own {
    mark: Mark,
    /// Whether others have other sums, and none has a majority so far.
    undecided: bool,
}

/// See the top of this file.
#[derive(Default)]
pub(super) struct Divergence {
    /// Whether replicas execute commands in different orders: what is sent again may be executed in
    /// one slot here and in another elsewhere, so sums differ that need not.
    unordered: bool,
    /// A stretch has 2^`shift` slots; none while nothing is compared.
    shift: Option<u32>,
    /// It has executed every slot from this one on.
    whole_from: Slot,
    own: VecDeque<Own>,
    theirs: SmallMap<ReplicaId, VecDeque<Mark>>,
    /// Stretches that it has completed and not told others of.
    untold: Vec<Mark>,
    /// How many sums of others were compared.
    compared: u64,
    /// What a majority has decided.
    agreement: Agreement,
    /// Whether nothing has decided a stretch whose sums are not kept any more.
    doubted: bool,
    /// Those that have diverged, as far as that is known.
    wrong: Set<ReplicaId>,
}

impl Divergence {
    /// Every slot below `executed` is executed, the last one just now.
    #[inline]
    pub(super) fn executed(&mut self, executed: Slot, executor: &mut Executor, options: &Options) {
        match self.shift {
            None if executor.membership().level >= SINCE && !self.unordered => {
                self.restart(executed, executor, options);
            }
            Some(shift) if executed.0.trailing_zeros() >= shift => {
                self.complete(executed, shift, executor);
            }
            _ => {}
        }
    }

    /// The state was not reached by execution, or the length of stretches may be another: nothing
    /// from the slot `from` on is executed yet.
    pub(super) fn restart(&mut self, from: Slot, executor: &mut Executor, options: &Options) {
        let compares = executor.membership().level >= SINCE && !self.unordered;
        self.shift = compares.then(|| shift(options));
        self.whole_from = from;
        executor.tally(self.shift);
    }

    /// The slots from `from` to `end` hold noops, and are not executed one by one. The stretch that
    /// they end has led to what it has led to by now; whole stretches of noops are not compared.
    pub(super) fn passed_noops(&mut self, from: Slot, end: Slot, executor: &mut Executor) {
        let Some(shift) = self.shift else {
            return;
        };
        let next = Slot(((from.0 >> shift) + 1) << shift);
        if from.0.trailing_zeros() < shift && next <= end {
            self.complete(next, shift, executor);
        }
    }

    /// Whether stretches have another length by these options.
    fn differs(&self, options: &Options) -> bool {
        self.shift.is_some_and(|now| now != shift(options))
    }

    fn complete(&mut self, end: Slot, shift: u32, executor: &mut Executor) {
        let stretch = (end.0 >> shift) - 1;
        let (start, sum) = (Slot(stretch << shift), executor.take_tally(stretch));
        if start >= self.whole_from {
            let mark = Mark { start, end, sum };
            self.keep_own(mark);
            self.untold.push(mark);
        }
    }

    fn keep_own(&mut self, mark: Mark) {
        let is_other = |own: &Own| (own.mark.start, own.mark.end) != (mark.start, mark.end);
        self.own.retain(is_other);
        if self.own.len() == KEPT && self.own.pop_front().is_some_and(|oldest| oldest.undecided) {
            self.doubted = true;
        }
        let undecided = false;
        self.own.push_back(Own { mark, undecided });
    }

    /// What others are to be told.
    pub(super) fn take_untold(&mut self) -> impl Iterator<Item = Mark> {
        self.untold.drain(..)
    }

    pub(super) fn has_untold(&self) -> bool {
        !self.untold.is_empty()
    }

    /// Another replica has this sum.
    pub(super) fn heard(&mut self, from: ReplicaId, mark: Mark) {
        keep(self.theirs.entry(from).or_default(), mark);
    }

    /// Compares what is known of the replicas, of which this is `me`.
    pub(super) fn compare(&mut self, me: ReplicaId, replicas: Set<ReplicaId>) {
        self.theirs.retain(|replica, _| replicas.contains(*replica));
        for Own { mark, undecided } in &mut self.own {
            let of_stretch = |marks: &VecDeque<Mark>| {
                let same = |other: &&Mark| (other.start, other.end) == (mark.start, mark.end);
                marks.iter().find(same).map(|other| other.sum)
            };
            let others = self.theirs.iter();
            let others = others.filter_map(|(replica, marks)| Some((*replica, of_stretch(marks)?)));
            // What is known of others is forgotten in time, a doubt is not.
            if others.clone().all(|(_, sum)| sum == mark.sum) {
                continue;
            }
            *undecided = true;
            let sums: Vec<(ReplicaId, u64)> = others.chain([(me, mark.sum)]).collect();
            let votes = |sum| sums.iter().filter(|(_, other)| *other == sum).count();
            let all = sums.iter().map(|(_, sum)| *sum);
            let Some(right) = all.into_iter().find(|sum| votes(*sum) > replicas.len() / 2) else {
                continue;
            };
            *undecided = false;
            let wrong = sums.iter().filter(|(_, sum)| *sum != right);
            let wrong = wrong.map(|(replica, _)| *replica);
            self.wrong = self.wrong.iter().chain(wrong).collect();
            self.agreement = self.agreement.max(match right == mark.sum {
                true => Agreement::OthersDiverged,
                false => Agreement::Diverged,
            });
        }
    }

    /// What comparisons have shown so far. Once a majority has named a replica, other doubts are
    /// about the same one.
    fn agreement(&self) -> Agreement {
        let doubts = self.doubted || self.own.iter().any(|own| own.undecided);
        match self.agreement {
            Agreement::Equal if doubts => Agreement::Undecided,
            decided => decided,
        }
    }

    /// Whether this replica has diverged.
    #[inline]
    pub(super) fn is_out(&self) -> bool {
        self.agreement == Agreement::Diverged
    }
}

/// Adds what is known of a stretch; a replica that has restarted says the same again.
fn keep(marks: &mut VecDeque<Mark>, mark: Mark) {
    marks.retain(|known| (known.start, known.end) != (mark.start, mark.end));
    if marks.len() == KEPT {
        marks.pop_front();
    }
    marks.push_back(mark);
}

/// The binary logarithm of the length of a stretch.
fn shift(options: &Options) -> u32 {
    let slots = (options.snapshot_slots / PER_SNAPSHOT).max(1);
    slots.ilog2().min(LONGEST)
}

impl ReplicaCore {
    /// Whether it has found out that it has diverged: it is to do nothing more, as if it had
    /// failed.
    #[inline]
    pub fn is_out(&self) -> bool {
        self.divergence.is_out()
    }

    /// What comparisons with other replicas have shown.
    pub fn agreement(&self) -> Agreement {
        self.divergence.agreement()
    }

    /// How many sums it has compared, and how many replicas are known to have diverged.
    pub(super) fn divergence_status(&self) -> [u64; 2] {
        let Divergence {
            compared, wrong, ..
        } = &self.divergence;
        [*compared, wrong.len() as u64]
    }

    /// It has executed one more slot.
    #[inline]
    pub(super) fn note_executed(&mut self) {
        let options = self.config.options();
        self.divergence
            .executed(self.executed, &mut self.executor, options);
    }

    /// The level may be another: nodes of lower ones know nothing of this.
    pub(super) fn compare_by_level(&mut self) {
        if self.executor.membership().level < SINCE && self.divergence.shift.is_some() {
            let divergence = &mut self.divergence;
            divergence.untold.clear();
            divergence.own.clear();
            divergence.theirs.clear();
            divergence.doubted = false;
            self.begin_to_compare();
        }
    }

    /// It has another state than by execution, or other options.
    pub(super) fn begin_to_compare(&mut self) {
        let options = self.config.options();
        // What is executed early is not summed up again.
        let from = self.early.seen(self.executed);
        self.divergence.restart(from, &mut self.executor, options);
    }

    /// Whether replicas execute what commutes in different orders: then nothing is compared.
    pub(crate) fn set_unordered(&mut self, unordered: bool) {
        if core::mem::replace(&mut self.divergence.unordered, unordered) != unordered {
            self.begin_to_compare();
        }
    }

    /// It has other options.
    pub(super) fn compare_by_options(&mut self) {
        if self.divergence.differs(self.config.options()) {
            self.begin_to_compare();
        }
    }

    /// It has passed noops, from this slot on.
    pub(super) fn note_passed(&mut self, from: Slot) {
        let Self {
            divergence,
            executor,
            executed,
            ..
        } = self;
        divergence.passed_noops(from, *executed, executor);
    }

    /// Another replica says what a stretch of the log has led to.
    pub fn on_mark(&mut self, from: ReplicaId, mark: Mark) {
        self.divergence.heard(from, mark);
        self.divergence.compared += 1;
        self.judge();
    }

    /// Tells the other replicas what it has completed.
    #[inline]
    pub(super) fn tell_marks(&mut self, port: &mut impl ReplicaPort) {
        if !self.divergence.has_untold() {
            return;
        }
        let others = self.config.replicas().without(Set::one(self.id));
        for mark in self.divergence.take_untold() {
            port.mark(others, mark);
        }
        self.judge();
    }

    fn judge(&mut self) {
        self.divergence.compare(self.id, self.config.replicas());
    }
}
