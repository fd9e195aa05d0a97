//! The event heap: planned events, ordered by time and, at equal times, by the order of planning.
//! The order is total, so no run depends on how a heap breaks ties.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Simulated time since the start of the run, in microseconds. Every node's clock is derived from
/// it.
pub type Micros = u64;

/// Planned events; times are in microseconds, or in another unit that the owner of the heap
/// chooses.
pub(crate) struct Heap<E> {
    items: BinaryHeap<Item<E>>,
    planned: u64,
    now: Micros,
}

struct Item<E> {
    at: Micros,
    sequence: u64,
    /// In a box: the heap moves its items often.
    event: Box<E>,
}

impl<E> Heap<E> {
    pub(crate) fn new() -> Self {
        Heap {
            items: BinaryHeap::new(),
            planned: 0,
            now: 0,
        }
    }

    /// The time of the last event that was removed.
    pub(crate) fn now(&self) -> Micros {
        self.now
    }

    /// Plans `event`; an event in the past happens now.
    pub(crate) fn plan(&mut self, at: Micros, event: E) {
        self.items.push(Item {
            at: at.max(self.now),
            sequence: self.planned,
            event: Box::new(event),
        });
        self.planned += 1;
    }

    /// Removes the next event and advances time to it.
    pub(crate) fn pop(&mut self) -> Option<E> {
        let item = self.items.pop()?;
        self.now = item.at;
        Some(*item.event)
    }

    /// Like [`pop`](Heap::pop), but leaves events at `end` or later; if none is before it, advances
    /// time to it.
    pub(crate) fn pop_before(&mut self, end: Micros) -> Option<E> {
        if self.items.peek().is_some_and(|item| item.at < end) {
            return self.pop();
        }
        self.now = self.now.max(end);
        None
    }
}

impl<E> Item<E> {
    fn rank(&self) -> (Micros, u64) {
        (self.at, self.sequence)
    }
}

// The standard heap returns the greatest element first, so the order is reversed.
impl<E> Ord for Item<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.rank().cmp(&self.rank())
    }
}

impl<E> PartialOrd for Item<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Item<E> {
    fn eq(&self, other: &Self) -> bool {
        self.rank() == other.rank()
    }
}

impl<E> Eq for Item<E> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_then_in_the_order_planned() {
        let mut heap = Heap::new();
        for (at, event) in [(5, 'c'), (1, 'a'), (5, 'd'), (1, 'b')] {
            heap.plan(at, event);
        }
        assert_eq!(heap.pop(), Some('a'));
        heap.plan(0, 'x');
        let order: String = std::iter::from_fn(|| heap.pop()).collect();
        assert_eq!((order.as_str(), heap.now()), ("bxcd", 5));
    }

    #[test]
    fn what_is_not_before_the_end_stays() {
        let mut heap = Heap::new();
        heap.plan(3, 'a');
        heap.plan(7, 'b');
        assert_eq!(
            (heap.pop_before(7), heap.pop_before(7), heap.now()),
            (Some('a'), None, 7)
        );
        assert_eq!((heap.pop_before(8), heap.now()), (Some('b'), 7));
    }
}
