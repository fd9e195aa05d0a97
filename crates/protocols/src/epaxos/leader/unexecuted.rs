//! The instances of a leader that are not executed yet, as far as it knows, and which keys they
//! write: the limits that keep components of the dependency graph small.
//!
//! **Why every component ends.** A leader has at most one instance that writes a key, and at most
//! one barrier, that no replica has reported as executed. A replica executes a component as a
//! whole, and only when each member is decided; the dependencies of a decided instance never
//! change, so by then no instance can become a member any more. When a leader proposes the next
//! writer of a key, the one before is therefore in a component that is closed, and the two are in
//! different ones. So a component has at most one barrier and one writer of each key of each
//! leader. A limit of *undecided* instances bounds nothing: each link of an endless chain is
//! decided within a round trip, and none is executed as long as commands arrive.
//!
//! A component of one key has a member for each leader. A barrier joins what is in flight, and
//! there its growth ends: a further instance becomes a member only if a member that is not decided
//! yet names it, and that is a writer of the same key, or a barrier, of which each leader has one.
//! Instances that only read name writers, and are named by writers alone.
//!
//! The commands that wait for a key are joined in one instance (see `waiting.rs`), so a crowded key
//! costs latency, not throughput. A leader that starts again does not know what its former process
//! had in flight: each start may add one more of each.

use crate::epaxos::instance::Space;
use crate::epaxos::message::{Payload, Run};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use ionian_replication::slot_map::{NumberMap, Seeded};

/// See the top of this file.
pub(super) struct Unexecuted {
    instances: BTreeMap<u64, Payload>,
    bytes: usize,
    /// How many of them write each key.
    writers: NumberMap<usize>,
    barriers: usize,
}

impl Unexecuted {
    pub(super) fn new(seed: u64) -> Self {
        Unexecuted {
            instances: BTreeMap::new(),
            bytes: 0,
            writers: NumberMap::with_hasher(Seeded(seed)),
            barriers: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.instances.len()
    }

    /// The bytes of their commands.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn has_barrier(&self) -> bool {
        self.barriers > 0
    }

    /// Whether one of them writes a key.
    pub(super) fn writes(&self, key: u64) -> bool {
        self.writers.contains_key(&key)
    }

    pub(super) fn insert(&mut self, number: u64, payload: Payload) {
        self.bytes += payload.byte_len();
        match payload.is_barrier() {
            true => self.barriers += 1,
            false => {
                for key in &payload.footprint.writes {
                    *self.writers.entry(*key).or_default() += 1;
                }
            }
        }
        self.instances.insert(number, payload);
    }

    /// An instance is executed.
    pub(super) fn remove(&mut self, number: u64) -> Option<Payload> {
        let payload = self.instances.remove(&number)?;
        self.bytes -= payload.byte_len();
        if payload.is_barrier() {
            self.barriers -= 1;
            return Some(payload);
        }
        for key in &payload.footprint.writes {
            let count = self.writers.get_mut(key).expect("it was counted");
            *count -= 1;
            if *count == 0 {
                self.writers.remove(key);
            }
        }
        Some(payload)
    }

    /// The numbers of those that a replica has executed, which has executed these of all spaces.
    pub(super) fn among(&self, space: Space, executed: &[Run]) -> Vec<u64> {
        let of_space = executed.iter().filter(|run| run.space == space);
        let members = |run: &Run| self.instances.range(run.start..run.end.max(run.start));
        let numbers = of_space.flat_map(members).map(|(number, _)| *number);
        numbers.collect()
    }

    pub(super) fn invariants(&self) {
        let bytes = self.instances.values().map(Payload::byte_len);
        assert_eq!(
            bytes.sum::<usize>(),
            self.bytes,
            "a leader lost count of what is not executed"
        );
    }
}
