//! The entries of a stream, in the order of their IDs.
//!
//! They lie in blocks, and blocks in groups. Appending works in the last block; the place of an ID
//! is found by one search among the groups, one in a group and one in a block; what is trimmed goes
//! away by whole groups and blocks as far as possible.
//!
//! A stream may be shared with pictures of former states. A change copies what is shared on its
//! path and nothing else: the list of groups, one group's list of blocks, one block's list of
//! entries. Fields and values are never copied.

use super::super::{free, work};
use super::id::Id;
use std::collections::VecDeque;
use std::iter;
use std::sync::Arc;

/// Entries of a full block.
const BLOCK: usize = 128;

/// Entries of a full group.
pub(in super::super) const IN_GROUP: u64 = (GROUP * BLOCK) as u64;

/// Blocks of a full group. A stream of a hundred million entries has six thousand groups.
const GROUP: usize = 128;

/// One entry: its ID, and its fields and values.
#[derive(Clone, Debug)]
pub(in super::super) struct Item {
    pub(in super::super) id: Id,
    /// How many words there are, then each with its length before it: see [`body`].
    body: Arc<[u8]>,
}

/// The bytes in which an entry keeps its fields and values.
pub(super) fn body(words: &[impl AsRef<[u8]>]) -> Vec<u8> {
    let len: usize = words.iter().map(|word| 4 + word.as_ref().len()).sum();
    let mut body = Vec::with_capacity(4 + len);
    body.extend_from_slice(&(words.len() as u32).to_le_bytes());
    for word in words {
        body.extend_from_slice(&(word.as_ref().len() as u32).to_le_bytes());
        body.extend_from_slice(word.as_ref());
    }
    body
}

impl Item {
    pub(in super::super) fn new(id: Id, body: &[u8]) -> Item {
        Item {
            id,
            body: body.into(),
        }
    }

    pub(in super::super) fn body(&self) -> &[u8] {
        &self.body
    }

    /// Fields and values in turn.
    pub(super) fn words(&self) -> impl Iterator<Item = &[u8]> {
        words(&self.body)
    }

    /// How many bytes it takes in memory, roughly and on all machines alike.
    fn size(&self) -> u64 {
        self.body.len() as u64 + 32
    }

    /// The most bytes that it takes in a reply: each word and the ID come with their lengths and
    /// line ends.
    pub(super) fn bytes_in_reply(&self) -> usize {
        self.body.len() + 16 * self.count() + 80
    }

    /// The number of fields and values.
    pub(super) fn count(&self) -> usize {
        count(&self.body).unwrap_or(0) as usize
    }
}

fn count(body: &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(*body.first_chunk()?))
}

fn words(body: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = body.get(4..).unwrap_or(&[]);
    iter::from_fn(move || {
        let (len, after) = rest.split_first_chunk()?;
        let (word, after) = after.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        rest = after;
        Some(word)
    })
}

/// Whether these bytes, which may be any, are fields and values in pairs.
pub(in super::super) fn is_body(bytes: &[u8]) -> bool {
    let (number, bytes_of_words) = words(bytes).fold((0, 4), |(number, len), word| {
        (number + 1, len + 4 + word.len())
    });
    number > 0 && number % 2 == 0 && count(bytes) == Some(number) && bytes_of_words == bytes.len()
}

type Block = VecDeque<Item>;

#[derive(Clone, Debug, Default)]
struct Group {
    len: usize,
    /// Of all entries.
    bytes: u64,
    /// None is empty.
    blocks: VecDeque<Arc<Block>>,
}

/// The entries of a stream.
#[derive(Clone, Debug, Default)]
pub(super) struct Entries {
    len: usize,
    /// Of all entries.
    bytes: u64,
    /// None is empty.
    groups: VecDeque<Arc<Group>>,
}

/// Where an entry is: its group, its block in the group, its index in the block.
type Place = (usize, usize, usize);

impl Group {
    fn last(&self) -> Option<Id> {
        last(self.blocks.back()?)
    }
}

fn last(block: &Block) -> Option<Id> {
    Some(block.back()?.id)
}

/// What pictures and copies may share, to be changed: its list, which has this length, is copied
/// first if it is shared.
fn own<T: Clone>(shared: &mut Arc<T>, len: impl Fn(&T) -> usize) -> &mut T {
    if Arc::strong_count(shared) > 1 {
        work::count(len(shared));
    }
    Arc::make_mut(shared)
}

