//! Failure detection from the traffic itself: which instances have answered lately.

use core::cell::Cell;
use ionian_kernel::id::{Id, Set};
use ionian_kernel::small_map::SmallMap;
use ionian_kernel::time::{Duration, Instant};

/// How often an instance sends a heartbeat to those that give it work.
pub const ALIVE_EVERY: Duration = Duration::from_millis(250);

/// An instance without a heartbeat, or other message, for this long gets no work: three of them are
/// missing.
pub const PRESENT_FOR: Duration = Duration::from_millis(800);

/// The time after which a suspect gets one piece of work, so that it can show that it has
/// recovered.
const PROBE_EVERY: Duration = Duration::from_millis(500);

/// Suspects are reported only if some instance was given work within this time: without work none
/// can show that it has recovered.
const REPORTED_FOR: Duration = Duration::from_secs(10);

/// The instances of one role that left a request unanswered and have sent nothing since.
#[derive(Clone, Debug)]
pub struct Suspicion<I: Id> {
    /// When each suspect gets its next piece of work.
    probes: SmallMap<I, Instant>,
    /// When an instance was last given work, and whether that was [long ago](REPORTED_FOR).
    asked_at: Instant,
    rests: bool,
}

impl<I: Id> Default for Suspicion<I> {
    fn default() -> Self {
        Suspicion {
            probes: SmallMap::new(),
            asked_at: Instant::ZERO,
            rests: false,
        }
    }
}

impl<I: Id> Suspicion<I> {
    /// `id` answered.
    pub fn heard(&mut self, id: I) {
        self.probes.remove(&id);
    }

    /// `ids` answered.
    pub fn all_heard(&mut self, ids: Set<I>) {
        // As most often.
        if !self.probes.is_empty() {
            self.probes.retain(|id, _| !ids.contains(*id));
        }
    }

    /// `ids` left a request unanswered for too long.
    pub fn silent(&mut self, ids: Set<I>, now: Instant) {
        // Also for one that was suspected before: it has just failed a probe.
        let probes = ids.iter().map(|id| (id, now + PROBE_EVERY));
        self.probes.extend(probes);
    }

    /// Instances that are not in `all` are no longer suspected.
    fn retain(&mut self, all: Set<I>) {
        self.probes.retain(|id, _| all.contains(*id));
    }

    /// Those of `all` that are not suspected; all of them if all are suspected, since work must go
    /// somewhere.
    pub fn trusted(&self, all: Set<I>) -> Set<I> {
        all.preferring(all.without(self.suspects()))
    }

    /// Of those in `all`, which are all suspected: the one that failed the longest ago. Going round
    /// among them could come back to the same one each time, when every second turn is for work
    /// that is not answered.
    fn first_due(&self, all: Set<I>) -> Option<I> {
        let probes = self.probes.iter().filter(|(id, _)| all.contains(**id));
        probes.min_by_key(|(_, at)| **at).map(|(id, _)| *id)
    }

    /// Those under suspicion.
    pub fn suspects(&self) -> Set<I> {
        self.probes.keys().copied().collect()
    }

    /// How many suspects there are to report: none when no instance was given work for long. Which
    /// are suspected stays the same, because work that comes is not to wait for them.
    pub fn reported(&self) -> usize {
        match self.rests {
            true => 0,
            false => self.probes.len(),
        }
    }

    /// Looks whether work has come lately.
    pub fn on_timer(&mut self, now: Instant) {
        self.rests = now.since(self.asked_at) >= REPORTED_FOR;
    }

    /// When it next wants to be called though nothing arrives.
    pub fn next_timer(&self) -> Option<Instant> {
        (self.reported() > 0).then(|| self.asked_at + REPORTED_FOR)
    }

    /// Work is given to some instances: the suspects that get it now, beside a trusted one.
    pub fn probe(&mut self, now: Instant) -> Set<I> {
        (self.asked_at, self.rests) = (now, false);
        let mut due = Set::EMPTY;
        for (id, at) in self.probes.iter_mut().filter(|(_, at)| **at <= now) {
            *at = now + PROBE_EVERY;
            due.insert(*id);
        }
        due
    }

