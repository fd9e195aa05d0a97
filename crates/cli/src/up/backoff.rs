//! The delay before the next restart of a node.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(100);
/// For a node that was killed or crashed: it can probably run again.
const LONGEST: Duration = Duration::from_secs(5);
/// For a node that reports why it cannot run, for example because the disk is full: an operator
/// must act first, and each attempt may read a long log.
const LONGEST_AFTER_REFUSAL: Duration = Duration::from_secs(30);

/// After a run of this length the next delay is short again.
const GOOD_RUN: Duration = Duration::from_secs(10);

/// The delays of one node.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// The delay before the next start, after a run of this length, and whether it will not grow
    /// any more.
    pub(crate) fn after(&mut self, run: Duration, refused: bool) -> (Duration, bool) {
        if run >= GOOD_RUN {
            self.failures = 0;
        }
        let longest = if refused {
            LONGEST_AFTER_REFUSAL
        } else {
            LONGEST
        };
        let delay = FIRST
            .saturating_mul(1 << self.failures.min(16))
            .min(longest);
        self.failures += 1;
        (delay, delay == longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_to_a_limit_and_begins_anew_after_a_good_run() {
        let mut backoff = Backoff::default();
        let delays: Vec<u128> = (0..8)
            .map(|_| backoff.after(Duration::ZERO, false).0.as_millis())
            .collect();
        assert_eq!(delays, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(
            backoff.after(Duration::ZERO, true),
            (Duration::from_millis(25_600), false)
        );
        assert_eq!(
            backoff.after(Duration::ZERO, true),
            (LONGEST_AFTER_REFUSAL, true)
        );
        assert_eq!(backoff.after(GOOD_RUN, true), (FIRST, false));
    }
}
