//! Entries whose positions have the same highest bits.
//!
//! Anyone can compute positions, and fill one segment with keys. A page of SCAN must not look at
//! all of them, so a crowded segment has an index of their positions.

use super::entry::Entry;
use super::shard::{BUCKETS, bucket};
use super::work;
use hashbrown::HashTable;
use std::collections::BTreeMap;

/// A segment with more keys has an index. Sixteen million keys that no adversary has chosen need
/// none.
pub(super) const CROWD: usize = 1 << 14;

/// A segment of the map.
#[derive(Clone, Debug, Default)]
pub(super) struct Segment {
    pub(super) entries: HashTable<Entry>,
    /// How many keys have a position, if the segment is crowded.
    index: Option<BTreeMap<u64, u32>>,
    /// How many keys were ever created in each bucket of the segment; empty as long as none was.
    arrivals: Vec<u64>,
}

impl Segment {
    pub(super) fn arrivals(&self, position: u64) -> u64 {
        self.arrivals
            .get(bucket(position) as usize % BUCKETS)
            .copied()
            .unwrap_or(0)
    }

    pub(super) fn arrivals_mut(&mut self, position: u64) -> &mut u64 {
        if self.arrivals.is_empty() {
            self.arrivals = vec![0; BUCKETS];
        }
        &mut self.arrivals[bucket(position) as usize % BUCKETS]
    }

    /// The buckets of this segment in which keys were created, in their order, and how many.
    pub(super) fn arrived(&self) -> impl Iterator<Item = (usize, u64)> {
        self.arrivals
            .iter()
            .copied()
            .enumerate()
            .filter(|(_, count)| *count > 0)
    }

    /// The same segment without keys. What was created is still counted.
    pub(super) fn emptied(&self) -> Segment {
        work::copy(8 * self.arrivals.len());
        Segment {
            arrivals: self.arrivals.clone(),
            ..Segment::default()
        }
    }

    /// Adds an entry whose key is not there.
    pub(super) fn insert(&mut self, seeds: [u64; 2], entry: Entry) {
        let position = entry.position;
        let rehash = |entry: &Entry| mix(seeds, entry.position);
        self.entries
            .insert_unique(mix(seeds, position), entry, rehash);
        if let Some(index) = &mut self.index {
            *index.entry(position).or_default() += 1;
        } else if self.entries.len() > CROWD {
            let mut index = BTreeMap::new();
            for entry in &self.entries {
                *index.entry(entry.position).or_default() += 1;
            }
            self.index = Some(index);
        }
    }

    /// Removes the first entry of a position that it `is`.
    pub(super) fn remove(
        &mut self,
        seeds: [u64; 2],
        position: u64,
        is: impl FnMut(&Entry) -> bool,
    ) -> Option<Entry> {
        let found = self.entries.find_entry(mix(seeds, position), is);
        let (entry, _) = found.ok()?.remove();
        if self.entries.len() <= CROWD / 2 {
            self.index = None;
        } else if let Some(index) = &mut self.index {
            match index.get_mut(&position) {
                Some(count) if *count > 1 => *count -= 1,
                _ => drop(index.remove(&position)),
            }
        }
        Some(entry)
    }

    /// The entries from a position on that have not expired, in their order: `wanted` of them, and
    /// the others of the last position; and from where on there are more. Keys that have expired
    /// take patience; where that ends, so do the entries.
    pub(super) fn page(
        &self,
        seeds: [u64; 2],
        from: u64,
        wanted: usize,
        now: u64,
        patience: &mut u64,
    ) -> (Vec<&Entry>, Option<u64>) {
        if let Some(index) = &self.index {
            let positions = index.range(from..).map(|(position, _)| *position);
            return self.page_of(positions, seeds, (from, wanted), now, patience);
        }
        work::count(1 + self.entries.len());
        let here = self.entries.iter().filter(|entry| entry.position >= from);
        let mut expired = 0;
        let is_live = |entry: &&Entry| {
            expired += u64::from(!entry.is_live(now));
            entry.is_live(now)
        };
        let mut entries: Vec<&Entry> = here.filter(is_live).collect();
        *patience = patience.saturating_sub(expired);
        let next = match wanted {
            _ if entries.len() <= wanted => None,
            0 => return (Vec::new(), Some(from)),
            _ => {
                let last = entries.select_nth_unstable_by_key(wanted - 1, |it| it.position);
                let last = last.1.position;
                entries.retain(|entry| entry.position <= last);
                Some(last.wrapping_add(1))
            }
        };
        entries.sort_unstable_by(|a, b| a.order().cmp(&b.order()));
        (entries, next)
    }

