//! When a leader that has lost its stripe takes it back.

use ionian_kernel::time::{Duration, Instant};

/// A leader that loses its stripe again and again waits longer each time, up to this multiple: the
/// leader that suspects it may have a reason, and each change costs a revocation.
const MOST_PATIENCE: u32 = 32;

/// A leader that has led for this multiple of the time that it waited is trusted again.
const TRUSTED_AFTER: u32 = 8;

/// See the top of this file.
pub(super) struct Returning {
    /// How long it waits at least: long enough to hear of the present leader.
    after: Duration,
    patience: u32,
    /// When it tries next; none while it leads.
    at: Option<Instant>,
    led_since: Option<Instant>,
}

impl Returning {
    pub(super) fn new(election_timeout: Duration) -> Self {
        Returning {
            after: election_timeout,
            patience: 1,
            at: None,
            led_since: None,
        }
    }

    /// From the next try on.
    pub(super) fn set_timeout(&mut self, election_timeout: Duration) {
        self.after = election_timeout;
    }

    /// It begins to lead its stripe, or leads no longer, because it was deposed or begins another
    /// round itself, or begins to live.
    pub(super) fn follow(&mut self, now: Instant, leads: bool, deposed: bool) {
        if leads {
            self.at = None;
            self.led_since.get_or_insert(now);
            return;
        }
        if let Some(since) = self.led_since.take_if(|_| deposed) {
            let trusted = now.since(since) > self.after * self.patience * TRUSTED_AFTER;
            self.patience = if trusted {
                1
            } else {
                (self.patience * 2).min(MOST_PATIENCE)
            };
        }
        self.try_again(now);
    }

    /// It has become the leader of another stripe, which it takes at once; `leads` if it leads it
    /// already. Or of none.
    pub(super) fn begin(&mut self, now: Instant, leads: Option<bool>) {
        let at = leads.filter(|leads| !leads).map(|_| now);
        let led_since = leads.filter(|leads| *leads).map(|_| now);
        *self = Returning {
            at,
            led_since,
            ..Returning::new(self.after)
        };
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

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_millis(400);

    #[test]
    fn one_that_is_deposed_soon_waits_twice_as_long_and_one_that_begins_a_round_itself_does_not() {
        let at = |ms: u64| Instant(1000 * ms);
        let mut returning = Returning::new(TIMEOUT);
        returning.follow(at(0), false, false);
        assert!(!returning.is_due(at(399)) && returning.is_due(at(400)));
        returning.follow(at(500), true, false);
        // It begins a round to admit an acceptor.
        returning.follow(at(600), false, false);
        assert_eq!(returning.next_timer(), Some(at(1000)));
        returning.follow(at(650), true, false);
        assert_eq!(returning.next_timer(), None);
        returning.follow(at(1000), false, true);
        assert_eq!(returning.next_timer(), Some(at(1800)), "deposed soon");
        returning.follow(at(2000), true, false);
        returning.follow(at(9000), false, true);
        assert_eq!(returning.next_timer(), Some(at(9400)), "trusted anew");
    }
}
