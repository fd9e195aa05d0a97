//! How much memory the compounds of this gateway may take before that is measured. A short command
//! (SETRANGE, COPY) may let the state grow by much more than its own bytes, and replicas compare
//! the limit of memory with what was measured last. So a compound that may grow much waits until
//! the growth of those before it is in a measurement; then replicas refuse it if the limit is
//! exceeded.

use crate::connection::Connection;
use crate::serve::Inner;
use std::collections::{HashMap, VecDeque};

/// How many bytes the compounds of this gateway may let the state grow without a measurement,
/// besides their own. A compound that may grow more is sent alone.
const UNMEASURED: u64 = 256 << 20;

/// The growth of the compounds that no measurement contains, and the connections that wait.
#[derive(Debug, Default)]
pub(crate) struct Growth {
    /// Of compounds without a reply, by token.
    in_flight: HashMap<u64, u64>,
    /// Of compounds that were executed before the next measurement.
    settled: u64,
    /// Of those that are in the measurement which was asked for.
    asked: u64,
    /// The sum of all.
    total: u64,
    /// Waiting connections, and by how much their compounds may let the state grow.
    waiting: VecDeque<(u32, u64)>,
}

impl Growth {
    /// Whether a connection may send a compound that lets the state grow by at most so much.
    /// Otherwise the connection waits until [`next`](Self::next) returns it.
    pub(crate) fn admits(&mut self, index: u32, bytes: u64) -> bool {
        let admits = bytes == 0 || self.waiting.is_empty() && self.has_room(bytes);
        if !admits {
            self.waiting.push_back((index, bytes));
        }
        admits
    }

    fn has_room(&self, bytes: u64) -> bool {
        self.total == 0 || self.total + bytes <= UNMEASURED
    }

    /// The next connection for which there is room.
    pub(crate) fn next(&mut self) -> Option<u32> {
        let (index, bytes) = *self.waiting.front()?;
        self.has_room(bytes).then(|| {
            self.waiting.pop_front();
            index
        })
    }

    /// Whether a connection waits for a measurement.
    pub(crate) fn is_awaited(&self) -> bool {
        !self.waiting.is_empty() && self.settled > 0
    }

    /// A compound was sent.
    pub(crate) fn begin(&mut self, token: u64, bytes: u64) {
        if bytes > 0 {
            self.total += bytes;
            self.in_flight.insert(token, bytes);
        }
    }

    /// The reply has arrived, whether or not its connection still exists.
    pub(crate) fn end(&mut self, token: u64) {
        self.settled += self.in_flight.remove(&token).unwrap_or(0);
    }

    /// A measurement is asked for. Returns whether there is something to measure.
    pub(crate) fn ask(&mut self) -> bool {
        self.asked += std::mem::take(&mut self.settled);
        self.asked > 0
    }

    /// It was made, or may not have been.
    pub(crate) fn measured(&mut self, is_made: bool) {
        let asked = std::mem::take(&mut self.asked);
        match is_made {
            true => self.total -= asked,
            false => self.settled += asked,
        }
    }
}

impl Inner {
    /// Whether a connection may send its compound now. Otherwise it waits: for a measurement, if
    /// there is a limit of memory, or for room for the reply.
    pub(crate) fn admits(&self, index: u32, connection: &Connection) -> bool {
        let may_grow = self.host.memory.known().limit == 0
            || self.growth.borrow_mut().admits(index, connection.growth());
        let forecast = connection.forecast();
        may_grow && self.room.borrow_mut().admits(index, forecast)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGE: u64 = 64 << 20;

    #[test]
    fn what_grows_waits_for_a_measurement_of_what_has_grown() {
        let mut growth = Growth::default();
        for token in 0..4 {
            assert!(growth.admits(token as u32, LARGE));
            growth.begin(token, LARGE);
        }
        assert!(!growth.admits(4, LARGE) && !growth.admits(5, 1));
        assert!(growth.admits(6, 0), "what does not grow goes on");
        assert_eq!((growth.next(), growth.is_awaited()), (None, false));
        growth.end(0);
        assert!(growth.is_awaited());
        growth.ask();
        // Its reply comes after the question: the measurement may have been before it.
        growth.end(1);
        growth.measured(true);
        growth.end(0);
        assert_eq!(growth.next(), Some(4));
        growth.begin(4, LARGE);
        assert_eq!(growth.next(), None);
        // A measurement that fails has measured nothing.
        growth.ask();
        growth.measured(false);
        assert_eq!(growth.next(), None);
        growth.ask();
        growth.measured(true);
        assert_eq!((growth.next(), growth.next()), (Some(5), None));
        (2..5).for_each(|token| growth.end(token));
        growth.ask();
        growth.measured(true);
        assert!(growth.total == 0 && growth.admits(7, 2 * UNMEASURED));
    }
}
