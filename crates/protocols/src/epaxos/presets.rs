//! The deployments of EPaxos that come with Ionian.

use ionian_kernel::preset::{Preset, nodes};

/// The first two differ in the number of nodes alone: leaders and acceptors stay together.
pub(super) const PRESETS: &[Preset] = &[THREE, FIVE, COMPARTMENTALIZED];

const THREE: Preset = Preset {
    name: "epaxos",
    about: "EPaxos with Atlas's quorums, 3 nodes, every role on each: any node leads commands",
    nodes: &[nodes(3, "n", &["client", "leader", "acceptor", "replica"])],
    ..Preset::EMPTY
};

/// A fast quorum of 4: the published protocol would have one of 3, with a recovery that needs
/// other instances (EPaxos*, OPODIS 2025).
const FIVE: Preset = Preset {
    name: "epaxos-5",
    about: "EPaxos with Atlas's quorums, 5 nodes of which 2 may fail, every role on each",
    f: 2,
    nodes: &[nodes(5, "n", &["client", "leader", "acceptor", "replica"])],
    ..Preset::EMPTY
};

/// The published deployment of Simple BPaxos for f = 1 (5 leaders and proposers, 3 dependency
/// nodes, 3 acceptors, 2 replicas), with gateways apart. A leader and its proxy leader share a
/// node.
const COMPARTMENTALIZED: Preset = Preset {
    name: "epaxos-compartmentalized",
    about: "EPaxos taken apart (BPaxos), 15 nodes: any number of leaders, no fast path",
    nodes: &[
        nodes(2, "gateway-", &["client"]),
        nodes(5, "leader-", &["leader", "proxy_leader"]),
        nodes(3, "dependency-node-", &["dependency_node"]),
        nodes(3, "acceptor-", &["acceptor"]),
        nodes(2, "replica-", &["replica"]),
    ],
    ..Preset::EMPTY
};
