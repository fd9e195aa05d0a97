//! How the commands of this process reach nodes: with a certificate, through the Unix sockets of
//! the nodes in a data directory, or without either.

use crate::cluster_args::ClusterArgs;
use crate::data_paths::DataPaths;
use crate::output::explain;
use crate::waiting;
use anyhow::{Context, Error, Result};
use ionian_program::BadUsage;
use ionian_runtime::node::unix_socket::SOCKET;
use ionian_runtime::{Contact, NodeTls, ONLY_TLS, TlsMode};
use ionian_tls::{ClientAuth, Expected, Files, Kind, Live};
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// Who this process is to nodes. A process runs one command or one node, for one cluster.
#[derive(Debug)]
struct Identity {
    tls: Option<NodeTls>,
    /// The directory in which nodes may run.
    places: Option<DataPaths>,
}

static IDENTITY: OnceLock<Identity> = OnceLock::new();

/// Takes the identity that the command line names.
///
/// # Errors
/// If its certificate cannot be used.
pub(crate) fn identify(cluster_args: &ClusterArgs) -> Result<()> {
    let is_local = cluster_args.at.is_none() && cluster_args.config.is_none();
    let places = is_local.then_some(&*cluster_args.data);
    identify_as(cluster_args.tls.as_deref(), places)
}

/// Takes the identity of the certificate in the directory `tls`. The nodes in `data` are reached
/// through their Unix sockets, if this process has no certificate.
///
/// # Errors
/// If the certificate cannot be used.
pub(crate) fn identify_as(tls: Option<&Path>, data: Option<&Path>) -> Result<()> {
    let expected = Expected {
        kinds: vec![Kind::Operator, Kind::Monitor],
        ..Expected::default()
    };
    let tls = match tls {
        None => None,
        Some(directory) => Some(load(directory, expected)?),
    };
    let places = data.filter(|_| tls.is_none()).map(DataPaths::new);
    // A command that asks again has the same command line.
    IDENTITY.get_or_init(|| Identity { tls, places });
    Ok(())
}

/// Takes the identity of the node that this process runs.
pub(crate) fn identify_node(tls: Option<NodeTls>) {
    IDENTITY.get_or_init(|| Identity { tls, places: None });
}

/// The certificate in a directory, of the expected owner.
///
/// # Errors
/// If it cannot be used.
pub(crate) fn load(directory: &Path, expected: Expected) -> Result<NodeTls> {
    let set = (Files::within(directory), expected);
    let live = waiting::for_files(|begin| Live::open_by(set, ClientAuth::None, begin))
        .with_context(|| format!("--tls {}", directory.display()))?;
    Ok(NodeTls::new(TlsMode::Required, Arc::new(live)))
}

/// Whether this process has a certificate to show to nodes.
pub(crate) fn has_certificate() -> bool {
    IDENTITY
        .get()
        .is_some_and(|identity| identity.tls.is_some())
}

/// What to try where nodes have refused this process because it has no certificate.
pub(crate) const NEEDS_TLS: &str = "nodes with TLS answer only commands with the certificate of an operator or monitor (--tls DIR), or on the \
     same machine in the same data directory";

/// What to try after this error, if nodes have refused this process for want of a certificate.
pub(crate) fn advice(error: &Error) -> Option<&'static str> {
    let is_refused = explain(error).contains(ONLY_TLS);
    (is_refused && !has_certificate()).then_some(NEEDS_TLS)
}

/// Checks that nodes with TLS let this process change something: a monitor may only look.
///
/// # Errors
/// If its certificate is a monitor's; `what` names what needs more.
pub(crate) fn check_operator(what: &str) -> Result<()> {
    let tls = IDENTITY.get().and_then(|identity| identity.tls.as_ref());
    let Some(loaded) = tls.map(|tls| tls.live.loaded()) else {
        return Ok(());
    };
    let name = loaded.set.name();
    if name.kind == Kind::Monitor {
        let why =
            format!("{what} needs the certificate of an operator; that of {name} may only look");
        return Err(BadUsage(why).into());
    }
    Ok(())
}

/// The node at `address` (`HOST:PORT`), with its name if it is known.
pub(crate) fn to(name: Option<&str>, address: &str) -> Contact {
    let mut contact = Contact {
        address: address.to_owned(),
        socket: None,
        tls: None,
        name: name.map(str::to_owned),
    };
    if let Some(identity) = IDENTITY.get() {
        contact.tls = identity.tls.clone();
        let socket = |name| Some(identity.places.as_ref()?.node(name).join(SOCKET));
        contact.socket = name.and_then(socket);
    }
    contact
}
