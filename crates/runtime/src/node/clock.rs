//! The time that roles receive.

use ionian_kernel::time::Instant;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Unix time at the start of the node, continued by the monotonic clock: it never goes back, even
/// if the wall clock does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    started: std::time::Instant,
    started_us: u64,
}

impl Clock {
    /// `ahead_ms` is added to the wall clock, for tests.
    pub(crate) fn start(ahead_ms: i64) -> Self {
        let unix = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let ahead_us = ahead_ms.saturating_mul(1000);
        let started_us = (unix.as_micros() as u64).saturating_add_signed(ahead_us);
        Clock {
            started: std::time::Instant::now(),
            started_us,
        }
    }

    pub(crate) fn now(&self) -> Instant {
        Instant(self.started_us + self.uptime().as_micros() as u64)
    }

    pub(crate) fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// When the monotonic clock will show `time`. A time that is too far away is cut to a day: the
    /// sleeper then wakes once too early.
    pub(crate) fn at(&self, time: Instant) -> std::time::Instant {
        let ahead = time.since(self.now()).min(Duration::from_secs(86_400));
        match ahead.is_zero() {
            true => std::time::Instant::now(),
            false => {
                let offset = Duration::from_micros(time.0.saturating_sub(self.started_us));
                self.started
                    .checked_add(offset)
                    .unwrap_or_else(|| std::time::Instant::now() + ahead)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_reaches_a_time_no_later_than_its_deadline() {
        let clock = Clock::start(0);
        let target = clock.now() + Duration::from_millis(3);
        let wake = clock.at(target);
        while std::time::Instant::now() < wake {
            std::hint::spin_loop();
        }
        assert!(
            clock.now() >= target,
            "woken before its time, a sleeper would spin"
        );
        assert!(clock.now() < target + Duration::from_secs(5));
        assert!(clock.at(Instant(0)) <= std::time::Instant::now());
        clock.at(Instant(u64::MAX));
    }

    #[test]
    fn a_clock_can_be_misread() {
        let right = Clock::start(0).now();
        let (ahead, behind) = (
            Clock::start(86_400_000).now(),
            Clock::start(-86_400_000).now(),
        );
        assert!(ahead.since(right) >= Duration::from_secs(86_400));
        assert!(right.since(behind) >= Duration::from_secs(86_399));
        assert_eq!(Clock::start(i64::MIN).started_us, 0);
    }
}
