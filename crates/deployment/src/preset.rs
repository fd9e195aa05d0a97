//! The presets, all on one machine until their addresses are changed.

use crate::deployment::{CLIENT, Deployment, Durability, Node, Placed};
use crate::error::{DeploymentError, Problem};
use crate::options::Settings;
use crate::words::shortened;
use ionian_kernel::level::Level;
use ionian_kernel::preset::{Nodes, Preset};
use ionian_kernel::protocol::Description;
use ionian_protocols::registry;

/// The presets of all protocols.
pub fn presets() -> impl Iterator<Item = (&'static Description, &'static Preset)> {
    let of =
        |protocol: &'static Description| protocol.presets.iter().map(move |one| (protocol, one));
    registry::ALL.iter().flat_map(of)
}

/// The default preset.
pub const DEFAULT_PRESET: &str = "colocated";

/// The addresses and the name of a preset's cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresetOptions {
    /// The host of every node.
    pub host: String,
    /// The host on which gateways listen; only here a wildcard such as `0.0.0.0` is allowed.
    pub gateway_host: String,
    /// The port of the first node; the others use the next ports.
    pub first_node_port: u16,
    /// The port of the first gateway; the others use the next ports.
    pub first_gateway_port: u16,
    /// The name of the cluster.
    pub cluster: String,
    /// The number of nodes, if it is not the preset's; then a minority of them may fail. Only
    /// where all nodes are alike.
    pub nodes: Option<usize>,
    /// The host of each node and of its gateway, in place of both hosts and with the first ports;
    /// it gives the number of nodes, too.
    pub hosts: Vec<String>,
}

impl Default for PresetOptions {
    fn default() -> Self {
        PresetOptions {
            host: "127.0.0.1".to_owned(),
            gateway_host: "127.0.0.1".to_owned(),
            // Far from the gateways' ports, which start at 7379, and below the range from which
            // systems take the ports of outgoing connections.
            first_node_port: 17400,
            first_gateway_port: 7379,
            cluster: "ionian".to_owned(),
            nodes: None,
            hosts: Vec::new(),
        }
    }
}

impl Deployment {
    /// The preset with this name.
    ///
    /// # Errors
    /// If the preset does not exist, or `options` give invalid addresses.
    pub fn preset(name: &str, options: &PresetOptions) -> Result<Self, DeploymentError> {
        let named = presets().find(|(_, preset)| preset.name == name);
        let (protocol, preset) = named.ok_or_else(|| {
            let known: Vec<_> = presets().map(|(_, preset)| preset.name).collect();
            Problem::NoSuchPreset {
                name: shortened(name),
                known: known.join(", "),
            }
        })?;
        let mut settings = Settings::default();
        for (key, value) in preset.options {
            settings.set(key, *value)?;
        }
        let (groups, f) = sized(preset, options)?;
        let deployment = Deployment {
            cluster: options.cluster.clone(),
            protocol: protocol.name.to_owned(),
            machine: "kv".to_owned(),
            f,
            quorums: preset.quorums,
            durability: Durability::default(),
            level: Level::LATEST,
            options: settings,
            nodes: placed(&groups, options),
            network: None,
        };
        let deployment = match preset.delay_ms {
            Some(delay_ms) => deployment.apart(delay_ms),
            None => deployment,
        };
        // Parsing the text checks the caller's values: names, hosts and ports.
        Deployment::parse(&deployment.to_toml()).map_err(|error| DeploymentError {
            place: None,
            ..error
        })
    }
}

/// The nodes of a preset, and how many may fail.
fn sized(preset: &Preset, options: &PresetOptions) -> Result<(Vec<Nodes>, usize), DeploymentError> {
    let has = preset.nodes.iter().map(|group| group.count).sum();
    let of_hosts = Some(options.hosts.len()).filter(|count| *count > 0);
    let asked = of_hosts.or(options.nodes).unwrap_or(has);
    if let Some(nodes) = options.nodes.filter(|nodes| *nodes != asked) {
        let hosts = options.hosts.len();
        return Err(Problem::OtherHosts { nodes, hosts }.into());
    }
    match preset.nodes {
        nodes if asked == has => Ok((nodes.to_vec(), preset.f)),
        [group] => {
            let group = Nodes {
                count: asked,
                ..*group
            };
            Ok((vec![group], asked.saturating_sub(1) / 2))
        }
        _ => Err(Problem::OtherNumber {
            name: preset.name.to_owned(),
            has,
            asked,
        }
        .into()),
    }
}

/// Gives each node an address, and each node with a client a gateway.
fn placed(groups: &[Nodes], options: &PresetOptions) -> Vec<Node> {
    // Counts beyond 65535 without wrapping, so that the check names the invalid port.
    let mut gateway_ports = u32::from(options.first_gateway_port)..;
    let alike = |group: &Nodes| {
        let Nodes { prefix, roles, .. } = *group;
        (0..group.count).map(move |number| (format!("{prefix}{number}"), roles))
    };
    let nodes = groups.iter().flat_map(alike);
    let hosts = options.hosts.iter().map(Some);
    let hosts = hosts.chain(std::iter::repeat(None));
    (u32::from(options.first_node_port)..)
        .zip(nodes)
        .zip(hosts)
        .map(|((port, (name, roles)), host)| {
            let gateway = roles.contains(&CLIENT).then(|| gateway_ports.next());
            let gateway = gateway.flatten();
            // Each on a machine of its own, or all on one.
            let (address, gateway) = match host {
                Some(host) => (
                    format!("{host}:{}", options.first_node_port),
                    gateway.map(|_| format!("{host}:{}", options.first_gateway_port)),
                ),
                None => (
                    format!("{}:{port}", options.host),
                    gateway.map(|port| format!("{}:{port}", options.gateway_host)),
                ),
            };
            Node {
                name,
                address,
                gateway,
                roles: roles.iter().map(|role| Placed::some(role, 1)).collect(),
                ..Node::default()
            }
        })
        .collect()
}
