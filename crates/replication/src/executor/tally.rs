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

/// No slot: one that no log reaches.
const NOWHERE: Slot = Slot(u64::MAX);

/// The sums of the stretches that are not complete yet. Stretch `n` of 2^`shift` slots begins at
/// slot `n` x 2^`shift`.
pub(super) struct Tally {
    /// None where nothing is summed up.
    shift: Option<u32>,
    /// The slot that a command was executed in last, or [`NOWHERE`], and its part of the
    /// [`place`] of commands.
    slot: Slot,
    part: u64,
    /// The stretch that a command was executed in last, and its sum.
    last: (u64, u64),
    /// Those of the others. Commands are executed early by a bounded number of slots.
    others: BTreeMap<u64, u64>,
}

impl Default for Tally {
    fn default() -> Self {
        Tally {
            shift: None,
            slot: NOWHERE,
            part: 0,
            last: (0, 0),
            others: BTreeMap::new(),
        }
    }
}

impl Tally {
    /// Begins anew.
    pub(super) fn restart(&mut self, shift: Option<u32>) {
        *self = Tally {
            shift,
            ..Tally::default()
        };
    }

    /// Commands of this slot are executed next. Without it the first of them takes longer to add.
    #[inline]
    pub(super) fn begin(&mut self, slot: Slot) {
        if let Some(shift) = self.shift {
            self.turn_to(slot, shift);
        }
    }

    /// A command of a slot was executed, with this result, or left out because it panics.
    ///
    /// Most commands that write have results of four to eight bytes, such as `+OK` with the end of
    /// its line: these are summed up without a call, which would be a third of the work.
    #[inline(always)]
    pub(super) fn add(
        &mut self,
        slot: Slot,
        session: SessionId,
        number: u64,
        result: Option<&[u8]>,
    ) {
        match result {
            Some(result) if slot == self.slot && matches!(result.len(), 4..=8) => {
                let weight = xxh3_64_with_seed(result, place(self.part, session, number));
                self.last.1 = self.last.1.wrapping_add(weight);
            }
            result => {
                if let Some(shift) = self.shift {
                    self.add_any(shift, slot, (session, number), result);
                }
            }
        }
    }

    /// The same for every slot and result.
    #[cold]
    #[inline(never)]
    fn add_any(
        &mut self,
        shift: u32,
        slot: Slot,
        (session, number): (SessionId, u64),
        result: Option<&[u8]>,
    ) {
        self.turn_to(slot, shift);
        let place = place(self.part, session, number);
        let weight = match result {
            Some(result) => xxh3_64_with_seed(result, place),
            None => !xxh3_64_with_seed(&[], place),
        };
        self.last.1 = self.last.1.wrapping_add(weight);
    }

    #[inline]
    fn turn_to(&mut self, slot: Slot, shift: u32) {
        let stretch = slot.0 >> shift;
        if stretch != self.last.0 {
            self.change_stretch(stretch);
        }
        self.slot = slot;
        self.part = slot.0.rotate_left(40);
    }

    #[cold]
    fn change_stretch(&mut self, stretch: u64) {
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

/// Where a command was executed: in a slot that has this part, and the `number`th of a session.
#[inline(always)]
fn place(part: u64, session: SessionId, number: u64) -> u64 {
    part ^ session.0.rotate_left(20) ^ number
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

    const SUMS: [u64; 2] = [0x2b86_6afc_5ec1_9a6c, 0xad6b_3ffa_3885_01e5];

    fn tally(commands: &[(u64, u64, Option<&[u8]>)]) -> Tally {
        let mut tally = Tally::default();
        tally.restart(Some(SHIFT));
        for (slot, number, result) in commands {
            if number % 3 == 0 {
                tally.begin(Slot(*slot));
            }
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

    /// Programs of different releases compare their sums: this one is never written anew.
    #[test]
    fn the_sum_is_the_same_in_every_release() {
        let result: Vec<u8> = (0..=255).chain(0..=255).collect();
        let mut commands: Vec<(u64, u64, Option<&[u8]>)> = Vec::new();
        for (number, length) in (0..40).chain([127, 128, 240, 241, 512]).enumerate() {
            commands.push((1, number as u64, Some(&result[..length])));
            // Another stretch in between: the next command is not of the last one.
            commands.push((4 + number as u64 % 2, 7, Some(&result[1..6])));
        }
        commands.push((2, 99, None));
        let mut tally = tally(&commands);
        assert_eq!([tally.take(0), tally.take(1)], SUMS);
        // What it is made of.
        let plain = |slot: u64, number: u64, result: &[u8]| {
            let place = slot.rotate_left(40) ^ 3_u64.rotate_left(20) ^ number;
            xxh3_64_with_seed(result, place)
        };
        for length in 0..40 {
            let mut tally = Tally::default();
            tally.restart(Some(SHIFT));
            let mut sum = 0_u64;
            for number in 0..3 {
                let result = &result[number..number + length];
                tally.add(Slot(2), SessionId(3), number as u64, Some(result));
                sum = sum.wrapping_add(plain(2, number as u64, result));
            }
            assert_eq!(tally.take(0), sum, "three results of {length} bytes");
        }
    }

    #[test]
    fn nothing_is_summed_up_before_it_is_wanted() {
        let mut tally = Tally::default();
        tally.add(Slot(0), SessionId(3), 1, Some(b"a"));
        assert_eq!(tally.take(0), 0);
    }
}
