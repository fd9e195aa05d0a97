//! Where a command finds its deployment.

use crate::arguments::Whereabouts;
use crate::places::Places;
use anyhow::{Context, Result};
use ionian_deployment::{Deployment, PresetOptions};
use std::net::SocketAddr;
use std::path::Path;

/// A preset, placed where the flags say.
pub(crate) fn preset(name: &str, listen: Option<SocketAddr>, node_port: Option<u16>) -> Result<Deployment> {
    let mut options = PresetOptions::default();
    if let Some(listen) = listen {
        options.gateway_host = host(listen);
        options.first_gateway_port = listen.port();
    }
    if let Some(port) = node_port {
        options.first_node_port = port;
    }
    Ok(Deployment::preset(name, &options)?)
}

/// Moves the gateways: the first to `listen`, the others to the ports that follow.
pub(crate) fn move_gateways(deployment: Deployment, listen: SocketAddr) -> Result<Deployment> {
    let names = deployment.nodes.iter().filter(|node| node.gateway.is_some()).map(|node| &node.name);
    let ports = u32::from(listen.port())..;
    let moves: Vec<_> =
        names.zip(ports).map(|(name, port)| format!("node.{name}.gateway={}:{port}", host(listen))).collect();
    deployment.with_overrides(&moves).with_context(|| format!("--listen {listen}"))
}

/// The host as a deployment file writes it.
fn host(address: SocketAddr) -> String {
    match address {
        SocketAddr::V4(address) => address.ip().to_string(),
        SocketAddr::V6(address) => format!("[{}]", address.ip()),
    }
}

/// The deployment of a running cluster.
pub(crate) fn running(whereabouts: &Whereabouts) -> Result<Deployment> {
    match &whereabouts.config {
        Some(file) => Ok(Deployment::load(file)?),
        None => in_directory(&whereabouts.data)?.with_context(|| {
            format!("{} holds no deployment: name one with --data DIR or --config FILE", whereabouts.data.display())
        }),
    }
}

/// The deployment that a data directory holds, if it holds one.
pub(crate) fn in_directory(data: &Path) -> Result<Option<Deployment>> {
    let path = Places::new(data).deployment();
    if !path.try_exists().with_context(|| format!("cannot look for {}", path.display()))? {
        return Ok(None);
    }
    Ok(Some(Deployment::load(&path)?))
}
