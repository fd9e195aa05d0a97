//! How much the compounds of this gateway may demand of every replica at once, besides what their
//! own bytes pay for ([`Demand`]). What is bounded in one compound is not so in many: a short one
//! can take tenths of a second on each replica, and a few of them would keep the cluster from
//! everything else.
//!
//! - *Work* is demanded until the reply has arrived.
//! - *Growth* is demanded until it is in a measurement of the memory, because replicas compare the
//!   limit of memory with what was measured last.
//!
//! A compound for which there is no room waits behind those that came before it, at most as long as
//! for a reply. Those that demand nothing, nearly all, wait for none.

use crate::connection::Connection;
use crate::serve::Inner;
use ionian_machines::kv::Demand;
use std::collections::{HashMap, VecDeque};

/// The steps of work in flight: those of two compounds that do the most.
const WORK: u64 = 2 * Demand::MOST_WORK;

/// Less work is that of a pipeline of plain commands, and is not counted.
const LITTLE: u64 = 1 << 13;

/// How many bytes the compounds of this gateway may let the state grow without a measurement,
/// besides their own. A compound that may grow more is sent alone.
const UNMEASURED: u64 = 256 << 20;

/// What the compounds in flight demand, the growth that no measurement contains, and the
/// connections that wait.
#[derive(Debug, Default)]
pub(crate) struct Demands {
    /// Of compounds without a reply, by token.
    in_flight: HashMap<u64, Demand>,
    /// The work of all of them.
    work: u64,
    /// The growth of those that were executed before the next measurement.
    settled: u64,
    /// Of those that are in the measurement which was asked for.
    asked: u64,
    /// The sum of all growth.
    growth: u64,
    /// Connections that wait.
    waiting: VecDeque<u32>,
}

impl Demands {
    /// Whether a connection may send a compound that demands this. Otherwise the connection waits
    /// until [`next`](Self::next) returns it.
    pub(crate) fn admits(&mut self, index: u32, demand: Demand) -> bool {
        let demand = counted(demand);
        let admits =
            demand == Demand::default() || self.waiting.is_empty() && self.has_room(demand);
        if !admits {
            self.waiting.push_back(index);
        }
        admits
    }

    fn has_room(&self, Demand { work, growth }: Demand) -> bool {
        let fits = |more, all, most| more == 0 || all == 0 || all + more <= most;
        fits(work, self.work, WORK) && fits(growth, self.growth, UNMEASURED)
    }

    /// The next connection for which there is room, given what each demands; what of a connection
    /// that waits no more is none.
    pub(crate) fn next(&mut self, demand: impl Fn(u32) -> Option<Demand>) -> Option<u32> {
        while let Some(index) = self.waiting.front().copied() {
            match demand(index) {
                Some(demand) if !self.has_room(counted(demand)) => return None,
                now => {
                    self.waiting.pop_front();
                    if now.is_some() {
                        return Some(index);
                    }
                }
            }
        }
        None
    }

    /// A connection is closed.
    pub(crate) fn forget(&mut self, index: u32) {
        self.waiting.retain(|it| *it != index);
    }

    /// Whether a connection waits for a measurement.
    pub(crate) fn is_awaited(&self) -> bool {
        !self.waiting.is_empty() && self.settled > 0
    }

    /// A compound was sent.
    pub(crate) fn begin(&mut self, token: u64, demand: Demand) {
        let demand = counted(demand);
        if demand != Demand::default() {
            self.work += demand.work;
            self.growth += demand.growth;
            self.in_flight.insert(token, demand);
        }
    }

    /// The reply has arrived, whether or not its connection still exists.
    pub(crate) fn end(&mut self, token: u64) {
        let Demand { work, growth } = self.in_flight.remove(&token).unwrap_or_default();
        self.work -= work;
        self.settled += growth;
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
            true => self.growth -= asked,
            false => self.settled += asked,
        }
    }
}

/// What of a demand is counted.
fn counted(demand: Demand) -> Demand {
    match demand.work < LITTLE {
        true => Demand { work: 0, ..demand },
        false => demand,
    }
}

