//! How the acceptors of a deployment are arranged (compartmentalization 3.2), as a deployment file
//! says it. The quorums that follow are in `ionian_replication::quorum`.

/// How a deployment arranges its acceptors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QuorumSpec {
    /// Any majority reads and writes.
    #[default]
    Majority,
    /// Rows read, columns write; acceptors fill the grid row by row.
    Grid {
        /// How many rows: each is a read quorum.
        rows: usize,
        /// How many columns: each is a write quorum.
        columns: usize,
    },
    /// Groups of equal size, in order: a majority of any one group writes, a majority of every
    /// group reads.
    Groups {
        /// How many groups.
        groups: usize,
    },
    /// Any `read` acceptors read, any `write` write: a small read quorum for a large write quorum
    /// (PigPaxos 8.2; Flexible Paxos).
    Counts {
        /// How many are a read quorum.
        read: usize,
        /// How many are a write quorum.
        write: usize,
    },
}
