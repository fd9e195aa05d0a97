//! Which instances a replica has executed: almost all of each space, so that each is kept as runs.

use super::instance::{Deps, InstanceId, Space, checked};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use ionian_kernel::small_map::SmallMap;
use ionian_kernel::wire::{Reader, Wire, WireError, encode_varint};

/// A set of instances that has all of a space but for a few.
///
/// It has one run for each space and one for each hole. There are as many holes as instances are
/// under way, and one space for each start of a leader.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecutedSet {
    spaces: SmallMap<Space, Runs>,
    count: u64,
}

/// The members in one space. Two runs have a hole between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Runs {
    /// All below this number: most instances are executed in the order of their numbers.
    prefix: u64,
    /// The runs behind it by their first number, with the number after their last.
    rest: BTreeMap<u64, u64>,
}

impl Runs {
    /// The end of the run that a number is in; the number itself where it is in none.
    fn end_of_run(&self, number: u64) -> u64 {
        if number < self.prefix {
            return self.prefix;
        }
        let run = self.rest.range(..=number).next_back();
        run.map_or(number, |(_, end)| (*end).max(number))
    }

    /// All runs, in order.
    fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        let first = (self.prefix > 0).then_some((0, self.prefix));
        let rest = self.rest.iter().map(|(start, end)| (*start, *end));
        first.into_iter().chain(rest)
    }

    fn len(&self) -> usize {
        usize::from(self.prefix > 0) + self.rest.len()
    }

    /// The number after the last member.
    fn end(&self) -> u64 {
        let last = self.rest.last_key_value();
        last.map_or(self.prefix, |(_, end)| *end)
    }

    /// The first number after this one, which is no member, that is one.
    fn next_member(&self, number: u64) -> Option<u64> {
        self.rest.range(number..).next().map(|(next, _)| *next)
    }

    /// Adds all from `start` up to `end`, which is after it, and says how many were not there.
    fn insert(&mut self, start: u64, end: u64) -> u64 {
        let new = self.insert_behind(start.max(self.prefix), end);
        if let Some(run) = self
            .rest
            .first_entry()
            .filter(|run| *run.key() <= self.prefix)
        {
            self.prefix = run.remove();
        }
        new
    }

    /// The same of what is not in the prefix.
    fn insert_behind(&mut self, mut start: u64, mut end: u64) -> u64 {
        if start >= end {
            return 0;
        }
        if start == self.prefix && self.rest.is_empty() {
            self.prefix = end;
            return end - start;
        }
        let mut new = end - start;
        // A run that ends where this one starts becomes a part of it.
        if let Some((before, before_end)) = self.rest.range(..=start).next_back()
            && *before_end >= start
        {
            if *before_end >= end {
                return 0;
            }
            new -= *before_end - start;
            start = *before;
        }
        while let Some((next, next_end)) = self.rest.range(start..=end).next() {
            let (next, next_end) = (*next, *next_end);
            if next > start {
                new -= next_end.min(end) - next;
            }
            end = end.max(next_end);
            self.rest.remove(&next);
        }
        self.rest.insert(start, end);
        new
    }
}

impl ExecutedSet {
    /// How many members it has. It grows with each instance, so it says which of two sets of one
    /// replica is later.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Whether the instance is a member.
    pub fn contains(&self, id: InstanceId) -> bool {
        let runs = self.spaces.get(&id.space);
        runs.is_some_and(|runs| runs.end_of_run(id.number) > id.number)
    }

    /// Adds an instance, and says whether it was not there.
    pub fn insert(&mut self, id: InstanceId) -> bool {
        self.insert_run(id.space, id.number, id.number + 1) > 0
    }

    /// Adds the instances of a space from `start` up to `end`, and says how many were not there.
    pub fn insert_run(&mut self, space: Space, start: u64, end: u64) -> u64 {
        if start >= end {
            return 0;
        }
        let new = self.spaces.entry(space).or_default().insert(start, end);
        self.count += new;
        new
    }

    /// All instances of the space below this number are members, and this one is not.
    pub fn prefix(&self, space: Space) -> u64 {
        self.next_missing(space, 0)
    }

    /// The spaces of which there are members, in order, each with its prefix.
    pub fn prefixes(&self) -> impl Iterator<Item = (Space, u64)> {
        let prefix = |(space, runs): (&Space, &Runs)| (*space, runs.end_of_run(0));
        self.spaces.iter().map(prefix)
    }

    /// The spaces of which there are members, in order, each with the number after its last member.
    pub fn ends(&self) -> impl Iterator<Item = (Space, u64)> {
        self.spaces.iter().map(|(space, runs)| (*space, runs.end()))
    }

    /// The members of a space, as runs in order.
    pub fn runs(&self, space: Space) -> impl Iterator<Item = (u64, u64)> {
        self.spaces.get(&space).into_iter().flat_map(Runs::iter)
    }

    /// The first number from this one on that is not a member.
    pub fn next_missing(&self, space: Space, number: u64) -> u64 {
        let runs = self.spaces.get(&space);
        runs.map_or(number, |runs| runs.end_of_run(number))
    }