    /// The page of a crowded segment, given the positions in it.
    fn page_of(
        &self,
        positions: impl Iterator<Item = u64>,
        seeds: [u64; 2],
        (from, wanted): (u64, usize),
        now: u64,
        patience: &mut u64,
    ) -> (Vec<&Entry>, Option<u64>) {
        let mut entries: Vec<&Entry> = Vec::new();
        let behind = |entries: &[&Entry]| {
            let last = entries.last();
            last.map_or(from, |last| last.position.wrapping_add(1))
        };
        for position in positions {
            if *patience == 0 {
                return (entries, Some(position));
            }
            let all = self.entries.iter_hash(mix(seeds, position));
            let all = all.filter(|entry| entry.position == position);
            let mut live: Vec<&Entry> = all.filter(|entry| entry.is_live(now)).collect();
            match live.is_empty() {
                true => {
                    *patience = patience.saturating_sub(1);
                    work::glance(1);
                }
                false if entries.len() >= wanted => {
                    let next = behind(&entries);
                    return (entries, Some(next));
                }
                false => work::count(live.len()),
            }
            live.sort_unstable_by_key(|entry| entry.key());
            entries.append(&mut live);
        }
        let next = (entries.len() > wanted).then(|| behind(&entries));
        (entries, next)
    }

    /// Where the entries are that have not expired, in the order of their positions and keys.
    pub(super) fn order(&self, now: u64) -> Vec<usize> {
        let entries = self
            .entries
            .iter_buckets()
            .filter_map(|index| Some((self.entries.get_bucket(index)?, index)));
        let mut entries: Vec<_> = entries.filter(|(entry, _)| entry.is_live(now)).collect();
        work::count(1 + entries.len());
        work::glance(self.entries.len() - entries.len());
        entries.sort_unstable_by(|(a, _), (b, _)| a.order().cmp(&b.order()));
        entries.into_iter().map(|(_, index)| index).collect()
    }
}

/// Where the tables of this process look for a position.
pub(super) fn mix(seeds: [u64; 2], position: u64) -> u64 {
    let product = u128::from(position ^ seeds[0]) * u128::from(seeds[1]);
    (product >> 64) as u64 ^ product as u64
}

#[cfg(test)]
mod tests {
    use super::super::shard::Key;
    use super::*;

    const SEEDS: [u64; 2] = [3, 5];

    /// Three keys of each second position, one of which expires.
    fn entry(at: u64) -> Entry {
        let key = Key {
            position: at / 3 * 2,
            bytes: &at.to_be_bytes(),
        };
        Entry::new(key, b"v", 1, (at % 3 == 1).then_some(5))
    }

    fn keys(page: (Vec<&Entry>, Option<u64>)) -> (Vec<Vec<u8>>, Option<u64>) {
        let keys = page.0.iter().map(|entry| entry.key().to_vec());
        (keys.collect(), page.1)
    }

    /// Its page is found by looking at all keys.
    fn same(segment: &Segment, without_index: &Segment) {
        assert!(without_index.index.is_none());
        for from in [0, 1, 2, 777, 9999, 40_000] {
            for wanted in [0, 1, 2, 3, 10, 100_000] {
                for now in [0, 5] {
                    let page = |it: &Segment| {
                        let mut patience = u64::MAX;
                        keys(it.page(SEEDS, from, wanted, now, &mut patience))
                    };
                    assert_eq!(page(segment), page(without_index), "{from} {wanted} {now}");
                }
            }
        }
    }

    #[test]
    fn a_crowded_segment_has_the_same_pages_as_any_other() {
        let mut segment = Segment::default();
        (0..2 * CROWD as u64).for_each(|at| segment.insert(SEEDS, entry(at)));
        for (left, has_index) in [(2 * CROWD, true), (CROWD, true), (CROWD / 2, false)] {
            for at in left as u64..2 * CROWD as u64 {
                let key = at.to_be_bytes();
                segment.remove(SEEDS, entry(at).position, |it| it.key() == key);
            }
            assert_eq!(segment.index.is_some(), has_index, "{left} keys");
            let without_index = Segment {
                index: None,
                ..segment.clone()
            };
            same(&segment, &without_index);
        }
    }

    #[test]
    fn a_page_ends_where_too_many_keys_have_expired() {
        let mut segment = Segment::default();
        for at in 0..2 * CROWD as u64 {
            let key = Key {
                position: at,
                bytes: b"k",
            };
            segment.insert(SEEDS, Entry::new(key, b"v", 1, Some(5)));
        }
        let mut patience = 1000;
        let page = segment.page(SEEDS, 0, 10, 5, &mut patience);
        assert_eq!((keys(page), patience), ((Vec::new(), Some(1000)), 0));
    }
}
