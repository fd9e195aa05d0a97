//! The deployments of Scalog that come with Ionian.

use ionian_kernel::preset::{Preset, nodes};

/// They differ in placement, not in code.
pub(super) const PRESETS: &[Preset] = &[AS_PUBLISHED, COMPARTMENTALIZED];

/// The paper's deployment (compartmentalization, section 8.7). An aggregator beside each leader
/// takes over when the first one fails.
const AS_PUBLISHED: Preset = Preset {
    name: "scalog",
    about: "Scalog, 19 nodes: 3 shards of 2 servers, 5 replicas that answer themselves",
    nodes: &[
        nodes(2, "gateway-", &["client"]),
        nodes(6, "server-", &["server"]),
        nodes(1, "aggregator-", &["aggregator"]),
        nodes(2, "leader-", &["leader", "proxy_leader", "aggregator"]),
        nodes(3, "acceptor-", &["acceptor"]),
        nodes(5, "replica-", &["replica"]),
    ],
    ..Preset::EMPTY
};

/// Replicas execute, and unbatchers (the paper's proxy replicas) answer: as plotted in the paper's
/// figure, with 4 shards.
const COMPARTMENTALIZED: Preset = Preset {
    name: "scalog-compartmentalized",
    about: "Scalog, 22 nodes: 4 shards of 2 servers, 2 replicas, 4 unbatchers that answer for them",
    nodes: &[
        nodes(2, "gateway-", &["client"]),
        nodes(8, "server-", &["server"]),
        nodes(1, "aggregator-", &["aggregator"]),
        nodes(2, "leader-", &["leader", "proxy_leader", "aggregator"]),
        nodes(3, "acceptor-", &["acceptor"]),
        nodes(2, "replica-", &["replica"]),
        nodes(4, "unbatcher-", &["unbatcher"]),
    ],
    ..Preset::EMPTY
};
