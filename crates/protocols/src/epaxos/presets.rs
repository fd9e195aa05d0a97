//! The deployments of EPaxos that come with Ionian.

use ionian_kernel::preset::{Preset, nodes};

/// They differ in the number of nodes alone: leaders and acceptors stay together.
pub(super) const PRESETS: &[Preset] = &[THREE, FIVE];

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
