//! Proxy leaders that say that they live and get nothing chosen: one that is not reached by what a
//! leader or the acceptors send it is still heard. Each slot that it is given holds up execution
//! until the slot is handed over, so after two of these it is given none for a while, and after
//! each further one for twice as long. (The paper, 3.1, takes proxy leaders for alive or dead.)
//!
//! Where slots take as long with each of them it is none's fault: a disk is slow, or a quorum far
//! away. So a slot counts only if others were prompt since the last one that did. Else a few slow
//! seconds would leave one proxy leader of many with all the work for minutes. And one on the
//! leader's node is not judged: it reaches, and is reached by, the same nodes as the leader.

use ionian_kernel::id::{ProxyLeaderId, Set};
use ionian_kernel::small_map::SmallMap;
use ionian_kernel::time::{Duration, Instant};
use ionian_replication::backoff::doubled;

/// This number of slots in succession, each the lowest that was not executed, make a proxy leader a
/// failing one. One may be a lost message.
const SLOTS: u32 = 2;

/// For how long it is given no slots, the first time.
const FIRST: Duration = Duration::from_secs(2);

/// How often that doubles: up to two minutes.
const DOUBLES: u32 = 6;

/// See the top of this file.
#[derive(Default)]
pub(super) struct Failing {
    failures: SmallMap<ProxyLeaderId, Failures>,
    /// How many slots were executed promptly, after they were given to a proxy leader first or
    /// again.
    prompt: u64,
}

#[derive(Default)]
struct Failures {
    /// Slots in succession.
    slots: u32,
    /// How many slots had been executed promptly by the last of them.
    prompt: u64,
    /// It is given no slots before this time.
    until: Instant,
}

impl Failing {
    /// The membership has changed.
    pub(super) fn reconfigure(&mut self, all: Set<ProxyLeaderId>) {
        self.failures.retain(|id, _| all.contains(*id));
    }

    /// A slot that `id` had was executed without having been handed over.
    pub(super) fn succeeded(&mut self, id: ProxyLeaderId) {
        self.prompt += 1;
        if !self.failures.is_empty() {
            self.failures.remove(&id);
        }
    }

    /// A slot was executed soon after it was handed over.
    pub(super) fn another_succeeded(&mut self) {
        self.prompt += 1;
    }

    /// A slot that `id` had, and for which all others waited, is handed over.
    pub(super) fn failed(&mut self, id: ProxyLeaderId, now: Instant) {
        let prompt = self.prompt;
        let failures = self.failures.entry(id).or_default();
        let all_are_slow = failures.slots > 0 && failures.prompt == prompt;
        if all_are_slow || now < failures.until {
            return;
        }
        failures.prompt = prompt;
        failures.slots = failures.slots.saturating_add(1);
        if let Some(times) = failures.slots.checked_sub(SLOTS) {
            failures.until = now + doubled(FIRST, times, DOUBLES);
        }
    }

    /// Those of `present` that are given slots. If all are failing, the fault is elsewhere, and all
    /// get slots again.
    pub(super) fn among(
        &mut self,
        present: Set<ProxyLeaderId>,
        now: Instant,
    ) -> Set<ProxyLeaderId> {
        if self.failures.is_empty() {
            return present;
        }
        let failing = self
            .failures
            .iter()
            .filter(|(_, failures)| now < failures.until)
            .map(|(id, _)| *id)
            .collect();
        let able = present.without(failing);
        if able.is_empty() {
            self.failures
                .values_mut()
                .for_each(|failures| failures.until = now);
            return present;
        }
        able
    }

    /// How many are given no slots, or were the last time that they were to show what they can do.
    pub(super) fn len(&self) -> usize {
        self.failures
            .values()
            .filter(|failures| failures.slots >= SLOTS)
            .count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const A: ProxyLeaderId = ProxyLeaderId(0);
    const B: ProxyLeaderId = ProxyLeaderId(1);

    fn at(ms: u64) -> Instant {
        Instant(ms * 1000)
    }

    /// A slot takes long with this one, and another takes it over.
    fn fails(failing: &mut Failing, id: ProxyLeaderId, now: Instant) {
        failing.failed(id, now);
        failing.another_succeeded();
    }

    #[test]
    fn one_slot_is_an_accident_and_two_are_not() {
        let mut failing = Failing::default();
        fails(&mut failing, A, at(0));
        assert_eq!(
            (failing.among(Set::first(2), at(0)), failing.len()),
            (Set::first(2), 0)
        );
        failing.succeeded(A);
        fails(&mut failing, A, at(1));
        assert_eq!(failing.among(Set::first(2), at(1)), Set::first(2));
        fails(&mut failing, A, at(2));
        assert_eq!(
            (failing.among(Set::first(2), at(2)), failing.len()),
            (Set::one(B), 1)
        );
        // What it was given before counts no more.
        fails(&mut failing, A, at(3));
        assert_eq!(failing.among(Set::first(2), at(2001)), Set::one(B));
        assert_eq!(failing.among(Set::first(2), at(2002)), Set::first(2));
    }

    #[test]
    fn it_is_left_alone_for_twice_as_long_each_time_up_to_a_limit() {
        let (mut failing, mut now, mut waits) = (Failing::default(), 0, Vec::new());
        fails(&mut failing, A, at(now));
        for _ in 0..9 {
            fails(&mut failing, A, at(now));
            let back = (0..)
                .step_by(1000)
                .find(|ms| failing.among(Set::first(2), at(now + ms)) == Set::first(2))
                .unwrap();
            now += back;
            waits.push(back / 1000);
        }
        assert_eq!(waits, [2, 4, 8, 16, 32, 64, 128, 128, 128]);
        failing.succeeded(A);
        assert_eq!(failing.len(), 0);
    }

    #[test]
    fn when_all_fail_all_are_given_slots_again() {
        let mut failing = Failing::default();
        for id in [A, A, B, B] {
            fails(&mut failing, id, at(0));
        }
        assert_eq!(failing.among(Set::first(2), at(0)), Set::first(2));
        // The next one that fails is the one at fault.
        fails(&mut failing, A, at(1));
        assert_eq!(failing.among(Set::first(2), at(1)), Set::one(B));
        // One that is absent does not count among those that are able.
        assert_eq!(failing.among(Set::one(A), at(2)), Set::one(A));
        failing.reconfigure(Set::one(B));
        assert_eq!(failing.len(), 1);
    }

    #[test]
    fn where_all_are_slow_none_fails() {
        let (mut failing, both) = (Failing::default(), Set::first(2));
        for ms in 0..100 {
            failing.failed(A, at(ms));
            failing.failed(B, at(ms));
        }
        assert_eq!((failing.among(both, at(100)), failing.len()), (both, 0));
        // One of them is prompt again, and the other is not.
        failing.succeeded(B);
        failing.failed(A, at(100));
        assert_eq!(
            (failing.among(both, at(100)), failing.len()),
            (Set::one(B), 1)
        );
    }
}
