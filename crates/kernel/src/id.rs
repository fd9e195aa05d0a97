//! Names of things: log positions, rounds, and the instances of each role.

pub use crate::set::{Index, MAX_INSTANCES, Members, Set};
use crate::wire::{Reader, Wire, WireError};
use alloc::vec::Vec;
use core::fmt;

/// A place in a sequence that only grows: a slot of the log, or the number of one of many parts.
/// Each kind of sequence has a type of its own, made by [`positions!`](crate::positions!).
pub trait Position: Copy + fmt::Debug + Ord {
    /// The place with this number; the first is 0.
    fn at(number: u64) -> Self;
    /// Its number.
    fn number(self) -> u64;
}

/// Makes types of [positions](Position).
#[macro_export]
macro_rules! positions {
    ($($(#[$doc:meta])* $position:ident),* $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $position(pub u64);

        // Not every type of positions needs every one of these.
        #[allow(dead_code)]
        impl $position {
            /// The first.
            pub const ZERO: Self = Self(0);
            /// After every other.
            pub const MAX: Self = Self(u64::MAX);

            /// The position after this one.
            pub fn next(self) -> Self {
                self.plus(1)
            }

            /// The position `count` after this one.
            pub fn plus(self, count: u64) -> Self {
                Self(self.0.saturating_add(count))
            }

            /// How many positions lie from `earlier` up to this one; zero where `earlier` is later.
            pub fn distance(self, earlier: Self) -> u64 {
                self.0.saturating_sub(earlier.0)
            }

            /// The positions from this one up to, not including, `end`.
            pub fn until(self, end: Self) -> impl Iterator<Item = Self> {
                (self.0..end.0).map(Self)
            }
        }

        impl $crate::id::Position for $position {
            fn at(number: u64) -> Self {
                Self(number)
            }
            fn number(self) -> u64 {
                self.0
            }
        }

        impl $crate::wire::Wire for $position {
            fn encode(&self, out: &mut alloc::vec::Vec<u8>) {
                $crate::wire::Wire::encode(&self.0, out);
            }
            fn decode(
                reader: &mut $crate::wire::Reader<'_>,
            ) -> Result<Self, $crate::wire::WireError> {
                <u64 as $crate::wire::Wire>::decode(reader).map(Self)
            }
        }
    )*};
}

positions! {
    /// A position in the replicated log.
    Slot,
}

/// The name of a session, dealt out in the order in which sessions are opened in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// A configuration of the cluster: how many changes of the membership came before it. The
/// configuration that a cluster was founded with is epoch 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u32);

impl Epoch {
    /// The epoch after this one.
    pub fn next(self) -> Epoch {
        Epoch(self.0 + 1)
    }

    /// The lowest round of this epoch.
    pub const fn first_round(self) -> Round {
        Round::new(self, 0, LeaderId(0))
    }
}

impl Wire for Epoch {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        // A round has this many bits for it.
        match u32::decode(reader)? {
            epoch if epoch < 1 << EPOCH_BITS => Ok(Epoch(epoch)),
            epoch => Err(WireError::OutOfRange {
                what: "epoch",
                value: epoch.into(),
            }),
        }
    }
    #[inline]
    fn latest_epoch(&self) -> Epoch {
        *self
    }
}

/// A Paxos round (ballot): an epoch, then a count, then the leader that owns it, in one number. So
/// rounds of a later epoch are higher than all of an earlier one: an acceptor that has promised one
/// refuses every leader that does not know the later epoch. And no two leaders ever own the same
/// round, however the set of leaders changes.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Round(pub u64);

const EPOCH_BITS: u32 = 24;
const COUNT_BITS: u32 = 40 - LEADER_BITS;
const LEADER_BITS: u32 = MAX_INSTANCES.trailing_zeros();

/// The largest count that is read from a peer or a disk: that of a cluster in which a leader was
/// elected each second for 272 years. A leader goes beyond it only by the rounds that it begins
/// itself, so no peer's bytes lead to a round that has no successor.
const MAX_COUNT: u64 = 1 << (COUNT_BITS - 1);

impl Round {
    /// The round of this epoch, count and leader.
    pub const fn new(epoch: Epoch, count: u64, leader: LeaderId) -> Round {
        assert!(
            epoch.0 < 1 << EPOCH_BITS,
            "an epoch has no rounds: it is too large"
        );
        assert!(count < 1 << COUNT_BITS && (leader.0 as usize) < MAX_INSTANCES);
        Round(
            (epoch.0 as u64) << (COUNT_BITS + LEADER_BITS) | count << LEADER_BITS | leader.0 as u64,
        )
    }

    /// The leader that owns this round.
    pub fn leader(self) -> LeaderId {
        LeaderId((self.0 % MAX_INSTANCES as u64) as Index)
    }

    /// The epoch whose quorums it uses.
    pub fn epoch(self) -> Epoch {
        Epoch((self.0 >> (COUNT_BITS + LEADER_BITS)) as u32)
    }

    /// What distinguishes it from the other rounds of its epoch, for people.
    pub fn number(self) -> u64 {
        self.0 & ((1 << (COUNT_BITS + LEADER_BITS)) - 1)
    }

