//! When to suspect a leader, and how to make sure before deposing it.
//!
//! A leader sends a heartbeat to the other leaders and to the acceptors in every
//! [interval](ionian_kernel::layout::Options::heartbeat). A leader that receives none during its
//! own, randomised, timeout does not start a round at once: it asks the acceptors first. Each is a
//! [`Witness`]; the leader is deposed only when a whole read quorum of them has not received its
//! heartbeats either. So one node with a bad link cannot depose a healthy leader, and when the
//! leader has really failed, the acceptors that agree are those that phase 1 needs.

use crate::backoff::doubled;
use ionian_kernel::random::Random;
use ionian_kernel::time::{Duration, Instant};

/// Each of this many failed elections in a row doubles the timeout; those after them do not.
const MOST_DOUBLINGS: u32 = 4;

/// After this many timeouts, of the doubled length, without another wrong suspicion one fewer is
/// counted. That is far longer than a timeout: on a machine that is busy now and then the timer
/// stays long between two busy times.
const REMEMBERED_FOR: u32 = 100;

/// Of this many leaders each waits for a random time between once and twice the timeout. Of more,
/// the random part is longer in proportion. So the first of n runs out after 1.2 times the timeout
/// on average, as with few leaders, and the second about a fifth of the timeout later: the first is
/// elected by then, however many there are. Otherwise the hundred leaders of a cluster of a
/// hundred nodes would stand at once, and each would ask every acceptor (PigPaxos, section 8.3).
const FEW: usize = 5;

/// Expires when the leader has been silent for too long.
#[derive(Clone, Debug)]
pub struct ElectionTimer {
    timeout: Duration,
    /// The longest random time beyond the timeout is this many timeouts.
    spread: u32,
    /// Elections of this leader since it last led, or last received a heartbeat.
    failures: u32,
    /// Suspicions that were [wrong](Self::too_short), and since when it is this number.
    wrong: u32,
    wrong_since: Instant,
    deadline: Instant,
    random: Random,
}

impl ElectionTimer {
    /// A stopped timer of one of `leaders`: of `timeout` up to twice that, more if they are many.
    pub fn new(timeout: Duration, leaders: usize, random: Random) -> Self {
        ElectionTimer {
            timeout,
            spread: spread(leaders),
            failures: 0,
            wrong: 0,
            wrong_since: Instant::ZERO,
            deadline: Instant::ZERO,
            random,
        }
    }

    /// Restarts it as that of one of `leaders` with this `timeout`, if that is a change.
    pub fn set_timeout(&mut self, now: Instant, timeout: Duration, leaders: usize) {
        let spread = spread(leaders);
        if (timeout, spread) != (self.timeout, self.spread) {
            (self.timeout, self.spread) = (timeout, spread);
            self.restart(now);
        }
    }

    /// Restarts the timer: another candidate goes first, or this election advances.
    pub fn restart(&mut self, now: Instant) {
        self.pardon(now);
        let timeout = self.doubled(self.failures + self.wrong);
        self.deadline = now
            + self
                .random
                .duration(timeout, timeout + self.spread * timeout);
    }

    /// A leader was heard of, or this one leads.
    pub fn settled(&mut self, now: Instant) {
        self.failures = 0;
        self.restart(now);
    }

    /// An election came to nothing though the acceptors wanted one: the next may take longer. On a
    /// machine that is too busy for the timeout elections would otherwise follow each other for
    /// ever.
    pub fn failed(&mut self) {
        self.failures += 1;
    }

    /// A leader was suspected, or must have been, that had not failed: a candidate receives a
    /// heartbeat of the leader that it wants to replace, or a leader finds that it has itself sent
    /// none for a timeout, because its process was not run. From now on this timer takes twice as
    /// long, up to 16 times as long.
    ///
    /// On a starved machine elections succeed, one after another, so counting failed ones does not
    /// help. Counting changes of leader would, but it takes a leader that is killed again and again
    /// for a busy one, and fail-over would become slower where the timeout is right. A leader that
    /// has failed counts here in no case. Each node learns from its own pauses only, and none has
    /// to know those of others: a starved one waits longer before it stands for election, and one
    /// that is not starved stands as early as before, and then leads.
    pub fn too_short(&mut self, now: Instant) {
        self.pardon(now);
        self.wrong = (self.wrong + 1).min(MOST_DOUBLINGS);
        self.wrong_since = now;
    }

