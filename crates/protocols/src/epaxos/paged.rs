//! A map from instances to values, for instances that follow each other in a few spaces, as those
//! under way do. Pages of neighbours make the tree that is searched small, and each value stays
//! where it is while the tree changes.
//!
//! A page that has one instance takes as much memory as a full one, besides the values: at most
//! 32 pointers for each instance, if peers name instances that are far from each other.

use super::instance::{InstanceId, Space};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;

/// Instances of a page.
const PAGE: u64 = 32;

/// See the top of this file.
#[derive(Debug)]
pub(super) struct PagedMap<V> {
    pages: BTreeMap<(Space, u64), Page<V>>,
    len: usize,
}

/// The values of neighbours; null where there is none.
type Values<V> = [Option<Box<V>>; PAGE as usize];

#[derive(Debug)]
struct Page<V> {
    values: Box<Values<V>>,
    len: usize,
}

impl<V> Default for PagedMap<V> {
    fn default() -> Self {
        PagedMap {
            pages: BTreeMap::new(),
            len: 0,
        }
    }
}

/// The page of an instance, and its place there.
fn place(id: InstanceId) -> ((Space, u64), usize) {
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
        self.pages.get(&page)?.values[at].as_deref()
    }

    /// The value of an instance, to change it.
    pub(super) fn get_mut(&mut self, id: InstanceId) -> Option<&mut V> {
        let (page, at) = place(id);
        self.pages.get_mut(&page)?.values[at].as_deref_mut()
    }

    /// The value of an instance, which is made if there is none.
    pub(super) fn get_or_insert_with(
        &mut self,
        id: InstanceId,
        value: impl FnOnce() -> V,
    ) -> &mut V {
        let (page, at) = place(id);
        let page = self.pages.entry(page).or_insert_with(|| Page {
            values: Box::new([const { None }; PAGE as usize]),
            len: 0,
        });
        let slot = &mut page.values[at];
        if slot.is_none() {
            page.len += 1;
            self.len += 1;
        }
        slot.get_or_insert_with(|| Box::new(value()))
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
        }
        Some(*value)
    }

    /// Takes out the instances for which this is false.
    pub(super) fn retain(&mut self, stays: impl Fn(InstanceId) -> bool) {
        for ((space, page), Page { values, len }) in &mut self.pages {
            for (at, slot) in values.iter_mut().enumerate() {
                let id = InstanceId::new(*space, page * PAGE + at as u64);
                if slot.is_some() && !stays(id) {
                    *slot = None;
                    *len -= 1;
                    self.len -= 1;
                }
            }
        }
        self.pages.retain(|_, page| page.len > 0);
    }

    /// All instances, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (InstanceId, &V)> {
        self.pages
            .iter()
            .flat_map(|(key, page)| in_page(*key, page))
    }

    /// The instances from this one on, in order.
    pub(super) fn starting_at(&self, first: InstanceId) -> impl Iterator<Item = (InstanceId, &V)> {
        let pages = self.pages.range((first.space, first.number / PAGE)..);
        let all = pages.flat_map(|(key, page)| in_page(*key, page));
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
            self.pages.range((space, first)..=(space, last))
        });
        let all = pages.into_iter().flatten();
        let all = all.flat_map(|(key, page)| in_page(*key, page));
        all.filter(move |(id, _)| (start..end).contains(&id.number))
    }
}

fn in_page<V>(
    (space, page): (Space, u64),
    Page { values, .. }: &Page<V>,
) -> impl Iterator<Item = (InstanceId, &V)> {
    values.iter().enumerate().filter_map(move |(at, slot)| {
        let id = InstanceId::new(space, page * PAGE + at as u64);
        Some((id, slot.as_deref()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
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
        assert!(map.pages.is_empty() && map.is_empty());
    }
}
