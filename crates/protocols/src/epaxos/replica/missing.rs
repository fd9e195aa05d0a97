//! What a replica misses: instances that are known to exist and that it has not as decided. It asks
//! acceptors for them in turn, that of its node first, and when all of them were asked, leaders.
//!
//! Whether it asks another acceptor, or leaders, depends on how long the oldest of them has been
//! known. While there is traffic some instance is always missing, each time a younger one: what
//! its leader has just proposed. That must not keep it from asking for one whose leader is gone.
//!
//! A leader that sends heartbeats finishes its own instances, however long that takes over a wide
//! area. Leaders are asked for one of its only when it was missing for a second or two.

use super::Replica;
use crate::epaxos::instance::{Deps, InstanceId, Space};
use crate::epaxos::message::{Instance, Reach, Run};
use crate::epaxos::{Envelope, MAX_RECOVERIES, RUNS, acceptor, branch, leader};
use crate::parts::replica::currency::current_until;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use ionian_kernel::id::*;
use ionian_kernel::role::Out;
use ionian_kernel::small_map::SmallMap;
use ionian_kernel::time::{Duration, Instant};

/// The most instances that leaders are asked for at a time: as many as one recovers at a time.
const RECOVERED: usize = MAX_RECOVERIES;

/// Acceptors are asked so often which instances there are: those of a leader that is gone are known
/// to them alone.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// See the top of this file.
pub(super) struct Missing {
    near: AcceptorSet,
    turn: u64,
    /// How far each space is known to reach.
    known: SmallMap<Space, u64>,
    /// How far it was known to reach when it was looked, the last time first: once for each
    /// acceptor, and once more. What is younger than the last is on its way.
    seen: VecDeque<SmallMap<Space, u64>>,
    /// The same when it last looked around, and when that was; zero before a majority of the
    /// leaders has sent heartbeats.
    long_seen: SmallMap<Space, u64>,
    looked_at: Instant,
    /// When it is known to have had all that was proposed; zero if not since it was started.
    current_at: Instant,
    /// The acceptors that have said how far they know each space to reach, and when enough of them
    /// had: no recorded instance was unknown then.
    informers: AcceptorSet,
    informed_at: Option<Instant>,
    /// The acceptors that have forgotten what is missing.
    forgetful: AcceptorSet,
    ask_at: Instant,
    look_at: Instant,
    pub(super) asked: u64,
    pub(super) recoveries: u64,
}

impl Missing {
    pub(super) fn new(near: AcceptorSet, turn: u64) -> Self {
        Missing {
            near,
            turn: turn >> 1,
            known: SmallMap::new(),
            seen: VecDeque::new(),
            long_seen: SmallMap::new(),
            looked_at: Instant::ZERO,
            current_at: Instant::ZERO,
            informers: Set::EMPTY,
            informed_at: None,
            forgetful: Set::EMPTY,
            ask_at: Instant::ZERO,
            look_at: Instant::ZERO,
            asked: 0,
            recoveries: 0,
        }
    }

    /// The instances of a space below this number exist.
    pub(super) fn note(&mut self, space: Space, below: u64) {
        let known = self.known.entry(space).or_default();
        *known = (*known).max(below);
    }

    pub(super) fn note_id(&mut self, id: InstanceId) {
        self.note(id.space, id.number + 1);
    }

    pub(super) fn note_deps(&mut self, deps: &Deps) {
        deps.exact().iter().for_each(|id| self.note_id(*id));
        for (space, below) in deps.below() {
            self.note(*space, *below);
        }
    }

    /// Whether a later life of its leader has begun.
    fn is_over(&self, Space { leader, life }: Space) -> bool {
        let later = Space {
            leader,
            life: life.saturating_add(1),
        };
        let next = self.known.keys().find(|space| **space >= later);
        next.is_some_and(|space| space.leader == leader && space.life > life)
    }

    /// The present space of each leader, as far as it is known.
    pub(super) fn present(&self) -> impl Iterator<Item = Space> {
        let spaces = self.known.keys().copied();
        spaces.filter(|space| !self.is_over(*space))
    }

    /// Whether it has executed all that was recorded at some moment since it was started.
    pub(super) fn has_caught_up(&self) -> bool {
        self.informed_at.is_some_and(|at| self.current_at >= at)
    }

    /// How many instances are known to exist.
    pub(super) fn end(&self) -> u64 {
        let ends = self.known.values();
        ends.fold(0, |sum, end| sum.saturating_add(*end))
    }

    pub(super) fn next_timer(&self) -> Option<Instant> {
        Some(self.ask_at.min(self.look_at))
    }

