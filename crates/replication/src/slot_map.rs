//! Values by slot for a role that has only some of the slots: a proxy leader, one of many. And how
//! numbers are hashed in general.

use alloc::vec::Vec;
use core::hash::{BuildHasher, BuildHasherDefault, Hasher};
use hashbrown::HashMap;
use ionian_kernel::id::Slot;

/// Values by slot, in no order. A role that has most slots of a range uses a
/// [window](crate::window::SlotWindow).
///
/// It allocates only when it holds more values than ever before. The hash has no seed, so that two
/// runs are alike; slots come from leaders, so clients cannot choose which collide.
pub type SlotMap<T> = HashMap<Slot, T, BuildHasherDefault<SlotHasher>>;

/// The slots of a map for which `which` holds, in order.
pub fn slots_where<T>(map: &SlotMap<T>, which: impl Fn(&T) -> bool) -> Vec<Slot> {
    let mut slots: Vec<Slot> = map
        .iter()
        .filter(|(_, value)| which(value))
        .map(|(slot, _)| *slot)
        .collect();
    slots.sort_unstable();
    slots
}

/// Values by numbers that clients can choose, in no order.
pub type NumberMap<T> = HashMap<u64, T, Seeded>;

/// Makes hashers with a seed, which a node draws for itself: who does not know it cannot choose
/// numbers that collide. It must not matter in which order such a map is gone through.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seeded(pub u64);

impl BuildHasher for Seeded {
    type Hasher = SlotHasher;
    fn build_hasher(&self) -> SlotHasher {
        SlotHasher(self.0)
    }
}

/// Spreads slots, which come in steps, over all bits.
#[derive(Clone, Copy, Debug, Default)]
pub struct SlotHasher(u64);

impl Hasher for SlotHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }
    fn write_u8(&mut self, number: u8) {
        self.write_u64(number.into());
    }
    fn write_u16(&mut self, number: u16) {
        self.write_u64(number.into());
    }
    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }
    fn write_u64(&mut self, number: u64) {
        // 2^64 by the golden ratio: the highest bits of the product differ for numbers that are
        // near each other.
        self.0 = (self.0 ^ number)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            .rotate_left(32);
    }
    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_in_steps_do_not_collide() {
        // The table takes the place from the low bits and a tag from the seven highest.
        let hash = |slot: u64| {
            let mut hasher = SlotHasher::default();
            hasher.write_u64(slot);
            hasher.finish()
        };
        for step in [1, 3, 10, 64] {
            let mut places: Vec<u64> = (0..1000).map(|n| hash(n * step) & 0xFFFF).collect();
            places.sort_unstable();
            places.dedup();
            assert!(
                places.len() > 950,
                "{} places for 1000 slots in steps of {step}",
                places.len()
            );
        }
    }

    #[test]
    fn slots_come_in_order() {
        let map: SlotMap<u64> = (0..100).rev().map(|n| (Slot(n), n)).collect();
        assert_eq!(
            slots_where(&map, |n| n % 40 == 0),
            [Slot(0), Slot(40), Slot(80)]
        );
    }
}