    /// How many rounds of its epoch came before it at least.
    pub fn count(self) -> u64 {
        (self.0 >> LEADER_BITS) & ((1 << COUNT_BITS) - 1)
    }

    /// A round of `leader` in `epoch`, which is not before this round's, that is higher than this
    /// one.
    pub fn next_of(self, leader: LeaderId, epoch: Epoch) -> Round {
        assert!(
            epoch >= self.epoch(),
            "a leader of {epoch:?} does not follow on {self:?}"
        );
        Round::new(
            epoch,
            if epoch > self.epoch() {
                0
            } else {
                self.count() + 1
            },
            leader,
        )
    }
}

impl Wire for Round {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        match Round(u64::decode(reader)?) {
            round if round.count() <= MAX_COUNT => Ok(round),
            round => Err(WireError::OutOfRange {
                what: "count of a round",
                value: round.count(),
            }),
        }
    }
    #[inline]
    fn latest_epoch(&self) -> Epoch {
        self.epoch()
    }
}

impl fmt::Debug for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Round({}.{}.{})",
            self.epoch().0,
            self.count(),
            self.leader().0
        )
    }
}

/// The name of one instance of a role: its place among its kind in the deployment, from 0.
pub trait Id: Copy + Ord + fmt::Debug {
    /// What people call an instance of this role.
    const NAME: &'static str;
    /// The id with this place.
    fn at(index: Index) -> Self;
    /// Its place.
    fn index(self) -> Index;
}

/// Declares the ids of role kinds, each with what people call an instance.
#[macro_export]
macro_rules! ids {
    ($($(#[$doc:meta])* $id:ident $name:literal)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $id(pub $crate::id::Index);

        impl $crate::id::Id for $id {
            const NAME: &'static str = $name;
            fn at(index: $crate::id::Index) -> Self {
                $id(index)
            }
            fn index(self) -> $crate::id::Index {
                self.0
            }
        }

        impl $crate::wire::Wire for $id {
            fn encode(&self, out: &mut alloc::vec::Vec<u8>) {
                $crate::wire::Wire::encode(&self.0, out);
            }
            fn decode(
                reader: &mut $crate::wire::Reader<'_>,
            ) -> Result<Self, $crate::wire::WireError> {
                // Every id can be put into a set.
                match <$crate::id::Index as $crate::wire::Wire>::decode(reader)? {
                    index if usize::from(index) < $crate::id::MAX_INSTANCES => Ok($id(index)),
                    index => Err($crate::wire::WireError::OutOfRange {
                        what: "role instance",
                        value: index.into(),
                    }),
                }
            }
        }
    )*};
}

ids! {
    /// A client lane.
    ClientId "client"
    /// A batcher.
    BatcherId "batcher"
    /// A read batcher.
    ReadBatcherId "read batcher"
    /// A leader (in the paper also: proposer).
    LeaderId "leader"
    /// A proxy leader.
    ProxyLeaderId "proxy leader"
    /// An acceptor.
    AcceptorId "acceptor"
    /// A replica.
    ReplicaId "replica"
    /// An unbatcher.
    UnbatcherId "unbatcher"
}

/// A set of acceptors: a quorum, or the destination of a Phase2a.
pub type AcceptorSet = Set<AcceptorId>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{decode_all, encode_all};

    #[test]
    fn each_round_has_one_leader_and_later_epochs_are_higher() {
        let mut round = Round(0);
        for (epoch, leader) in [(0, 5), (0, 1), (0, 1), (1, 0), (1, 63), (3, 2)] {
            let (epoch, leader) = (Epoch(epoch), LeaderId(leader));
            let next = round.next_of(leader, epoch);
            assert!(next > round);
            assert_eq!((next.leader(), next.epoch()), (leader, epoch));
            round = next;
        }
        assert!(
            Round::new(Epoch(1), 0, LeaderId(0))
                > Round::new(Epoch(0), (1 << COUNT_BITS) - 1, LeaderId(63))
        );
    }

    /// A peer's bytes must not lead to a round that has no successor.
    #[test]
    fn rounds_beyond_all_counting_are_malformed() {
        for (count, leader) in [(0, 0), (1, 63), (MAX_COUNT, 63)] {
            let round = Round::new(Epoch((1 << EPOCH_BITS) - 1), count, LeaderId(leader));
            assert_eq!(decode_all::<Round>(&encode_all(&round).into()), Ok(round));
            assert!(round.next_of(LeaderId(63), round.epoch()) > round);
        }
        for bits in [
            u64::MAX,
            (MAX_COUNT + 1) << LEADER_BITS,
            ((1 << COUNT_BITS) - 1) << LEADER_BITS,
        ] {
            let error = decode_all::<Round>(&encode_all(&bits).into()).unwrap_err();
            assert!(
                matches!(
                    error,
                    WireError::OutOfRange {
                        what: "count of a round",
                        ..
                    }
                ),
                "{error}"
            );
        }
    }

    /// Its bits would be lost, and the round would be one of a lower epoch.
    #[test]
    #[should_panic(expected = "an epoch has no rounds: it is too large")]
    fn an_epoch_with_more_bits_than_a_round_has_for_it_has_no_round() {
        Epoch(1 << EPOCH_BITS).first_round();
    }
}