impl Entries {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// How many bytes the entries take in memory, roughly and on all machines alike.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn first(&self) -> Option<&Item> {
        self.groups.front()?.blocks.front()?.front()
    }

    pub(super) fn last(&self) -> Option<&Item> {
        self.groups.back()?.blocks.back()?.back()
    }

    /// Adds an entry behind all others: its ID is greater than theirs.
    pub(super) fn push(&mut self, item: Item) {
        debug_assert!(self.last().is_none_or(|last| last.id < item.id));
        let is_full = |group: &Arc<Group>| {
            group.blocks.len() >= GROUP && group.blocks.back().is_none_or(|it| it.len() >= BLOCK)
        };
        if self.groups.back().is_none_or(is_full) {
            self.groups.push_back(Arc::default());
        }
        let group = own(self.groups.back_mut().expect("there is one"), |it| {
            it.blocks.len()
        });
        if group.blocks.back().is_none_or(|it| it.len() >= BLOCK) {
            group.blocks.push_back(Arc::default());
        }
        let block = group.blocks.back_mut().expect("there is one");
        group.bytes += item.size();
        self.bytes += item.size();
        own(block, Block::len).push_back(item);
        group.len += 1;
        self.len += 1;
    }

    /// Where the first entry is whose ID is not less than this one; behind the last group if there
    /// is none.
    fn seek(&self, id: Id) -> Place {
        let group = self.groups.partition_point(|group| group.last() < Some(id));
        let Some(blocks) = self.groups.get(group).map(|group| &group.blocks) else {
            return (group, 0, 0);
        };
        let block = blocks.partition_point(|block| last(block) < Some(id));
        let index = blocks
            .get(block)
            .map_or(0, |block| block.partition_point(|item| item.id < id));
        (group, block, index)
    }

    /// The entries from this ID on.
    pub(super) fn from(&self, id: Id) -> impl Iterator<Item = &Item> {
        let (group, block, index) = self.seek(id);
        let groups = iter::zip(group.., self.groups.range(group.min(self.groups.len())..));
        groups.flat_map(move |(g, it)| {
            let first = if g == group { block } else { 0 };
            let blocks = iter::zip(first.., it.blocks.range(first..));
            blocks.flat_map(move |(b, it)| {
                let is_first = (g, b) == (group, block);
                it.range(if is_first { index } else { 0 }..)
            })
        })
    }

    /// The entries up to this ID, the last one first.
    pub(super) fn back_from(&self, id: Id) -> impl Iterator<Item = &Item> {
        let end = (self.groups.len(), 0, 0);
        let (group, block, index) = id.next().map_or(end, |next| self.seek(next));
        let groups = (0..self.groups.len().min(group + 1)).rev();
        groups.flat_map(move |g| {
            let blocks = &self.groups[g].blocks;
            let count = if g == group { block + 1 } else { blocks.len() };
            (0..count).rev().flat_map(move |b| {
                let is_last = (g, b) == (group, block);
                let end = if is_last { index } else { blocks[b].len() };
                blocks[b].range(..end).rev()
            })
        })
    }

    /// How many entries have smaller IDs than this one.
    pub(super) fn count_before(&self, id: Id) -> usize {
        let (group, block, index) = self.seek(id);
        work::count(group + block);
        let groups = self.groups.range(..group).map(|group| group.len);
        let blocks = self.groups.get(group).map(|group| &group.blocks);
        let blocks = blocks.into_iter().flat_map(|blocks| blocks.range(..block));
        groups.sum::<usize>() + blocks.map(|block| block.len()).sum::<usize>() + index
    }

    /// Removes the first entries, this many.
    pub(super) fn remove_first(&mut self, count: usize) {
        let (mut left, mut whole, mut blocks) = (count.min(self.len), Vec::new(), Vec::new());
        self.len -= left;
        while left > 0 {
            let first = self.groups.front_mut().expect("some entries are left");
            if first.len <= left {
                left -= first.len;
                self.bytes -= first.bytes;
                whole.extend(self.groups.pop_front());
                continue;
            }
            let group = own(first, |it| it.blocks.len());
            let block = group.blocks.front_mut().expect("no group is empty");
            let removed = block.len().min(left);
            work::count(removed);
            let bytes: u64 = block.range(..removed).map(Item::size).sum();
            if removed == block.len() {
                blocks.extend(group.blocks.pop_front());
            } else {
                own(block, Block::len).drain(..removed);
            }
            group.len -= removed;
            group.bytes -= bytes;
            self.bytes -= bytes;
            left -= removed;
        }
        let elements = (whole.len() * GROUP + blocks.len()) * BLOCK;
        free::soon((whole, blocks), elements);
    }

    /// Removes the entry with this ID; false if there is none.
    pub(super) fn remove(&mut self, id: Id) -> bool {
        let (g, b, index) = self.seek(id);
        let found = self
            .groups
            .get(g)
            .and_then(|it| it.blocks.get(b)?.get(index));
        let Some(bytes) = found.filter(|item| item.id == id).map(Item::size) else {
            return false;
        };
        let group = own(&mut self.groups[g], |it| it.blocks.len());
        let block = own(&mut group.blocks[b], Block::len);
        work::copy(block.len() * size_of::<Item>());
        block.remove(index);
        if block.is_empty() {
            group.blocks.remove(b);
        }
        group.len -= 1;
        group.bytes -= bytes;
        self.bytes -= bytes;
        if group.len == 0 {
            self.groups.remove(g);
        }
        self.len -= 1;
        true
    }
}

