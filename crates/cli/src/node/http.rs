//! The HTTP server of a node: what it serves is in the crate `metrics`.

use super::arguments::Arguments;
use crate::address::{listen, resolve};
use crate::status;
use anyhow::{Context, Result};
use ionian_gateway::Measured;
use ionian_metrics::{Server, Settings, Sources};
use ionian_runtime::{StatusFeed, status_feed};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use tokio::sync::watch;

/// Where a node reports to its HTTP server.
pub(super) struct Reports {
    pub(super) feed: Option<StatusFeed>,
    pub(super) gateway: watch::Sender<Option<Measured>>,
    cluster: Arc<OnceLock<String>>,
}

impl Reports {
    /// The node is a member of this cluster.
    pub(super) fn is_member_of(&self, cluster: &str) {
        // Set once: a node has one cluster.
        let _ = self.cluster.set(cluster.to_owned());
    }
}

/// Starts the server, if the arguments name an address for it.
///
/// # Errors
/// If the address is not available.
pub(super) fn start(arguments: &Arguments, data: &Path) -> Result<Reports> {
    let (gateway, measured) = watch::channel(None);
    let cluster = Arc::new(OnceLock::new());
    let mut reports = Reports {
        feed: None,
        gateway,
        cluster: cluster.clone(),
    };
    let Some(text) = &arguments.http else {
        return Ok(reports);
    };
    let address = resolve("--http", text)?;
    let listener = listen(address).with_context(|| format!("cannot listen on --http {text:?}"))?;
    let (feed, reader) = status_feed();
    let own = text.rsplit_once(':').map(|(host, _)| host.to_owned());
    let settings = Settings {
        listener,
        hosts: own
            .into_iter()
            .chain(arguments.http_hosts.clone())
            .collect(),
    };
    let sources = Sources {
        status: reader,
        gateway: measured,
        tolerance: Box::new(status::tolerance_seen_by),
        cluster,
        node: arguments.name.clone(),
        version: env!("CARGO_PKG_VERSION"),
        data: data.to_owned(),
    };
    let server = Server::start(settings, sources).context("cannot serve metrics")?;
    tracing::info!("metrics and health at http://{}/metrics", server.address());
    reports.feed = Some(feed);
    Ok(reports)
}
