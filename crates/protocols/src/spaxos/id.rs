//! The names of what S-Paxos alone has: instances of its roles, and what they count.

use ionian_kernel::id::{BatcherId, Set};

ionian_kernel::ids! {
    /// A disseminator.
    DisseminatorId "disseminator"
    /// A stabilizer.
    StabilizerId "stabilizer"
}

ionian_kernel::positions! {
    /// The number of a payload among those of one process of a disseminator.
    PayloadNumber,
    /// The place of a record among those that one stabilizer has of payloads.
    RecordPlace,
}

/// The batcher for which the ordering takes a disseminator: it proposes to the leader. It has the
/// same index. This and the two below are all that turns one into the other.
pub(super) fn as_batcher(disseminator: DisseminatorId) -> BatcherId {
    BatcherId(disseminator.0)
}

/// The disseminator that the ordering takes for this batcher.
pub(super) fn of_batcher(batcher: BatcherId) -> DisseminatorId {
    DisseminatorId(batcher.0)
}

/// The disseminators that the ordering takes for these batchers.
pub(super) fn of_batchers(batchers: Set<BatcherId>) -> Set<DisseminatorId> {
    Set::from_members(batchers.members())
}