impl Drop for Entries {
    fn drop(&mut self) {
        free::soon(std::mem::take(&mut self.groups), self.len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[derive(Clone, Debug)]
    enum Action {
        /// Appends this many entries, each so far behind the one before.
        Push(usize, u64),
        RemoveFirst(usize),
        Remove(prop::sample::Index),
        Share,
    }

    fn action() -> impl Strategy<Value = Action> {
        prop_oneof![
            4 => (0..2 * BLOCK, 1..3u64).prop_map(|(count, gap)| Action::Push(count, gap)),
            2 => (0..2 * BLOCK).prop_map(Action::RemoveFirst),
            4 => any::<prop::sample::Index>().prop_map(Action::Remove),
            1 => Just(Action::Share),
        ]
    }

    fn ids<'a>(items: impl Iterator<Item = &'a Item>) -> Vec<Id> {
        items.map(|item| item.id).collect()
    }

    fn same(entries: &Entries, model: &BTreeMap<Id, ()>) {
        let all: Vec<Id> = model.keys().copied().collect();
        assert_eq!(entries.len(), all.len());
        assert_eq!(ids(entries.from(Id::MIN)), all);
        assert_eq!(entries.first().map(|item| item.id), all.first().copied());
        assert_eq!(entries.last().map(|item| item.id), all.last().copied());
        assert_eq!(entries.bytes(), entries.from(Id::MIN).map(Item::size).sum());
        assert!(entries.groups.iter().all(|group| {
            let blocks = group.blocks.iter().map(|block| block.len());
            let items = group.blocks.iter().flat_map(|block| block.iter());
            group.len == blocks.sum::<usize>()
                && group.bytes == items.map(Item::size).sum()
                && group.blocks.iter().all(|it| !it.is_empty())
        }));
    }

    proptest! {
        #[test]
        fn entries_are_a_sorted_map(
            actions in vec(action(), 0..30),
            asked in vec(0..8000u64, 4),
        ) {
            let (mut entries, mut model) = (Entries::default(), BTreeMap::new());
            let (mut last, mut pictures) = (Id::MIN, Vec::new());
            for action in actions {
                match action {
                    Action::Push(count, gap) => for _ in 0..count {
                        last.seq += gap;
                        entries.push(Item::new(last, &vec![0; last.seq as usize % 7]));
                        model.insert(last, ());
                    }
                    Action::RemoveFirst(count) => {
                        entries.remove_first(count);
                        for _ in 0..count { model.pop_first(); }
                    }
                    Action::Remove(at) => {
                        let id = Id { ms: 0, seq: at.index(last.seq as usize + 1) as u64 };
                        prop_assert_eq!(entries.remove(id), model.remove(&id).is_some());
                    }
                    Action::Share => pictures.push((entries.clone(), model.clone())),
                }
            }
            pictures.push((entries, model));
            for (entries, model) in &pictures {
                same(entries, model);
                for seq in &asked {
                    let id = Id { ms: 0, seq: *seq };
                    let expected: Vec<_> = model.range(id..).map(|(id, ())| *id).collect();
                    prop_assert_eq!(ids(entries.from(id)), expected);
                    let expected: Vec<_> = model.range(..=id).rev().map(|(id, ())| *id).collect();
                    prop_assert_eq!(ids(entries.back_from(id)), expected);
                    prop_assert_eq!(entries.count_before(id), model.range(..id).count());
                }
                prop_assert_eq!(entries.back_from(Id::MAX).count(), model.len());
            }
        }
    }

    /// What a change copies of a long stream that a picture shares.
    #[test]
    fn an_append_to_a_shared_stream_copies_one_group_and_one_block() {
        let mut entries = Entries::default();
        for seq in 1..=(3 * GROUP * BLOCK + BLOCK / 2) as u64 {
            entries.push(Item::new(Id { ms: 0, seq }, b""));
        }
        let picture = entries.clone();
        entries.push(Item::new(Id { ms: 1, seq: 0 }, b""));
        let shared = |groups: &VecDeque<Arc<Group>>| {
            let shared = groups.iter().filter(|it| Arc::strong_count(it) > 1);
            shared.count()
        };
        assert_eq!((entries.groups.len(), shared(&entries.groups)), (4, 3));
        let blocks = &entries.groups.back().expect("there is one").blocks;
        assert_eq!(blocks.len(), 1);
        assert_eq!(picture.len() + 1, entries.len());
    }

    #[test]
    fn a_body_is_pairs_of_words() {
        let good = body(&[b"field", &b""[..]]);
        let item = Item::new(Id::MIN, &good);
        assert!(is_body(&good) && item.words().eq([&b"field"[..], b""]));
        assert_eq!(item.count(), 2);
        for len in 0..good.len() {
            assert!(!is_body(&good[..len]), "{len} bytes");
        }
        for words in [&[][..], &[b"f"], &[b"f", b"v", b"f"]] {
            assert!(!is_body(&body(words)));
        }
        assert!(!is_body(&[&good[..], &[0]].concat()));
        assert!(!is_body(&[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]));
    }
}
