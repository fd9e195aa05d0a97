//! How a command finds the deployment of its cluster.

use crate::address::endpoint;
use crate::cluster_args::ClusterArgs;
use crate::contact;
use crate::data_paths::DataPaths;
use crate::waiting;
use anyhow::{Context, Result, bail};
use ionian_deployment::{Configuration, Deployment, PresetOptions};
use ionian_kernel::level::Level;
use ionian_program::BadUsage;
use ionian_runtime::storage::membership_file;
use ionian_runtime::{QueryError, query_membership};
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The addresses that the flags give.
pub(crate) fn preset_options(listen: Option<SocketAddr>, node_port: Option<u16>) -> PresetOptions {
    let mut options = PresetOptions::default();
    if let Some(listen) = listen {
        options.gateway_host = host(listen);
        options.first_gateway_port = listen.port();
    }
    if let Some(port) = node_port {
        options.first_node_port = port;
    }
    options
}

/// Moves the gateways: the first to `listen`, the others to the next ports.
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

/// The host in the notation of a deployment file.
fn host(address: SocketAddr) -> String {
    match address {
        SocketAddr::V4(address) => address.ip().to_string(),
        SocketAddr::V6(address) => format!("[{}]", address.ip()),
    }
}

/// Time limit for a node's answer, after which the tools continue without it. Generous, because a
/// busy node is slow.
pub(crate) const ANSWER_LIMIT: Duration = Duration::from_secs(3);

/// The node given with `--at` does not say what the membership is.
#[derive(Debug)]
pub(crate) struct NoAnswer {
    contact: String,
    /// Whether it has said that it refuses.
    is_refused: bool,
}

impl std::fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let NoAnswer {
            contact,
            is_refused,
        } = self;
        if *is_refused {
            return write!(f, "the node at {contact} refuses");
        }
        write!(
            f,
            "no node answers at {contact} (use the address for other nodes, not the gateway's address)"
        )
    }
}

/// What is known of the running cluster that the command line names, from a node, a file or a data
/// directory.
pub(crate) async fn running(cluster_args: &ClusterArgs) -> Result<Configuration> {
    contact::identify(cluster_args)?;
    match cluster_args {
        ClusterArgs { at: Some(contact), .. } => {
            let Some(address) = endpoint(contact) else {
                return Err(BadUsage(format!("--at {contact:?}: must be the HOST:PORT where a node accepts other nodes")).into());
            };
            let asked = query_membership(contact::to(None, address), ANSWER_LIMIT).await;
            let is_refused = matches!(asked, Err(QueryError::Refused(_)));
            let contact = contact.clone();
            asked.with_context(|| NoAnswer { contact, is_refused })
        }
        ClusterArgs { config: Some(file), .. } => Ok(Configuration::founded(waiting::for_deployment(file)?)),
        ClusterArgs { data, .. } => known_in(data)?.with_context(|| {
            format!(
                "{} holds no deployment: name one with --data DIR or --config FILE, or any running node with --at HOST:PORT",
                data.display()
            )
        }),
    }
}

/// The newest membership in a data directory: that of its deployment, or what one of its nodes has
/// learned since.
pub(crate) fn known_in(data: &Path) -> Result<Option<Configuration>> {
    let mut known = in_directory(data)?.map(Configuration::founded);
    for node in DataPaths::new(data).node_directories()? {
        // Ignores errors, because the node itself reports them.
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
            // The deployment of `ionian up` decides which cluster is meant. Without it that is
            // unknown.
            Some(_) if DataPaths::new(data).deployment().exists() => {}
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

/// When and where a file was last written. Its inode counts too, because writers of membership
/// files replace them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    path: PathBuf,
    /// Inode, seconds and nanoseconds of the last change, and length; `None` without a file.
    written: Option<(u64, i64, i64, u64)>,
}

/// The stamps of all files that [`known_in`] reads, in the order of their paths: what it returns
/// changes only when one of them does.
pub(crate) fn stamps_in(data: &Path) -> Result<Vec<Stamp>> {
    let places = DataPaths::new(data);
    let nodes = places.node_directories()?;
    let memberships = nodes.iter().map(|node| membership_file::file(node));
    let mut paths: Vec<PathBuf> = memberships.chain([places.deployment()]).collect();
    paths.sort_unstable();
    let stamp = |path: PathBuf| {
        let metadata = fs::metadata(&path).ok();
        let written = metadata.map(|it| (it.ino(), it.mtime(), it.mtime_nsec(), it.len()));
        Stamp { path, written }
    };
    Ok(paths.into_iter().map(stamp).collect())
}

/// The founding deployment of the cluster in a data directory, if there is one.
pub(crate) fn in_directory(data: &Path) -> Result<Option<Deployment>> {
    if data.is_file() {
        return Err(BadUsage(format!(
            "--data {}: this is a file; a deployment file is named with --config",
            data.display()
        ))
        .into());
    }
    let path = DataPaths::new(data).deployment();
    if !path
        .try_exists()
        .with_context(|| format!("cannot look for {}", path.display()))?
    {
        return Ok(None);
    }
    // One that states no level was written by a program that knew none.
    let load = || Deployment::load_or(&path, Level::FIRST);
    Ok(Some(waiting::for_file(&path, load)?))
}
