//! The deployments of CRAQ that come with Ionian.

use ionian_kernel::preset::{Preset, nodes};

pub(super) const PRESETS: &[Preset] = &[CRAQ, CRAQ_6];

/// The chain survives n - 1 failures, its master (n - 1) / 2.
const CRAQ: Preset = Preset {
    name: "craq",
    about: "CRAQ, a chain of 3 nodes, its master on the same",
    nodes: &[nodes(3, "n", WITH_MASTER)],
    ..Preset::EMPTY
};

/// The chain of the compartmentalization paper's figure 35.
const CRAQ_6: Preset = Preset {
    name: "craq-6",
    about: "CRAQ, a chain of 6 nodes, its master on 3 of them",
    nodes: &[
        nodes(3, "n", WITH_MASTER),
        nodes(3, "m", &["client", "chain_node"]),
    ],
    ..Preset::EMPTY
};

const WITH_MASTER: &[&str] = &[
    "client",
    "chain_node",
    "leader",
    "proxy_leader",
    "acceptor",
    "master",
];