    /// The acceptor to ask next for what was missing so often before.
    fn next_acceptor(&mut self, all: AcceptorSet, attempts: usize) -> AcceptorSet {
        self.turn += 1;
        let from = match attempts {
            0 => all.preferring(self.near),
            _ => all,
        };
        from.pick(self.turn).map_or(Set::EMPTY, Set::one)
    }
}

impl Replica {
    /// The instances that exist, as far as `reach` says, and are neither executed nor decided here.
    fn missing_runs(&self, reach: &SmallMap<Space, u64>) -> Vec<Run> {
        let mut runs = Vec::new();
        for (space, below) in reach {
            for (start, end) in self.executed().missing(*space, *below) {
                self.runs_between(*space, (start, end), &mut runs);
                if runs.len() >= RUNS {
                    runs.truncate(RUNS);
                    return runs;
                }
            }
        }
        runs
    }

    /// Of the instances from `start` to `end`, those that are not pending.
    fn runs_between(&self, space: Space, (mut start, end): (u64, u64), runs: &mut Vec<Run>) {
        let id = |number| InstanceId { space, number };
        for (pending, _) in self.pending.range(id(start)..id(end)) {
            if pending.number > start {
                let end = pending.number;
                runs.push(Run { space, start, end });
            }
            start = pending.number + 1;
        }
        if start < end {
            runs.push(Run { space, start, end });
        }
    }

    /// Whether some instance of a run is neither executed nor decided here.
    pub(super) fn misses(&self, Run { space, start, end }: &Run) -> bool {
        let mut runs = Vec::new();
        for (hole, hole_end) in self.executed().missing(*space, *end) {
            let hole = hole.max(*start);
            if hole < hole_end {
                self.runs_between(*space, (hole, hole_end), &mut runs);
            }
        }
        !runs.is_empty()
    }

    /// Asks for what was missing the last time too.
    pub(super) fn ask_for_missing(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        if self.missing.look_at <= now {
            self.look_around(now, out);
        }
        if self.missing.ask_at > now {
            return;
        }
        let after = self.config.options().resend_after;
        self.missing.ask_at = now + self.random.duration(after, 2 * after);
        let acceptors = self.config.recorders();
        let runs = self.missed();
        let attempts = self.attempts();
        let oldest = match attempts >= acceptors.len() {
            true => self.missing_runs(&self.missing.seen[attempts]),
            false => Vec::new(),
        };
        let known = self.missing.known.clone();
        self.missing.seen.push_front(known);
        self.missing.seen.truncate(acceptors.len() + 1);
        if runs.is_empty() || self.snapshots.is_installing() {
            return;
        }
        let heard = match self.proposers.is_cut_off(now) {
            true => Set::EMPTY,
            false => self.proposers.present(now),
        };
        let is_left =
            |run: &&Run| !heard.contains(run.space.leader) || self.missing.is_over(run.space);
        let left: Vec<Run> = oldest.iter().filter(is_left).copied().collect();
        self.ask_for_recovery(&left, out);
        // Where not all can be named, the oldest are.
        let runs = match runs.len() < RUNS || oldest.is_empty() {
            true => runs,
            false => oldest,
        };
        self.fetch(runs, attempts, out);
    }

    /// What is missing that was known when it looked last.
    fn missed(&self) -> Vec<Run> {
        let last = self.missing.seen.front();
        last.map_or_else(Vec::new, |last| self.missing_runs(last))
    }

    /// How often the oldest of what is missing was missing before, at most once for each acceptor.
    fn attempts(&self) -> usize {
        let seen = self.missing.seen.iter().skip(1);
        seen.take_while(|seen| !self.missing_runs(seen).is_empty())
            .count()
    }

    fn fetch(&mut self, runs: Vec<Run>, attempts: usize, out: &mut Out<'_, Self>) {
        let to = self
            .missing
            .next_acceptor(self.config.recorders(), attempts);
        self.missing.asked += 1;
        out.reached(branch::FETCHES);
        self.ask(to, runs, out);
    }

    fn ask(&self, to: AcceptorSet, runs: Vec<Run>, out: &mut Out<'_, Self>) {
        let from = self.id;
        let message = acceptor::In::Fetch { from, runs };
        out.send(self.config.to_recorders(to, message));
    }

    fn ask_for_recovery(&mut self, runs: &[Run], out: &mut Out<'_, Self>) {
        if runs.is_empty() {
            return;
        }
        let numbers = |run: &Run| {
            let space = run.space;
            let end = run.end.min(run.start.saturating_add(RECOVERED as u64));
            (run.start..end).map(move |number| InstanceId { space, number })
        };
        let ids: Vec<InstanceId> = runs.iter().flat_map(numbers).take(RECOVERED).collect();
        self.missing.recoveries += 1;
        out.reached(branch::ASKS_FOR_RECOVERY);
        out.send(Envelope::ToLeaders(
            self.leaders,
            leader::In::Recover { ids },
        ));
    }