    fn pardon(&mut self, now: Instant) {
        while self.wrong > 0 {
            let remembered = REMEMBERED_FOR * self.doubled(self.wrong);
            if now.since(self.wrong_since) < remembered {
                return;
            }
            self.wrong -= 1;
            self.wrong_since = self.wrong_since + remembered;
        }
    }

    fn doubled(&self, times: u32) -> Duration {
        doubled(self.timeout, times, MOST_DOUBLINGS)
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

fn spread(leaders: usize) -> u32 {
    leaders.div_ceil(FEW).max(1) as u32
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
        self.last_heard
            .is_none_or(|heard| now.since(heard) >= timeout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn timeouts_are_randomised_within_their_bounds() {
        let timeout = Duration::from_millis(100);
        let mut timer = ElectionTimer::new(timeout, 3, Random::new(3));
        let mut seen = alloc::collections::BTreeSet::new();
        for _ in 0..50 {
            timer.restart(Instant(0));
            let deadline = timer.deadline();
            assert!(deadline >= Instant(100_000) && deadline <= Instant(200_000));
            seen.insert(deadline);
        }
        assert!(seen.len() > 40);
    }

    /// The gap between the first two, and the time until the first, do not depend on how many there
    /// are.
    #[test]
    fn of_many_leaders_few_stand_at_the_same_time() {
        let timeout = Duration::from_millis(100);
        for leaders in [5, 25, 100, 300] {
            let (mut first, mut gap) = (0, 0);
            for trial in 0..200 {
                let seeds = (0..leaders as u64).map(|leader| trial * 1000 + leader);
                let mut deadlines: Vec<u64> = seeds
                    .map(|seed| {
                        let mut timer = ElectionTimer::new(timeout, leaders, Random::new(seed));
                        timer.restart(Instant(0));
                        timer.deadline().0
                    })
                    .collect();
                deadlines.sort();
                first += deadlines[0] / 200;
                gap += (deadlines[1] - deadlines[0]) / 200;
            }
            assert!((110_000..130_000).contains(&first), "{leaders}: {first}");
            assert!((10_000..30_000).contains(&gap), "{leaders}: {gap}");
        }
    }

    #[test]
    fn elections_that_come_to_nothing_are_given_more_time_up_to_a_limit() {
        let timeout = Duration::from_millis(100);
        let mut timer = ElectionTimer::new(timeout, 3, Random::new(3));
        for least in [100, 200, 400, 800, 1600, 1600] {
            timer.restart(Instant(0));
            assert!(
                (least..=2 * least).contains(&(timer.deadline().0 / 1000)),
                "{:?}",
                timer.deadline()
            );
            timer.failed();
        }
        timer.settled(Instant(0));
        assert!(timer.deadline() <= Instant(200_000));
    }

    #[test]
    fn suspicions_that_were_wrong_double_the_timeout_until_there_are_none_for_long() {
        let timeout = Duration::from_millis(100);
        let mut timer = ElectionTimer::new(timeout, 3, Random::new(3));
        let least = |timer: &mut ElectionTimer, second: u64| {
            let now = Instant(second * 1_000_000);
            timer.settled(now);
            let shortest =
                (0..5).find(|times| timer.deadline() <= now + 2 * (timeout * (1 << times)));
            shortest.expect("a timeout within the limit")
        };
        let mut seen = Vec::new();
        for _ in 0..6 {
            timer.too_short(Instant(0));
            seen.push(least(&mut timer, 0));
        }
        assert_eq!(seen, [1, 2, 3, 4, 4, 4]);
        // 160 s, 80 s, 40 s and 20 s.
        let seconds = [159, 161, 239, 241, 279, 281, 299, 301];
        let seen: Vec<_> = seconds.map(|second| least(&mut timer, second)).into();
        assert_eq!(seen, [4, 3, 3, 2, 2, 1, 1, 0]);
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
