//! The deployments with relays that come with Ionian.

use ionian_kernel::preset::{Nodes, Preset, nodes};

/// As in the paper: every node has every role, and each client speaks to its own node.
const ROLES: &[&str] = &[
    "client",
    "leader",
    "proxy_leader",
    "relay",
    "acceptor",
    "replica",
];

const WAN: &[Nodes] = &[
    nodes(5, "virginia-", ROLES),
    nodes(5, "california-", ROLES),
    nodes(5, "oregon-", ROLES),
];

#[cfg(feature = "hundreds")]
const HUNDREDS: &[(&str, u64)] = &[
    ("relay_groups", 10),
    ("relay_slack", 2),
    ("relay_shuffle", 1),
];

/// PigPaxos, sections 4.3 and 5.3 (figure 11).
pub(crate) const PIGPAXOS: Preset = Preset {
    name: "pigpaxos",
    about: "PigPaxos, 5 nodes: the leader asks all others through one relay, another one each time",
    f: 2,
    nodes: &[nodes(5, "n", ROLES)],
    ..Preset::EMPTY
};

/// PigPaxos, section 5.3 (figure 9).
pub(crate) const PIGPAXOS_25: Preset = Preset {
    name: "pigpaxos-25",
    about: "PigPaxos, 25 nodes in three relay groups",
    f: 12,
    options: &[
        ("relay_groups", 3),
        ("relay_slack", 1),
        ("relay_shuffle", 1),
    ],
    nodes: &[nodes(25, "n", ROLES)],
    ..Preset::EMPTY
};

/// PigPaxos, section 8.3: the square root of the nodes is a good number of groups for hundreds.
#[cfg(feature = "hundreds")]
pub(crate) const PIGPAXOS_101: Preset = Preset {
    name: "pigpaxos-101",
    about: "PigPaxos, 101 nodes in ten relay groups",
    f: 50,
    options: HUNDREDS,
    nodes: &[nodes(101, "n", ROLES)],
    ..Preset::EMPTY
};

/// Three times as many.
#[cfg(feature = "hundreds")]
pub(crate) const PIGPAXOS_301: Preset = Preset {
    name: "pigpaxos-301",
    about: "PigPaxos, 301 nodes in ten relay groups",
    f: 150,
    options: HUNDREDS,
    nodes: &[nodes(301, "n", ROLES)],
    ..Preset::EMPTY
};

/// PigPaxos, section 5.3 (figure 10): a region is a group, so that each request crosses a wide link
/// to each other region once. For this the regions have equally many acceptors, in the order of
/// their numbers.
pub(crate) const PIGPAXOS_WAN: Preset = Preset {
    name: "pigpaxos-wan",
    about: "PigPaxos, 15 nodes in three regions, each region a relay group",
    f: 7,
    options: &[
        ("relay_groups", 3),
        ("relay_slack", 1),
        ("heartbeat_ms", 250),
        ("election_timeout_ms", 1500),
        ("resend_after_ms", 400),
    ],
    nodes: WAN,
    ..Preset::EMPTY
};