    /// The instances of a space below a number that are no members, in order, as runs.
    pub fn missing(&self, space: Space, below: u64) -> impl Iterator<Item = (u64, u64)> {
        let runs = self.spaces.get(&space);
        let mut at = 0;
        core::iter::from_fn(move || {
            let start = runs.map_or(at, |runs| runs.end_of_run(at));
            let next = runs.and_then(|runs| runs.next_member(start));
            at = next.unwrap_or(below).min(below);
            (start < at).then_some((start, at))
        })
    }

    /// Whether all of these are members.
    pub fn covers(&self, deps: &Deps) -> bool {
        let whole = |(space, below): &(Space, u64)| self.prefix(*space) >= *below;
        deps.below().iter().all(whole) && deps.exact().iter().all(|id| self.contains(*id))
    }

    /// Adds the members of `other`.
    pub fn merge(&mut self, other: &ExecutedSet) {
        for (space, runs) in &other.spaces {
            for (start, end) in runs.iter() {
                self.insert_run(*space, start, end);
            }
        }
    }

    /// Whether every member of `other` is a member.
    pub fn includes(&self, other: &ExecutedSet) -> bool {
        other.spaces.iter().all(|(space, runs)| {
            let mut runs = runs.iter();
            runs.all(|(start, end)| self.next_missing(*space, start) >= end)
        })
    }
}

/// Space by space: the number of runs, and of each how far it is from the one before, and how long
/// it is.
impl Wire for ExecutedSet {
    fn encode(&self, out: &mut Vec<u8>) {
        encode_varint(self.spaces.len() as u64, out);
        for (space, runs) in &self.spaces {
            space.encode(out);
            encode_varint(runs.len() as u64, out);
            let mut at = 0;
            for (start, end) in runs.iter() {
                encode_varint(start - at, out);
                encode_varint(end - start, out);
                at = end;
            }
        }
    }

    /// What is allocated is a small multiple of the bytes: each run takes two at least.
    fn decode(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let mut set = ExecutedSet::default();
        for _ in 0..reader.varint()? {
            let space = Space::decode(reader)?;
            let mut at = 0;
            for _ in 0..reader.varint()? {
                let start = checked(reader.varint()?.saturating_add(at))?;
                at = checked(reader.varint()?.saturating_add(start))?;
                set.insert_run(space, start, at);
            }
        }
        Ok(set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use ionian_kernel::id::LeaderId;
    use ionian_kernel::wire::{decode_all, encode_all};
    use proptest::prelude::*;

    fn space(leader: u8) -> Space {
        let leader = LeaderId(leader);
        Space { leader, life: 0 }
    }

    fn id(leader: u8, number: u64) -> InstanceId {
        InstanceId::new(space(leader), number)
    }

    /// Runs in two spaces.
    fn runs() -> impl Strategy<Value = Vec<(u8, u64, u64)>> {
        prop::collection::vec((0..2u8, 0..20u64, 0..6u64), 0..12)
    }

    fn set_of(runs: &[(u8, u64, u64)]) -> (ExecutedSet, BTreeSet<InstanceId>) {
        let (mut set, mut model) = (ExecutedSet::default(), BTreeSet::new());
        for (leader, start, length) in runs {
            let before = model.len();
            model.extend((*start..start + length).map(|number| id(*leader, number)));
            let new = set.insert_run(space(*leader), *start, start + length);
            assert_eq!(new as usize, model.len() - before);
        }
        (set, model)
    }

    proptest! {
        #[test]
        fn it_has_what_was_put_in(runs in runs(), others in runs(), below in 0..30u64) {
            let (mut set, mut model) = set_of(&runs);
            let (other, other_model) = set_of(&others);
            prop_assert_eq!(set.includes(&other), model.is_superset(&other_model));
            set.merge(&other);
            model.extend(other_model);
            prop_assert!(set.includes(&other));
            prop_assert_eq!(set.count() as usize, model.len());
            for leader in 0..2 {
                for number in 0..30 {
                    let id = id(leader, number);
                    prop_assert_eq!(set.contains(id), model.contains(&id));
                }
                let missing = set.missing(space(leader), below).flat_map(|(start, end)| start..end);
                let absent = |number: &u64| !model.contains(&id(leader, *number));
                prop_assert!(missing.eq((0..below).filter(absent)));
                let prefix = (0..).find(absent);
                prop_assert_eq!(Some(set.prefix(space(leader))), prefix);
                let deps = Deps::new([], [(space(leader), below)]);
                prop_assert_eq!(set.covers(&deps), prefix >= Some(below));
                let last = model.iter().rfind(|id| id.space == space(leader));
                let end = set.ends().find(|(of, _)| *of == space(leader));
                prop_assert_eq!(end, last.map(|last| (space(leader), last.number + 1)));
            }
            let all: Deps = Deps::new(model.iter().copied(), []);
            prop_assert!(set.covers(&all));
            prop_assert_eq!(decode_all::<ExecutedSet>(&encode_all(&set).into()), Ok(set));
        }

        #[test]
        fn any_bytes_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = decode_all::<ExecutedSet>(&bytes.into());
        }
    }

    #[test]
    fn instances_that_follow_each_other_are_one_run_and_new_only_once() {
        let mut set = ExecutedSet::default();
        for number in (0..1000).rev() {
            assert!(set.insert(id(0, number)) && !set.insert(id(0, number)));
        }
        assert_eq!(encode_all(&set).len(), 1 + 2 + 1 + 3);
        assert_eq!(set.prefixes().collect::<Vec<_>>(), [(space(0), 1000)]);
    }
}