    /// Asks an acceptor which instances there are; where the roles are apart, one that votes too:
    /// it may be the only one that knows an instance, which is then a noop.
    pub(super) fn look_around(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        self.missing.look_at = now + LOOK_EVERY;
        let long = self.missing_runs(&self.missing.long_seen);
        self.note_currency(now);
        self.missing.long_seen.clone_from(&self.missing.known);
        if !self.snapshots.is_installing() {
            self.ask_for_recovery(&long, out);
        }
        self.tell_kept(out);
        self.report_all_progress(out);
        let to = self.missing.next_acceptor(self.config.recorders(), 1);
        self.ask(to, Vec::new(), out);
        if self.config.is_apart() {
            let voter = self.config.acceptors().pick(self.missing.turn);
            let (to, from, runs) = (voter.into_iter().collect(), self.id, Vec::new());
            let message = acceptor::In::Fetch { from, runs };
            out.send(Envelope::ToAcceptors(to, message));
        }
    }

    /// When all is executed that it knew of when it looked last, it had all of that since.
    fn note_currency(&mut self, now: Instant) {
        let mut seen = self.missing.long_seen.iter();
        let executed = |(space, below): (&Space, &u64)| {
            let mut missing = self.executed().missing(*space, *below);
            missing.next().is_none()
        };
        if seen.all(executed) {
            self.missing.current_at = self.missing.current_at.max(self.missing.looked_at);
        }
        let known: Set<LeaderId> = self.missing.known.keys().map(|it| it.leader).collect();
        let is_cut_off = self.proposers.is_cut_off(now);
        let majority = self.config.leaders().len() / 2 + 1;
        let is_informed = known.and(self.config.leaders()).len() >= majority && !is_cut_off;
        self.missing.looked_at = if is_informed { now } else { Instant::ZERO };
    }

    /// Until when it counts as one that holds what is decided. One that installs a snapshot lacks
    /// what acceptors have dropped.
    pub(super) fn current_until(&self) -> Instant {
        match self.snapshots.is_installing() {
            true => Instant::ZERO,
            false => current_until(self.missing.current_at, self.config.options()),
        }
    }

    /// An acceptor has forgotten what this replica lacks. Another may have kept it. When
    /// all have but f, which may be down, it takes a snapshot.
    fn on_forgotten(
        &mut self,
        now: Instant,
        by: AcceptorId,
        lacks: Vec<Run>,
        out: &mut Out<'_, Self>,
    ) {
        let all = self.config.recorders();
        self.missing.forgetful.insert(by);
        let others = all.without(self.missing.forgetful);
        if others.len() <= self.config.f() {
            self.missing.forgetful = Set::EMPTY;
            return self.begin_install(now, lacks, out);
        }
        self.missing.turn += 1;
        let next = others.pick(self.missing.turn);
        self.missing.asked += 1;
        self.ask(next.into_iter().collect(), lacks, out);
    }

    /// An acceptor has said how far it knows each space to reach. Enough others meet each majority
    /// that has recorded an instance, also without the acceptor of this node
    /// (`acceptor/returning.rs`).
    fn note_informer(&mut self, now: Instant, from: AcceptorId) {
        let others = self.config.recorders().without(self.missing.near);
        self.missing.informers.insert(from);
        let enough = self.config.copy_quorum(self.config.recorders());
        if self.missing.informers.and(others).len() >= enough.min(others.len()) {
            self.missing.informed_at.get_or_insert(now);
        }
    }

    /// What an acceptor has of what was asked for.
    pub(super) fn on_fetched(
        &mut self,
        now: Instant,
        from: AcceptorId,
        (instances, forgotten): (Vec<Instance>, &[Run]),
        reaches: &[Reach],
        out: &mut Out<'_, Self>,
    ) {
        for Reach { space, below } in reaches {
            self.missing.note(*space, *below);
        }
        self.note_informer(now, from);
        let before = self.learned;
        for Instance { id, choice } in instances {
            self.on_committed(now, id, choice, None, out);
        }
        if self.snapshots.is_installing() {
            return;
        }
        let runs = match self.learned > before {
            true => {
                self.missing.forgetful = Set::EMPTY;
                self.missed()
            }
            // What was forgotten when it asked it may have by now.
            false => {
                let lacks = forgotten.iter().filter(|run| self.misses(run)).copied();
                let lacks: Vec<Run> = lacks.collect();
                if !lacks.is_empty() {
                    return self.on_forgotten(now, from, lacks, out);
                }
                Vec::new()
            }
        };
        if !runs.is_empty() {
            // More is missing and the acceptor was of help: it is asked again at once.
            self.ask(Set::one(from), runs, out);
        }
    }
}
