//! Delays and limits what is written to a peer at another site: for tests and demonstrations of the
//! effect of distance.
//!
//! Every byte is written a fixed delay after it was queued, and no earlier than the bandwidth
//! allows. Bytes that are queued at the same time are one piece, or several where bandwidth is
//! limited, so that a large message does not arrive all at once.

use ionian_deployment::Distance;
use std::collections::VecDeque;
use std::time::Duration;
use tokio::time::Instant;

/// The largest piece where bandwidth is limited: at 20 Mbps it takes 3 ms.
const PIECE: usize = 8 << 10;

/// See the top of this file.
#[derive(Debug)]
pub(crate) struct LinkShaper {
    distance: Distance,
    /// When each piece may be written, and its size.
    pieces: VecDeque<(Instant, usize)>,
    /// The sum of the sizes of the pieces.
    waiting: usize,
    /// How many bytes may be written now.
    ready: usize,
    /// When the link has carried the last byte, not counting the delay.
    free_at: Option<Instant>,
}

impl LinkShaper {
    pub(crate) fn new(distance: Distance) -> Self {
        LinkShaper {
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

    /// Takes note that this many bytes are unwritten now: new ones enter the link, and those whose
    /// time has come are ready. Returns for how long the new ones occupy the link.
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
            let carried = self.free_at.map_or(now, |free_at| free_at.max(now)) + takes;
            self.free_at = Some(carried);
            self.pieces.push_back((carried + self.distance.delay, size));
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

    /// Delays all bytes from now on: other messages occupy the link for the duration `busy`.
    pub(crate) fn hold_up(&mut self, now: Instant, busy: Duration) {
        if !busy.is_zero() {
            self.free_at = Some(self.free_at.map_or(now, |free_at| free_at.max(now)) + busy);
        }
    }

    /// How many bytes may be written now.
    pub(crate) fn ready(&self) -> usize {
        self.ready
    }

    /// Takes note that this many ready bytes were written.
    pub(crate) fn wrote(&mut self, count: usize) {
        self.ready -= count;
    }

    /// When the next piece may be written.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.pieces.front().map(|(at, _)| *at)
    }

    /// Takes note that all waiting bytes were dropped.
    pub(crate) fn clear(&mut self) {
        *self = LinkShaper::new(self.distance);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn each_byte_is_ready_one_delay_after_it_was_queued() {
        let start = Instant::now();
        let mut shaper = LinkShaper::new(Distance {
            delay: ms(50),
            bytes_per_second: None,
        });
        shaper.observe(start, 100_000);
        shaper.observe(start + ms(10), 100_030);
        assert_eq!((shaper.ready(), shaper.next()), (0, Some(start + ms(50))));
        shaper.observe(start + ms(50), 100_030);
        assert_eq!(
            (shaper.ready(), shaper.next()),
            (100_000, Some(start + ms(60)))
        );
        shaper.wrote(99_000);
        shaper.observe(start + ms(60), 1_030);
        assert_eq!((shaper.ready(), shaper.next()), (1_030, None));
    }

    #[test]
    fn limited_bandwidth_carries_pieces_one_after_the_other() {
        let start = Instant::now();
        let rate = PIECE as u64 * 100;
        let mut shaper = LinkShaper::new(Distance {
            delay: ms(50),
            bytes_per_second: Some(rate),
        });
        shaper.observe(start, 3 * PIECE);
        let ready_after = |shaper: &mut LinkShaper, after: u64| {
            shaper.observe(start + ms(after), 3 * PIECE);
            shaper.ready()
        };
        let pieces = [59, 60, 69, 70, 79, 80].map(|after| ready_after(&mut shaper, after) / PIECE);
        assert_eq!(pieces, [0, 1, 1, 2, 2, 3], "10 ms each");
        shaper.wrote(3 * PIECE);
        shaper.observe(start + ms(100), PIECE);
        assert_eq!(
            shaper.next(),
            Some(start + ms(160)),
            "the link was free in between"
        );
    }

    #[test]
    fn dropped_bytes_do_not_occupy_the_link() {
        let start = Instant::now();
        let mut shaper = LinkShaper::new(Distance {
            delay: ms(5),
            bytes_per_second: Some(1),
        });
        shaper.observe(start, 1000);
        shaper.clear();
        shaper.observe(start + ms(5), 0);
        assert_eq!((shaper.ready(), shaper.next()), (0, None));
    }
}
