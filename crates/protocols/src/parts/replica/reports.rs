//! When a replica tells the leaders how far it has executed. It makes room in a leader's window, of
//! slots and of bytes.

use crate::multipaxos::config::Config;
use alloc::sync::Arc;
use ionian_kernel::id::Slot;
use ionian_kernel::time::{Duration, Instant};
use ionian_replication::suspicion::ALIVE_EVERY;

/// A replica reports how far it is after this number of slots, after this part of the bytes that a
/// leader may have under way, and this long after it has executed something. Without news it
/// reports as often as others send heartbeats.
const REPORT_SLOTS: u64 = 64;
const WINDOW_PART: usize = 4;
const REPORT_AFTER: Duration = Duration::from_millis(10);

/// Each report goes to all leaders. Where there are more than this, a replica reports after more
/// slots and after a longer time: with 25 of each, reports would otherwise be every sixth message
/// that a node handles.
const LEADERS: usize = 8;

/// In any case a leader hears so often within its window of slots.
const WINDOW_REPORTS: usize = 8;

/// See the top of this file.
pub(super) struct Reports {
    config: Arc<Config>,
    /// By how much it reports less often than to a few leaders.
    rarer: u64,
    /// What the leaders know: every slot below this one is executed.
    told: Slot,
    /// Bytes of values executed since.
    bytes: usize,
    at: Instant,
}

impl Reports {
    pub(super) fn new(config: Arc<Config>) -> Self {
        Reports {
            rarer: rarer(&config),
            config,
            told: Slot::ZERO,
            bytes: 0,
            at: Instant::ZERO,
        }
    }

    /// Other options.
    pub(super) fn reconfigure(&mut self, config: Arc<Config>) {
        self.rarer = rarer(&config);
        self.config = config;
    }

    /// A value of this many bytes was executed.
    pub(super) fn executed(&mut self, bytes: usize) {
        self.bytes += bytes;
    }

    /// The leaders know everything below `executed`.
    pub(super) fn tell(&mut self, now: Instant, executed: Slot) {
        (self.told, self.bytes, self.at) = (executed, 0, now + ALIVE_EVERY);
    }

    /// Whether so much was executed that the leaders are to be told at once.
    pub(super) fn is_due(&self, executed: Slot) -> bool {
        let window_bytes = self.config.options().window_bytes;
        let enough = !self.config.orders_references && self.bytes >= window_bytes / WINDOW_PART;
        executed.distance(self.told) >= REPORT_SLOTS * self.rarer
            || (enough && executed > self.told)
    }

    /// Schedules a report soon.
    pub(super) fn tell_soon(&mut self, now: Instant, executed: Slot) {
        if executed > self.told {
            self.at = self.at.min(now + REPORT_AFTER * self.rarer as u32);
        }
    }

    /// When the leaders are to be told in any case.
    pub(super) fn at(&self) -> Instant {
        self.at
    }
}

fn rarer(config: &Config) -> u64 {
    let leaders = config.leaders().len().div_ceil(LEADERS);
    let window = config.options().window_slots / (WINDOW_REPORTS * REPORT_SLOTS as usize);
    leaders.min(window).max(1) as u64
}
