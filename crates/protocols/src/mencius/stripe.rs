//! How the log is divided among the leaders.
//!
//! Inside a stripe slots are counted by themselves, from 0 and without gaps: leaders, proxy leaders
//! and acceptors do there what they do in MultiPaxos. Such a number is a [`StripePosition`]. Only
//! what concerns the whole log is counted in slots of the log: what replicas execute, what readers
//! wait for, and how far leaders are.
//!
//! The [parts](crate::parts) of a stripe call its positions slots, because the stripe is all of the
//! log that they know. Where a role calls a part it converts them, and nowhere else.

use alloc::vec::Vec;
use ionian_kernel::id::{Index, MAX_INSTANCES, Slot};
use ionian_kernel::positions;
use ionian_kernel::wire::{Reader, Wire, WireError};

positions! {
    /// A position in a stripe.
    StripePosition,
}

impl StripePosition {
    /// The position that a part of the stripe calls this slot.
    #[inline]
    pub fn of_part(slot: Slot) -> Self {
        StripePosition(slot.0)
    }

    /// What a part of the stripe calls this position.
    #[inline]
    pub fn in_part(self) -> Slot {
        Slot(self.0)
    }
}

/// One leader's part of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stripe(pub Index);

impl From<Stripe> for u16 {
    fn from(stripe: Stripe) -> u16 {
        stripe.0.into()
    }
}

impl Wire for Stripe {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        match Index::decode(reader)? {
            stripe if usize::from(stripe) < MAX_INSTANCES => Ok(Stripe(stripe)),
            stripe => Err(WireError::OutOfRange {
                what: "stripe",
                value: stripe.into(),
            }),
        }
    }
}

/// The stripes of a log, which are dealt out in turn: slot `s` is in stripe `s` modulo their
/// number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stripes {
    count: u64,
}

impl Stripes {
    /// This number of stripes, at least one.
    pub fn new(count: usize) -> Self {
        assert!((1..=MAX_INSTANCES).contains(&count), "{count} stripes");
        Stripes {
            count: count as u64,
        }
    }

    /// How many there are.
    pub fn count(self) -> usize {
        self.count as usize
    }

    /// All of them, in order.
    pub fn iter(self) -> impl Iterator<Item = Stripe> {
        (0..self.count as Index).map(Stripe)
    }

    /// The slot of the log at this position of a stripe.
    pub fn slot(self, stripe: Stripe, position: StripePosition) -> Slot {
        Slot(
            position
                .0
                .saturating_mul(self.count)
                .saturating_add(stripe.0.into()),
        )
    }

    /// The stripe of a slot, and its position there.
    pub fn place(self, slot: Slot) -> (Stripe, StripePosition) {
        (
            Stripe((slot.0 % self.count) as Index),
            StripePosition(slot.0 / self.count),
        )
    }

    /// The first position of a stripe whose slot is not below `slot`: how many of its positions lie
    /// below.
    pub fn from(self, stripe: Stripe, slot: Slot) -> StripePosition {
        StripePosition(slot.0.saturating_sub(stripe.0.into()).div_ceil(self.count))
    }

    /// The slot after that of the last position below `end`; the first of the log when there is
    /// none.
    pub fn end(self, stripe: Stripe, end: StripePosition) -> Slot {
        match end.0.checked_sub(1) {
            None => Slot::ZERO,
            Some(last) => self.slot(stripe, StripePosition(last)).next(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// s3: what counts is the number of stripes, whatever the number of leaders that stand in for
    /// one another.
    #[test]
    fn s3_every_slot_is_at_one_position_of_one_stripe() {
        for count in [1, 2, 3, 7, 64] {
            let stripes = Stripes::new(count);
            for slot in (0..500).map(Slot) {
                let (stripe, position) = stripes.place(slot);
                assert_eq!(stripes.slot(stripe, position), slot);
                assert_eq!(stripes.end(stripe, position.next()), slot.next());
                for stripe in stripes.iter() {
                    let from = stripes.from(stripe, slot);
                    assert!(stripes.slot(stripe, from) >= slot);
                    assert!(
                        from == StripePosition::ZERO
                            || stripes.slot(stripe, StripePosition(from.0 - 1)) < slot
                    );
                    assert!(stripes.end(stripe, from) <= slot);
                }
            }
        }
    }
}
