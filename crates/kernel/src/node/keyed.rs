//! The records of a role that it needs until it releases their keys: how far the log can be cut.

use crate::role::Lsn;
use alloc::collections::VecDeque;

/// Positions of records with their keys, in the order of the log.
///
/// A record whose key is not above that of an earlier one is not noted: the earlier one is released
/// no sooner, and it decides where the log can be cut. So keys rise, and there is at most one entry
/// for each key that is not released. Roles bound these: an acceptor votes in a window of slots.
#[derive(Default)]
pub(super) struct Keyed {
    records: VecDeque<(Lsn, u64)>,
    /// Records with keys below this one are not needed.
    released: u64,
}

impl Keyed {
    /// A record was appended, or found in the log; positions rise.
    pub(super) fn add(&mut self, lsn: Lsn, key: u64) {
        let rises = self.records.back().is_none_or(|(_, last)| *last < key);
        if rises && key >= self.released {
            self.records.push_back((lsn, key));
        }
    }

    /// Records with keys below `key` are not needed any more.
    pub(super) fn release_below(&mut self, key: u64) {
        self.released = self.released.max(key);
        while self
            .records
            .front()
            .is_some_and(|(_, key)| *key < self.released)
        {
            self.records.pop_front();
        }
    }

    /// The position of the oldest record that is needed.
    pub(super) fn oldest(&self) -> Option<Lsn> {
        self.records.front().map(|(lsn, _)| *lsn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_oldest_needed_record_is_known_with_one_entry_a_key(
            steps in prop::collection::vec((0..10u8, 0..30u64), 0..200)
        ) {
            let (mut keyed, mut all, mut released) = (Keyed::default(), Vec::new(), 0);
            for (lsn, (step, key)) in (1..).map(Lsn).zip(steps) {
                if step > 0 {
                    keyed.add(lsn, key);
                    all.push((lsn, key));
                } else {
                    // Few of them, so that many records are needed.
                    keyed.release_below(key / 10);
                    released = released.max(key / 10);
                }
                let needed = all.iter().find(|(_, key)| *key >= released);
                prop_assert_eq!(keyed.oldest(), needed.map(|(lsn, _)| *lsn));
                prop_assert!(keyed.records.len() <= 30, "{} entries", keyed.records.len());
            }
        }
    }
}
