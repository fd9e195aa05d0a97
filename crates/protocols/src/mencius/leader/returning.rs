//! When a leader that has lost its stripe takes it back.

use ionian_kernel::time::{Duration, Instant};

/// A leader that loses its stripe again and again waits up to so many times longer each time: whoever suspects it may
/// have a reason, and every change costs all a revocation.
const MOST_PATIENCE: u32 = 32;

/// Whoever has led for so many times as long as it waited is trusted anew.
const TRUSTED_AFTER: u32 = 8;

/// See the top of this file.
pub(super) struct Returning {
    /// How long it waits at least: long enough to hear of whoever leads.
    after: Duration,
    patience: u32,
    /// When it tries next; none while it leads.
    at: Option<Instant>,
    led_since: Option<Instant>,
}

impl Returning {
    pub(super) fn new(election_timeout: Duration) -> Self {
        Returning { after: election_timeout, patience: 1, at: None, led_since: None }
    }

    /// From the next try on.
    pub(super) fn set_timeout(&mut self, election_timeout: Duration) {
        self.after = election_timeout;
    }

    /// It begins to lead its stripe, or is deposed, or begins to live.
    pub(super) fn follow(&mut self, now: Instant, leads: bool) {
        if leads {
            (self.at, self.led_since) = (None, Some(now));
            return;
        }
        if let Some(since) = self.led_since.take() {
            let trusted = now.since(since) > self.after * self.patience * TRUSTED_AFTER;
            self.patience = if trusted { 1 } else { (self.patience * 2).min(MOST_PATIENCE) };
        }
        self.try_again(now);
    }

    /// Whether it is time to take the stripe back.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.at.is_some_and(|at| at <= now)
    }

    /// It tries; if that fails, then again.
    pub(super) fn try_again(&mut self, now: Instant) {
        self.at = Some(now + self.after * self.patience);
    }

    pub(super) fn next_timer(&self) -> Option<Instant> {
        self.at
    }
}
