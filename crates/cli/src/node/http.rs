//! The HTTP server of a node: what it serves is in the crates `metrics` and `dashboard`.

use super::arguments::Arguments;
use super::audit::Sink;
use crate::address::{listen, resolve};
use crate::status;
use anyhow::{Context, Result};
use ionian_dashboard::{Dashboard, Looking};
use ionian_deployment::Configuration;
use ionian_gateway::Measured;
use ionian_metrics::{AuditReader, Server, Settings, Sources};
use ionian_runtime::{StatusFeed, StatusReader, status_feed};
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use tokio::sync::watch;

/// Where a node reports to its HTTP server.
pub(super) struct Reports {
    pub(super) feed: Option<StatusFeed>,
    /// Where it serves.
    pub(super) address: Option<SocketAddr>,
    pub(super) gateway: watch::Sender<Option<Measured>>,
    cluster: Arc<OnceLock<String>>,
    given: Arc<OnceLock<Configuration>>,
}

impl Reports {
    /// The node is a member of this cluster.
    pub(super) fn is_member_of(&self, given: &Configuration) {
        // Set once: a node has one cluster.
        let _ = self.cluster.set(given.deployment.cluster.clone());
        let _ = self.given.set(given.clone());
    }
}

/// Starts the server, if the arguments name an address for it.
///
/// # Errors
/// If the address is not available.
pub(super) fn start(arguments: &Arguments, audit: Option<Arc<Sink>>) -> Result<Reports> {
    let (gateway, measured) = watch::channel(None);
    let cluster = Arc::new(OnceLock::new());
    let given = Arc::new(OnceLock::new());
    let mut reports = Reports {
        feed: None,
        address: None,
        gateway,
        cluster: cluster.clone(),
        given: given.clone(),
    };
    let Some(text) = &arguments.http else {
        return Ok(reports);
    };
    let address = resolve("--http", text)?;
    let listener = match listen(address) {
        Err(error) if arguments.http_optional => {
            tracing::warn!(
                id = "E0802",
                "no dashboard and no metrics at {text}: {error}"
            );
            return Ok(reports);
        }
        listener => listener.with_context(|| format!("cannot listen on --http {text:?}"))?,
    };
    let (feed, reader) = status_feed();
    let own = text.rsplit_once(':').map(|(host, _)| host.to_owned());
    let dashboard = Dashboard::start(reader.clone(), looking(reader.clone(), given))
        .context("cannot start the dashboard")?;
    let settings = Settings {
        listener,
        hosts: own
            .into_iter()
            .chain(arguments.http_hosts.clone())
            .collect(),
        pages: Box::new(move |path, asked| dashboard.page(path, asked)),
    };
    let sources = Sources {
        status: reader,
        gateway: measured,
        tolerance: Box::new(status::tolerance_seen_by),
        cluster,
        node: arguments.name.clone(),
        version: env!("CARGO_PKG_VERSION"),
        data: arguments.data.clone(),
        audit: audit.map(|sink| -> AuditReader { Box::new(move || sink.seen()) }),
    };
    let server = Server::start(settings, sources).context("cannot serve metrics")?;
    tracing::info!(
        "dashboard, metrics and health at http://{}/",
        server.address()
    );
    (reports.feed, reports.address) = (Some(feed), Some(server.address()));
    Ok(reports)
}

/// Looks at the cluster by the membership that the node knows, or else by the one with which it
/// started.
fn looking(reader: StatusReader, given: Arc<OnceLock<Configuration>>) -> Looking {
    Box::new(move || {
        let published = reader.last();
        let known = published.and_then(|published| published.configuration.clone());
        let known = known.or_else(|| given.get().cloned());
        Box::pin(async move { Some(status::look_from_node(&known?).await) })
    })
}
