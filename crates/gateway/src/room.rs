//! Room for replies that are on their way: a short command can have a long reply, which on its way
//! from a replica is in no buffer that the gateway sees. A command is sent on when there is room
//! for a reply as large as its connection's last ones. A forecast can be wrong: what comes then is
//! counted against its client, as all that the gateway holds.

use ionian_replication::flow::ByteWindow;
use std::collections::{HashMap, VecDeque};

/// Minimum forecast, so that small replies leave room for as many commands as a lane has in flight.
const LEAST: usize = 8 << 10;

/// The forecast before the first reply.
const UNKNOWN: usize = 64 << 10;

/// Each smaller reply reduces the forecast by this part.
const FORGETS: usize = 8;

/// The forecast for the next reply: the size of the largest recent one.
pub(crate) fn forecast(before: usize, reply: usize) -> usize {
    reply.max(before - before / FORGETS)
}

/// The expected replies, and the connections that wait for room.
pub(crate) struct Room {
    window: ByteWindow,
    /// The forecast for each request without a reply, by token.
    expected: HashMap<u64, usize>,
    /// Waiting connections with their forecasts, by class.
    waiting: [VecDeque<(u32, usize)>; 2],
    /// The forecast for a connection without replies so far.
    newcomer: usize,
}

impl Room {
    pub(crate) fn new(bytes: usize) -> Self {
        Room {
            window: ByteWindow::new(bytes),
            expected: HashMap::new(),
            waiting: Default::default(),
            newcomer: UNKNOWN,
        }
    }

    /// Whether a connection with this forecast may send a command. Otherwise the connection waits
    /// until [`next`](Self::next) returns it.
    pub(crate) fn admits(&mut self, index: u32, forecast: Option<usize>) -> bool {
        let bytes = forecast.unwrap_or(self.newcomer).max(LEAST);
        let waiting = &mut self.waiting[self.window.class(bytes)];
        let admits = waiting.is_empty() && self.window.has_room(bytes);
        if !admits {
            waiting.push_back((index, bytes));
        }
        admits
    }

    /// The next connection for which there is room.
    pub(crate) fn next(&mut self) -> Option<u32> {
        let Room {
            window, waiting, ..
        } = self;
        let waiting = waiting
            .iter_mut()
            .find(|waiting| waiting.front().is_some_and(|it| window.has_room(it.1)))?;
        waiting.pop_front().map(|(index, _)| index)
    }

    /// A request was sent.
    pub(crate) fn begin(&mut self, token: u64, forecast: Option<usize>) {
        let bytes = forecast.unwrap_or(self.newcomer).max(LEAST);
        self.window.add(bytes);
        self.expected.insert(token, bytes);
    }

    /// The reply has arrived with this size, whether or not its connection still exists.
    pub(crate) fn end(&mut self, token: u64, reply: usize) {
        let Some(bytes) = self.expected.remove(&token) else {
            return;
        };
        self.window.remove(bytes);
        self.newcomer = forecast(self.newcomer, reply);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_on_their_way_are_bounded_and_small_ones_pass_large_ones() {
        let mut room = Room::new(4 << 20);
        let mega = Some(1 << 20);
        let admitted: Vec<u32> = (0..10).filter(|index| room.admits(*index, mega)).collect();
        // No request has been sent yet.
        assert_eq!(admitted, (0..10).collect::<Vec<_>>());
        (0..4).for_each(|token| room.begin(token, mega));
        assert!((4..8).all(|index| !room.admits(index, mega)));
        assert!(room.admits(8, Some(5)) && room.next().is_none());
        room.begin(8, Some(5));
        // Connections continue in the order in which they started to wait.
        room.end(2, 1 << 20);
        room.end(2, 1 << 20);
        assert!(!room.admits(9, mega));
        assert_eq!(room.next(), Some(4));
        room.begin(4, mega);
        assert_eq!(room.next(), None);
        [0, 1, 3, 4, 8]
            .into_iter()
            .for_each(|token| room.end(token, 10));
        assert_eq!((room.window.bytes(), room.expected.len()), (0, 0));
        // A forecast above the whole room is admitted alone.
        let order: Vec<u32> = core::iter::from_fn(|| room.next()).collect();
        assert_eq!(order, [5, 6, 7, 9]);
        assert!(room.admits(11, Some(64 << 20)));
        room.begin(11, Some(64 << 20));
        assert!(!room.admits(12, mega));
    }

    #[test]
    fn newcomers_are_reckoned_with_as_others_lately() {
        let mut room = Room::new(4 << 20);
        room.begin(1, None);
        assert_eq!(room.window.bytes(), UNKNOWN);
        room.end(1, 3 << 20);
        room.begin(2, None);
        assert_eq!(room.window.bytes(), 3 << 20);
        room.end(2, 0);
        for token in 3..100 {
            room.begin(token, None);
            room.end(token, 0);
        }
        room.begin(100, None);
        assert_eq!(room.window.bytes(), LEAST);
    }
}
