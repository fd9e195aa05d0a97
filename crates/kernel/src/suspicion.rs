//! Who has answered lately: a failure detector fed by the traffic itself.

use crate::id::{Id, Set};
use crate::layout::{Layout, NodeId};
use crate::time::{Duration, Instant};
use alloc::vec;
use alloc::vec::Vec;

/// How long a suspect is left alone before it is given one piece of work to show that it lives.
const PROBE_EVERY: Duration = Duration::from_millis(500);

/// The instances of one role that left a request unanswered and have not been heard of since.
#[derive(Clone, Debug)]
pub struct Suspicion<I: Id> {
    suspects: Set<I>,
    next_probe: Instant,
}

impl<I: Id> Default for Suspicion<I> {
    fn default() -> Self {
        Suspicion { suspects: Set::EMPTY, next_probe: Instant::ZERO }
    }
}

impl<I: Id> Suspicion<I> {
    /// `id` answered.
    pub fn heard(&mut self, id: I) {
        self.suspects.remove(id);
    }

    /// `ids` left a request unanswered for too long.
    pub fn silent(&mut self, ids: Set<I>, now: Instant) {
        // Also for one that was suspected before: it has just failed a probe.
        self.next_probe = now + PROBE_EVERY;
        self.suspects = self.suspects.or(ids);
    }

    /// Those of `all` that are not suspected; everybody when all of them are, since work must go
    /// somewhere.
    pub fn trusted(&self, all: Set<I>) -> Set<I> {
        let trusted = all.without(self.suspects);
        if trusted.is_empty() { all } else { trusted }
    }

    /// Those under suspicion.
    pub fn suspects(&self) -> Set<I> {
        self.suspects
    }

    /// The suspects that are to be given a piece of work now, beside somebody trusted.
    pub fn probe(&mut self, now: Instant) -> Set<I> {
        if self.suspects.is_empty() || now < self.next_probe {
            return Set::EMPTY;
        }
        self.next_probe = now + PROBE_EVERY;
        self.suspects
    }
}

/// Which instance of a role to send work to: one on the own node if there is one, in turn otherwise, and
/// not one that left something unanswered.
#[derive(Clone, Debug)]
pub struct Choice<I: Id> {
    preferred: Set<I>,
    all: Set<I>,
    suspicion: Suspicion<I>,
    turn: u64,
}

impl<I: Id> Choice<I> {
    /// Among the instances of `kind`, seen from `node`; the first turn is `turn`.
    pub fn new(layout: &Layout, kind: u8, node: NodeId, turn: u64) -> Self {
        let (preferred, all) = (layout.preferred(kind, node), layout.all(kind));
        Choice { preferred, all, suspicion: Suspicion::default(), turn: turn >> 1 }
    }

    /// Whether the deployment has no such instance.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Those that are preferred while they answer.
    pub fn preferred(&self) -> Set<I> {
        self.preferred
    }

    /// Whom to send to now: one to rely on, and all who are to have the message. Beside the one these are
    /// now and then suspects: without any work they could never clear themselves, and with work that
    /// nobody else has they could do harm. `None` when the deployment has no such instance.
    pub fn next(&mut self, now: Instant) -> Option<(I, Set<I>)> {
        self.turn += 1;
        let near = self.preferred.without(self.suspicion.suspects());
        let trusted = if near.is_empty() { self.suspicion.trusted(self.all) } else { near };
        let one = trusted.pick(self.turn)?;
        Some((one, self.suspicion.probe(now).or(Set::one(one))))
    }

    /// `id` answered.
    pub fn heard(&mut self, id: I) {
        self.suspicion.heard(id);
    }

    /// `id` left something unanswered for too long.
    pub fn silent(&mut self, id: I, now: Instant) {
        self.suspicion.silent(Set::one(id), now);
    }
}

/// The instances of one role that say regularly that they live, and when they last did.
#[derive(Clone, Debug)]
pub struct Presence<I: Id> {
    heard: Vec<Option<Instant>>,
    within: Duration,
    since: Instant,
    kind: core::marker::PhantomData<I>,
}

impl<I: Id> Presence<I> {
    /// `count` instances, each present while it was heard of `within` this long.
    pub fn new(count: usize, within: Duration) -> Self {
        Presence { heard: vec![None; count], within, since: Instant::ZERO, kind: core::marker::PhantomData }
    }

    /// Gives everybody the benefit of the doubt from `now` on: the listener has just begun.
    pub fn start(&mut self, now: Instant) {
        self.since = now;
    }

    /// `id` was heard of.
    pub fn heard(&mut self, id: I, now: Instant) {
        if let Some(heard) = self.heard.get_mut(id.index() as usize) {
            *heard = Some(now);
        }
    }

    /// Those heard of lately; everybody when none was, since work must go somewhere.
    pub fn present(&self, now: Instant) -> Set<I> {
        let last = |index: u8| self.heard[index as usize].unwrap_or(self.since);
        let all = Set::first(self.heard.len());
        let present: Set<I> = all.iter().filter(|id: &I| now.since(last(id.index())) <= self.within).collect();
        if present.is_empty() { all } else { present }
    }

    /// One of those present, of `near` if any of them is there; `turn` deals the work out. `None` when
    /// there are no instances at all.
    pub fn pick(&self, near: Set<I>, now: Instant, turn: u64) -> Option<I> {
        let present = self.present(now);
        let near = near.and(present);
        if near.is_empty() { present } else { near }.pick(turn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::ReplicaId;

    #[test]
    fn whoever_was_not_heard_of_lately_is_absent() {
        let mut presence = Presence::new(2, Duration::from_micros(10));
        presence.start(Instant(0));
        assert_eq!(presence.present(Instant(5)), Set::first(2));
        presence.heard(ReplicaId(1), Instant(5));
        presence.heard(ReplicaId(9), Instant(5));
        assert_eq!(presence.present(Instant(12)), Set::one(ReplicaId(1)));
        assert_eq!(presence.present(Instant(99)), Set::first(2));
        let near = Set::one(ReplicaId(0));
        assert_eq!(presence.pick(near, Instant(12), 0), Some(ReplicaId(1)), "the near one is absent");
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
}