    /// The suspect that gets a piece of work now: of those whose turn has come, the one that has
    /// waited the longest.
    fn probe_one(&mut self, now: Instant) -> Option<I> {
        let due = self.probes.iter_mut().filter(|(_, at)| **at <= now);
        let (id, at) = due.min_by_key(|(_, at)| **at)?;
        *at = now + PROBE_EVERY;
        Some(*id)
    }
}

/// Chooses the instance of a role to send work to: one on the same node if there is one, otherwise
/// each in turn, and none that left a request unanswered.
#[derive(Clone, Debug)]
pub struct Choice<I: Id> {
    preferred: Set<I>,
    all: Set<I>,
    suspicion: Suspicion<I>,
    /// When the next suspect gets a copy of some work.
    probe_at: Instant,
    turn: u64,
}

impl<I: Id> Choice<I> {
    /// Among `all`, of which those in `near` are on the same node and are preferred; `turn` is the
    /// first turn.
    pub fn new(all: Set<I>, near: Set<I>, turn: u64) -> Self {
        let mut choice = Choice {
            preferred: Set::EMPTY,
            all: Set::EMPTY,
            suspicion: Suspicion::default(),
            probe_at: Instant::ZERO,
            turn: turn >> 1,
        };
        choice.reconfigure(all, near);
        choice
    }

    /// The membership has changed.
    pub fn reconfigure(&mut self, all: Set<I>, near: Set<I>) {
        self.preferred = all.preferring(near);
        self.all = all;
        self.suspicion.retain(all);
    }

    /// Whether the deployment has no such instance.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Those that are preferred while they answer.
    pub fn preferred(&self) -> Set<I> {
        self.preferred
    }

    /// Where to send now: one trusted instance, and all that get the message. Now and then a
    /// suspect gets it as well: without work it could never clear itself, and work could be lost
    /// that no trusted instance has. One suspect at a time: where answers are late because too much
    /// waits, all instances are suspects, and each copy makes the queues longer. `None` if the
    /// deployment has no such instance.
    pub fn next(&mut self, now: Instant) -> Option<(I, Set<I>)> {
        self.next_among(self.all, now)
    }

    /// The same, where the trusted one is of `some` if any of these is trusted.
    pub fn next_among(&mut self, some: Set<I>, now: Instant) -> Option<(I, Set<I>)> {
        self.turn += 1;
        let suspects = self.suspicion.suspects();
        let trusted = self.all.without(suspects).preferring(some);
        let trusted = trusted.preferring(self.preferred);
        let one = match trusted.pick(self.turn) {
            Some(one) => one,
            None => self.suspicion.first_due(self.all)?,
        };
        Some((one, self.probe(now).or(Set::one(one))))
    }

    fn probe(&mut self, now: Instant) -> Set<I> {
        if self.probe_at > now {
            return Set::EMPTY;
        }
        let Some(due) = self.suspicion.probe_one(now) else {
            return Set::EMPTY;
        };
        self.probe_at = now + PROBE_EVERY;
        Set::one(due)
    }

    /// Those of `some` that are not suspected.
    pub fn trusted(&self, some: Set<I>) -> Set<I> {
        some.and(self.all).without(self.suspicion.suspects())
    }

    /// `id` answered.
    pub fn heard(&mut self, id: I) {
        self.suspicion.heard(id);
    }

    /// `id` left a request unanswered for too long.
    pub fn silent(&mut self, id: I, now: Instant) {
        self.suspicion.silent(Set::one(id), now);
    }
}

/// The instances of one role that send heartbeats, and when each last sent one.
#[derive(Clone, Debug)]
pub struct Presence<I: Id> {
    all: Set<I>,
    heard: SmallMap<I, Instant>,
    /// Those that joined later and have not sent a heartbeat yet.
    joined: Set<I>,
    within: Duration,
    since: Instant,
    /// The last result, because every command asks for it.
    found: Cell<Option<Found<I>>>,
}

