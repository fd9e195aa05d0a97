//! The time that a leader stamps into the log: its own clock, held against those of the other
//! nodes.
//!
//! Of f+1 nodes one has a right clock. So of all clocks that this leader knows the (f+1)st highest
//! is not ahead of every right one, and where it knows those of 2f+1 nodes it is not behind every
//! right one either. Further than [`SLACK`] from that clock it does not believe its own. It knows
//! the clocks of a read quorum before it stamps anything, for they come with the promises of phase
//! 1, and later those of replicas, with what they report.
//!
//! Time in the log never falls. Where it has run ahead all the same, it goes on at half the speed
//! until the clocks have caught up: what is to expire late expires, and none has to wait without
//! end (decision 0023).

use crate::multipaxos::config::Config;
use alloc::vec::Vec;
use ionian_kernel::layout::NodeId;
use ionian_kernel::small_map::SmallMap;
use ionian_kernel::time::{Duration, Instant, Timestamp};

/// How far a leader's clock may be from that of the others before it is corrected. Messages take
/// their time, and what a node shows is old when it is heard of; between machines with NTP it is
/// milliseconds.
const SLACK: i64 = 500;

/// How long what a node has shown counts, up to twice as long while it goes on showing: of that the
/// largest is the nearest to the truth, for it was under way for the shortest time.
const COUNTS_FOR: Duration = Duration::from_secs(10);

/// Log time that is ahead of the clock advances at 1/SLOWED of its speed.
const SLOWED: u64 = 2;

/// See the top of this file.
pub(crate) struct LogClock {
    node: NodeId,
    f: usize,
    /// By how many milliseconds the clocks of other nodes are ahead of this one.
    others: SmallMap<NodeId, Shown>,
    /// What follows from them: by how many milliseconds its own clock is corrected. Known
    /// beforehand, for every proposal asks.
    correction_ms: i64,
    /// The largest stamp that is known.
    stamped: Timestamp,
    /// The largest that some replica has executed.
    executed: Timestamp,
    /// From when on, and from which time on, it goes on slowly, if it has run ahead.
    ahead: (Instant, Timestamp),
}

struct Shown {
    since: Instant,
    ahead: i64,
    ahead_before: i64,
}

impl LogClock {
    /// The clock of a leader on `node`, of whose cluster `f` nodes may have wrong clocks.
    pub(crate) fn new(node: NodeId, f: usize) -> Self {
        let ahead = (Instant::ZERO, Timestamp(0));
        LogClock {
            node,
            f,
            others: SmallMap::new(),
            correction_ms: 0,
            stamped: Timestamp(0),
            executed: Timestamp(0),
            ahead,
        }
    }

    /// The membership has changed. The clock of a node that has left says nothing: it may have left
    /// because it was wrong, and would count among the f of those that stay.
    pub(crate) fn reconfigure(&mut self, config: &Config) {
        let nodes = config.layout().nodes();
        self.others.retain(|node, _| nodes.contains(node));
        self.f = most_wrong(config);
        self.correct();
    }

    /// What the clock of a node shows.
    pub(crate) fn hear(&mut self, now: Instant, node: NodeId, clock: Timestamp) {
        if node == self.node || clock == Timestamp(0) {
            return;
        }
        let ahead = (clock.0.min(i64::MAX as u64) as i64).saturating_sub(now.timestamp().0 as i64);
        let shown = self.others.entry(node).or_insert(Shown {
            since: now,
            ahead,
            ahead_before: ahead,
        });
        if now.since(shown.since) >= COUNTS_FOR {
            *shown = Shown {
                since: now,
                ahead,
                ahead_before: shown.ahead,
            };
        }
        shown.ahead = shown.ahead.max(ahead);
        self.correct();
    }

    /// The log has got to this time.
    pub(crate) fn learn(&mut self, now: Instant, time: Timestamp) {
        if time > self.read(now) {
            self.ahead = (now, time);
        }
        self.stamped = self.stamped.max(time);
    }

    /// Some replica has executed the log up to this time.
    pub(crate) fn executed(&mut self, now: Instant, time: Timestamp) {
        self.learn(now, time);
        self.executed = self.executed.max(time);
    }

