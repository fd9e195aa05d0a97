//! How much the compounds of this gateway may demand of every replica at once, besides what their
//! own bytes pay for ([`Demand`]). What is bounded in one compound is not so in many: a short one
//! can take tenths of a second on each replica, and a few of them would keep the cluster from
//! everything else.
//!
//! - *Work*, and that of *reads*, is demanded until the reply has arrived.
//! - *Growth* is demanded until it is in a measurement of the memory, because replicas compare the
//!   limit of memory with what was measured last.
//!
//! A compound for which there is no room waits in the queue of the scarcest that it demands, at
//! most as long as for a reply: reads, which one replica answers, wait for no write, and what only
//! works for no measurement. Those that demand nothing, nearly all, wait for none.

use crate::connection::Connection;
use crate::serve::Inner;
use ionian_machines::kv::Demand;
use std::collections::{HashMap, VecDeque};

/// The steps of work in flight, and as many of reads: those of two compounds that do the most.
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
    /// The work of all of them, and that of reads.
    work: u64,
    read: u64,
    /// The growth of those that were executed before the next measurement.
    settled: u64,
    /// Of those that are in the measurement which was asked for last, and its token.
    asked: u64,
    token: u64,
    /// The sum of all growth.
    growth: u64,
    /// Connections that wait, by what they wait for.
    waiting: [VecDeque<u32>; 3],
    /// Whether the first of those that grow waits for work: it comes before what only works.
    owes_work: bool,
}

/// The queues of connections that wait.
const GROWS: usize = 0;
const WORKS: usize = 1;
const READS: usize = 2;

/// The queue in which a compound waits that demands this, if it demands anything.
fn queue(demand: Demand) -> Option<usize> {
    match demand {
        Demand { growth: 1.., .. } => Some(GROWS),
        Demand { work: 1.., .. } => Some(WORKS),
        Demand { read: 1.., .. } => Some(READS),
        _ => None,
    }
}

impl Demands {
    /// Whether a connection may send a compound that demands this. Otherwise the connection waits
    /// until [`next`](Self::next) returns it.
    pub(crate) fn admits(&mut self, index: u32, demand: Demand) -> bool {
        let demand = counted(demand);
        let Some(queue) = queue(demand) else {
            return true;
        };
        let is_next = self.waiting[queue].is_empty() && !(queue == WORKS && self.owes_work);
        let admits = is_next && self.has_room(demand);
        if !admits {
            self.waiting[queue].push_back(index);
        }
        admits
    }

    fn has_room(&self, demand: Demand) -> bool {
        fits(demand.work, self.work, WORK)
            && fits(demand.read, self.read, WORK)
            && self.has_room_to_grow(demand)
    }

    fn has_room_to_grow(&self, demand: Demand) -> bool {
        fits(demand.growth, self.growth, UNMEASURED)
    }

    /// The next connection for which there is room, given what each demands; what of a connection
    /// that waits no more is none.
    pub(crate) fn next(&mut self, demand: impl Fn(u32) -> Option<Demand>) -> Option<u32> {
        self.owes_work = false;
        for queue in [GROWS, WORKS, READS] {
            while let Some(index) = self.waiting[queue].front().copied() {
                let Some(first) = demand(index).map(counted) else {
                    self.waiting[queue].pop_front();
                    continue;
                };
                let is_passed_over = queue == WORKS && self.owes_work;
                if !is_passed_over && self.has_room(first) {
                    self.waiting[queue].pop_front();
                    return Some(index);
                }
                self.owes_work |= queue == GROWS && self.has_room_to_grow(first);
                break;
            }
        }
        None
    }

    /// A connection is closed.
    pub(crate) fn forget(&mut self, index: u32) {
        for waiting in &mut self.waiting {
            waiting.retain(|it| *it != index);
        }
    }

    /// Whether a connection waits for a measurement.
    pub(crate) fn is_awaited(&self) -> bool {
        !self.waiting[GROWS].is_empty() && self.settled > 0
    }

    /// A compound was sent.
    pub(crate) fn begin(&mut self, token: u64, demand: Demand) {
        let demand = counted(demand);
        if demand != Demand::default() {
            self.work += demand.work;
            self.read += demand.read;
            self.growth += demand.growth;
            self.in_flight.insert(token, demand);
        }
    }

