//! When to suspect a leader, and how to make sure before deposing it.
//!
//! Leaders say that they live every [`heartbeat`](crate::layout::Options::heartbeat), to the other
//! leaders and to the acceptors. A leader that hears nothing for its own, randomised, timeout does not
//! start a round at once: it asks the acceptors first. Each is a [`Witness`]; only when a whole read
//! quorum of them has not heard of the leader either is it deposed. So one node with a bad link cannot
//! depose a healthy leader, and with the leader really gone the very acceptors that it needs for phase
//! 1 are the ones that agree.

use crate::random::Random;
use crate::time::{Duration, Instant};

/// Runs down while the leader is silent.
#[derive(Clone, Debug)]
pub struct ElectionTimer {
    timeout: Duration,
    deadline: Instant,
    random: Random,
}

impl ElectionTimer {
    /// A timer of `timeout` up to twice that, stopped.
    pub fn new(timeout: Duration, random: Random) -> Self {
        ElectionTimer { timeout, deadline: Instant::ZERO, random }
    }

    /// The leader was heard of, or somebody else is to have a try first.
    pub fn restart(&mut self, now: Instant) {
        self.deadline = now + self.random.duration(self.timeout, 2 * self.timeout);
    }

    /// Lets the timer run out after `delay` once: for the first election of a new cluster.
    pub fn hasten(&mut self, now: Instant, delay: Duration) {
        self.deadline = now + delay;
    }

    /// When it runs out.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }
}

/// Remembers when a leader was last heard of, to testify to a candidate.
#[derive(Clone, Debug, Default)]
pub struct Witness {
    last_heard: Option<Instant>,
}

impl Witness {
    /// A leader was heard of.
    pub fn heard(&mut self, now: Instant) {
        self.last_heard = Some(now);
    }

    /// Whether no leader was heard of for `timeout`.
    pub fn leader_is_gone(&self, now: Instant, timeout: Duration) -> bool {
        self.last_heard.is_none_or(|heard| now.since(heard) >= timeout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_randomised_within_their_bounds() {
        let timeout = Duration::from_millis(100);
        let mut timer = ElectionTimer::new(timeout, Random::new(3));
        let mut seen = alloc::collections::BTreeSet::new();
        for _ in 0..50 {
            timer.restart(Instant(0));
            let deadline = timer.deadline();
            assert!(deadline >= Instant(100_000) && deadline <= Instant(200_000));
            seen.insert(deadline);
        }
        assert!(seen.len() > 40);
    }

    #[test]
    fn a_witness_who_heard_the_leader_speaks_for_it() {
        let timeout = Duration::from_millis(100);
        let mut witness = Witness::default();
        assert!(witness.leader_is_gone(Instant(0), timeout));
        witness.heard(Instant(0));
        assert!(!witness.leader_is_gone(Instant(99_999), timeout));
        assert!(witness.leader_is_gone(Instant(100_000), timeout));
    }
}
