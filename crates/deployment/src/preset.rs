//! Deployments that come with Ionian, all on one machine until their addresses are edited.

use crate::deployment::{CLIENT, Deployment, Durability, Node, Placed};
use crate::error::{DeploymentError, Problem};
use crate::options::Settings;
use ionian_kernel::preset::{Nodes, Preset};
use ionian_kernel::protocol::Description;
use ionian_protocols::registry;

/// The presets of all protocols.
pub fn presets() -> impl Iterator<Item = (&'static Description, &'static Preset)> {
    let of =
        |protocol: &'static Description| protocol.presets.iter().map(move |one| (protocol, one));
    registry::ALL.iter().flat_map(of)
}

/// The preset where none is named.
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
        let named = presets().find(|(_, preset)| preset.name == name);
        let (protocol, preset) = named.ok_or_else(|| {
            let known: Vec<_> = presets().map(|(_, preset)| preset.name).collect();
            Problem::NoSuchPreset {
                name: name.to_owned(),
                known: known.join(", "),
            }
        })?;
        let mut settings = Settings::default();
        for (key, value) in preset.options {
            settings.set(key, *value)?;
        }
        let deployment = Deployment {
            cluster: options.cluster.clone(),
            protocol: protocol.name.to_owned(),
            machine: "kv".to_owned(),
            f: preset.f,
            quorums: preset.quorums,
            durability: Durability::default(),
            options: settings,
            nodes: placed(preset.nodes, options),
            network: None,
        };
        let deployment = match preset.delay_ms {
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

/// Gives each node an address, and a gateway to each that has a client.
fn placed(groups: &[Nodes], options: &PresetOptions) -> Vec<Node> {
    // Counted beyond 65535 rather than around it: the check that follows then names the port.
    let mut gateway_ports = u32::from(options.first_gateway_port)..;
    let alike = |group: &Nodes| {
        let Nodes { prefix, roles, .. } = *group;
        (0..group.count).map(move |number| (format!("{prefix}{number}"), roles))
    };
    let nodes = groups.iter().flat_map(alike);
    (u32::from(options.first_node_port)..)
        .zip(nodes)
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
