//! A map from instances to values, for instances that follow each other in a few spaces, as those
//! under way do. A page holds neighbours: it is found by its hash, and its value by its place
//! there; only a new page enters the order of all.
//!
//! A page that has one instance takes as much memory as a full one: 32 values for each instance, if
//! peers name instances that are far from each other. Large values are to be boxed.

use super::instance::{InstanceId, Space};
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use core::hash::BuildHasherDefault;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use ionian_replication::slot_map::SlotHasher;

/// Instances of a page.
const PAGE: u64 = 32;

/// The space of a page, and its place there.
type Key = (Space, u64);

/// See the top of this file.
#[derive(Debug)]
pub(super) struct PagedMap<V> {
    pages: HashMap<Key, Page<V>, BuildHasherDefault<SlotHasher>>,
    /// The pages that there are.
    order: BTreeSet<Key>,
    len: usize,
}

#[derive(Debug)]
struct Page<V> {
    values: Box<[Option<V>; PAGE as usize]>,
    len: usize,
}

impl<V> Default for PagedMap<V> {
    fn default() -> Self {
        PagedMap {
            pages: HashMap::default(),
            order: BTreeSet::new(),
            len: 0,
        }
    }
}

/// The page of an instance, and its place there.
fn place(id: InstanceId) -> (Key, usize) {
    ((id.space, id.number / PAGE), (id.number % PAGE) as usize)
}

impl<V> PagedMap<V> {
    /// How many instances it has.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The value of an instance.
    pub(super) fn get(&self, id: InstanceId) -> Option<&V> {
        let (page, at) = place(id);
        self.pages.get(&page)?.values[at].as_ref()
    }

    /// The value of an instance, to change it.
    pub(super) fn get_mut(&mut self, id: InstanceId) -> Option<&mut V> {
        let (page, at) = place(id);
        self.pages.get_mut(&page)?.values[at].as_mut()
    }

    /// The value of an instance, which is made if there is none.
    pub(super) fn get_or_insert_with(
        &mut self,
        id: InstanceId,
        value: impl FnOnce() -> V,
    ) -> &mut V {
        let (key, at) = place(id);
        let page = match self.pages.entry(key) {
            Entry::Occupied(page) => page.into_mut(),
            Entry::Vacant(vacant) => {
                self.order.insert(key);
                vacant.insert(Page {
                    values: Box::new([const { None }; PAGE as usize]),
                    len: 0,
                })
            }
        };
        let slot = &mut page.values[at];
        if slot.is_none() {
            page.len += 1;
            self.len += 1;
        }
        slot.get_or_insert_with(value)
    }

    /// Takes out an instance.
    pub(super) fn remove(&mut self, id: InstanceId) -> Option<V> {
        let (key, at) = place(id);
        let page = self.pages.get_mut(&key)?;
        let value = page.values[at].take()?;
        page.len -= 1;
        self.len -= 1;
        if page.len == 0 {
            self.pages.remove(&key);
            self.order.remove(&key);
        }
        Some(value)
    }

    /// Takes out the instances for which this is false.
    pub(super) fn retain(&mut self, stays: impl Fn(InstanceId) -> bool) {
        self.pages.retain(|key, Page { values, len }| {
            for (at, slot) in values.iter_mut().enumerate() {
                if slot.is_some() && !stays(id_at(*key, at)) {
                    *slot = None;
                    *len -= 1;
                    self.len -= 1;
                }
            }
            if *len == 0 {
                self.order.remove(key);
            }
            *len > 0
        });
    }

    /// All instances, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (InstanceId, &V)> {
        self.order.iter().flat_map(|key| self.in_page(*key))
    }

    /// The instances from this one on, in order.
    pub(super) fn starting_at(&self, first: InstanceId) -> impl Iterator<Item = (InstanceId, &V)> {
        let pages = self.order.range(place(first).0..);
        let all = pages.flat_map(|key| self.in_page(*key));
        all.filter(move |(id, _)| *id >= first)
    }

    /// The instances of a space from one number up to another, in order.
    pub(super) fn range(
        &self,
        space: Space,
        (start, end): (u64, u64),
    ) -> impl Iterator<Item = (InstanceId, &V)> {
        let pages = (start < end).then(|| {
            let (first, last) = (start / PAGE, (end - 1) / PAGE);
            self.order.range((space, first)..=(space, last))
        });
        let all = pages.into_iter().flatten();
        let all = all.flat_map(|key| self.in_page(*key));
        all.filter(move |(id, _)| (start..end).contains(&id.number))
    }

    fn in_page(&self, key: Key) -> impl Iterator<Item = (InstanceId, &V)> {
        let values = self.pages[&key].values.iter().enumerate();
        values.filter_map(move |(at, slot)| Some((id_at(key, at), slot.as_ref()?)))
    }
}

fn id_at((space, page): Key, at: usize) -> InstanceId {
    InstanceId::new(space, page * PAGE + at as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use ionian_kernel::id::LeaderId;
    use proptest::prelude::*;

    fn id((leader, number): (u8, u64)) -> InstanceId {
        let leader = LeaderId(leader);
        InstanceId::new(Space { leader, life: 0 }, number)
    }

    proptest! {
        #[test]
        fn it_holds_what_a_tree_holds(
            steps in prop::collection::vec((0..3u8, (0..2u8, 0..100u64)), 0..200),
            start in 0..120u64, end in 0..120u64, divisor in 1..5u64,
        ) {
            let (mut map, mut model) = (PagedMap::default(), BTreeMap::new());
            for (value, (step, at)) in steps.into_iter().enumerate() {
                let id = id(at);
                match step {
                    0 => prop_assert_eq!(map.remove(id), model.remove(&id)),
                    1 => prop_assert_eq!(map.get(id), model.get(&id)),
                    _ => {
                        let before = *model.entry(id).or_insert(value);
                        prop_assert_eq!(*map.get_or_insert_with(id, || value), before);
                        *map.get_mut(id).unwrap() = value;
                        model.insert(id, value);
                    }
                }
            }
            for round in 0..2 {
                let all = model.iter().map(|(id, value)| (*id, value));
                prop_assert!(map.iter().eq(all.clone()));
                prop_assert_eq!((map.len(), map.is_empty()), (model.len(), model.is_empty()));
                let (space, numbers) = (id((1, 0)).space, start..end);
                let first = InstanceId::new(space, start);
                let later = all.clone().filter(|(id, _)| *id >= first);
                prop_assert!(map.starting_at(first).eq(later), "round {round}");
                let some = all.filter(|(id, _)| id.space == space && numbers.contains(&id.number));
                prop_assert!(map.range(space, (start, end)).eq(some), "round {round}");
                map.retain(|id| id.number % divisor == 0);
                model.retain(|id, _| id.number % divisor == 0);
            }
        }
    }

    #[test]
    fn pages_without_instances_are_given_back() {
        let mut map = PagedMap::default();
        for number in 0..1000 {
            map.get_or_insert_with(id((0, number)), || number);
        }
        (0..500).for_each(|number| assert_eq!(map.remove(id((0, number))), Some(number)));
        map.retain(|id| id.number >= 990);
        assert_eq!(map.pages.len(), 2);
        map.retain(|_| false);
        assert!(map.pages.is_empty() && map.order.is_empty() && map.is_empty());
    }
}
