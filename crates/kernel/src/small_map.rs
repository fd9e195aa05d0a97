//! A map with few keys.

use alloc::vec::{self, Vec};
use core::{iter, slice};

/// A map with few keys, such as instances of a role, nodes, or epochs, in the order of the keys.
///
/// It is a sorted vector with methods of `BTreeMap`. Inserting and removing take time in proportion
/// to the number of keys. Both are compiled anew for each pair of key and value types, and the
/// vector is much less code than the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SmallMap<K, V>(Vec<(K, V)>);

impl<K, V> Default for SmallMap<K, V> {
    fn default() -> Self {
        SmallMap::new()
    }
}

type Pairs<'a, K, V> = iter::Map<slice::Iter<'a, (K, V)>, fn(&'a (K, V)) -> (&'a K, &'a V)>;

type PairsMut<'a, K, V> =
    iter::Map<slice::IterMut<'a, (K, V)>, fn(&'a mut (K, V)) -> (&'a K, &'a mut V)>;

impl<K, V> SmallMap<K, V> {
    /// An empty map.
    pub const fn new() -> Self {
        SmallMap(Vec::new())
    }

    /// The number of keys.
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no key.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes all keys.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Keys with their values, in the order of the keys.
    pub fn iter(&self) -> Pairs<'_, K, V> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    /// As [`iter`](Self::iter), with values that can be changed.
    pub fn iter_mut(&mut self) -> PairsMut<'_, K, V> {
        self.0.iter_mut().map(|(key, value)| (key, value))
    }

    /// The keys, in order.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &K> + ExactSizeIterator {
        self.0.iter().map(|(key, _)| key)
    }

    /// The values, in the order of their keys.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &V> + ExactSizeIterator + Clone {
        self.0.iter().map(|(_, value)| value)
    }

    /// As [`values`](Self::values), to change them.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.0.iter_mut().map(|(_, value)| value)
    }

    /// The smallest key, with its value.
    pub fn first_key_value(&self) -> Option<(&K, &V)> {
        self.0.first().map(|(key, value)| (key, value))
    }

    /// The largest key, with its value.
    pub fn last_key_value(&self) -> Option<(&K, &V)> {
        self.0.last().map(|(key, value)| (key, value))
    }

    /// Removes the smallest key, and returns it with its value.
    pub fn pop_first(&mut self) -> Option<(K, V)> {
        (!self.is_empty()).then(|| self.0.remove(0))
    }

    /// Keeps those for which `keep` returns true.
    pub fn retain(&mut self, mut keep: impl FnMut(&K, &mut V) -> bool) {
        self.0.retain_mut(|(key, value)| keep(key, value));
    }
}

impl<K: Ord, V> SmallMap<K, V> {
    /// The place of the key, or that at which it would be inserted.
    fn place(&self, key: &K) -> Result<usize, usize> {
        self.0.binary_search_by(|(it, _)| it.cmp(key))
    }

    /// The value of the key.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.place(key).ok().map(|place| &self.0[place].1)
    }

    /// The value of the key, to change it.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.place(key).ok().map(|place| &mut self.0[place].1)
    }

    /// Whether there is this key.
    pub fn contains_key(&self, key: &K) -> bool {
        self.place(key).is_ok()
    }

    /// Gives the key this value, and returns the one that it had.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self.place(&key) {
            Ok(place) => Some(core::mem::replace(&mut self.0[place].1, value)),
            Err(place) => {
                self.0.insert(place, (key, value));
                None
            }
        }
    }

    /// Removes the key, and returns its value.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let place = self.place(key).ok()?;
        Some(self.0.remove(place).1)
    }

    /// The key, with or without a value.
    pub fn entry(&mut self, key: K) -> Entry<'_, K, V> {
        Entry {
            place: self.place(&key),
            map: self,
            key,
        }
    }
}

/// A key of a map, with or without a value.
#[derive(Debug)]
pub struct Entry<'a, K, V> {
    map: &'a mut SmallMap<K, V>,
    place: Result<usize, usize>,
    key: K,
}

impl<'a, K, V> Entry<'a, K, V> {
    /// The value of the key. Without one, `value` becomes it.
    pub fn or_insert(self, value: V) -> &'a mut V {
        self.or_insert_with(|| value)
    }

    /// As [`or_insert`](Self::or_insert), with the value that a function makes.
    pub fn or_insert_with(self, value: impl FnOnce() -> V) -> &'a mut V {
        let pairs = &mut self.map.0;
        let place = self.place.unwrap_or_else(|place| {
            pairs.insert(place, (self.key, value()));
            place
        });
        &mut pairs[place].1
    }

    /// As [`or_insert`](Self::or_insert), with the default value.
    pub fn or_default(self) -> &'a mut V
    where
        V: Default,
    {
        self.or_insert_with(V::default)
    }
}

/// Of several values of a key, the last one stays.
impl<K: Ord, V> FromIterator<(K, V)> for SmallMap<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        let mut map = SmallMap::new();
        map.extend(pairs);
        map
    }
}

impl<K: Ord, V> Extend<(K, V)> for SmallMap<K, V> {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, pairs: I) {
        for (key, value) in pairs {
            self.insert(key, value);
        }
    }
}

impl<K, V> IntoIterator for SmallMap<K, V> {
    type Item = (K, V);
    type IntoIter = vec::IntoIter<(K, V)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a, K, V> IntoIterator for &'a SmallMap<K, V> {
    type Item = (&'a K, &'a V);
    type IntoIter = Pairs<'a, K, V>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a, K, V> IntoIterator for &'a mut SmallMap<K, V> {
    type Item = (&'a K, &'a mut V);
    type IntoIter = PairsMut<'a, K, V>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::SmallMap;
    use crate::random::Random;
    use alloc::collections::BTreeMap;

    #[test]
    fn it_is_a_tree_with_few_keys() {
        let mut random = Random::new(1);
        for _ in 0..200 {
            let (mut map, mut tree) = (SmallMap::new(), BTreeMap::new());
            for value in 0..60 {
                let key = random.below(12);
                match random.below(6) {
                    0 => assert_eq!(map.remove(&key), tree.remove(&key)),
                    1 => assert_eq!(
                        map.entry(key).or_insert(value),
                        tree.entry(key).or_insert(value)
                    ),
                    2 if value % 8 == 0 => assert_eq!(map.pop_first(), tree.pop_first()),
                    2 => {
                        map.retain(|it, _| *it != key);
                        tree.retain(|it, _| *it != key);
                    }
                    _ => assert_eq!(map.insert(key, value), tree.insert(key, value)),
                }
                assert_eq!(map.get(&key), tree.get(&key));
                assert_eq!(map.contains_key(&key), tree.contains_key(&key));
                assert_eq!(map.first_key_value(), tree.first_key_value());
                assert_eq!(map.last_key_value(), tree.last_key_value());
                assert_eq!(map.len(), tree.len());
                assert!(map.iter().eq(&tree), "{map:?}");
            }
        }
    }
}
