//! How fast a disk syncs: which thread is to sync, and whether the node should not lead.

use std::time::{Duration, Instant};

/// A sync that takes this long holds up the event loop too long.
const LONG: Duration = Duration::from_millis(20);

/// After this many shorter ones in a row the event loop's thread syncs again.
const SHORT_RUN: u32 = 64;

/// A disk is slow that takes this long for [`SLOW_RUN`] syncs in a row.
const SLOW: Duration = Duration::from_millis(200);

/// See [`SLOW`].
const SLOW_RUN: u32 = 3;

/// A disk is slow that takes this long for one sync.
const HANGS: Duration = Duration::from_secs(1);

/// A disk stays slow until none of its syncs has taken [`SLOW`] for this long, so that leadership
/// does not go to and fro.
const STAYS: Duration = Duration::from_secs(30);

/// What the last syncs of a log took.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// How many syncs are still to be done by the log's thread.
    handed_off: u32,
    /// How many of the last syncs were slow.
    slow_run: u32,
    /// Until when the disk is slow.
    slow_until: Option<Instant>,
}

impl Pace {
    /// A sync has ended that took this long.
    pub(super) fn record(&mut self, now: Instant, took: Duration) {
        self.handed_off = match took >= LONG {
            true => SHORT_RUN,
            false => self.handed_off.saturating_sub(1),
        };
        self.slow_run = if took >= SLOW { self.slow_run + 1 } else { 0 };
        if self.slow_run >= SLOW_RUN || took >= HANGS || (took >= SLOW && self.is_slow(now, None)) {
            self.slow_until = Some(now + STAYS);
        }
    }

    /// Whether the log's thread is to sync, so that the event loop does not wait.
    pub(super) fn hands_off(&self) -> bool {
        self.handed_off > 0
    }

    /// Whether it has been slow at all, which needs no time to say.
    pub(super) fn was_slow(&self) -> bool {
        self.slow_until.is_some()
    }

    /// Whether the disk is slow; `began` is when the sync began that is in progress, if one is.
    pub(super) fn is_slow(&self, now: Instant, began: Option<Instant>) -> bool {
        hangs(now, began).is_some() || self.slow_until.is_some_and(|until| now < until)
    }
}

/// How long the sync has taken that began then, if it hangs.
pub(super) fn hangs(now: Instant, began: Option<Instant>) -> Option<Duration> {
    let takes = now.saturating_duration_since(began?);
    (takes >= HANGS).then_some(takes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_logs_thread_syncs_after_a_long_one_until_many_were_short() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        pace.record(now, LONG / 2);
        assert!(!pace.hands_off());
        pace.record(now, LONG);
        for _ in 0..SHORT_RUN {
            assert!(pace.hands_off());
            pace.record(now, LONG / 2);
        }
        assert!(!pace.hands_off());
    }

    #[test]
    fn a_disk_is_slow_after_some_slow_syncs_in_a_row_and_for_a_while() {
        let (mut pace, begin) = (Pace::default(), Instant::now());
        for took in [SLOW, SLOW, SLOW / 2, SLOW, SLOW] {
            pace.record(begin, took);
        }
        assert!(!pace.is_slow(begin, None));
        pace.record(begin, SLOW);
        assert!(pace.is_slow(begin, None));
        let (later, end) = (begin + STAYS / 2, begin + STAYS);
        pace.record(later, SLOW / 2);
        assert!(pace.is_slow(later, None) && !pace.is_slow(end, None));
        pace.record(later, SLOW);
        assert!(pace.is_slow(end, None) && !pace.is_slow(later + STAYS, None));
    }

    #[test]
    fn a_disk_is_slow_while_a_sync_hangs_and_after_it() {
        let (mut pace, begin) = (Pace::default(), Instant::now());
        let end = begin + HANGS;
        assert!(!pace.is_slow(end - LONG, Some(begin)) && pace.is_slow(end, Some(begin)));
        assert_eq!(hangs(end, Some(begin)), Some(HANGS));
        pace.record(end, HANGS);
        assert!(pace.is_slow(end, None));
    }
}