/// The instances that were present, and until when they stay so without another heartbeat.
#[derive(Clone, Copy, Debug)]
struct Found<I: Id> {
    present: Set<I>,
    until: Instant,
}

impl<I: Id> Presence<I> {
    /// Of `all`; each is present for the time `within` after a heartbeat.
    pub fn new(all: Set<I>, within: Duration) -> Self {
        Presence {
            all,
            heard: SmallMap::new(),
            joined: Set::EMPTY,
            within,
            since: Instant::ZERO,
            found: Cell::new(None),
        }
    }

    /// Counts all as heard at `now`, when the listener begins.
    pub fn start(&mut self, now: Instant) {
        self.since = now;
        self.found.set(None);
    }

    /// The membership has changed. New instances are absent until their first heartbeat.
    pub fn reconfigure(&mut self, all: Set<I>) {
        self.joined = self.joined.or(all.without(self.all)).and(all);
        self.heard.retain(|id, _| all.contains(*id));
        self.all = all;
        self.found.set(None);
    }

    /// `id` sent a heartbeat.
    pub fn heard(&mut self, id: I, now: Instant) {
        if self.all.contains(id) {
            self.heard.insert(id, now);
            self.joined.remove(id);
            // An instance that was present stays so, and for longer than was found.
            self.found
                .set(self.found.get().filter(|found| found.present.contains(id)));
        }
    }

    /// Those that sent a heartbeat lately; all if none did, since work must go somewhere.
    pub fn present(&self, now: Instant) -> Set<I> {
        let Found { present, .. } = match self.found.get() {
            Some(found) if now <= found.until => found,
            _ => self.look(now),
        };
        if present.is_empty() {
            self.all
        } else {
            present
        }
    }

    /// Whether any sent a heartbeat before, and none did lately.
    pub fn is_cut_off(&self, now: Instant) -> bool {
        !self.heard.is_empty() && self.heard.values().all(|at| now.since(*at) > self.within)
    }

    fn look(&self, now: Instant) -> Found<I> {
        let last = |id: &I| self.heard.get(id).copied().unwrap_or(self.since);
        let present: Set<I> = self
            .all
            .without(self.joined)
            .iter()
            .filter(|id| now.since(last(id)) <= self.within)
            .collect();
        let until = present.iter().map(|id| last(&id) + self.within).min();
        // If none is present, none can become absent.
        let found = Found {
            present,
            until: until.unwrap_or(Instant(u64::MAX)),
        };
        self.found.set(Some(found));
        found
    }

