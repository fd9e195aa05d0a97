//! Instances that committed ones depend on, and that are not committed themselves as far as the
//! replica knows: what it must fetch, or recover.

use crate::epaxos::instance::{InstanceId, Space};
use alloc::collections::btree_map::Entry;
use alloc::collections::{BTreeMap, BTreeSet};
use ionian_kernel::small_map::SmallMap;
use ionian_kernel::time::Instant;

/// The most that are listed at a time. Those beyond it are listed when an instance waits for them:
/// one for each that is committed.
pub(super) const MAX_LISTED: usize = 1 << 16;

#[derive(Debug, Default)]
pub(super) struct Missing {
    since: BTreeMap<InstanceId, Instant>,
    by_age: BTreeSet<(Instant, InstanceId)>,
    /// All that are missing of a space below this number are listed.
    listed: SmallMap<Space, u64>,
}

impl Missing {
    pub(super) fn is_full(&self) -> bool {
        self.since.len() >= MAX_LISTED
    }

    pub(super) fn len(&self) -> usize {
        self.since.len()
    }

    pub(super) fn contains(&self, id: InstanceId) -> bool {
        self.since.contains_key(&id)
    }

    pub(super) fn add(&mut self, id: InstanceId, now: Instant) {
        if let Entry::Vacant(place) = self.since.entry(id) {
            place.insert(now);
            self.by_age.insert((now, id));
        }
    }

    pub(super) fn remove(&mut self, id: InstanceId) {
        if let Some(since) = self.since.remove(&id) {
            self.by_age.remove(&(since, id));
        }
    }

    /// The longest missing first.
    pub(super) fn iter(&self) -> impl Iterator<Item = (InstanceId, Instant)> {
        self.by_age.iter().map(|(since, id)| (*id, *since))
    }

    /// Up to which number of a space all that are missing are listed.
    pub(super) fn listed(&self, space: Space) -> u64 {
        self.listed.get(&space).copied().unwrap_or_default()
    }

    pub(super) fn set_listed(&mut self, space: Space, below: u64) {
        self.listed.insert(space, below);
    }
}
