//! What a stretch of the log has led to, in one number: replicas that have executed the same slots
//! compare it, to find out whether one of them has diverged.
//!
//! The number is a sum over the commands that were executed, each with its result. So neither the
//! order counts in which commands were executed that do not depend on each other, nor which thread
//! executed them. What a command was answered when it was sent again does not count: it was kept.

use super::Executor;
use alloc::collections::BTreeMap;
use ionian_kernel::id::{SessionId, Slot};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The sums of the stretches that are not complete yet. Stretch `n` of 2^`shift` slots begins at
/// slot `n` x 2^`shift`.
#[derive(Default)]
pub(super) struct Tally {
    /// None where nothing is summed up.
    shift: Option<u32>,
    /// The stretch that a command was executed in last, and its sum.
    last: (u64, u64),
    /// Those of the others. Commands are executed early by a bounded number of slots.
    others: BTreeMap<u64, u64>,
}

impl Tally {
    /// Begins anew.
    pub(super) fn restart(&mut self, shift: Option<u32>) {
        *self = Tally {
            shift,
            ..Tally::default()
        };
    }

    /// A command of a slot was executed, with this result, or left out because it panics.
    #[inline]
    pub(super) fn add(
        &mut self,
        slot: Slot,
        session: SessionId,
        number: u64,
        result: Option<&[u8]>,
    ) {
        let Some(shift) = self.shift else {
            return;
        };
        let stretch = slot.0 >> shift;
        if stretch != self.last.0 {
            self.turn_to(stretch);
        }
        let place = slot.0.rotate_left(40) ^ session.0.rotate_left(20) ^ number;
        let weight = match result {
            Some(result) => xxh3_64_with_seed(result, place),
            None => !xxh3_64_with_seed(&[], place),
        };
        self.last.1 = self.last.1.wrapping_add(weight);
    }

    fn turn_to(&mut self, stretch: u64) {
        let (last, sum) = self.last;
        if sum != 0 {
            self.others.insert(last, sum);
        }
        self.last = (stretch, self.others.remove(&stretch).unwrap_or_default());
    }

    /// The sum of a stretch of which nothing more is executed.
    pub(super) fn take(&mut self, stretch: u64) -> u64 {
        match self.last.0 == stretch {
            true => core::mem::take(&mut self.last.1),
            false => self.others.remove(&stretch).unwrap_or_default(),
        }
    }
}

impl Executor {
    /// Sums up what stretches of 2^`shift` slots lead to, from now on; or nothing.
    pub fn tally(&mut self, shift: Option<u32>) {
        self.tally_of_parts(&mut |tally| tally.restart(shift));
        self.tally.restart(shift);
    }

    /// What stretch number `stretch` has led to, all slots of which are executed. It can be asked
    /// once.
    pub fn take_tally(&mut self, stretch: u64) -> u64 {
        let mut sum = self.tally.take(stretch);
        self.tally_of_parts(&mut |tally| sum = sum.wrapping_add(tally.take(stretch)));
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const SHIFT: u32 = 2;

    fn tally(commands: &[(u64, u64, Option<&[u8]>)]) -> Tally {
        let mut tally = Tally::default();
        tally.restart(Some(SHIFT));
        for (slot, number, result) in commands {
            tally.add(Slot(*slot), SessionId(3), *number, *result);
        }
        tally
    }

    #[test]
    fn the_order_makes_no_difference_and_stretches_are_apart() {
        let commands: [(u64, u64, Option<&[u8]>); 4] = [
            (0, 1, Some(b"a")),
            (3, 2, Some(b"b")),
            (4, 3, Some(b"a")),
            (9, 4, None),
        ];
        let mut backwards = commands;
        backwards.reverse();
        let (mut one, mut other) = (tally(&commands), tally(&backwards));
        let sums = |tally: &mut Tally| -> Vec<u64> { (0..4).map(|n| tally.take(n)).collect() };
        let (sums, others) = (sums(&mut one), sums(&mut other));
        assert_eq!(sums, others);
        assert!(sums[..3].iter().all(|sum| *sum != 0) && sums[3] == 0);
        assert_eq!(one.take(0), 0, "it is asked once");
    }

    #[test]
    fn another_result_place_or_number_is_another_sum() {
        let sum = |slot, number, result: Option<&[u8]>| tally(&[(slot, number, result)]).take(0);
        let all = [
            sum(0, 1, Some(b"a")),
            sum(0, 1, Some(b"b")),
            sum(1, 1, Some(b"a")),
            sum(0, 2, Some(b"a")),
            sum(0, 1, Some(b"")),
            sum(0, 1, None),
        ];
        for (at, one) in all.iter().enumerate() {
            assert!(all[..at].iter().all(|other| other != one), "{at}");
        }
        let swapped = tally(&[(0, 1, Some(b"b")), (0, 2, Some(b"a"))]).take(0);
        let straight = tally(&[(0, 1, Some(b"a")), (0, 2, Some(b"b"))]).take(0);
        assert_ne!(swapped, straight, "two commands with each other's results");
    }

    #[test]
    fn nothing_is_summed_up_before_it_is_wanted() {
        let mut tally = Tally::default();
        tally.add(Slot(0), SessionId(3), 1, Some(b"a"));
        assert_eq!(tally.take(0), 0);
    }
}
