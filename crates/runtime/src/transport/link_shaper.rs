//! When what waits for a peer at another site may be written: for tests and demonstrations of what
//! distance does.
//!
//! Every byte leaves its delay after it was said, and no sooner than the bandwidth lets it. What is
//! said at once is one piece, or several where bandwidth is scarce, so that a large message does
//! not arrive in one go.

use ionian_deployment::Distance;
use std::collections::VecDeque;
use std::time::Duration;
use tokio::time::Instant;

/// Where there is a bandwidth, pieces are no larger: at 20 Mbps one takes 3 ms.
const PIECE: usize = 8 << 10;

/// See the top of this file.
#[derive(Debug)]
pub(crate) struct Pace {
    distance: Distance,
    /// When each piece may be written, and its size.
    pieces: VecDeque<(Instant, usize)>,
    /// What the pieces add up to.
    waiting: usize,
    /// What may be written now.
    ready: usize,
    /// When the last byte will have gone through, not counting the delay.
    free_at: Option<Instant>,
}

impl Pace {
    pub(crate) fn new(distance: Distance) -> Self {
        Pace {
            distance,
            pieces: VecDeque::new(),
            waiting: 0,
            ready: 0,
            free_at: None,
        }
    }

    pub(crate) fn distance(&self) -> Distance {
        self.distance
    }

    /// So many bytes are unwritten now: those that are new begin their way, and those that are
    /// through are ready. Returns how long the new ones take the line.
    pub(crate) fn observe(&mut self, now: Instant, unwritten: usize) -> Duration {
        let mut busy = Duration::ZERO;
        let mut new = unwritten.saturating_sub(self.waiting + self.ready);
        while new > 0 {
            let size = if self.distance.bytes_per_second.is_some() {
                new.min(PIECE)
            } else {
                new
            };
            let takes = self
                .distance
                .bytes_per_second
                .map_or(Duration::ZERO, |rate| {
                    Duration::from_nanos((size as u64).saturating_mul(1_000_000_000) / rate.max(1))
                });
            let through = self.free_at.map_or(now, |free_at| free_at.max(now)) + takes;
            self.free_at = Some(through);
            self.pieces.push_back((through + self.distance.delay, size));
            self.waiting += size;
            busy += takes;
            new -= size;
        }
        while let Some((_, size)) = self.pieces.front().copied().filter(|(at, _)| *at <= now) {
            self.pieces.pop_front();
            self.waiting -= size;
            self.ready += size;
        }
        busy
    }

    /// Others take the line for so long: what is said from now on comes later.
    pub(crate) fn hold_up(&mut self, now: Instant, busy: Duration) {
        if !busy.is_zero() {
            self.free_at = Some(self.free_at.map_or(now, |free_at| free_at.max(now)) + busy);
        }
    }

    /// How many bytes may be written now.
    pub(crate) fn ready(&self) -> usize {
        self.ready
    }

    /// So many of them were written.
    pub(crate) fn wrote(&mut self, count: usize) {
        self.ready -= count;
    }

    /// When more may be written.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.pieces.front().map(|(at, _)| *at)
    }

    /// Everything that waited was dropped.
    pub(crate) fn clear(&mut self) {
        *self = Pace::new(self.distance);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn each_byte_waits_for_the_delay_from_when_it_was_said() {
        let start = Instant::now();
        let mut pace = Pace::new(Distance {
            delay: ms(50),
            bytes_per_second: None,
        });
        pace.observe(start, 100_000);
        pace.observe(start + ms(10), 100_030);
        assert_eq!((pace.ready(), pace.next()), (0, Some(start + ms(50))));
        pace.observe(start + ms(50), 100_030);
        assert_eq!((pace.ready(), pace.next()), (100_000, Some(start + ms(60))));
        pace.wrote(99_000);
        pace.observe(start + ms(60), 1_030);
        assert_eq!((pace.ready(), pace.next()), (1_030, None));
    }

    #[test]
    fn bytes_go_through_one_after_the_other() {
        let start = Instant::now();
        let rate = PIECE as u64 * 100;
        let mut pace = Pace::new(Distance {
            delay: ms(50),
            bytes_per_second: Some(rate),
        });
        pace.observe(start, 3 * PIECE);
        let ready_after = |pace: &mut Pace, after: u64| {
            pace.observe(start + ms(after), 3 * PIECE);
            pace.ready()
        };
        let pieces = [59, 60, 69, 70, 79, 80].map(|after| ready_after(&mut pace, after) / PIECE);
        assert_eq!(pieces, [0, 1, 1, 2, 2, 3], "10 ms each");
        pace.wrote(3 * PIECE);
        pace.observe(start + ms(100), PIECE);
        assert_eq!(
            pace.next(),
            Some(start + ms(160)),
            "the line was free in between"
        );
    }

    #[test]
    fn what_was_dropped_is_forgotten() {
        let start = Instant::now();
        let mut pace = Pace::new(Distance {
            delay: ms(5),
            bytes_per_second: Some(1),
        });
        pace.observe(start, 1000);
        pace.clear();
        pace.observe(start + ms(5), 0);
        assert_eq!((pace.ready(), pace.next()), (0, None));
    }
}
