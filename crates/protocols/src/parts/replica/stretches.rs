//! The stretches of slots that a replica has asked the leader for and that have not come yet.
//!
//! One stretch at a time would cost a round trip for each. So with each that comes one more may be
//! under way, up to a limit of their number and one of their bytes, which are estimated from those
//! that came.

use super::{ReplicaCore, ReplicaPort};
use crate::parts::branch;
use crate::parts::message::RECOVER_SLOTS;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use ionian_kernel::id::*;

/// The most stretches under way.
const MOST: usize = 32;

/// The most bytes under way, if the next stretches are as large as the last ones. One stretch may
/// be larger.
const MOST_BYTES: usize = 8 << 20;

/// See the top of this file.
#[derive(Default)]
pub(super) struct Stretches {
    /// The last slot of each, in order.
    lasts: VecDeque<Slot>,
    /// How many more than one may be under way.
    more: usize,
    /// The bytes of values that came since a stretch came.
    bytes: usize,
}

impl Stretches {
    /// A value of this many bytes came.
    pub(super) fn heard(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Everything below `executed` is here: whether that makes a stretch whole.
    pub(super) fn came(&mut self, executed: Slot) -> bool {
        let before = self.lasts.len();
        while self.lasts.front().is_some_and(|last| *last < executed) {
            self.lasts.pop_front();
        }
        let came = before - self.lasts.len();
        if came == 0 {
            return false;
        }
        let bytes_of_each = core::mem::take(&mut self.bytes) / came;
        let most = (MOST_BYTES / bytes_of_each.max(1)).clamp(1, MOST);
        self.more = (self.more + came).min(most - 1);
        true
    }

    /// The leader is asked for one more, which ends with this slot.
    pub(super) fn asked(&mut self, last: Slot) {
        self.lasts.push_back(last);
    }

    /// The first slot that is in none of them, if all below `executed` is here.
    pub(super) fn end(&self, executed: Slot) -> Slot {
        let end = self.lasts.back().map(|last| last.next());
        end.unwrap_or(executed).max(executed)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lasts.is_empty()
    }

    /// How many more may be asked for.
    pub(super) fn room(&self) -> usize {
        (self.more + 1).saturating_sub(self.lasts.len())
    }

    /// They do not come: it begins with one again.
    pub(super) fn begin_anew(&mut self) {
        *self = Stretches::default();
    }
}

impl ReplicaCore {
    /// Asks the leader for as many stretches as may be under way. What is less than a whole one may
    /// well be on its way: it is asked for when no other is.
    pub(super) fn ask_leader(&mut self, port: &mut impl ReplicaPort) {
        let stretches = self.catch_up.stretches();
        let start = stretches.end(self.missing);
        let missing = start
            .until(self.wanted)
            .filter(|slot| self.log.get(*slot).is_none());
        let slots: Vec<Slot> = missing.take(stretches.room() * RECOVER_SLOTS).collect();
        for stretch in slots.chunks(RECOVER_SLOTS) {
            let last = stretch.get(RECOVER_SLOTS - 1);
            if last.is_none() && !self.catch_up.stretches().is_empty() {
                break;
            }
            if let Some(last) = last {
                self.catch_up.asked_leader(*last);
            }
            port.reached(branch::RECOVERS);
            port.recover(stretch.to_vec());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many are under way at most, and where they end, when one of ten slots after the other
    /// comes, each with these bytes.
    fn rooms(bytes: usize, rounds: u64) -> (usize, u64) {
        let (mut stretches, mut end, mut most) = (Stretches::default(), 0, 0);
        for round in 0..rounds {
            for _ in 0..stretches.room() {
                assert_eq!(stretches.end(Slot(round * 10)), Slot(end));
                end += 10;
                stretches.asked(Slot(end - 1));
            }
            most = most.max(stretches.lasts.len());
            stretches.heard(bytes);
            assert!(
                !stretches.came(Slot(round * 10 + 9)),
                "its last slot is missing"
            );
            assert!(stretches.came(Slot(round * 10 + 10)));
        }
        (most, end)
    }

    #[test]
    fn with_each_that_comes_one_more_is_under_way_up_to_a_number() {
        assert_eq!(rooms(100, 1), (1, 10));
        assert_eq!(rooms(100, 4), (4, 70));
        assert_eq!(rooms(100, 100), (MOST, 10 * (99 + MOST as u64)));
    }

    #[test]
    fn those_under_way_have_no_more_bytes_than_the_limit_unless_it_is_one() {
        assert_eq!(rooms(MOST_BYTES / 4, 20), (4, 10 * 23));
        assert_eq!(rooms(MOST_BYTES * 2, 20), (1, 10 * 20));
    }

    #[test]
    fn when_none_comes_it_begins_with_one() {
        let mut stretches = Stretches::default();
        stretches.asked(Slot(9));
        assert!(stretches.came(Slot(10)) && stretches.room() == 2);
        stretches.asked(Slot(19));
        stretches.begin_anew();
        assert!(stretches.is_empty() && stretches.room() == 1);
        assert_eq!(stretches.end(Slot(13)), Slot(13));
        assert!(!stretches.came(Slot(20)));
    }
}
