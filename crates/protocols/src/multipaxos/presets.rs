//! The deployments of MultiPaxos that come with Ionian.

use crate::pigpaxos::presets::{PIGPAXOS, PIGPAXOS_25, PIGPAXOS_WAN};
#[cfg(feature = "hundreds")]
use crate::pigpaxos::presets::{PIGPAXOS_101, PIGPAXOS_301};
use ionian_kernel::preset::{Preset, nodes};
use ionian_kernel::quorum_spec::QuorumSpec;

/// They differ in placement, not in code.
pub(super) const PRESETS: &[Preset] = &[
    COLOCATED,
    BASELINE,
    COMPARTMENTALIZED,
    BATCHED,
    PIGPAXOS,
    PIGPAXOS_25,
    #[cfg(feature = "hundreds")]
    PIGPAXOS_101,
    #[cfg(feature = "hundreds")]
    PIGPAXOS_301,
    PIGPAXOS_WAN,
    SMR,
    SP_SMR,
];

/// Every role on each node, also those that a small cluster could do without: a hop to a role of
/// the same node is a function call, batches make a node fast, and each role finds the unbatcher
/// and the read batcher that it needs on its own node.
const COLOCATED: Preset = Preset {
    name: "colocated",
    about: "MultiPaxos, 3 nodes, every role on each",
    nodes: &[nodes(3, "n", EVERY_ROLE)],
    ..Preset::EMPTY
};

/// Every role but the relay.
pub(crate) const EVERY_ROLE: &[&str] = &[
    "client",
    "batcher",
    "read_batcher",
    "leader",
    "proxy_leader",
    "acceptor",
    "replica",
    "unbatcher",
];

/// A leader with a proxy leader on its own node is the coupled leader of plain MultiPaxos.
const BASELINE: Preset = Preset {
    name: "baseline",
    about: "MultiPaxos, 3 nodes, nothing decoupled and nothing batched",
    nodes: &[nodes(
        3,
        "n",
        &["client", "leader", "proxy_leader", "acceptor", "replica"],
    )],
    ..Preset::EMPTY
};

/// The paper's unbatched deployment (compartmentalization, section 8.1).
const COMPARTMENTALIZED: Preset = Preset {
    name: "compartmentalized",
    about: "MultiPaxos, 22 nodes: every role apart and scaled, a 2x2 grid of acceptors, unbatched",
    quorums: QuorumSpec::Grid {
        rows: 2,
        columns: 2,
    },
    nodes: &[
        nodes(2, "gateway-", &["client"]),
        nodes(2, "leader-", &["leader"]),
        nodes(10, "proxy-leader-", &["proxy_leader"]),
        nodes(2, "acceptor-0-", &["acceptor"]),
        nodes(2, "acceptor-1-", &["acceptor"]),
        nodes(4, "replica-", &["replica"]),
    ],
    ..Preset::EMPTY
};

/// The paper's batched deployment. There, batchers batch reads too; here, each has a read batcher
/// on its node.
const BATCHED: Preset = Preset {
    name: "batched",
    about: "MultiPaxos, 17 nodes: every role apart, with batchers and unbatchers",
    nodes: &[
        nodes(2, "gateway-", &["client"]),
        nodes(2, "batcher-", &["batcher", "read_batcher"]),
        nodes(2, "leader-", &["leader"]),
        nodes(3, "proxy-leader-", &["proxy_leader"]),
        nodes(3, "acceptor-", &["acceptor"]),
        nodes(2, "replica-", &["replica"]),
        nodes(3, "unbatcher-", &["unbatcher"]),
    ],
    ..Preset::EMPTY
};

/// The deployment of the P-SMR paper (section VI-A): three acceptors and two replicas, a
/// coordinator that batches, and a second one for when that fails.
const SMR: Preset = Preset {
    name: "smr",
    about: "MultiPaxos, 9 nodes as in the P-SMR paper: replicas execute on one thread",
    nodes: &[
        nodes(2, "gateway-", &["client"]),
        nodes(2, "coordinator-", &["batcher", "leader", "proxy_leader"]),
        nodes(3, "acceptor-", &["acceptor"]),
        nodes(2, "replica-", &["replica"]),
    ],
    ..Preset::EMPTY
};

/// The same with parallel execution.
const SP_SMR: Preset = Preset {
    name: "sp-smr",
    about: "MultiPaxos, 9 nodes as smr, and each replica executes on 8 threads",
    options: &[("workers", 8)],
    ..SMR
};
