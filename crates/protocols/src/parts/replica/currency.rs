//! Until when a replica counts as one that holds what is chosen.
//!
//! What was chosen before a heartbeat of the leader arrives, a replica knows of an interval of
//! heartbeats later: the values were under way, or the leader says in the next heartbeat how far
//! others are. When the replica has executed what it knows of by then, it had at the time of the
//! first heartbeat, or has since, all that was chosen.

use ionian_kernel::id::Slot;
use ionian_kernel::layout::Options;
use ionian_kernel::time::{Duration, Instant};

/// A replica that had all that was chosen counts as one that holds it for so long, and for some
/// heartbeats more: at most the last seconds are missing, and peers and acceptors still have those.
const CURRENT_FOR: Duration = Duration::from_secs(5);
const HEARTBEATS: u32 = 10;

/// Until when a replica counts as current that is known to have had at `at` all that was chosen;
/// zero for zero, which is never.
pub(crate) fn current_until(at: Instant, options: &Options) -> Instant {
    match at {
        Instant::ZERO => Instant::ZERO,
        at => at + CURRENT_FOR + options.heartbeat * HEARTBEATS,
    }
}

/// See the top of this file.
#[derive(Default)]
pub(super) struct Currency {
    /// When it is known to have had all that was chosen; zero if not since it was started.
    at: Instant,
    /// The heartbeat that is looked at, and where the log ended by the next one.
    begun: Option<Instant>,
    end: Option<Slot>,
}

impl Currency {
    /// A leader is there, and as far as the replica knows the log ends before `end`.
    pub(super) fn on_heartbeat(&mut self, now: Instant, interval: Duration, end: Slot) {
        match self.begun {
            None => self.begun = Some(now),
            Some(begun) if self.end.is_none() && now >= begun + interval => self.end = Some(end),
            Some(_) => {}
        }
    }

    /// The replica has executed all slots below this one.
    pub(super) fn executed(&mut self, executed: Slot) {
        if let Some(begun) = self.begun
            && self.end.is_some_and(|end| executed >= end)
        {
            self.at = begun;
            (self.begun, self.end) = (None, None);
        }
    }

    /// Until when it counts as current.
    pub(super) fn until(&self, options: &Options) -> Instant {
        current_until(self.at, options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_is_current_when_it_has_executed_what_it_knows_of_a_heartbeat_later() {
        let (options, interval) = (Options::default(), Duration::from_micros(100));
        let mut currency = Currency::default();
        currency.executed(Slot(9));
        assert_eq!(currency.until(&options), Instant::ZERO, "no heartbeat");
        currency.on_heartbeat(Instant(1000), interval, Slot(0));
        currency.executed(Slot(9));
        assert_eq!(currency.until(&options), Instant::ZERO, "one heartbeat");
        // That of another leader, of another part of the log.
        currency.on_heartbeat(Instant(1001), interval, Slot(0));
        currency.executed(Slot(9));
        assert_eq!(currency.until(&options), Instant::ZERO, "one interval");
        currency.on_heartbeat(Instant(1100), interval, Slot(20));
        currency.on_heartbeat(Instant(1200), interval, Slot(30));
        currency.executed(Slot(19));
        assert_eq!(currency.until(&options), Instant::ZERO, "slots are missing");
        currency.executed(Slot(20));
        let current = Instant(1000) + CURRENT_FOR + options.heartbeat * HEARTBEATS;
        assert_eq!(currency.until(&options), current);
        currency.executed(Slot(99));
        assert_eq!(currency.until(&options), current, "no leader says more");
    }
}
