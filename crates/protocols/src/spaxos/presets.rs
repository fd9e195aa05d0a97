//! The deployments of S-Paxos that come with Ionian.

use ionian_kernel::preset::{Preset, nodes};
use ionian_kernel::quorum_spec::QuorumSpec;

/// They differ in placement, not in code.
pub(super) const PRESETS: &[Preset] = &[AS_PUBLISHED, COMPARTMENTALIZED, BATCHED];

/// Every server has every role. Read batchers and unbatchers serve the roles of their own node, as
/// in the preset `colocated`; disseminators form batches themselves.
const AS_PUBLISHED: Preset = Preset {
    name: "spaxos",
    about: "S-Paxos, 3 nodes, every role on each: commands go round the leader, which orders references to them",
    nodes: &[nodes(
        3,
        "n",
        &[
            "client",
            "disseminator",
            "read_batcher",
            "leader",
            "proxy_leader",
            "acceptor",
            "stabilizer",
            "replica",
            "unbatcher",
        ],
    )],
    ..Preset::EMPTY
};

/// Compartmentalized MultiPaxos with disseminators and a grid of stabilizers (compartmentalization,
/// section 7); a payload is one command. The grids have three columns, because stabilizers in two
/// would be the bottleneck.
const COMPARTMENTALIZED: Preset = Preset {
    name: "spaxos-compartmentalized",
    about: "S-Paxos, 33 nodes: every role apart and scaled, 2x3 grids, unbatched",
    quorums: QuorumSpec::Grid {
        rows: 2,
        columns: 3,
    },
    options: &[("batch_commands", 1)],
    nodes: &[
        nodes(2, "gateway-", &["client"]),
        nodes(3, "disseminator-", &["disseminator"]),
        nodes(2, "leader-", &["leader"]),
        nodes(10, "proxy-leader-", &["proxy_leader"]),
        nodes(3, "acceptor-0-", &["acceptor"]),
        nodes(3, "acceptor-1-", &["acceptor"]),
        nodes(3, "stabilizer-0-", &["stabilizer"]),
        nodes(3, "stabilizer-1-", &["stabilizer"]),
        nodes(4, "replica-", &["replica"]),
    ],
    ..Preset::EMPTY
};

/// As MultiPaxos's batched deployment.
const BATCHED: Preset = Preset {
    name: "spaxos-batched",
    about: "S-Paxos, 22 nodes: every role apart, with batchers and unbatchers",
    nodes: &[
        nodes(2, "gateway-", &["client"]),
        nodes(2, "batcher-", &["batcher", "read_batcher"]),
        nodes(2, "disseminator-", &["disseminator"]),
        nodes(2, "leader-", &["leader"]),
        nodes(3, "proxy-leader-", &["proxy_leader"]),
        nodes(3, "acceptor-", &["acceptor"]),
        nodes(3, "stabilizer-", &["stabilizer"]),
        nodes(2, "replica-", &["replica"]),
        nodes(3, "unbatcher-", &["unbatcher"]),
    ],
    ..Preset::EMPTY
};
