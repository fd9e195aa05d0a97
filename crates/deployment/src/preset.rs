//! Deployments that come with Ionian, all on one machine until their addresses are edited.

use crate::deployment::{CLIENT, Deployment, Durability, Node, Placed};
use crate::error::{DeploymentError, Problem};
use crate::options::Settings;
use ionian_kernel::quorum::QuorumSpec;

/// The presets, each with what it is.
pub const PRESETS: &[(&str, &str)] = &[
    (DEFAULT_PRESET, "MultiPaxos, 3 nodes, every role on each"),
    (
        "baseline",
        "MultiPaxos, 3 nodes, nothing decoupled and nothing batched",
    ),
    (
        "compartmentalized",
        "MultiPaxos, 22 nodes: every role apart and scaled, a 2x2 grid of acceptors, unbatched",
    ),
    (
        "batched",
        "MultiPaxos, 17 nodes: every role apart, with batchers and unbatchers",
    ),
    (
        "mencius",
        "Mencius as published, 3 nodes, every role on each: every node leads a third of the log",
    ),
    (
        "mencius-wan",
        "Mencius, 3 nodes at 3 sites, 50 ms apart one way; out-of-order commit",
    ),
    (
        "mencius-compartmentalized",
        "Mencius, 23 nodes: every role apart and scaled, 3 leaders, a 2x2 grid of acceptors",
    ),
    (
        "mencius-batched",
        "Mencius, 18 nodes: every role apart, with batchers and unbatchers",
    ),
    (
        "spaxos",
        "S-Paxos, 3 nodes, every role on each: commands go round the leader, which orders references to them",
    ),
    (
        "spaxos-compartmentalized",
        "S-Paxos, 33 nodes: every role apart and scaled, 2x3 grids, unbatched",
    ),
    (
        "spaxos-batched",
        "S-Paxos, 22 nodes: every role apart, with batchers and unbatchers",
    ),
    (
        "unreplicated",
        "one server, nothing replicated: what every protocol is compared with",
    ),
    (
        "unreplicated-batched",
        "one server, 6 nodes: with batchers and unbatchers",
    ),
];

/// The preset for somebody who has not chosen one.
pub const DEFAULT_PRESET: &str = "colocated";

/// Where a preset is placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresetOptions {
    /// The host of every node.
    pub host: String,
    /// The host on which gateways listen; a wildcard such as `0.0.0.0` is allowed here alone.
    pub gateway_host: String,
    /// The port of the first node; the others follow.
    pub first_node_port: u16,
    /// The port of the first gateway; the others follow.
    pub first_gateway_port: u16,
    /// The name of the cluster.
    pub cluster: String,
}

impl Default for PresetOptions {
    fn default() -> Self {
        PresetOptions {
            host: "127.0.0.1".to_owned(),
            gateway_host: "127.0.0.1".to_owned(),
            // Far from the gateways, which count up from beside Redis's 6379, and below the ports
            // that systems hand out to whoever connects.
            first_node_port: 17400,
            first_gateway_port: 7379,
            cluster: "ionian".to_owned(),
        }
    }
}

impl Deployment {
    /// The preset of this name.
    ///
    /// # Errors
    /// When there is none, or `options` give no valid addresses.
    pub fn preset(name: &str, options: &PresetOptions) -> Result<Self, DeploymentError> {
        let sketch = sketch(name).ok_or_else(|| {
            let known = PRESETS
                .iter()
                .map(|(name, _)| *name)
                .collect::<Vec<_>>()
                .join(", ");
            Problem::NoSuchPreset {
                name: name.to_owned(),
                known,
            }
        })?;
        let deployment = Deployment {
            cluster: options.cluster.clone(),
            protocol: sketch.protocol.to_owned(),
            machine: "kv".to_owned(),
            f: sketch.f,
            quorums: sketch.quorums,
            durability: Durability::default(),
            options: sketch
                .options
                .iter()
                .try_fold(Settings::default(), |mut options, (key, value)| {
                    options.set(key, *value).map(|()| options)
                })?,
            nodes: placed(sketch.nodes, options),
            network: None,
        };
        let deployment = match sketch.delay_ms {
            Some(delay_ms) => deployment.apart(delay_ms),
            None => deployment,
        };
        // Reading it back checks what the caller put in: names, hosts and ports.
        Deployment::parse(&deployment.to_toml()).map_err(|error| DeploymentError {
            place: None,
            ..error
        })
    }
}

/// On a local network a replica that waits for skips waits longer than they are worth: tau is the
/// one-way delay.
const LOCAL_SKIPS: &[(&str, u64)] = &[("skip_delay_ms", 1)];

