//! A part of the map from keys to values, with expiry.
//!
//! Entries of the whole map lie in a fixed number of segments, chosen by the highest bits of the
//! key's position, a hash that all replicas agree on. So the segments in their order, each sorted,
//! give all keys in the order of positions: this is what SCAN, KEYS, RANDOMKEY and snapshots walk,
//! and it costs GET and SET nothing. Each segment is a hash table that grows by itself; a million
//! keys need a thousand growths of a thousand entries instead of one that stops the replica.
//!
//! Within a segment entries are found by the position mixed with a seed of this process. Anyone can
//! compute positions, and could find keys whose positions have many bits in common; with the seed
//! this does not tell where they collide. The order inside a segment differs between replicas for
//! that reason, and nothing that leaves this file depends on it.
//!
//! A picture of the map shares its segments, so that taking it costs a counter a segment. A
//! segment is copied when it is written to while it is shared, but of its keys and values only the
//! short ones, which lie in their entries: copies of an entry share longer ones, until one of them
//! changes. What is not shared is written in place.
//!
//! An expired key is missing for every method that is given the time. It is removed when it is next
//! written, or by `purge`, a bounded number at a time.
//!
//! WATCH has to notice a key that came and went, and nothing remembers a missing key. So each of
//! 65,536 buckets of positions counts the keys that were created in it (`arrivals`), and a missing
//! key has the count of its bucket for a version. Creations are counted and not removals, because a
//! key that expires is removed at some time later, another one on each replica. Now and then the
//! creation of another key of the bucket stops an EXEC for nothing, after which the client tries
//! again; no change is ever missed.

use super::entry::{Entry, NEVER};
use super::hash;
use super::segment::{Segment, mix};
use super::stream::Stream;
use super::version::{Change, version};
use super::{free, work};
use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::mem;
use std::sync::Arc;

/// The number of segments is two to this power. Enough that a million keys leave a thousand a
/// segment, which one page of SCAN looks through; few enough that an empty store is small.
const SEGMENT_BITS: u32 = 10;

/// The number of segments.
pub(super) const SEGMENTS: usize = 1 << SEGMENT_BITS;

/// The number of highest bits of a position that are its bucket. A command's footprint names
/// buckets: what happens in one does not show in another.
pub(super) const BUCKET_BITS: u32 = 16;

/// Buckets of a segment.
pub(super) const BUCKETS: usize = 1 << (BUCKET_BITS - SEGMENT_BITS);

/// The segment that a bucket is in.
pub(super) fn segment_of_bucket(bucket: u64) -> usize {
    bucket as usize / BUCKETS
}

/// The bucket of a position.
pub(super) fn bucket(position: u64) -> u64 {
    position >> (64 - BUCKET_BITS)
}

/// A key and its position, which is computed once for all that a command does with the key.
#[derive(Clone, Copy)]
pub(super) struct Key<'a> {
    pub(super) position: u64,
    pub(super) bytes: &'a [u8],
}

impl<'a> Key<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Key<'a> {
        Key {
            position: hash::position(bytes),
            bytes,
        }
    }
}

type Deadlines = BTreeMap<(u64, u64), u32>;

/// The entries of consecutive segments. All times are milliseconds of log time.
pub(super) struct Shard {
    /// Which segment of the map is the first.
    first: usize,
    /// Never changed but through `Arc::make_mut`: there may be pictures that share them.
    segments: Box<[Arc<Segment>]>,
    seeds: [u64; 2],
    len: usize,
    /// The bytes of all entries, also of those that have expired.
    bytes: u64,
    /// How many keys have a deadline and a position; more than one only if positions collide.
    deadlines: Deadlines,
    modifications: u64,
}

/// The segments of an empty map. They are not one that all share: what the segments know about
/// their tables then lies in few pages of memory.
fn empty_segments() -> Box<[Arc<Segment>]> {
    (0..SEGMENTS).map(|_| Arc::default()).collect()
}

