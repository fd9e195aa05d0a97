//! How far replicas have each space in stored snapshots: what f + 1 of them have, no acceptor is
//! asked for any more.

use crate::epaxos::instance::{InstanceId, Space};
use crate::epaxos::message::Reach;
use alloc::vec::Vec;
use ionian_kernel::id::{ReplicaId, Set};
use ionian_kernel::small_map::SmallMap;

/// See the top of this file.
pub(super) struct KeptVector {
    f: usize,
    /// What each replica has said.
    told: SmallMap<ReplicaId, SmallMap<Space, u64>>,
    /// Below this number f + 1 replicas have a space.
    kept: SmallMap<Space, u64>,
}

impl KeptVector {
    pub(super) fn new(f: usize) -> Self {
        KeptVector {
            f,
            told: SmallMap::new(),
            kept: SmallMap::new(),
        }
    }

    /// Takes in what a replica has; the spaces of which f + 1 have more than before.
    pub(super) fn tell(&mut self, from: ReplicaId, reaches: &[Reach]) -> Vec<Space> {
        let told = self.told.entry(from).or_default();
        for Reach { space, below } in reaches {
            let known = told.entry(*space).or_default();
            *known = (*known).max(*below);
        }
        let mut risen = Vec::new();
        for Reach { space, .. } in reaches {
            let of = self
                .told
                .values()
                .filter_map(|told| told.get(space).copied());
            let mut all: Vec<u64> = of.collect();
            all.sort_unstable_by(|one, other| other.cmp(one));
            let enough = all.get(self.f).copied().unwrap_or(0);
            if enough > self.below(*space) {
                self.kept.insert(*space, enough);
                risen.push(*space);
            }
        }
        risen
    }

    /// Below this number each of these replicas has a space, as far as they have said.
    pub(super) fn all_have(&self, replicas: Set<ReplicaId>, space: Space) -> u64 {
        let told = |id: ReplicaId| self.told.get(&id)?.get(&space).copied();
        let all = replicas.iter().map(|id| told(id).unwrap_or(0));
        all.min().unwrap_or(0)
    }

    /// Takes in what is known from before.
    pub(super) fn learn(&mut self, reaches: &[Reach]) {
        for Reach { space, below } in reaches {
            let known = self.kept.entry(*space).or_default();
            *known = (*known).max(*below);
        }
    }

    /// Below this number f + 1 replicas have a space.
    pub(super) fn below(&self, space: Space) -> u64 {
        self.kept.get(&space).copied().unwrap_or(0)
    }

    /// Whether f + 1 replicas have an instance.
    pub(super) fn covers(&self, id: InstanceId) -> bool {
        id.number < self.below(id.space)
    }

    /// All of it.
    pub(super) fn reaches(&self) -> Vec<Reach> {
        let reach = |(space, below): (&Space, &u64)| Reach {
            space: *space,
            below: *below,
        };
        self.kept.iter().map(reach).collect()
    }
}
