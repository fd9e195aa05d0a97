//! The map from keys to values: one shard, or several that different threads may use.

use super::entry::Entry;
use super::segment::Segment;
use super::shard::{BUCKET_BITS, BUCKETS, Key, SEGMENTS, Shard, segment, segment_of_bucket};
use super::stream::Stream;
use std::iter;
use std::sync::Arc;

/// The map. All times are milliseconds of log time.
pub(super) struct Store {
    /// The shards in the order of their segments; none where another thread has it.
    shards: Vec<Option<Box<Shard>>>,
}

impl Default for Store {
    fn default() -> Store {
        Store {
            shards: vec![Some(Box::new(Shard::whole()))],
        }
    }
}

/// The shard of a segment, of `count`.
fn shard_of(segment: usize, count: usize) -> usize {
    segment * count / SEGMENTS
}

impl Store {
    // Shards.

    /// Divides the map into this many shards, all of which are here.
    pub(super) fn divide(&mut self, count: usize) {
        let all = self
            .shards
            .drain(..)
            .map(|shard| *shard.expect("it is here"));
        let mut rest = Shard::join(all);
        for shard in 1..count {
            // The first segment of the shard.
            let (before, behind) = rest.split((shard * SEGMENTS).div_ceil(count));
            self.shards.push(Some(Box::new(before)));
            rest = behind;
        }
        self.shards.push(Some(Box::new(rest)));
    }

    /// The shard that has a bucket of positions.
    pub(super) fn shard_of_bucket(&self, bucket: u64) -> usize {
        shard_of(segment_of_bucket(bucket), self.shards.len())
    }

    /// Takes out a shard, as a map that has no other.
    pub(super) fn lend(&mut self, shard: usize) -> Store {
        let mut shards: Vec<_> = iter::repeat_with(|| None).take(self.shards.len()).collect();
        shards[shard] = Some(self.shards[shard].take().expect("it is here"));
        Store { shards }
    }

    /// Puts in a shard that was lent.
    pub(super) fn take_back(&mut self, shard: usize, mut lent: Store) {
        let lent = lent.shards[shard].take().expect("it was lent");
        assert!(self.shards[shard].replace(lent).is_none(), "it was lent");
    }

    #[inline]
    fn shard(&self, position: u64) -> &Shard {
        let at = shard_of(segment(position), self.shards.len());
        self.shards[at].as_ref().expect("another thread has it")
    }

    #[inline]
    fn shard_mut(&mut self, position: u64) -> &mut Shard {
        let at = shard_of(segment(position), self.shards.len());
        self.shards[at].as_mut().expect("another thread has it")
    }

    fn shards(&self) -> impl Iterator<Item = &Shard> {
        self.shards.iter().flatten().map(|shard| &**shard)
    }

    fn shards_mut(&mut self) -> impl Iterator<Item = &mut Shard> {
        self.shards.iter_mut().flatten().map(|shard| &mut **shard)
    }

    // One key: see `Shard`.

    pub(super) fn get(&self, key: Key, now: u64) -> Option<&Entry> {
        self.shard(key.position).get(key, now)
    }

    pub(super) fn touch(&self, position: u64) -> bool {
        self.shard(position).touch(position)
    }

    pub(super) fn contains(&self, key: Key, now: u64) -> bool {
        self.get(key, now).is_some()
    }

    pub(super) fn version(&self, key: Key, now: u64) -> u64 {
        self.shard(key.position).version(key, now)
    }

    pub(super) fn come_and_go(&mut self, key: Key) {
        self.shard_mut(key.position).come_and_go(key);
    }

    pub(super) fn has_arrived(&self, position: u64) -> bool {
        self.shard(position).has_arrived(position)
    }

    /// Sets how many keys were created in a bucket of a segment.
    pub(super) fn set_arrivals(&mut self, segment: usize, bucket: usize, count: u64) {
        let position = ((segment * BUCKETS + bucket) as u64) << (64 - BUCKET_BITS);
        self.shard_mut(position).set_arrivals(position, count);
    }

    pub(super) fn set(&mut self, key: Key, value: &[u8], deadline: Option<u64>, now: u64) {
        self.shard_mut(key.position).set(key, value, deadline, now);
    }

