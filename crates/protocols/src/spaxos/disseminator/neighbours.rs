//! The instances whose place makes a disseminator treat them differently from others of their kind.

use crate::spaxos::config::Config;
use crate::spaxos::id::StabilizerId;
use crate::spaxos::kind;
use ionian_kernel::id::*;
use ionian_kernel::layout::NodeId;

/// See the top of this file.
pub(super) struct Neighbours {
    /// The replicas on this node.
    pub(super) replicas: Set<ReplicaId>,
    /// The stabilizers on this node.
    pub(super) stabilizers: Set<StabilizerId>,
    /// Stabilizers that are to have every payload, because they hand it to the replicas on their
    /// own node.
    pub(super) beside: Set<StabilizerId>,
}

impl Neighbours {
    pub(super) fn of(config: &Config, node: NodeId) -> Self {
        let beside = config.beside().iter();
        Neighbours {
            replicas: config.near(kind::Replica, node),
            stabilizers: config.near(kind::Stabilizer, node),
            beside: beside.map(|(stabilizer, _)| *stabilizer).collect(),
        }
    }
}
