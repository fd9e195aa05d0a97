//! Where a command finds its deployment.

use crate::arguments::{BadUsage, Whereabouts};
use crate::node::resolve;
use crate::places::Places;
use anyhow::{Context, Result, bail};
use ionian_deployment::{Configuration, Deployment, PresetOptions};
use ionian_runtime::query_membership;
use ionian_runtime::storage::membership_file;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

/// A preset, placed where the flags say.
pub(crate) fn preset(
    name: &str,
    listen: Option<SocketAddr>,
    node_port: Option<u16>,
) -> Result<Deployment> {
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
    let names = deployment
        .nodes
        .iter()
        .filter(|node| node.gateway.is_some())
        .map(|node| &node.name);
    let ports = u32::from(listen.port())..;
    let moves: Vec<_> = names
        .zip(ports)
        .map(|(name, port)| format!("node.{name}.gateway={}:{port}", host(listen)))
        .collect();
    deployment
        .with_overrides(&moves)
        .map_err(|error| BadUsage(format!("--listen {listen}: {error}")).into())
}

/// The host as a deployment file writes it.
fn host(address: SocketAddr) -> String {
    match address {
        SocketAddr::V4(address) => address.ip().to_string(),
        SocketAddr::V6(address) => format!("[{}]", address.ip()),
    }
}

/// How long a node may take to answer before the tools go on without it: a busy one takes longer
/// than an idle one.
pub(crate) const ANSWER_LIMIT: Duration = Duration::from_secs(3);

/// The node that was to lead to the others does not answer.
#[derive(Debug)]
pub(crate) struct NoAnswer(String);

impl std::fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let NoAnswer(contact) = self;
        write!(
            f,
            "no node answers at {contact} (the address of a node among nodes is meant, not its gateway)"
        )
    }
}

/// What is known of a running cluster at the place that the command line names: a node that is
/// asked, a file, or a data directory.
pub(crate) async fn running(whereabouts: &Whereabouts) -> Result<Configuration> {
    match whereabouts {
        Whereabouts { at: Some(contact), .. } => {
            let Some(address) = endpoint(contact) else {
                return Err(BadUsage(format!("--at {contact:?}: must be the HOST:PORT where a node finds another")).into());
            };
            let asked = match resolve("--at", address) {
                Ok(address) => query_membership(address, ANSWER_LIMIT).await.map_err(anyhow::Error::from),
                Err(error) => Err(error),
            };
            asked.with_context(|| NoAnswer(contact.clone()))
        }
        Whereabouts { config: Some(file), .. } => Ok(Configuration::founded(Deployment::load(file)?)),
        Whereabouts { data, .. } => known_in(data)?.with_context(|| {
            format!(
                "{} holds no deployment: name one with --data DIR or --config FILE, or any running node with --at HOST:PORT",
                data.display()
            )
        }),
    }
}

/// The text, if it has the form of an address.
pub(crate) fn endpoint(text: &str) -> Option<&str> {
    text.rsplit_once(':')
        .filter(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
        .map(|_| text)
}

/// The newest membership that a data directory holds: that of its deployment, or what one of its
/// nodes has learned since.
pub(crate) fn known_in(data: &Path) -> Result<Option<Configuration>> {
    let mut known = in_directory(data)?.map(Configuration::founded);
    for node in Places::new(data).node_directories()? {
        // Whatever is the matter with a file, its node says it.
        let Ok(Some(theirs)) = membership_file::stored(&node) else {
            continue;
        };
        match &known {
            None => known = Some(theirs),
            Some(ours) if theirs.founding == ours.founding => {
                if theirs.epoch() > ours.epoch() {
                    known = Some(theirs);
                }
            }
            // What `ionian up` left there says which cluster is meant; otherwise nothing does.
            Some(_) if Places::new(data).deployment().exists() => {}
            Some(ours) => bail!(
                "{} holds nodes of clusters {} and {}, founded with different deployments: name a running node of one \
                 with --at HOST:PORT",
                data.display(),
                ours.deployment.cluster,
                theirs.deployment.cluster
            ),
        }
    }
    Ok(known)
}

/// The deployment that the cluster in a data directory was founded with, if there is one.
pub(crate) fn in_directory(data: &Path) -> Result<Option<Deployment>> {
    let path = Places::new(data).deployment();
    if !path
        .try_exists()
        .with_context(|| format!("cannot look for {}", path.display()))?
    {
        return Ok(None);
    }
    Ok(Some(Deployment::load(&path)?))
}