    fn correct(&mut self) {
        let others = self
            .others
            .values()
            .map(|shown| shown.ahead.max(shown.ahead_before));
        let mut all: Vec<i64> = core::iter::once(0).chain(others).collect();
        all.sort_unstable_by(|a, b| b.cmp(a));
        let nearest = all[self.f.min(all.len() - 1)];
        self.correction_ms = 0.clamp(nearest.saturating_sub(SLACK), nearest.saturating_add(SLACK));
    }

    /// By how many milliseconds its own clock is corrected.
    pub(crate) fn correction_ms(&self) -> i64 {
        self.correction_ms
    }

    /// What it would stamp now.
    pub(crate) fn read(&self, now: Instant) -> Timestamp {
        let clock = Timestamp(now.timestamp().0.saturating_add_signed(self.correction_ms));
        let (since, time) = self.ahead;
        let slowed = Timestamp(
            time.0
                .saturating_add(now.since(since).as_millis() as u64 / SLOWED),
        );
        if time > Timestamp(0) {
            clock.max(slowed)
        } else {
            clock
        }
    }

    /// Stamps.
    pub(crate) fn stamp(&mut self, now: Instant) -> Timestamp {
        let time = self.read(now);
        if time < self.stamped {
            // It was corrected: from here on slowly.
            self.ahead = (now, self.stamped);
        }
        self.stamped = self.stamped.max(time);
        self.stamped
    }

    /// Whether it is time to give the log the time `deadline`, and nothing `under_way` does. What
    /// was stamped in an earlier round may never be chosen.
    pub(crate) fn is_due(&self, now: Instant, deadline: Timestamp, under_way: bool) -> bool {
        let is_stamped = under_way && self.stamped >= deadline;
        self.read(now) >= deadline && self.executed < deadline && !is_stamped
    }
}