    /// One of those present, of `near` if any of them is; `turn` spreads the work. `None` if there
    /// are no instances.
    pub fn pick(&self, near: Set<I>, now: Instant, turn: u64) -> Option<I> {
        self.present(now).preferring(near).pick(turn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;
    use ionian_kernel::id::ReplicaId;

    #[test]
    fn an_instance_without_a_recent_heartbeat_is_absent() {
        let mut presence = Presence::new(Set::first(2), Duration::from_micros(10));
        presence.start(Instant(0));
        assert_eq!(presence.present(Instant(5)), Set::first(2));
        assert!(
            !presence.is_cut_off(Instant(99)),
            "no instance has sent a heartbeat yet"
        );
        presence.heard(ReplicaId(1), Instant(5));
        presence.heard(ReplicaId(9), Instant(5));
        assert_eq!(presence.present(Instant(12)), Set::one(ReplicaId(1)));
        assert_eq!(presence.present(Instant(99)), Set::first(2));
        assert!(!presence.is_cut_off(Instant(15)) && presence.is_cut_off(Instant(16)));
        presence.heard(ReplicaId(0), Instant(100));
        assert_eq!(presence.present(Instant(110)), Set::one(ReplicaId(0)));
        presence.heard(ReplicaId(1), Instant(108));
        assert_eq!(
            presence.present(Instant(110)),
            Set::first(2),
            "one comes back"
        );
        presence.heard(ReplicaId(1), Instant(111));
        assert_eq!(
            presence.present(Instant(111)),
            Set::one(ReplicaId(1)),
            "and the other goes"
        );
    }

    #[test]
    fn work_goes_to_one_that_is_near_while_it_is_there() {
        let mut presence = Presence::new(Set::first(2), Duration::from_micros(10));
        presence.start(Instant(0));
        presence.heard(ReplicaId(1), Instant(5));
        let near = Set::one(ReplicaId(0));
        assert_eq!(
            presence.pick(near, Instant(12), 0),
            Some(ReplicaId(1)),
            "the near one is absent"
        );
        assert_eq!(presence.pick(near, Instant(99), 1), Some(ReplicaId(0)));
    }

    #[test]
    fn suspects_are_avoided_probed_now_and_then_and_forgiven() {
        let all = Set::first(2);
        let one = Set::one(ReplicaId(1));
        let mut suspicion = Suspicion::default();
        suspicion.silent(one, Instant(0));
        assert_eq!(suspicion.trusted(all), Set::one(ReplicaId(0)));
        assert_eq!(suspicion.probe(Instant(1)), Set::EMPTY);
        assert_eq!(suspicion.probe(Instant(600_000)), one);
        assert_eq!(suspicion.probe(Instant(600_001)), Set::EMPTY);
        suspicion.silent(all, Instant(600_002));
        assert_eq!(suspicion.trusted(all), all);
        suspicion.heard(ReplicaId(1));
        assert_eq!(suspicion.trusted(all), one);
    }

    #[test]
    fn when_all_are_suspected_the_one_that_failed_the_longest_ago_is_next() {
        let (one, other) = (ReplicaId(0), ReplicaId(1));
        let mut choice = Choice::new(Set::first(2), Set::EMPTY, 0);
        choice.silent(one, Instant(0));
        choice.silent(other, Instant(1));
        for turn in 1..20 {
            let at = Instant(turn * 10);
            let next = choice.next(at).map(|(next, _)| next);
            let expected = if turn % 2 == 1 { one } else { other };
            assert_eq!(next, Some(expected));
            // Work that is not answered, such as a keep-alive, changes nothing.
            assert_eq!(choice.next(at).map(|(next, _)| next), Some(expected));
            choice.silent(expected, at);
        }
    }

    #[test]
    fn of_many_suspects_one_at_a_time_gets_a_copy_of_some_work_and_each_has_its_turn() {
        let mut choice = Choice::new(Set::first(5), Set::one(ReplicaId(0)), 0);
        for id in 1..5 {
            choice.silent(ReplicaId(id), Instant(u64::from(id)));
        }
        let (mut probed, mut copies) = (Vec::new(), 0);
        for turn in 0..40 {
            let at = Instant(600_000 + turn * 50_000);
            let (one, all) = choice.next(at).expect("there are five");
            assert_eq!(one, ReplicaId(0));
            copies += all.len() - 1;
            probed.extend(all.without(Set::one(one)).iter().map(|id| id.0));
        }
        assert_eq!((probed, copies), (vec![1, 2, 3, 4], 4), "in two seconds");
    }

    #[test]
    fn each_suspect_is_probed_although_another_fails_again_and_again() {
        let (slow, recovered) = (Set::one(ReplicaId(0)), Set::one(ReplicaId(1)));
        let mut suspicion = Suspicion::default();
        suspicion.silent(recovered, Instant(0));
        for at in (0..600_000).step_by(100_000) {
            suspicion.silent(slow, Instant(at));
        }
        assert_eq!(suspicion.probe(Instant(600_000)), recovered);
    }

    #[test]
    fn new_members_are_absent_and_do_not_cut_the_listener_off() {
        let mut presence = Presence::new(Set::first(1), Duration::from_micros(10));
        presence.start(Instant(100));
        presence.reconfigure(Set::first(2));
        assert_eq!(presence.present(Instant(105)), Set::one(ReplicaId(0)));
        assert!(
            !presence.is_cut_off(Instant(999)),
            "no instance has sent a heartbeat yet"
        );
        presence.heard(ReplicaId(1), Instant(1000));
        assert_eq!(presence.present(Instant(1005)), Set::one(ReplicaId(1)));
        assert!(presence.is_cut_off(Instant(1011)));
    }
}
