//! The deployments of P-SMR that come with Ionian.

use crate::multipaxos::presets::EVERY_ROLE;
use ionian_kernel::preset::{Preset, nodes};
use ionian_kernel::quorum_spec::QuorumSpec;

pub(super) const PRESETS: &[Preset] = &[P_SMR, COMPARTMENTALIZED];

/// Every role on each node. The leaders of three groups each are on one node.
const P_SMR: Preset = Preset {
    name: "p-smr",
    about: "P-SMR, 3 nodes, every role on each: 8 groups with logs of their own, and g_all",
    nodes: &[nodes(3, "n", EVERY_ROLE)],
    ..Preset::EMPTY
};

/// Each group has a leader on a node of its own; the other roles are scaled for all together.
const COMPARTMENTALIZED: Preset = Preset {
    name: "p-smr-compartmentalized",
    about: "P-SMR, 27 nodes: every role apart, a leader for each of 9 groups, unbatched",
    quorums: QuorumSpec::Grid {
        rows: 2,
        columns: 2,
    },
    nodes: &[
        nodes(2, "gateway-", &["client"]),
        nodes(9, "leader-", &["leader"]),
        nodes(10, "proxy-leader-", &["proxy_leader"]),
        nodes(2, "acceptor-0-", &["acceptor"]),
        nodes(2, "acceptor-1-", &["acceptor"]),
        nodes(2, "replica-", &["replica"]),
    ],
    ..Preset::EMPTY
};
