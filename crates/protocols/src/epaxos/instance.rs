//! Names of instances, and sets of them: what a command must be executed after.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::slice;
use ionian_kernel::id::{Id, LeaderId, Round, Slot};
use ionian_kernel::protocol::MAX_PREDECESSORS;
use ionian_kernel::trace::{LogSlot, Names, Subject};
use ionian_kernel::wire::{Reader, Wire, WireError, encode_varint};

/// A ballot of one instance. [`OWN`] belongs to the instance's leader; every other is a round of
/// the leader that recovers the instance.
pub type Ballot = Round;

/// The ballot of the instance's own leader: lower than every ballot of a recovery.
pub const OWN: Ballot = Round(0);

/// The largest number that is read from a peer or a disk, so that the number after it exists.
const MAX_NUMBER: u64 = 1 << 62;

/// The most instances that a [`Deps`] read from a peer names one by one: the answers of all
/// acceptors together name fewer.
const MAX_NAMED: usize = 1 << 17;

/// The instances of one process of a leader. A leader that starts again begins a new space, because
/// it does not know how far it had come in the former one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Space {
    /// The leader.
    pub leader: LeaderId,
    /// How often the leader had started before.
    pub life: u32,
}

impl Wire for Space {
    fn encode(&self, out: &mut Vec<u8>) {
        self.leader.encode(out);
        encode_varint(self.life.into(), out);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let leader = LeaderId::decode(reader)?;
        let life = reader.varint()?;
        match u32::try_from(life) {
            Ok(life) => Ok(Space { leader, life }),
            Err(_) => Err(WireError::OutOfRange {
                what: "life of a leader",
                value: life,
            }),
        }
    }
}

/// The name of an instance. The order of names is that in which a replica executes instances that
/// depend on each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceId {
    /// Whose it is.
    pub space: Space,
    /// Its place there, from 0.
    pub number: u64,
}

impl InstanceId {
    /// The instance with this number of a space.
    pub const fn new(space: Space, number: u64) -> Self {
        InstanceId { space, number }
    }
}

impl Wire for InstanceId {
    fn encode(&self, out: &mut Vec<u8>) {
        self.space.encode(out);
        encode_varint(self.number, out);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let space = Space::decode(reader)?;
        let number = checked(reader.varint()?)?;
        Ok(InstanceId { space, number })
    }
}

/// The log of a space has a number of its own; lives that are long over share it with later ones.
impl Names for InstanceId {
    fn add_to<'a>(&'a self, subject: &mut Subject<'a>) {
        let Space { leader, life } = self.space;
        let life = (life % u32::from(u8::MAX)) as u16;
        subject.slot = Some(LogSlot {
            log: 1 + u16::from(leader.index()) + (life << u8::BITS),
            slot: Slot(self.number),
        });
    }
}

/// The most lives of a role with one data directory: 16,777,215 starts. Those with the next
/// directory of its node, when this one is lost, have larger numbers, whatever was lost with it.
const MAX_LIVES: u32 = u32::MAX / (MAX_PREDECESSORS + 1);

/// The number of the life after `last` of a role; `last` is 0 if no process has recorded one in
/// this data directory. `predecessors` directories of the node were lost before this one.
pub(super) fn next_life(last: u32, predecessors: u32) -> u32 {
    let before = predecessors * (MAX_LIVES + 1);
    let life = last.max(before) + 1;
    // The process ends here, and the way on is that of a lost disk.
    assert!(
        life - before <= MAX_LIVES,
        "this node was started {MAX_LIVES} times with this data directory, the most: give it another (ionian member readmit)"
    );
    life
}

/// A number, or how many there are, read from a peer.
pub(super) fn checked(number: u64) -> Result<u64, WireError> {
    if number > MAX_NUMBER {
        return Err(WireError::OutOfRange {
            what: "instance number",
            value: number,
        });
    }
    Ok(number)
}

/// Dependencies: a set of instances, some named one by one, and of some spaces all below a number.
///
/// What is named one by one is not named below a number too. So the order in which sets are united
/// makes no difference. A clone shares what is named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deps(Members);

/// How a set of dependencies is kept. Most have one member or none: the last write of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Members {
    #[default]
    None,
    One(InstanceId),
    /// Any other set.
    Many(Arc<Named>),
}

/// What a set of dependencies names.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Named {
    /// In order, none of them below a number of `below`.
    exact: Vec<InstanceId>,
    /// In order, each space once, with numbers above 0.
    below: Vec<(Space, u64)>,
}

