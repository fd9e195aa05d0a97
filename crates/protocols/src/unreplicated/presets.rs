//! The deployments of the unreplicated server that come with Ionian.

use ionian_kernel::preset::{Preset, nodes};

/// With and without batching, and with parallel execution (P-SMR, section V-A).
pub(super) const PRESETS: &[Preset] = &[
    Preset {
        name: "unreplicated",
        about: "one server, nothing replicated: what every protocol is compared with",
        f: 0,
        nodes: &[nodes(1, "server-", &["client", "server"])],
        ..Preset::EMPTY
    },
    Preset {
        name: "unreplicated-batched",
        about: "one server, 6 nodes: with batchers and unbatchers",
        f: 0,
        nodes: &[
            nodes(1, "gateway-", &["client"]),
            nodes(2, "batcher-", &["batcher"]),
            nodes(1, "server-", &["server"]),
            nodes(2, "unbatcher-", &["unbatcher"]),
        ],
        ..Preset::EMPTY
    },
    Preset {
        name: "no-rep",
        about: "one server, nothing replicated: it executes on 8 threads",
        f: 0,
        options: &[("workers", 8)],
        nodes: &[nodes(1, "server-", &["client", "server"])],
        ..Preset::EMPTY
    },
];