pub(super) fn segment(position: u64) -> usize {
    (position >> (64 - SEGMENT_BITS)) as usize
}

impl Shard {
    /// The whole of an empty map.
    pub(super) fn whole() -> Shard {
        #[expect(
            clippy::disallowed_types,
            reason = "nothing that leaves this file depends on the seed"
        )]
        let state = std::hash::RandomState::new();
        Shard {
            first: 0,
            segments: empty_segments(),
            seeds: [state.hash_one(0), state.hash_one(1) | 1],
            len: 0,
            bytes: 0,
            deadlines: BTreeMap::new(),
            modifications: 0,
        }
    }

    /// Shards that follow one another, as one.
    pub(super) fn join(shards: impl IntoIterator<Item = Shard>) -> Shard {
        let mut shards = shards.into_iter();
        let mut whole = shards.next().expect("there is one");
        let mut segments = whole.segments.into_vec();
        for shard in shards {
            segments.extend(shard.segments);
            whole.len += shard.len;
            whole.bytes += shard.bytes;
            whole.deadlines.extend(shard.deadlines);
            whole.modifications += shard.modifications;
        }
        whole.segments = segments.into();
        whole
    }

    /// It and another one, which has the segments of the map from this one on.
    pub(super) fn split(self, at: usize) -> (Shard, Shard) {
        let mut segments = self.segments.into_vec();
        let (first, seeds) = (at, self.seeds);
        let behind = segments.split_off(at - self.first);
        let is_behind = |position| segment(position) >= at;
        let (later, deadlines): (Deadlines, Deadlines) = self
            .deadlines
            .into_iter()
            .partition(|((_, position), _)| is_behind(*position));
        let len = behind.iter().map(|segment| segment.entries.len()).sum();
        let entries = behind.iter().flat_map(|segment| segment.entries.iter());
        let bytes = entries.map(Entry::bytes).sum();
        let shard = Shard {
            segments: segments.into(),
            deadlines,
            len: self.len - len,
            bytes: self.bytes - bytes,
            ..self
        };
        let behind = Shard {
            first,
            segments: behind.into(),
            seeds,
            len,
            bytes,
            deadlines: later,
            modifications: 0,
        };
        (shard, behind)
    }

    /// The number of changes made so far; the same on every replica that made the same ones.
    pub(super) fn modifications(&self) -> u64 {
        self.modifications
    }

    pub(super) fn set_modifications(&mut self, modifications: u64) {
        self.modifications = modifications;
    }

    pub(super) fn get(&self, key: Key, now: u64) -> Option<&Entry> {
        work::count(1);
        self.segments[segment(key.position) - self.first]
            .entries
            .find(mix(self.seeds, key.position), |entry| {
                entry.order() == (key.position, key.bytes)
            })
            .filter(|entry| entry.is_live(now))
    }

    /// Whether there is a key of this position: fetches where it lies, so that it is near when it
    /// is wanted.
    pub(super) fn touch(&self, position: u64) -> bool {
        let entries = &self.segments[segment(position) - self.first].entries;
        entries
            .find(mix(self.seeds, position), |entry| {
                entry.position == position
            })
            .is_some()
    }

    /// The version of a key. If it is missing, how many keys were created in its bucket, itself
    /// perhaps among them.
    pub(super) fn version(&self, key: Key, now: u64) -> u64 {
        let arrivals = || self.segments[segment(key.position) - self.first].arrivals(key.position);
        self.get(key, now).map_or_else(arrivals, Entry::version)
    }

    /// A missing key is created and gone again before anything sees it.
    pub(super) fn come_and_go(&mut self, key: Key) {
        self.arrive(key.position);
        self.modifications += 1;
    }

    /// Counts a key that is created; returns how many there were in its bucket with it.
    fn arrive(&mut self, position: u64) -> u64 {
        let count = self.segment_mut(position).arrivals_mut(position);
        // A RESP integer has a sign.
        *count = (*count + 1) & i64::MAX as u64;
        *count
    }

    /// Whether a key was ever created in the bucket of a position.
    pub(super) fn has_arrived(&self, position: u64) -> bool {
        self.segments[segment(position) - self.first].arrivals(position) > 0
    }

    /// Sets how many keys were created in a bucket.
    pub(super) fn set_arrivals(&mut self, position: u64, count: u64) {
        *self.segment_mut(position).arrivals_mut(position) = count;
    }

    /// Gives a key a value, and `deadline` instead of the one that it may have.
    pub(super) fn set(&mut self, key: Key, value: &[u8], deadline: Option<u64>, now: u64) {
        self.modifications += 1;
        let number = deadline.unwrap_or(NEVER);
        let Some((entry, deadlines)) = self.live_mut(key, now) else {
            let version = version(self.arrive(key.position), Change::Value, number, value);
            return self.insert(Entry::new(key, value, version, deadline));
        };
        entry.version = version(entry.version, Change::Value, number, value);
        let before = entry.bytes();
        entry.set_value(value);
        let after = entry.bytes();
        reschedule(deadlines, entry, number);
        self.bytes = self.bytes - before + after;
    }

    /// Writes `bytes` at `offset` of the value of a key, which is created and grows as needed.
    pub(super) fn edit(&mut self, key: Key, offset: usize, bytes: &[u8], now: u64) {
        let Some((entry, _)) = self.live_mut(key, now) else {
            let value = [&vec![0; offset], bytes].concat();
            return self.set(key, &value, None, now);
        };
        entry.version = version(entry.version, Change::Edit, offset as u64, bytes);
        let before = entry.bytes();
        entry.edit(offset, bytes);
        let after = entry.bytes();
        self.bytes = self.bytes - before + after;
        self.modifications += 1;
    }

    /// Gives a key a stream, and `deadline` instead of the one that it may have.
    pub(super) fn set_stream(&mut self, key: Key, stream: Stream, deadline: Option<u64>, now: u64) {
        self.modifications += 1;
        let number = deadline.unwrap_or(NEVER);
        let Some((entry, deadlines)) = self.live_mut(key, now) else {
            let version = version(self.arrive(key.position), Change::Stream, number, &[]);
            return self.insert(Entry::of_stream(key, stream, version, deadline));
        };
        entry.version = version(entry.version, Change::Stream, number, &[]);
        let before = entry.bytes();
        entry.set_stream(stream);
        let after = entry.bytes();
        reschedule(deadlines, entry, number);
        self.bytes = self.bytes - before + after;
    }

    /// Changes the stream of a key, which is created if it is missing.
    pub(super) fn edit_stream(&mut self, key: Key, now: u64, change: impl FnOnce(&mut Stream)) {
        let found = self.live_mut(key, now).map(|(entry, _)| entry);
        if let Some(entry) = found {
            let before = entry.bytes();
            if let Some(stream) = entry.stream_mut() {
                change(stream);
                entry.version = version(entry.version, Change::Stream, 0, &[]);
                let after = entry.bytes();
                self.bytes = self.bytes - before + after;
                self.modifications += 1;
            }
            return;
        }
        let mut stream = Stream::default();
        change(&mut stream);
        self.set_stream(key, stream, None, now);
    }

    /// Changes the deadline of a key, if the key exists.
    pub(super) fn set_deadline(&mut self, key: Key, deadline: Option<u64>, now: u64) {
        let Some((entry, deadlines)) = self.live_mut(key, now) else {
            return;
        };
        let number = deadline.unwrap_or(NEVER);
        entry.version = version(entry.version, Change::Deadline, number, &[]);
        reschedule(deadlines, entry, number);
        self.modifications += 1;
    }

    /// Removes a key and returns what it was, if it existed.
    pub(super) fn remove(&mut self, key: Key, now: u64) -> Option<Entry> {
        let entry = self.take(key).filter(|entry| entry.is_live(now))?;
        self.modifications += 1;
        Some(entry)
    }

    /// Removes all keys. What was created is still counted; that they are removed is not.
    pub(super) fn clear(&mut self) {
        let mut garbage = Vec::new();
        for segment in &mut self.segments {
            work::count(1);
            if !segment.entries.is_empty() {
                let empty = Arc::new(segment.emptied());
                garbage.push(mem::replace(segment, empty));
            }
        }
        free::soon((garbage, mem::take(&mut self.deadlines)), self.len);
        (self.len, self.bytes) = (0, 0);
    }

    /// Adds an entry whose key is not there.
    pub(super) fn insert(&mut self, entry: Entry) {
        if entry.deadline != NEVER {
            *self
                .deadlines
                .entry((entry.deadline, entry.position))
                .or_default() += 1;
        }
        self.bytes += entry.bytes();
        let seeds = self.seeds;
        self.segment_mut(entry.position).insert(seeds, entry);
        self.len += 1;
    }

    /// The segment of a position, to be changed: copied first if it is shared.
    fn segment_mut(&mut self, position: u64) -> &mut Segment {
        Arc::make_mut(&mut self.segments[segment(position) - self.first])
    }

    /// The entry of a key, and the index that must follow its deadline. One that has expired is
    /// removed, so that what is written now does not inherit anything from it.
    fn live_mut(&mut self, key: Key, now: u64) -> Option<(&mut Entry, &mut Deadlines)> {
        if self
            .deadlines
            .first_key_value()
            .is_some_and(|((first, _), _)| *first <= now)
            && self.get(key, now).is_none()
        {
            self.take(key);
            return None;
        }
        let entry = Arc::make_mut(&mut self.segments[segment(key.position) - self.first])
            .entries
            .find_mut(mix(self.seeds, key.position), |entry| {
                entry.order() == (key.position, key.bytes)
            })?;
        Some((entry, &mut self.deadlines))
    }

    /// Removes the entry of a key, expired or not.
    fn take(&mut self, key: Key) -> Option<Entry> {
        let seeds = self.seeds;
        let segment = self.segment_mut(key.position);
        let is_it = |entry: &Entry| entry.order() == (key.position, key.bytes);
        let mut entry = segment.remove(seeds, key.position, is_it)?;
        let deadline = entry.deadline;
        reschedule(&mut self.deadlines, &mut entry, NEVER);
        entry.deadline = deadline;
        self.len -= 1;
        self.bytes -= entry.bytes();
        Some(entry)
    }

    /// Removes what has expired, at most about `limit` keys: the rest waits for the next call. So
    /// it does after the first segment that has to be copied, or one command might have to copy
    /// many.
    pub(super) fn purge(&mut self, now: u64, limit: usize) {
        for _ in 0..limit {
            match self.deadlines.first_key_value() {
                Some(((deadline, _), _)) if *deadline <= now => {}
                _ => return,
            }
            let Some((at, count)) = self.deadlines.pop_first() else {
                return;
            };
            let is_shared = Arc::strong_count(&self.segments[segment(at.1) - self.first]) > 1;
            let seeds = self.seeds;
            let segment = self.segment_mut(at.1);
            let mut bytes = 0;
            for _ in 0..count {
                work::count(1);
                let is_it = |it: &Entry| (it.deadline, it.position) == at;
                let removed = segment.remove(seeds, at.1, is_it);
                bytes += removed.map_or(0, |entry| entry.bytes());
            }
            self.bytes -= bytes;
            self.len -= count as usize;
            if is_shared {
                return;
            }
        }
    }

    /// The number of keys, also of those that have expired and were not removed.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Removes all that has expired, also what is shared.
    pub(super) fn purge_all(&mut self, now: u64) {
        let is_due = |shard: &Shard| {
            let first = shard.deadlines.first_key_value();
            first.is_some_and(|((deadline, _), _)| *deadline <= now)
        };
        while is_due(self) {
            self.purge(now, usize::MAX);
        }
    }

    /// The number of keys that have not expired. Walks over those that have, but were not removed.
    pub(super) fn live_len(&self, now: u64) -> usize {
        let expired = self
            .deadlines
            .range(..=(now, u64::MAX))
            .inspect(|_| work::glance(1))
            .map(|(_, count)| *count as usize);
        self.len - expired.sum::<usize>()
    }

    /// The number of keys that have not expired and will. Keys with one position and one deadline
    /// count once; positions have 64 bits.
    pub(super) fn expiring(&self, now: u64) -> usize {
        let expired = self.deadlines.range(..=(now, u64::MAX));
        self.deadlines.len() - expired.inspect(|_| work::glance(1)).count()
    }

    /// The bytes of the keys that have not expired. Looks at those that have, but were not removed.
    pub(super) fn live_bytes(&self, now: u64) -> u64 {
        let expired = self.deadlines.range(..=(now, u64::MAX));
        let gone = expired.map(|((deadline, position), _)| {
            let entries = &self.segments[segment(*position) - self.first].entries;
            let here = entries.iter_hash(mix(self.seeds, *position));
            let here = here.filter(|it| (it.deadline, it.position) == (*deadline, *position));
            here.map(Entry::bytes).sum::<u64>()
        });
        self.bytes - gone.sum::<u64>()
    }

    /// The first deadline after `now`.
    pub(super) fn next_deadline(&self, now: u64) -> Option<u64> {
        let (deadline, _) = self.deadlines.range((now.checked_add(1)?, 0)..).next()?.0;
        Some(*deadline)
    }

    /// All entries that have not expired, in the order of their positions and keys.
    pub(super) fn in_order(&self, now: u64) -> impl Iterator<Item = &Entry> {
        self.segments.iter().flat_map(move |segment| {
            let indices = segment.order(now).into_iter();
            indices.filter_map(|index| segment.entries.get_bucket(index))
        })
    }

    /// The segments in their order as they are now, whatever happens to the shard.
    pub(super) fn share(&self) -> impl Iterator<Item = Arc<Segment>> {
        self.segments.iter().cloned()
    }

    /// How many of the segments that are not empty, and of the entries' data, are shared.
    #[cfg(test)]
    pub(super) fn shared(&self) -> (usize, usize) {
        let segments = self
            .segments
            .iter()
            .filter(|it| !it.entries.is_empty() && Arc::strong_count(it) > 1);
        let entries = self
            .segments
            .iter()
            .flat_map(|segment| segment.entries.iter());
        (
            segments.count(),
            entries.filter(|entry| entry.is_shared()).count(),
        )
    }

    /// The entries from position `from` on, at least `limit` of them if there are as many, and the
    /// position where the next page begins; zero if there is nothing left. Entries of one position
    /// are never torn apart, for a position is all that the next call knows. A page ends early when
    /// it has met as many keys that have expired as there is patience for.
    pub(super) fn page(
        &self,
        from: u64,
        limit: usize,
        now: u64,
        patience: &mut u64,
    ) -> (Vec<&Entry>, u64) {
        let mut page: Vec<&Entry> = Vec::new();
        let skipped = segment(from).saturating_sub(self.first);
        for (i, part) in (self.first..).zip(&self.segments).skip(skipped) {
            let start = (i as u64) << (64 - SEGMENT_BITS);
            if *patience == 0 {
                return (page, start);
            }
            let wanted = limit - page.len();
            let (mut entries, next) = part.page(self.seeds, from.max(start), wanted, now, patience);
            page.append(&mut entries);
            if let Some(next) = next {
                return (page, next);
            }
        }
        (page, 0)
    }
}

/// Gives an entry of the map another deadline.
fn reschedule(deadlines: &mut Deadlines, entry: &mut Entry, deadline: u64) {
    if entry.deadline == deadline {
        return;
    }
    if entry.deadline != NEVER {
        let at = (entry.deadline, entry.position);
        match deadlines.get_mut(&at) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(deadlines.remove(&at)),
        }
    }
    entry.deadline = deadline;
    if deadline != NEVER {
        *deadlines.entry((deadline, entry.position)).or_default() += 1;
    }
}

#[cfg(test)]
mod tests;
