//! Time as a role sees it: an argument, never a clock that it reads.

use core::ops::{Add, Sub};
pub use core::time::Duration;

/// A point in time on one node, in microseconds. Drivers start it at the Unix time of the node's
/// start and let it run with a monotonic clock, so it never falls on one node; the clocks of two
/// nodes may differ by any amount, and no protocol relies on their agreement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(pub u64);

impl Instant {
    /// Before everything.
    pub const ZERO: Instant = Instant(0);

    /// The time since `earlier`; zero where `earlier` is later.
    pub fn since(self, earlier: Instant) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }

    /// The time of day that the leader stamps into the log.
    pub fn timestamp(self) -> Timestamp {
        Timestamp(self.0 / 1000)
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;
    fn add(self, duration: Duration) -> Instant {
        Instant(self.0.saturating_add(duration.as_micros() as u64))
    }
}

impl Sub<Duration> for Instant {
    type Output = Instant;
    fn sub(self, duration: Duration) -> Instant {
        Instant(self.0.saturating_sub(duration.as_micros() as u64))
    }
}

/// How much later an answer is due because of the bytes in flight: a request that is sent again
/// while a queue of large values drains makes the queue longer, until nothing gets through. It
/// assumes 32 MB/s, because values are copied, sent several times and written to disks on their
/// way; 100 kB of small commands add 3 ms.
pub fn transit(bytes: usize) -> Duration {
    Duration::from_micros(bytes as u64 / 32)
}

/// Milliseconds since the Unix epoch as a leader stamped them into the log. Replicas know no other
/// time, so that whatever expires does so at the same slot on each of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// The time since `earlier`; zero where `earlier` is later.
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// Parts of a millisecond do not count.
impl Add<Duration> for Timestamp {
    type Output = Timestamp;
    fn add(self, duration: Duration) -> Timestamp {
        Timestamp(self.0.saturating_add(duration.as_millis() as u64))
    }
}

/// Parts of a millisecond do not count.
impl Sub<Duration> for Timestamp {
    type Output = Timestamp;
    fn sub(self, duration: Duration) -> Timestamp {
        Timestamp(self.0.saturating_sub(duration.as_millis() as u64))
    }
}

/// The earlier of two optional times; `None` means never.
pub fn earliest<T: Ord>(a: Option<T>, b: Option<T>) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_count_milliseconds() {
        let (hour, begin) = (Duration::from_secs(3600), Timestamp(1_700_000_000_000));
        let end = begin + hour;
        assert_eq!(end, Timestamp(1_700_003_600_000));
        assert_eq!((end.since(begin), begin.since(end)), (hour, Duration::ZERO));
        assert_eq!(
            (end - hour, begin - hour * 10_000_000),
            (begin, Timestamp(0))
        );
        assert_eq!(begin + Duration::from_micros(999), begin);
        assert_eq!(Instant(begin.0 * 1000 + 999).timestamp(), begin);
    }
}