/// Sites are far apart: whoever asks again before an answer can be there asks for nothing, and a
/// leader is not gone because it is far away; and more is under way at a time, namely bandwidth
/// times round trip. Alpha, tau and beta are the paper's (Mencius 6).
const WAN: &[(&str, u64)] = &[
    ("heartbeat_ms", 200),
    ("election_timeout_ms", 1000),
    ("resend_after_ms", 300),
    ("window_bytes", 4 << 20),
    ("thrifty", 0),
    ("out_of_order", 1),
];

/// A preset without addresses.
struct Sketch {
    protocol: &'static str,
    f: usize,
    quorums: QuorumSpec,
    /// What is not as it is by default.
    options: &'static [(&'static str, u64)],
    /// If each node is at a site of its own: how far these are apart, one way.
    delay_ms: Option<u64>,
    /// Names and roles.
    nodes: Vec<(String, &'static [&'static str])>,
}

fn sketch(name: &str) -> Option<Sketch> {
    let multipaxos = |quorums, nodes| Sketch {
        protocol: "multipaxos",
        f: 1,
        quorums,
        options: &[],
        nodes,
        delay_ms: None,
    };
    let mencius = |quorums, options, nodes| Sketch {
        protocol: "mencius",
        f: 1,
        quorums,
        options,
        nodes,
        delay_ms: None,
    };
    let spaxos = |quorums, options, nodes| Sketch {
        protocol: "spaxos",
        f: 1,
        quorums,
        options,
        nodes,
        delay_ms: None,
    };
    let unreplicated = |nodes| Sketch {
        protocol: "unreplicated",
        f: 0,
        quorums: QuorumSpec::Majority,
        options: &[],
        nodes,
        delay_ms: None,
    };
    Some(match name {
        // Every role on each, those too that a small cluster could do without: a hop to a neighbour
        // on the same node is a function call, batches are what makes a node fast, and there is
        // always an unbatcher and a read batcher beside whoever needs one.
        DEFAULT_PRESET => multipaxos(
            QuorumSpec::Majority,
            some(
                3,
                "n",
                &[
                    CLIENT,
                    "batcher",
                    "read_batcher",
                    "leader",
                    "proxy_leader",
                    "acceptor",
                    "replica",
                    "unbatcher",
                ],
            ),
        ),
        // A leader with a proxy leader on its own node is the coupled leader of plain MultiPaxos.
        "baseline" => multipaxos(
            QuorumSpec::Majority,
            some(
                3,
                "n",
                &[CLIENT, "leader", "proxy_leader", "acceptor", "replica"],
            ),
        ),
        // The paper's unbatched deployment (compartmentalization 8.1).
        "compartmentalized" => multipaxos(
            QuorumSpec::Grid {
                rows: 2,
                columns: 2,
            },
            [
                some(2, "gateway-", &[CLIENT]),
                some(2, "leader-", &["leader"]),
                some(10, "proxy-leader-", &["proxy_leader"]),
                some(2, "acceptor-0-", &["acceptor"]),
                some(2, "acceptor-1-", &["acceptor"]),
                some(4, "replica-", &["replica"]),
            ]
            .concat(),
        ),
        // The paper's batched deployment; there, batchers batch reads too, so here a read batcher
        // lives beside each.
        "batched" => multipaxos(
            QuorumSpec::Majority,
            [
                some(2, "gateway-", &[CLIENT]),
                some(2, "batcher-", &["batcher", "read_batcher"]),
                some(2, "leader-", &["leader"]),
                some(3, "proxy-leader-", &["proxy_leader"]),
                some(3, "acceptor-", &["acceptor"]),
                some(2, "replica-", &["replica"]),
                some(3, "unbatcher-", &["unbatcher"]),
            ]
            .concat(),
        ),
        // As published: a client's commands are led where it is.
        "mencius" => mencius(
            QuorumSpec::Majority,
            LOCAL_SKIPS,
            some(
                3,
                "n",
                &[
                    CLIENT,
                    "leader",
                    "proxy_leader",
                    "acceptor",
                    "replica",
                    "unbatcher",
                    "read_batcher",
                ],
            ),
        ),
        // The paper's three sites (Mencius 7.1): every acceptor is asked, for all sites must know
        // what is suggested.
        "mencius-wan" => Sketch {
            delay_ms: Some(50),
            ..mencius(
                QuorumSpec::Majority,
                WAN,
                some(
                    3,
                    "n",
                    &[
                        CLIENT,
                        "leader",
                        "proxy_leader",
                        "acceptor",
                        "replica",
                        "unbatcher",
                        "read_batcher",
                    ],
                ),
            )
        },
        // As many leaders as keep them from being the bottleneck (8.2).
        "mencius-compartmentalized" => mencius(
            QuorumSpec::Grid {
                rows: 2,
                columns: 2,
            },
            LOCAL_SKIPS,
            [
                some(3, "gateway-", &[CLIENT]),
                some(3, "leader-", &["leader"]),
                some(10, "proxy-leader-", &["proxy_leader"]),
                some(2, "acceptor-0-", &["acceptor"]),
                some(2, "acceptor-1-", &["acceptor"]),
                some(3, "replica-", &["replica"]),
            ]
            .concat(),
        ),
        "mencius-batched" => mencius(
            QuorumSpec::Majority,
            LOCAL_SKIPS,
            [
                some(2, "gateway-", &[CLIENT]),
                some(3, "batcher-", &["batcher", "read_batcher"]),
                some(3, "leader-", &["leader"]),
                some(3, "proxy-leader-", &["proxy_leader"]),
                some(3, "acceptor-", &["acceptor"]),
                some(2, "replica-", &["replica"]),
                some(2, "unbatcher-", &["unbatcher"]),
            ]
            .concat(),
        ),
        // As published: every server plays every role. Read batchers and unbatchers serve their
        // neighbours, as in the default preset; disseminators batch by themselves.
        "spaxos" => spaxos(
            QuorumSpec::Majority,
            &[],
            some(
                3,
                "n",
                &[
                    CLIENT,
                    "disseminator",
                    "read_batcher",
                    "leader",
                    "proxy_leader",
                    "acceptor",
                    "stabilizer",
                    "replica",
                    "unbatcher",
                ],
            ),
        ),
        // Compartmentalized MultiPaxos with disseminators and a grid of stabilizers
        // (compartmentalization 7); a payload is one command. Of three columns, for two would be
        // the bottleneck.
        "spaxos-compartmentalized" => spaxos(
            QuorumSpec::Grid {
                rows: 2,
                columns: 3,
            },
            &[("batch_commands", 1)],
            [
                some(2, "gateway-", &[CLIENT]),
                some(3, "disseminator-", &["disseminator"]),
                some(2, "leader-", &["leader"]),
                some(10, "proxy-leader-", &["proxy_leader"]),
                some(3, "acceptor-0-", &["acceptor"]),
                some(3, "acceptor-1-", &["acceptor"]),
                some(3, "stabilizer-0-", &["stabilizer"]),
                some(3, "stabilizer-1-", &["stabilizer"]),
                some(4, "replica-", &["replica"]),
            ]
            .concat(),
        ),
        // As MultiPaxos's batched deployment.
        "spaxos-batched" => spaxos(
            QuorumSpec::Majority,
            &[],
            [
                some(2, "gateway-", &[CLIENT]),
                some(2, "batcher-", &["batcher", "read_batcher"]),
                some(2, "disseminator-", &["disseminator"]),
                some(2, "leader-", &["leader"]),
                some(3, "proxy-leader-", &["proxy_leader"]),
                some(3, "acceptor-", &["acceptor"]),
                some(3, "stabilizer-", &["stabilizer"]),
                some(2, "replica-", &["replica"]),
                some(3, "unbatcher-", &["unbatcher"]),
            ]
            .concat(),
        ),
        "unreplicated" => unreplicated(some(1, "server-", &[CLIENT, "server"])),
        "unreplicated-batched" => unreplicated(
            [
                some(1, "gateway-", &[CLIENT]),
                some(2, "batcher-", &["batcher"]),
                some(1, "server-", &["server"]),
                some(2, "unbatcher-", &["unbatcher"]),
            ]
            .concat(),
        ),
        _ => return None,
    })
}

/// `count` nodes that are alike.
fn some(
    count: usize,
    prefix: &str,
    roles: &'static [&'static str],
) -> Vec<(String, &'static [&'static str])> {
    (0..count)
        .map(|index| (format!("{prefix}{index}"), roles))
        .collect()
}

/// Gives each node an address, and a gateway to each that has a client.
fn placed(nodes: Vec<(String, &'static [&'static str])>, options: &PresetOptions) -> Vec<Node> {
    // Counted beyond 65535 rather than around it: the check that follows then names the port.
    let mut gateway_ports = u32::from(options.first_gateway_port)..;
    let nodes = (u32::from(options.first_node_port)..).zip(nodes);
    nodes
        .map(|(port, (name, roles))| Node {
            name,
            address: format!("{}:{port}", options.host),
            gateway: (roles.contains(&CLIENT))
                .then(|| gateway_ports.next())
                .flatten()
                .map(|port| format!("{}:{port}", options.gateway_host)),
            roles: roles.iter().map(|role| Placed::some(role, 1)).collect(),
            ..Node::default()
        })
        .collect()
}
