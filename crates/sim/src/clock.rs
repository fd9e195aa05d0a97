//! A node's clock: off by a constant, and running slightly fast or slow.

use crate::event::Micros;
use ionian_kernel::time::{Instant, Timestamp};

/// What a correct clock shows at the start of a run: some time in 2026.
const START: u64 = 1_767_225_600_000_000;

/// Converts simulated time to a node's time, and back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// Ahead of the correct time by this much.
    pub(crate) ahead: Micros,
    /// Runs fast by this many millionths; never slower than -500,000.
    pub(crate) drift_ppm: i64,
}

impl Clock {
    /// The node's time at `now`.
    pub(crate) fn read(&self, now: Micros) -> Instant {
        let drift = i128::from(now) * i128::from(self.drift_ppm) / 1_000_000;
        Instant(START + self.ahead + (i128::from(now) + drift) as u64)
    }

    /// The first time at which the node's clock shows `local` or more.
    pub(crate) fn when(&self, local: Instant) -> Micros {
        let elapsed = local.0.saturating_sub(START + self.ahead);
        let estimate = i128::from(elapsed) * 1_000_000 / i128::from(1_000_000 + self.drift_ppm);
        let mut at = (estimate as u64).saturating_sub(1);
        while self.read(at) < local {
            at += 1;
        }
        at
    }
}

/// How far the log's time may be ahead of the clock that it is compared with: half a second by
/// design, plus the error of a measurement that is some tens of seconds old, between two drifting
/// clocks.
const LEEWAY_MS: u64 = 3000;

/// Checks the time in the log. It may be ahead of a correct clock by at most that much, whichever f
/// of the nodes have wrong clocks (decision 23): of any f+1 clocks one is correct, so it is
/// compared with the (f+1)st highest.
pub(crate) fn check_time(
    time: Timestamp,
    now: Micros,
    clocks: impl Iterator<Item = Clock>,
    f: usize,
) -> Result<(), String> {
    let mut shown: Vec<Timestamp> = clocks.map(|clock| clock.read(now).timestamp()).collect();
    shown.sort_unstable_by(|a, b| b.cmp(a));
    let Some(right) = shown.get(f.min(shown.len().saturating_sub(1))) else {
        return Ok(());
    };
    match time.0 > right.0 + LEEWAY_MS {
        true => Err(format!(
            "the log's time is {}, and only {f} nodes have a clock that shows more than {}",
            time.0, right.0
        )),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_is_due_when_its_clock_says_so_and_not_before() {
        for (ahead, drift_ppm) in [
            (0, 0),
            (7_000_000, 900),
            (5, -900),
            (0, 40_000),
            (0, -40_000),
        ] {
            let clock = Clock { ahead, drift_ppm };
            for now in [0, 1, 17, 999_999, 1_000_000, 77_777_777] {
                let local = clock.read(now);
                let at = clock.when(local);
                assert!(at <= now && clock.read(at) >= local, "{clock:?} at {now}");
                assert!(at == 0 || clock.read(at - 1) < local);
            }
        }
    }
}