    /// The reply has arrived, whether or not its connection still exists.
    pub(crate) fn end(&mut self, token: u64) {
        let demand = self.in_flight.remove(&token).unwrap_or_default();
        self.work -= demand.work;
        self.read -= demand.read;
        self.settled += demand.growth;
    }

    /// A measurement with this token is asked for; the one before, if it was not made, is given up.
    /// Returns whether there is something to measure.
    pub(crate) fn ask(&mut self, token: u64) -> bool {
        self.token = token;
        self.asked += std::mem::take(&mut self.settled);
        self.asked > 0
    }

    /// Whether the measurement with this token is the one that was asked for last.
    pub(crate) fn is_asked(&self, token: u64) -> bool {
        self.token == token
    }

    /// The measurement that was asked for last was made, or may not have been.
    pub(crate) fn measured(&mut self, is_made: bool) {
        let asked = std::mem::take(&mut self.asked);
        match is_made {
            true => self.growth -= asked,
            false => self.settled += asked,
        }
    }
}

/// Whether there is room for more beside all that there is: what is larger comes alone.
fn fits(more: u64, all: u64, most: u64) -> bool {
    more == 0 || all == 0 || all + more <= most
}

/// What of a demand is counted.
fn counted(demand: Demand) -> Demand {
    let much = |steps| if steps < LITTLE { 0 } else { steps };
    Demand {
        work: much(demand.work),
        read: much(demand.read),
        ..demand
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
        loop {
            let Some(index) = self.demands.borrow_mut().next(demand) else {
                break;
            };
            // The room that it had for its reply may be another's by now.
            let mut slots = self.slots.borrow_mut();
            let forecast = slots.get(index).map(|open| open.connection.forecast());
            if forecast.is_some_and(|it| self.room.borrow_mut().admits(index, it)) {
                return Some(index);
            }
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
        Demand {
            growth,
            ..Demand::default()
        }
    }

    fn work(work: u64) -> Demand {
        Demand {
            work,
            ..Demand::default()
        }
    }

    #[test]
    fn reads_wait_for_no_write_and_work_for_no_measurement_but_what_grows_for_work() {
        let mut demands = Demands::default();
        let read = Demand {
            read: WORK,
            ..Demand::default()
        };
        let both = Demand {
            growth: LARGE,
            ..work(WORK / 2)
        };
        let each = |index| match index {
            10..20 => Some(both),
            20..30 => Some(work(WORK / 2)),
            _ => Some(read),
        };
        demands.begin(0, growth(UNMEASURED));
        assert!(!demands.admits(10, both) && demands.admits(20, work(WORK / 2)));
        demands.begin(20, work(WORK / 2));
        assert!(demands.admits(21, work(WORK / 2)));
        demands.begin(21, work(WORK / 2));
        assert!(!demands.admits(22, work(WORK / 2)) && demands.admits(30, read));
        demands.begin(30, read);
        assert!(!demands.admits(31, read));
        assert_eq!(demands.next(each), None);
        demands.end(30);
        assert_eq!((demands.next(each), demands.next(each)), (Some(31), None));
        demands.end(0);
        demands.ask(1);
        demands.measured(true);
        assert_eq!(
            demands.next(each),
            None,
            "10 has room to grow, and 22 waits behind it"
        );
        assert!(!demands.admits(23, work(LITTLE)));
        demands.end(20);
        assert_eq!(demands.next(each), Some(10));
        demands.begin(10, both);
        demands.end(21);
        assert_eq!(demands.next(each), Some(22));
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
        demands.ask(2);
        // Its reply comes after the question: the measurement may have been before it.
        demands.end(1);
        demands.measured(true);
        demands.end(0);
        assert_eq!(demands.next(each), Some(4));
        demands.begin(4, growth(LARGE));
        assert_eq!(demands.next(each), None);
        // A measurement that fails has measured nothing.
        demands.ask(3);
        assert!(
            demands.is_asked(3) && !demands.is_asked(2),
            "its reply comes late"
        );
        demands.measured(false);
        assert_eq!(demands.next(each), None);
        demands.ask(4);
        demands.measured(true);
        assert_eq!((demands.next(each), demands.next(each)), (Some(5), None));
        (2..5).for_each(|token| demands.end(token));
        demands.ask(5);
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
