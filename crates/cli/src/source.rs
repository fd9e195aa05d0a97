//! Where a command finds its deployment.

use crate::arguments::Whereabouts;
use crate::places::Places;
use anyhow::{Context, Result};
use ionian_deployment::{Configuration, Deployment, PresetOptions};
use ionian_runtime::membership;
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

/// What is known of a running cluster before any of its nodes is asked.
pub(crate) fn running(whereabouts: &Whereabouts) -> Result<Configuration> {
    match &whereabouts.config {
        Some(file) => Ok(Configuration::founded(Deployment::load(file)?)),
        None => known_in(&whereabouts.data)?.with_context(|| {
            format!("{} holds no deployment: name one with --data DIR or --config FILE", whereabouts.data.display())
        }),
    }
}

/// The newest membership that a data directory holds: that of its deployment, or what one of its nodes has learned
/// since.
pub(crate) fn known_in(data: &Path) -> Result<Option<Configuration>> {
    let Some(mut known) = in_directory(data)?.map(Configuration::founded) else { return Ok(None) };
    for node in Places::new(data).node_directories()? {
        // Whatever is the matter with a file, its node says it.
        if let Ok(Some(theirs)) = membership::stored(&node)
            && theirs.founding == known.founding
            && theirs.epoch() > known.epoch()
        {
            known = theirs;
        }
    }
    Ok(Some(known))
}

/// The deployment that the cluster in a data directory was founded with, if there is one.
pub(crate) fn in_directory(data: &Path) -> Result<Option<Deployment>> {
    let path = Places::new(data).deployment();
    if !path.try_exists().with_context(|| format!("cannot look for {}", path.display()))? {
        return Ok(None);
    }
    Ok(Some(Deployment::load(&path)?))
}