impl From<Named> for Deps {
    fn from(named: Named) -> Self {
        Deps(match (&named.exact[..], &named.below[..]) {
            ([], []) => Members::None,
            ([one], []) => Members::One(*one),
            _ => Members::Many(Arc::new(named)),
        })
    }
}

impl From<InstanceId> for Deps {
    fn from(id: InstanceId) -> Self {
        Deps(Members::One(id))
    }
}

impl Deps {
    /// Nothing.
    pub const NONE: Deps = Deps(Members::None);

    /// These instances, and all below a number of these spaces.
    pub fn new(
        exact: impl IntoIterator<Item = InstanceId>,
        below: impl IntoIterator<Item = (Space, u64)>,
    ) -> Self {
        let mut named = Named {
            exact: exact.into_iter().collect(),
            below: below.into_iter().collect(),
        };
        named.normalize();
        named.into()
    }

    /// The instances that are named one by one, in order.
    pub fn exact(&self) -> &[InstanceId] {
        match &self.0 {
            Members::None => &[],
            Members::One(id) => slice::from_ref(id),
            Members::Many(named) => &named.exact,
        }
    }

    /// The spaces of which all instances below a number are members, in order.
    pub fn below(&self) -> &[(Space, u64)] {
        match &self.0 {
            Members::Many(named) => &named.below,
            _ => &[],
        }
    }

    /// Whether it has no member.
    pub fn is_empty(&self) -> bool {
        matches!(self.0, Members::None)
    }

    /// How many entries it has: its size in memory and on the wire.
    pub fn len(&self) -> usize {
        self.exact().len() + self.below().len()
    }

    /// How many bytes it takes in memory, besides itself. They count for each clone.
    pub fn byte_len(&self) -> usize {
        size_of_val(self.exact()) + size_of_val(self.below())
    }

    /// Whether the instance is a member.
    pub fn contains(&self, id: InstanceId) -> bool {
        match &self.0 {
            Members::None => false,
            Members::One(member) => *member == id,
            Members::Many(named) => named.contains(id),
        }
    }

    /// All instances of the space below this number are members.
    pub fn beginning(&self, space: Space) -> u64 {
        match &self.0 {
            Members::Many(named) => named.beginning(space),
            _ => 0,
        }
    }

    /// Whether `other` names nothing that is not named here.
    pub fn covers(&self, other: &Deps) -> bool {
        let longer = |(space, below): &(Space, u64)| self.beginning(*space) < *below;
        !other.below().iter().any(longer) && other.exact().iter().all(|id| self.contains(*id))
    }

    /// Adds an instance.
    pub fn insert(&mut self, id: InstanceId) {
        self.union(&id.into());
    }

    /// Adds all instances of a space below a number.
    pub fn insert_below(&mut self, space: Space, below: u64) {
        self.union(&Deps::new([], [(space, below)]));
    }

    /// Adds the members of `other`.
    pub fn union(&mut self, other: &Deps) {
        if self.is_empty() {
            self.clone_from(other);
        } else if !self.covers(other) {
            let named = self.edit();
            named.exact.extend_from_slice(other.exact());
            named.below.extend_from_slice(other.below());
            named.normalize();
        }
    }

    /// The lists of what is named, not shared with another set. The caller adds to them: a set of
    /// at most one instance is never kept as lists.
    fn edit(&mut self) -> &mut Named {
        if let Members::None | Members::One(_) = self.0 {
            let named = Named {
                exact: self.exact().to_vec(),
                below: Vec::new(),
            };
            self.0 = Members::Many(Arc::new(named));
        }
        match &mut self.0 {
            Members::Many(named) => Arc::make_mut(named),
            _ => unreachable!("it was made so"),
        }
    }

    /// In place of the instances named one by one, all of their space up to the last of them: more
    /// members, but at most one entry for each space.
    pub fn widened(&self) -> Deps {
        let ends = self.exact().iter().map(|id| (id.space, id.number + 1));
        Deps::new([], self.below().iter().copied().chain(ends))
    }

    /// Whether at least `count` of these sets, whose union it is, name each entry. A beginning of a
    /// space counts as one entry. Then the union of all but `count - 1` of the sets is the same.
    pub fn is_named_by(&self, count: usize, sets: &[&Deps]) -> bool {
        let reach = |(space, below): &(Space, u64)| {
            let reaching = sets.iter().filter(|set| set.beginning(*space) >= *below);
            reaching.count() >= count
        };
        let name = |id: &InstanceId| sets.iter().filter(|set| set.contains(*id)).count() >= count;
        self.below().iter().all(reach) && self.exact().iter().all(name)
    }
}

