//! The names of what Scalog alone has: instances of its roles, and what they count.

use ionian_kernel::id::{BatcherId, Set};

ionian_kernel::ids! {
    /// A server of a shard.
    ServerId "server"
    /// An aggregator.
    AggregatorId "aggregator"
}

ionian_kernel::positions! {
    /// The name of a shard's opening: the slot after the one that opened it. Zero is before the
    /// first.
    Generation,
    /// The place of a record among those that one server has stored.
    RecordPlace,
}

/// The batcher for which the ordering takes an aggregator: it proposes to the leader. It has the
/// same index.
pub(super) fn as_batcher(aggregator: AggregatorId) -> BatcherId {
    BatcherId(aggregator.0)
}

/// The aggregators that the ordering takes for these batchers.
pub(super) fn aggregators(batchers: Set<BatcherId>) -> Set<AggregatorId> {
    Set::from_members(batchers.members())
}

/// The servers that a client lane takes for these batchers.
pub(super) fn servers(batchers: Set<BatcherId>) -> Set<ServerId> {
    Set::from_members(batchers.members())
}

/// What a client lane takes these servers for.
pub(super) fn as_batchers(servers: Set<ServerId>) -> Set<BatcherId> {
    Set::from_members(servers.members())
}
