//! The faults of a run.

use std::collections::{BTreeMap, BTreeSet};

/// A fault, or the end of one.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// One node crashes.
    Crash,
    /// This node crashes, if it has not crashed since.
    CrashInSync { node: usize, life: u32 },
    /// One node crashes, and its machine never returns.
    Lose,
    /// Every node crashes.
    Blackout,
    /// A crashed node restarts, unless it has restarted already.
    Restart { node: usize, life: u32 },
    /// One node pauses.
    Pause,
    /// It continues.
    Resume { node: usize },
    /// A node is to lead nothing, as its disk is slow or an operator drains it.
    Drain,
    /// It may lead again, unless it has crashed since.
    Undrain { node: usize, life: u32 },
    /// A partition separates the nodes.
    Part,
    /// The partition ends, unless another one has started since.
    Rejoin { turn: u64 },
    /// Some links are cut.
    Cut,
    /// That cut ends.
    Splice { turn: u64 },
    /// A leader is separated from the others, with a minority of each role.
    Strand,
    /// It is connected again, though replicas may not reach each other yet.
    Return { turn: u64 },
    /// Messages of some kinds are lost or delayed.
    Meddle,
    /// That ends.
    LetBe { turn: u64 },
    /// The disk of a node starts to fail.
    BreakDisk,
    /// It works again.
    RepairDisk { node: usize },
    /// A link becomes slow.
    SlowLink,
    /// It is fast again.
    QuickLink { from: usize, to: usize },
}

/// The state of the faults of a run.
#[derive(Default)]
pub(crate) struct Outages {
    pub(crate) partitions: u64,
    /// Nodes that have crashed at least once.
    pub(crate) crashed: BTreeSet<usize>,
    /// The node whose machine is lost, as long as it is a member.
    pub(crate) lost: Option<usize>,
    /// For each kind, the highest slot that any replica had executed when it crashed.
    pub(crate) furthest: BTreeMap<u8, u64>,
}
