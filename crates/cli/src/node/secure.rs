//! The certificates of a node, and what it does with them.

use super::arguments::{Arguments, ClientUser, Clients, Mode};
use super::service;
use super::stop::Stop;
use anyhow::{Context, Result};
use ionian_gateway::ClientTls;
use ionian_program::BadUsage;
use ionian_runtime::{NodeTls, TlsMode};
use ionian_tls::ClientAuth;
use std::path::Path;
use tokio::signal::unix::{SignalKind, signal};

/// Loads the certificate that `--tls` names. Its name must be that of the node; the cluster is
/// checked when it is known ([`NodeTls::check_cluster`]).
///
/// # Errors
/// If it cannot be used.
pub(super) fn load(arguments: &Arguments, stop: &Stop) -> Result<Option<NodeTls>> {
    let Some(directory) = &arguments.tls else {
        tracing::warn!(
            id = "E0905",
            "TLS is off: every process that reaches this node's address can copy all data and \
             change the members (docs/security.md)"
        );
        return Ok(None);
    };
    if arguments.client_user == ClientUser::Certificate && arguments.client_tls != Clients::Required
    {
        let why = "--client-user certificate: needs --client-tls required, so that each client \
                   has a certificate";
        return Err(BadUsage(why.to_owned()).into());
    }
    let mode = match arguments.tls_mode {
        Mode::Permissive => TlsMode::Permissive,
        Mode::Required => TlsMode::Required,
    };
    let auth = match arguments.client_tls {
        Clients::Off | Clients::None => ClientAuth::None,
        Clients::Optional => ClientAuth::Optional,
        Clients::Required => ClientAuth::Required,
    };
    let begin = &|path: &Path| stop.waits_for(path);
    let tls = NodeTls::of_node(directory, &arguments.name, mode, auth, begin)
        .with_context(|| format!("--tls {}", directory.display()))?;
    if mode == TlsMode::Permissive {
        tracing::warn!(
            id = "E0906",
            "TLS is permissive: this node also accepts connections without it"
        );
    }
    Ok(Some(tls))
}

/// How the gateway secures the connections of clients, if it does.
pub(super) fn for_clients(arguments: &Arguments, tls: Option<&NodeTls>) -> Option<ClientTls> {
    let tls = tls.filter(|_| arguments.client_tls != Clients::Off)?;
    Some(ClientTls {
        live: tls.live.clone(),
        permissive: tls.mode == TlsMode::Permissive,
        certificates_log_in: arguments.client_user == ClientUser::Certificate,
    })
}

/// Reads the certificates again at each SIGHUP, if the node has any, and reports it to the service
/// manager. Must be called within a `LocalSet`.
pub(super) fn reload_at_signal(tls: Option<NodeTls>) {
    match signal(SignalKind::hangup()) {
        Err(error) => tracing::warn!(id = "E0907", "the signal SIGHUP cannot be caught: {error}"),
        Ok(mut hangup) => {
            tokio::task::spawn_local(async move {
                while hangup.recv().await.is_some() {
                    service::reloads();
                    if let Some(tls) = &tls {
                        tls.read_again().await;
                    }
                    service::has_reloaded();
                }
            });
        }
    }
}