impl Named {
    fn contains(&self, id: InstanceId) -> bool {
        id.number < self.beginning(id.space) || self.exact.binary_search(&id).is_ok()
    }

    fn beginning(&self, space: Space) -> u64 {
        let found = self.below.binary_search_by_key(&space, |(space, _)| *space);
        found.map_or(0, |at| self.below[at].1)
    }

    /// Restores what holds of the two lists, whatever was appended to them.
    fn normalize(&mut self) {
        // The longest beginning of each space comes first.
        let order = |a: &(Space, u64), b: &(Space, u64)| a.0.cmp(&b.0).then(b.1.cmp(&a.1));
        self.below.sort_unstable_by(order);
        self.below.dedup_by_key(|(space, _)| *space);
        self.below.retain(|(_, below)| *below > 0);
        self.exact.sort_unstable();
        self.exact.dedup();
        if !self.below.is_empty() {
            let mut exact = core::mem::take(&mut self.exact);
            exact.retain(|id| !self.contains(*id));
            self.exact = exact;
        }
    }
}

/// Space by space: how far it is named as a whole, how many instances behind that are named one by
/// one, and how far each of them is from the one before.
impl Wire for Deps {
    fn encode(&self, out: &mut Vec<u8>) {
        if self.is_empty() {
            return encode_varint(0, out);
        }
        encode_varint(self.spaces().count() as u64, out);
        for (space, below, exact) in self.spaces() {
            space.encode(out);
            encode_varint(below, out);
            encode_varint(exact.len() as u64, out);
            let mut next = below;
            for id in exact {
                encode_varint(id.number - next, out);
                next = id.number + 1;
            }
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let mut deps = Deps::NONE;
        let mut last = None;
        for _ in 0..reader.varint()? {
            let space = Space::decode(reader)?;
            if last.replace(space).is_some_and(|last| last >= space) {
                return Err(WireError::OutOfRange {
                    what: "space behind an equal or later one",
                    value: space.life.into(),
                });
            }
            deps.read_space(space, reader)?;
        }
        Ok(deps)
    }
}

impl Deps {
    /// Its spaces in order: how far each is named as a whole, and what is named one by one.
    fn spaces(&self) -> impl Iterator<Item = (Space, u64, &[InstanceId])> {
        let (mut below, mut exact) = (self.below(), self.exact());
        core::iter::from_fn(move || {
            let first = below.first().map(|(space, _)| *space);
            let space = exact
                .first()
                .map_or(first, |id| Some(id.space.min(first.unwrap_or(id.space))))?;
            let mut beginning = 0;
            if first == Some(space) {
                beginning = below[0].1;
                below = &below[1..];
            }
            let (here, rest) = exact.split_at(exact.partition_point(|id| id.space == space));
            exact = rest;
            Some((space, beginning, here))
        })
    }

