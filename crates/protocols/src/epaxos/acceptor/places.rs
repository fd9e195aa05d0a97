//! Which instance each record that is needed belongs to, in the order of the records.

use crate::epaxos::instance::InstanceId;
use alloc::collections::VecDeque;

/// Records get growing numbers, so a new one comes last, and the oldest mostly goes first.
#[derive(Default)]
pub(super) struct Places {
    /// In the order of their numbers; nothing where a record is not needed any more. The first is
    /// needed.
    records: VecDeque<(u64, Option<InstanceId>)>,
    needed: usize,
}

impl Places {
    /// How many are needed.
    pub(super) fn len(&self) -> usize {
        self.needed
    }

    /// The oldest.
    pub(super) fn first(&self) -> Option<(u64, InstanceId)> {
        let (at, id) = self.records.front()?;
        Some((*at, (*id)?))
    }

    /// A record is needed, whose number no other has that is.
    pub(super) fn insert(&mut self, at: u64, id: InstanceId) {
        self.needed += 1;
        match self.records.back() {
            Some((last, _)) if *last >= at => {
                let place = self.records.partition_point(|(other, _)| *other < at);
                match self.records.get_mut(place) {
                    Some((other, gone)) if *other == at => *gone = Some(id),
                    _ => self.records.insert(place, (at, Some(id))),
                }
            }
            _ => self.records.push_back((at, Some(id))),
        }
    }

    /// It is not needed any more.
    pub(super) fn remove(&mut self, at: u64) {
        let Ok(place) = self.records.binary_search_by_key(&at, |(at, _)| *at) else {
            return;
        };
        if self.records[place].1.take().is_some() {
            self.needed -= 1;
        }
        while let Some((_, None)) = self.records.front() {
            self.records.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use ionian_kernel::id::LeaderId;
    use proptest::prelude::*;

    fn id(number: u64) -> InstanceId {
        let space = crate::epaxos::instance::Space {
            leader: LeaderId(0),
            life: 1,
        };
        InstanceId::new(space, number)
    }

    proptest! {
        #[test]
        fn the_oldest_that_is_needed_is_first(
            steps in prop::collection::vec((any::<bool>(), 0..40u64), 0..200),
        ) {
            let (mut places, mut model) = (Places::default(), BTreeMap::new());
            for (inserts, at) in steps {
                match inserts {
                    true if model.insert(at, id(at)).is_none() => places.insert(at, id(at)),
                    true => {}
                    false => {
                        places.remove(at);
                        model.remove(&at);
                    }
                }
                let first = model.first_key_value().map(|(at, id)| (*at, *id));
                prop_assert_eq!((places.len(), places.first()), (model.len(), first));
            }
        }
    }
}
