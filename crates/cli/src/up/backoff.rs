//! How long to wait before a node is started again.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);

/// A node that ran this long had nothing lasting against running.
const GOOD_RUN: Duration = Duration::from_secs(10);

/// The delays of one node.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// The delay before the next start, after a run of this length.
    pub(crate) fn after(&mut self, run: Duration) -> Duration {
        if run >= GOOD_RUN {
            self.failures = 0;
        }
        let delay = FIRST.saturating_mul(1 << self.failures.min(16)).min(LONGEST);
        self.failures += 1;
        delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_to_a_limit_and_begins_anew_after_a_good_run() {
        let mut backoff = Backoff::default();
        let delays: Vec<u128> = (0..8).map(|_| backoff.after(Duration::ZERO).as_millis()).collect();
        assert_eq!(delays, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(backoff.after(GOOD_RUN), FIRST);
    }
}