    pub(super) fn edit(&mut self, key: Key, offset: usize, bytes: &[u8], now: u64) {
        self.shard_mut(key.position).edit(key, offset, bytes, now);
    }

    pub(super) fn set_stream(&mut self, key: Key, stream: Stream, deadline: Option<u64>, now: u64) {
        self.shard_mut(key.position)
            .set_stream(key, stream, deadline, now);
    }

    pub(super) fn edit_stream(&mut self, key: Key, now: u64, change: impl FnOnce(&mut Stream)) {
        self.shard_mut(key.position).edit_stream(key, now, change);
    }

    pub(super) fn set_deadline(&mut self, key: Key, deadline: Option<u64>, now: u64) {
        self.shard_mut(key.position)
            .set_deadline(key, deadline, now);
    }

    pub(super) fn remove(&mut self, key: Key, now: u64) -> Option<Entry> {
        self.shard_mut(key.position).remove(key, now)
    }

    pub(super) fn insert(&mut self, entry: Entry) {
        self.shard_mut(entry.position).insert(entry);
    }

    // All keys that are here.

    /// The number of changes made so far; the same on every replica that made the same ones.
    pub(super) fn modifications(&self) -> u64 {
        self.shards().map(Shard::modifications).sum()
    }

    /// Sets it, in a map of one shard.
    pub(super) fn set_modifications(&mut self, modifications: u64) {
        self.shards_mut()
            .for_each(|shard| shard.set_modifications(modifications));
    }

    /// Removes all keys. What was created is still counted.
    pub(super) fn clear(&mut self) {
        self.shards_mut().for_each(Shard::clear);
        // One change, however many shards there are.
        if let Some(first) = self.shards_mut().next() {
            first.set_modifications(first.modifications() + 1);
        }
    }

    /// Removes what has expired, at most about `limit` keys of each shard.
    pub(super) fn purge(&mut self, now: u64, limit: usize) {
        self.shards_mut().for_each(|shard| shard.purge(now, limit));
    }

    /// Removes all that has expired.
    pub(super) fn purge_all(&mut self, now: u64) {
        self.shards_mut().for_each(|shard| shard.purge_all(now));
    }

    /// The number of keys, also of those that have expired and were not removed.
    pub(super) fn len(&self) -> usize {
        self.shards().map(Shard::len).sum()
    }

    /// The number of keys that have not expired.
    pub(super) fn live_len(&self, now: u64) -> usize {
        self.shards().map(|shard| shard.live_len(now)).sum()
    }

    /// The number of keys that have not expired and will.
    pub(super) fn expiring(&self, now: u64) -> usize {
        self.shards().map(|shard| shard.expiring(now)).sum()
    }

    /// The bytes of the keys that have not expired.
    pub(super) fn live_bytes(&self, now: u64) -> u64 {
        self.shards().map(|shard| shard.live_bytes(now)).sum()
    }

    /// The first deadline after `now`.
    pub(super) fn next_deadline(&self, now: u64) -> Option<u64> {
        self.shards()
            .filter_map(|shard| shard.next_deadline(now))
            .min()
    }

    /// All entries that have not expired, in the order of their positions and keys.
    pub(super) fn in_order(&self, now: u64) -> impl Iterator<Item = &Entry> {
        self.shards().flat_map(move |shard| shard.in_order(now))
    }

    /// The segments in their order as they are now, whatever happens to the map.
    pub(super) fn share(&self) -> Vec<Arc<Segment>> {
        self.shards().flat_map(Shard::share).collect()
    }

    /// How many of the segments that are not empty, and of the entries' data, are shared.
    #[cfg(test)]
    pub(super) fn shared(&self) -> (usize, usize) {
        let each = self.shards().map(Shard::shared);
        each.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
    }

    /// [`Shard::page`] over all shards.
    pub(super) fn page(
        &self,
        from: u64,
        limit: usize,
        now: u64,
        patience: &mut u64,
    ) -> (Vec<&Entry>, u64) {
        let mut all = Vec::new();
        let first = shard_of(segment(from), self.shards.len());
        for shard in self.shards[first..].iter().flatten() {
            let wanted = limit - all.len().min(limit);
            let (mut page, next) = shard.page(from, wanted, now, patience);
            all.append(&mut page);
            if next != 0 {
                return (all, next);
            }
        }
        (all, 0)
    }
}