/// How many clocks may be wrong: while the membership is changing, the larger number of the two
/// configurations.
pub(super) fn most_wrong(config: &Config) -> usize {
    config
        .keepers
        .iter()
        .map(|(_, f)| *f)
        .max()
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use ionian_kernel::layout::{Layout, numbered};

    const DAY: u64 = 86_400_000;
    const NOON: u64 = 1_800_000_000_000;

    /// A leader on node 0 whose clock is `ahead` of noon by this many milliseconds, and the moment
    /// at which true time is `ms` after noon.
    fn leader(ahead: i64) -> (LogClock, impl Fn(u64) -> Instant) {
        let nodes: Vec<NodeId> = (0..3).map(NodeId).collect();
        let layout = Layout {
            f: 1,
            instances: numbered(vec![nodes; 8]),
            ..Layout::default()
        };
        let config = Config::new(layout).expect("a deployment");
        (LogClock::new(NodeId(0), most_wrong(&config)), move |ms| {
            Instant((NOON + ms).saturating_add_signed(ahead) * 1000)
        })
    }

    fn after_noon(time: Timestamp) -> i64 {
        time.0 as i64 - NOON as i64
    }

    #[test]
    fn a_clock_that_is_a_day_off_is_held_to_those_of_the_others() {
        for (ahead, stamped) in [
            (DAY as i64, SLACK),
            (-(DAY as i64), -SLACK),
            (300, 300),
            (-300, -300),
            (0, 0),
        ] {
            let (mut clock, at) = leader(ahead);
            clock.hear(at(0), NodeId(1), Timestamp(NOON));
            clock.hear(at(0), NodeId(2), Timestamp(NOON));
            assert_eq!(after_noon(clock.stamp(at(0))), stamped);
            assert_eq!(after_noon(clock.stamp(at(1000))), stamped + 1000);
        }
    }

    #[test]
    fn with_f_nodes_wrong_one_that_is_right_decides() {
        // Its own is right, and one of the others wrong.
        for wrong in [NOON + DAY, NOON - DAY] {
            let (mut clock, at) = leader(0);
            clock.hear(at(0), NodeId(1), Timestamp(wrong));
            clock.hear(at(0), NodeId(2), Timestamp(NOON));
            assert_eq!(after_noon(clock.stamp(at(0))), 0);
        }
        // Of two clocks neither can be known to be right: the one that is not ahead counts.
        let (mut clock, at) = leader(DAY as i64);
        clock.hear(at(0), NodeId(1), Timestamp(NOON));
        assert_eq!(after_noon(clock.stamp(at(0))), SLACK);
        let (mut clock, at) = leader(0);
        clock.hear(at(0), NodeId(1), Timestamp(NOON + DAY));
        assert_eq!(after_noon(clock.stamp(at(0))), 0);
    }

    #[test]
    fn of_what_a_node_shows_the_quickest_message_counts_and_old_ones_do_not() {
        let (mut clock, at) = leader(DAY as i64);
        for (ms, shown) in [(0, 0), (3000, 1000), (4000, 4000)] {
            clock.hear(at(ms), NodeId(1), Timestamp(NOON + shown));
        }
        assert_eq!(clock.correction_ms(), SLACK - DAY as i64);
        // The other was started again, with its clock set an hour back.
        for ms in [10_000, 20_000, 30_000] {
            clock.hear(at(ms), NodeId(1), Timestamp(NOON + ms - 3_600_000));
        }
        assert_eq!(clock.correction_ms(), SLACK - DAY as i64 - 3_600_000);
        // An instance on its own node says nothing, nor does one without a clock.
        let before = clock.correction_ms();
        clock.hear(at(30_000), NodeId(0), Timestamp(NOON));
        clock.hear(at(30_000), NodeId(2), Timestamp(0));
        assert_eq!(clock.correction_ms(), before);
    }

    #[test]
    fn time_that_ran_ahead_goes_on_slowly_until_the_clocks_have_caught_up() {
        let (mut clock, at) = leader(0);
        clock.hear(at(0), NodeId(1), Timestamp(NOON));
        clock.hear(at(0), NodeId(2), Timestamp(NOON));
        clock.learn(at(0), Timestamp(NOON + 10_000));
        assert_eq!(after_noon(clock.stamp(at(0))), 10_000);
        // However often it is asked: no time is lost by rounding.
        for ms in 1..=1000 {
            clock.stamp(at(ms));
        }
        assert_eq!(after_noon(clock.stamp(at(1000))), 10_500);
        assert_eq!(after_noon(clock.stamp(at(20_000))), 20_000);
        assert_eq!(after_noon(clock.stamp(at(21_000))), 21_000);
        // What the log is known to have got to meanwhile makes it no faster.
        clock.learn(at(21_000), Timestamp(NOON + 5_000));
        assert_eq!(after_noon(clock.stamp(at(22_000))), 22_000);
    }

    #[test]
    fn a_correction_makes_time_slow_and_never_go_back() {
        let (mut clock, at) = leader(DAY as i64);
        // Alone it knows no better.
        assert_eq!(after_noon(clock.stamp(at(0))), DAY as i64);
        clock.hear(at(0), NodeId(1), Timestamp(NOON));
        assert_eq!(after_noon(clock.stamp(at(0))), DAY as i64);
        assert_eq!(after_noon(clock.stamp(at(2000))), DAY as i64 + 1000);
        assert_eq!(after_noon(clock.stamp(at(3000))), DAY as i64 + 1500);
    }

    /// Its proposal was lost with the round, and no other came: what expires then never did.
    #[test]
    fn what_was_stamped_in_an_earlier_round_does_not_stand_for_the_time() {
        let (mut clock, at) = leader(0);
        let stamped = clock.stamp(at(1000));
        assert_eq!(stamped, Timestamp(NOON + 1000));
        let deadline = Timestamp(NOON + 500);
        assert!(!clock.is_due(at(400), deadline, false), "it is too early");
        assert!(!clock.is_due(at(2000), deadline, true), "it is under way");
        assert!(clock.is_due(at(2000), deadline, false));
        clock.executed(at(2000), stamped);
        assert!(!clock.is_due(at(2000), deadline, false), "it is executed");
    }
}