impl Inner {
    /// Whether a connection may send its compound now. Otherwise it waits for room for the reply,
    /// or for what it demands.
    pub(crate) fn admits(&self, index: u32, connection: &Connection) -> bool {
        let has_room = self.room.borrow_mut().admits(index, connection.forecast());
        has_room && self.affords(index, connection)
    }

    fn affords(&self, index: u32, connection: &Connection) -> bool {
        let demand = self.demanded(connection);
        self.demands.borrow_mut().admits(index, demand)
    }

    /// What is bounded of what a compound demands: without a limit of memory its growth is not.
    fn demanded(&self, connection: &Connection) -> Demand {
        let demand = connection.demand();
        match self.host.memory.known().limit {
            0 => Demand {
                growth: 0,
                ..demand
            },
            _ => demand,
        }
    }

    /// The next connection that may send its compound.
    pub(crate) fn next_admitted(&self) -> Option<u32> {
        let demand = |index| {
            let mut slots = self.slots.borrow_mut();
            let open = slots.get(index).filter(|open| open.waits)?;
            Some(self.demanded(&open.connection))
        };
        let next = self.demands.borrow_mut().next(demand);
        if next.is_some() {
            return next;
        }
        loop {
            let index = self.room.borrow_mut().next()?;
            let mut slots = self.slots.borrow_mut();
            // It may be closed or replaced.
            let waits = slots.get(index).filter(|open| open.waits);
            if waits.is_some_and(|open| self.affords(index, &open.connection)) {
                return Some(index);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGE: u64 = 64 << 20;

    fn growth(growth: u64) -> Demand {
        Demand { work: 0, growth }
    }

    fn work(work: u64) -> Demand {
        Demand { work, growth: 0 }
    }

    #[test]
    fn what_grows_waits_for_a_measurement_of_what_has_grown() {
        let mut demands = Demands::default();
        for token in 0..4 {
            assert!(demands.admits(token as u32, growth(LARGE)));
            demands.begin(token, growth(LARGE));
        }
        assert!(!demands.admits(4, growth(LARGE)) && !demands.admits(5, growth(1)));
        assert!(
            demands.admits(6, Demand::default()),
            "what does not grow goes on"
        );
        let each = |index| Some(growth(if index == 4 { LARGE } else { 1 }));
        assert_eq!((demands.next(each), demands.is_awaited()), (None, false));
        demands.end(0);
        assert!(demands.is_awaited());
        demands.ask();
        // Its reply comes after the question: the measurement may have been before it.
        demands.end(1);
        demands.measured(true);
        demands.end(0);
        assert_eq!(demands.next(each), Some(4));
        demands.begin(4, growth(LARGE));
        assert_eq!(demands.next(each), None);
        // A measurement that fails has measured nothing.
        demands.ask();
        demands.measured(false);
        assert_eq!(demands.next(each), None);
        demands.ask();
        demands.measured(true);
        assert_eq!((demands.next(each), demands.next(each)), (Some(5), None));
        (2..5).for_each(|token| demands.end(token));
        demands.ask();
        demands.measured(true);
        assert!(demands.growth == 0 && demands.admits(7, growth(2 * UNMEASURED)));
    }

    #[test]
    fn work_waits_in_order_for_replies_and_little_of_it_for_none() {
        let mut demands = Demands::default();
        for token in 0..4 {
            assert!(demands.admits(token as u32, work(WORK / 4)));
            demands.begin(token, work(WORK / 4));
        }
        let each = |index| match index {
            4 => Some(work(WORK)),
            5 => Some(work(LITTLE)),
            _ => None,
        };
        assert!(!demands.admits(3, work(WORK)) && !demands.admits(4, work(WORK)));
        assert!(!demands.admits(5, work(LITTLE)));
        assert!(demands.admits(6, work(LITTLE - 1)), "plain commands go on");
        demands.begin(6, work(LITTLE - 1));
        (0..3).for_each(|token| demands.end(token));
        assert_eq!(demands.next(each), None, "there is room for 5, behind 4");
        demands.end(3);
        demands.end(3);
        assert_eq!(demands.next(each), Some(4), "3 does not wait any more");
        demands.begin(4, work(WORK));
        assert_eq!(demands.next(each), None);
        demands.forget(5);
        demands.end(4);
        assert_eq!((demands.next(each), demands.work), (None, 0));
    }
}
