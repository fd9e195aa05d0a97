//! The deployments of Mencius that come with Ionian.

use ionian_kernel::preset::{Nodes, Preset, nodes};
use ionian_kernel::quorum_spec::QuorumSpec;

/// They differ in placement, not in code.
pub(super) const PRESETS: &[Preset] = &[AS_PUBLISHED, WAN, COMPARTMENTALIZED, BATCHED];

/// On a local network a replica that waits for skips waits longer than they are worth: tau is the
/// one-way delay.
const LOCAL_SKIPS: &[(&str, u64)] = &[("skip_delay_ms", 1)];

/// Every role on each node; a client's commands are led by the leader of its node.
const COLOCATED: &[Nodes] = &[nodes(
    3,
    "n",
    &[
        "client",
        "leader",
        "proxy_leader",
        "acceptor",
        "replica",
        "unbatcher",
        "read_batcher",
    ],
)];

const AS_PUBLISHED: Preset = Preset {
    name: "mencius",
    about: "Mencius as published, 3 nodes, every role on each: every node leads a third of the log",
    options: LOCAL_SKIPS,
    nodes: COLOCATED,
    ..Preset::EMPTY
};

/// The paper's three sites (Mencius, section 7.1).
///
/// Every acceptor is asked, because all sites must know what is suggested. Sites are far apart: a
/// role that asks again before an answer can have arrived gains nothing, and a leader has not
/// failed because it is far away; and more is under way at a time, namely bandwidth times round
/// trip. Alpha, tau and beta are the paper's (section 6).
const WAN: Preset = Preset {
    name: "mencius-wan",
    about: "Mencius, 3 nodes at 3 sites, 50 ms apart one way; out-of-order commit",
    options: &[
        ("heartbeat_ms", 200),
        ("election_timeout_ms", 1000),
        ("resend_after_ms", 300),
        ("window_bytes", 4 << 20),
        ("thrifty", 0),
        ("out_of_order", 1),
    ],
    delay_ms: Some(50),
    nodes: COLOCATED,
    ..Preset::EMPTY
};

/// With enough leaders that they are not the bottleneck (compartmentalization, section 8.2).
const COMPARTMENTALIZED: Preset = Preset {
    name: "mencius-compartmentalized",
    about: "Mencius, 23 nodes: every role apart and scaled, 3 leaders, a 2x2 grid of acceptors",
    quorums: QuorumSpec::Grid {
        rows: 2,
        columns: 2,
    },
    options: LOCAL_SKIPS,
    nodes: &[
        nodes(3, "gateway-", &["client"]),
        nodes(3, "leader-", &["leader"]),
        nodes(10, "proxy-leader-", &["proxy_leader"]),
        nodes(2, "acceptor-0-", &["acceptor"]),
        nodes(2, "acceptor-1-", &["acceptor"]),
        nodes(3, "replica-", &["replica"]),
    ],
    ..Preset::EMPTY
};

const BATCHED: Preset = Preset {
    name: "mencius-batched",
    about: "Mencius, 18 nodes: every role apart, with batchers and unbatchers",
    options: LOCAL_SKIPS,
    nodes: &[
        nodes(2, "gateway-", &["client"]),
        nodes(3, "batcher-", &["batcher", "read_batcher"]),
        nodes(3, "leader-", &["leader"]),
        nodes(3, "proxy-leader-", &["proxy_leader"]),
        nodes(3, "acceptor-", &["acceptor"]),
        nodes(2, "replica-", &["replica"]),
        nodes(2, "unbatcher-", &["unbatcher"]),
    ],
    ..Preset::EMPTY
};