    /// Reads what is named of a space that comes after all others so far. Each entry takes a byte
    /// at least, so what is allocated is bounded by what was received.
    fn read_space(&mut self, space: Space, reader: &mut Reader<'_>) -> Result<(), WireError> {
        let below = checked(reader.varint()?)?;
        if below > 0 {
            self.edit().below.push((space, below));
        }
        let count = reader.varint()?;
        if count > (MAX_NAMED - self.exact().len()) as u64 {
            return Err(WireError::OutOfRange {
                what: "number of dependencies",
                value: count,
            });
        }
        let mut next = below;
        for _ in 0..count {
            let number = checked(next.saturating_add(reader.varint()?))?;
            let id = InstanceId { space, number };
            match self.0 {
                Members::None => self.0 = Members::One(id),
                _ => self.edit().exact.push(id),
            }
            next = number + 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ionian_kernel::wire::{decode_all, encode_all};
    use proptest::prelude::*;

    fn space(leader: u8, life: u32) -> Space {
        Space {
            leader: LeaderId(leader),
            life,
        }
    }

    fn id(leader: u8, number: u64) -> InstanceId {
        InstanceId::new(space(leader, 0), number)
    }

    fn some_deps() -> impl Strategy<Value = Deps> {
        let exact = prop::collection::vec((0..3u8, 0..8u64), 0..8);
        let below = prop::collection::vec((0..3u8, 0..8u64), 0..4);
        (exact, below).prop_map(|(exact, below)| {
            let exact = exact.into_iter().map(|(leader, number)| id(leader, number));
            Deps::new(
                exact,
                below
                    .into_iter()
                    .map(|(leader, below)| (space(leader, 0), below)),
            )
        })
    }

    /// Every member with a small number.
    fn members(deps: &Deps) -> Vec<InstanceId> {
        let all = (0..3).flat_map(|leader| (0..10).map(move |number| id(leader, number)));
        all.filter(|id| deps.contains(*id)).collect()
    }

    proptest! {
        #[test]
        fn a_union_has_the_members_of_both_in_whatever_order_it_is_made(
            a in some_deps(), b in some_deps(), c in some_deps(),
        ) {
            let mut union = a.clone();
            union.union(&b);
            union.union(&c);
            let mut other = c.clone();
            other.union(&b);
            other.union(&a);
            prop_assert_eq!(&union, &other);
            for id in members(&Deps::new([], (0..3).map(|leader| (space(leader, 0), 10)))) {
                let any = a.contains(id) || b.contains(id) || c.contains(id);
                prop_assert_eq!(union.contains(id), any);
            }
            prop_assert!(union.covers(&a) && union.covers(&b) && union.widened().covers(&union));
            if members(&union) != members(&a) {
                prop_assert!(!a.covers(&union));
            }
        }

        #[test]
        fn insertion_one_by_one_gives_the_same_value(a in some_deps(), b in some_deps()) {
            let mut union = a.clone();
            union.union(&b);
            let mut inserted = a;
            b.exact().iter().for_each(|id| inserted.insert(*id));
            b.below().iter().for_each(|(space, below)| inserted.insert_below(*space, *below));
            prop_assert_eq!(inserted, union);
        }

        #[test]
        fn what_was_encoded_is_decoded(deps in some_deps()) {
            prop_assert_eq!(decode_all::<Deps>(&encode_all(&deps).into()), Ok(deps));
        }

        #[test]
        fn any_bytes_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(deps) = decode_all::<Deps>(&bytes.into()) {
                prop_assert_eq!(&Deps::new(deps.exact().to_vec(), deps.below().to_vec()), &deps);
            }
        }

        /// What a recovery relies on that hears only some of those that a fast decision had asked.
        #[test]
        fn what_all_but_one_name_is_the_union_where_two_name_everything(
            sets in prop::collection::vec(some_deps(), 1..5), left_out in 0..5usize,
        ) {
            let union_of = |sets: &[&Deps]| {
                let mut union = Deps::NONE;
                sets.iter().for_each(|set| union.union(set));
                union
            };
            let all: Vec<&Deps> = sets.iter().collect();
            let union = union_of(&all);
            prop_assert!(union.is_named_by(1, &all));
            if union.is_named_by(2, &all) && left_out < all.len() {
                let mut rest = all.clone();
                rest.remove(left_out);
                prop_assert_eq!(union_of(&rest), union);
            }
        }
    }

    #[test]
    fn neighbours_take_a_byte_each() {
        let deps = Deps::new((100..200).map(|number| id(1, number)), [(space(2, 7), 5)]);
        assert_eq!(encode_all(&deps).len(), 1 + 4 + 100 + 4);
        assert_eq!(deps.len(), 101);
        assert_eq!(deps.widened().len(), 2);
    }

    #[test]
    fn more_dependencies_than_all_acceptors_name_are_malformed() {
        let mut bytes = alloc::vec![1, 0, 0, 0];
        encode_varint(MAX_NAMED as u64 + 1, &mut bytes);
        bytes.resize(MAX_NAMED * 2, 0);
        let error = decode_all::<Deps>(&bytes.into()).unwrap_err();
        let what = "number of dependencies";
        assert!(matches!(error, WireError::OutOfRange { what: found, .. } if found == what));
    }

    #[test]
    fn numbers_without_a_successor_are_malformed() {
        let last = InstanceId::new(space(3, u32::MAX), MAX_NUMBER);
        assert_eq!(
            decode_all::<InstanceId>(&encode_all(&last).into()),
            Ok(last)
        );
        let beyond = InstanceId::new(space(3, 0), MAX_NUMBER + 1);
        assert!(decode_all::<InstanceId>(&encode_all(&beyond).into()).is_err());
    }
}
