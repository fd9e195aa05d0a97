//! What to simulate: everything about a run that the seed does not decide.

use crate::journal::Order;
use crate::model::Model;
use ionian_kernel::client::ReadLevel;
use ionian_kernel::layout::Layout;
use ionian_kernel::protocol::Description;
use std::time::Duration;

/// A deployment and how to try it.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// For reports.
    pub name: String,
    /// The deployment.
    pub layout: Layout,
    /// Other deployments of the same nodes and more: an operator changes the cluster from one of
    /// them, and the first, into another while it runs.
    pub changes: Vec<Layout>,
    /// Whether the operator changes options too while the cluster runs.
    pub tunes: bool,
    /// What survives a crash.
    pub durability: Durability,
    /// Reads are of these levels; each seed uses one or all of them.
    pub read_levels: Vec<ReadLevel>,
    /// About how many requests clients make while there are faults.
    pub operations: u64,
    /// At most this many keys.
    pub keys: u64,
    /// At most this many requests of one lane at a time.
    pub threads_per_lane: u64,
    /// Which kinds of fault a seed may switch on.
    pub faults: Faults,
    /// A defect built in on purpose, to see that it is caught.
    pub canary: Canary,
    /// Whether all replicas give up some commands, as if an operator had told each of their nodes
    /// to leave them out.
    pub gives_up: bool,
    /// In which order replicas execute.
    pub order: Order,
    /// Whether what a replica has executed stays executed though it crashes. False for a single
    /// server, which may execute before it writes to disk.
    pub stable_log: bool,
    /// Whether in the end every living copy of the machine must have executed everything.
    pub all_catch_up: bool,
    /// Whether seeds vary the layout's options (small windows and batches, odd timeouts) and how
    /// much clients ask.
    pub vary_options: bool,
    /// How much simulated time the healed cluster has to finish all work.
    pub liveness_bound: Duration,
    /// How many steps the linearizability checker may take for one key.
    pub check_limit: u64,
    /// Whether nodes note all messages for traces, from their start.
    pub records: bool,
    /// A run with more events than this is taken for one that never ends; of a large cluster, with
    /// some times as many.
    pub max_events: u64,
}

/// A cluster of twice as many nodes is not small any more.
const SMALL: u64 = 32;

impl Scenario {
    /// In which order the replicas of `protocol` execute: that of each key, where commands that
    /// commute may be executed in another.
    pub(crate) fn promised_order(&self, protocol: &Description, model: &impl Model) -> Order {
        let mut options = self.layout.options.clone();
        // Workers change the order only where the machine has parts.
        if model.machine().parts().is_none() {
            options.own.remove("workers");
        }
        match (protocol.commutes)(&options) {
            true => Order::PerKey,
            false => self.order,
        }
    }

    /// A deployment with records on disk, all faults, all read levels, and little work a seed.
    pub fn new(name: impl Into<String>, layout: Layout) -> Self {
        Scenario {
            name: name.into(),
            layout,
            changes: Vec::new(),
            tunes: false,
            durability: Durability::Disk,
            read_levels: vec![
                ReadLevel::Linearizable,
                ReadLevel::Sequential,
                ReadLevel::Eventual,
            ],
            operations: 60,
            keys: 3,
            threads_per_lane: 4,
            faults: Faults::ALL,
            canary: Canary::None,
            gives_up: false,
            order: Order::Total,
            stable_log: true,
            all_catch_up: true,
            vary_options: true,
            liveness_bound: Duration::from_secs(60),
            check_limit: 500_000,
            records: false,
            max_events: 2_000_000,
        }
    }

    /// How many nodes the layout has.
    pub(crate) fn nodes(&self) -> usize {
        let layouts = core::iter::once(&self.layout).chain(&self.changes);
        layouts
            .filter_map(|layout| layout.nodes().last().copied())
            .map(|node| usize::from(node.0) + 1)
            .max()
            .unwrap_or(0)
    }

    /// The most events of a run. In a large cluster both the clients and the messages for each of
    /// their commands are more.
    pub(crate) fn most_events(&self) -> u64 {
        self.max_events * (self.nodes() as u64 / SMALL).pow(2).max(1)
    }
}

/// What survives a crash of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Every record that was synced, and perhaps some that were not.
    Disk,
    /// Vital records only.
    Memory {
        /// Whether crashed nodes come back, without their memory, or stay down. In some seeds in
        /// which they come back they crash one after another, each when the others are whole;
        /// otherwise no more than `f` different nodes crash in a run.
        returns: bool,
    },
}

/// Kinds of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults {
    /// Messages get lost.
    pub drop: bool,
    /// Messages arrive twice.
    pub duplicate: bool,
    /// Messages overtake each other, some by far, and links become slow.
    pub delay: bool,
    /// Nodes are parted.
    pub partition: bool,
    /// Nodes stand still for a while.
    pub pause: bool,
    /// Nodes crash.
    pub crash: bool,
    /// Syncs take long, and nodes are to lead nothing, as one whose disk is slow.
    pub slow_disk: bool,
    /// Writes and syncs fail, and disks are full: the node stops.
    pub disk_error: bool,
    /// Clocks differ and drift.
    pub clock: bool,
}

impl Faults {
    /// Every kind.
    pub const ALL: Faults = Faults::of(true);
    /// No kind.
    pub const NONE: Faults = Faults::of(false);

    const fn of(on: bool) -> Faults {
        Faults {
            drop: on,
            duplicate: on,
            delay: on,
            partition: on,
            pause: on,
            crash: on,
            slow_disk: on,
            disk_error: on,
            clock: on,
        }
    }
}

/// Defects that the simulator builds in on purpose, into any protocol: a tester that does not catch
/// them is no tester.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Canary {
    /// None.
    #[default]
    None,
    /// Every send leaves at once, as if all of them were unfenced.
    NoFence,
    /// A crash loses records that were on disk.
    ForgetDisk,
    /// A node goes on when its disk says that a write or a sync failed.
    IgnoresDiskErrors,
    /// A node whose memory is lost is not told so.
    HideAmnesia,
    /// Only every second node gives up the commands that all are [to give up](Scenario::gives_up).
    GivesUpAlone,
    /// Reads receive a time that the log has not reached.
    ReadsAhead,
    /// A node that a change removes stops at once, and what it has told the members is lost.
    LeavesAtOnce,
    /// Machines do not say when time changes what they answer, and the log is not given that time.
    HidesDeadlines,
}
