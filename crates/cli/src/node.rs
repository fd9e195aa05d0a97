//! `ionian node`: one node in the foreground.

mod arguments;
mod audit;
mod http;
mod join;
mod logging;
mod open_files;
mod secure;
mod service;
mod stop;

use crate::address::{self, endpoint, listen_for_clients, resolve};
use crate::contact;
use crate::data_paths::DataPaths;
use crate::gateway_app;
use crate::netfs_app;
use crate::protocols;
use crate::signals;
use anyhow::{Context, Result};
pub(crate) use arguments::Arguments;
use arguments::AuditMode;
pub(crate) use audit::Sink;
use audit::{Audit, TARGET};
use ionian_deployment::{Configuration, Deployment, Durability, Node};
use ionian_gateway::ClientTls;
use ionian_program::output::explain;
use ionian_program::{BadUsage, code_of};
use ionian_runtime::storage::membership_file;
use ionian_runtime::{
    Application, AuditCheck, LaneHandle, NodeError, NodeSettings, NodeTls, Runnable,
    run_node_blocking,
};
use logging::Log;
pub(crate) use logging::{LogFormat, begin_log};
use nix::sys::signal::Signal;
use std::io::Read;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use stop::Stop;
use tokio::sync::oneshot;

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let audit = arguments.audit.as_deref();
    let audit = audit.map(|path| Audit::begin(path, &arguments.name));
    let (audit, refusal) = match audit.transpose() {
        Ok(audit) => (audit, None),
        Err(error) => (None, Some(error)),
    };
    let sink = audit.as_ref().map(Audit::sink);
    let log = begin_log(arguments.log_format, Some(&arguments.name), audit);
    let done = match refusal {
        Some(error) => Err(error),
        None => start(arguments, sink, &log),
    };
    // Through the log: standard error may take nothing.
    Ok(done.unwrap_or_else(|error| {
        match arguments.log_format {
            LogFormat::Text => log.write_last(&format!("ionian: {}\n", explain(&error))),
            LogFormat::Json => tracing::error!(id = "E0112", "{}", explain(&error)),
        }
        ExitCode::from(code_of(&error))
    }))
}

fn start(arguments: &Arguments, sink: Option<Arc<Sink>>, log: &Log) -> Result<ExitCode> {
    tracing::info!(target: TARGET, request = "start", outcome = "permitted");
    let of_end = sink.clone();
    let end = move |outcome| {
        tracing::info!(target: TARGET, request = "stop", outcome);
        of_end.iter().for_each(|sink| sink.settle());
    };
    let end_at_once = {
        let end = end.clone();
        move || end("failed")
    };
    signals::ignore_others();
    // Before anything that may hang, and so that the end of the parent process is not missed.
    let stop = Stop::begin(
        arguments.supervised.then(end_of_input),
        end_at_once,
        log.clone(),
    )
    .context("cannot wait for signals")?;
    let fails = stop.on_failure();
    let done = begin(arguments, sink, stop).inspect_err(|error| fails(code_of(error)));
    end(if done.is_ok() { "done" } else { "failed" });
    done
}

fn begin(arguments: &Arguments, audit: Option<Arc<Sink>>, stop: Stop) -> Result<ExitCode> {
    let tls = secure::load(arguments, &stop)?;
    let (name, overrides) = (&arguments.name, &arguments.overrides);
    let data = DataPaths::for_nodes(&arguments.data)?.node(name);
    contact::identify_node(tls.clone());
    let reports = http::start(arguments, audit.clone())?;
    let is_required = arguments.audit_mode == AuditMode::Required;
    let given = match (&arguments.config, &arguments.join[..]) {
        (Some(file), _) => {
            stop.waits_for(file);
            Configuration::founded(Deployment::load(file)?.with_overrides(overrides)?)
        }
        (None, []) => unreachable!("one of them is required"),
        (None, contacts) => {
            stop.waits_for(&data);
            let wrong = contacts.iter().find(|contact| endpoint(contact).is_none());
            let mut known = match (membership_file::stored(&data)?, wrong) {
                (Some(known), _) => known,
                (None, Some(contact)) => {
                    let text = format!(
                        "--join {contact:?}: must be the HOST:PORT where a node accepts other nodes"
                    );
                    return Err(BadUsage(text).into());
                }
                (None, None) => {
                    stop.waits_for_no_file();
                    join::wait_for_membership(name, contacts, tls.as_ref())?
                }
            };
            join::check_overrides(&known.deployment, overrides)?;
            known.deployment.options = known.deployment.clone().with_overrides(overrides)?.options;
            known
        }
    };
    reports.is_member_of(&given);
    open_files::raise();
    // By default a write beyond the file size limit kills the process; without the signal it fails
    // with an ordinary disk error, which names the file.
    signals::catch(&[Signal::SIGXFSZ]);
    stop.waits_for(&data);
    let protocol = given.deployment.protocol.clone();
    let (listen, gateway_listen) = (arguments.listen.clone(), arguments.gateway_listen.clone());
    let clock_ahead_ms = arguments.clock_ahead_ms;
    let run = Run {
        given,
        name: name.clone(),
        data,
        stop,
        listen,
        gateway_listen,
        clock_ahead_ms,
        reports,
        audit: audit.filter(|_| is_required),
        client_tls: secure::for_clients(arguments, tls.as_ref()),
        tls,
    };
    match run.run(protocols::runnable(&protocol)?) {
        Err(error) if matches!(error.downcast_ref(), Some(NodeError::Removed { .. })) => {
            tracing::info!("{error}")
        }
        done => done?,
    }
    Ok(ExitCode::SUCCESS)
}

struct Run {
    given: Configuration,
    name: String,
    data: PathBuf,
    stop: Stop,
    /// Listening addresses that override the deployment's.
    listen: Option<String>,
    gateway_listen: Option<String>,
    clock_ahead_ms: i64,
    reports: http::Reports,
    /// What must take lines while something is changed.
    audit: Option<Arc<Sink>>,
    tls: Option<NodeTls>,
    client_tls: Option<ClientTls>,
}

impl Run {
    fn run(self, protocol: Runnable) -> Result<()> {
        let Run {
            given,
            name,
            data,
            stop,
            listen,
            gateway_listen,
            clock_ahead_ms,
            reports,
            audit,
            tls,
            client_tls,
        } = self;
        let settings = NodeSettings::new(protocol.protocol(), given, &name, Some(&data));
        let mut settings = settings.map_err(|error| match error {
            NodeError::Deployment(error) => anyhow::Error::new(error),
            error => error.into(),
        })?;
        settings.clock_ahead_ms = clock_ahead_ms;
        settings.startup = service::startup_watch(others(&settings));
        settings.feed = reports.feed;
        if let Some(sink) = audit.clone() {
            settings.audit = AuditCheck::new(move || sink.check());
        }

        if let Some(tls) = &tls {
            tls.check_cluster(&settings.identity.cluster, &name)?;
        }
        settings.tls = tls.clone();
        if let Some(text) = &listen {
            settings.address = resolve("--listen", text)?;
        }
        let own = (listen.is_some(), settings.address);
        let known = settings.configuration.clone().expect("it was given");
        let deployment = known.deployment.clone();
        if deployment.machine == ionian_netfs::NAME && client_tls.is_some() {
            let why = "--tls: mounts have no TLS; add --client-tls off to serve them without it";
            return Err(BadUsage(why.to_owned()).into());
        }
        let machine = protocols::machine(&deployment)?;
        let checked = protocol.protocol().configure(settings.layout.clone());
        checked.with_context(|| protocols::none_of(&deployment.protocol))?;
        let member = &known.nodes()[&settings.node];
        // Before the event loop starts, so that an address that is in use is reported before the
        // node takes part.
        let gateway = gateway_place(member, gateway_listen.as_deref())?;
        check_apart(member, own, (gateway.as_ref(), reports.address))?;
        let gateway = gateway.map(gateway_listener).transpose()?;
        if deployment.durability == Durability::Memory {
            tracing::warn!(
                id = "E0107",
                "durability = memory: this node loses its state when the process ends"
            );
        }
        for why in protocols::cautions(known.target())? {
            tracing::warn!(id = "E0108", "{why}");
        }
        tracing::info!(
            "node {name} of cluster {}, founded at level {}, starts at {}",
            deployment.cluster,
            deployment.level,
            settings.address
        );
        let deployment = open_files::fit(deployment, known.nodes().len())?;
        let application = move |handle: LaneHandle| {
            service::start_watchdog();
            secure::reload_at_signal(tls);
            match gateway {
                Some(listener) if deployment.machine == ionian_netfs::NAME => {
                    netfs_app::start(&deployment, listener, handle)
                }
                Some(listener) => {
                    let secured = (reports.gateway, client_tls, audit);
                    gateway_app::start((&deployment, &name), listener, handle, secured)
                }
                None => Box::new(()) as Box<dyn Application>,
            }
        };
        run_node_blocking(protocol, settings, machine, application, stop.requested())?;
        tracing::info!("stopped");
        Ok(())
    }
}

/// The names of the other nodes.
fn others(settings: &NodeSettings) -> String {
    let nodes = settings.peers.keys();
    let others = nodes.filter(|node| **node != settings.node);
    let names: Vec<_> = others.map(|node| settings.layout.name(*node)).collect();
    names.join(", ")
}

/// Where the node listens for clients: at the address of the flag, or else at that of the
/// deployment; with the flag or key.
fn gateway_place(node: &Node, flag: Option<&str>) -> Result<Option<(String, SocketAddr)>> {
    let Some(text) = node.gateway_listens_at() else {
        return Ok(None);
    };
    let text = flag.unwrap_or(text);
    let key = match (flag, &node.gateway_listen) {
        (Some(_), _) => "--gateway-listen".to_owned(),
        (None, Some(_)) => format!("node.{}.gateway_listen", node.name),
        (None, None) => format!("node.{}.gateway", node.name),
    };
    let address = resolve(&key, text)?;
    Ok(Some((key, address)))
}

/// Checks that what the node serves at its addresses is apart.
fn check_apart(
    node: &Node,
    (has_flag, address): (bool, SocketAddr),
    (gateway, http): (Option<&(String, SocketAddr)>, Option<SocketAddr>),
) -> Result<(), BadUsage> {
    let key = match (has_flag, &node.listen) {
        (true, _) => "--listen".to_owned(),
        (false, Some(_)) => format!("node.{}.listen", node.name),
        (false, None) => format!("node.{}.address", node.name),
    };
    let http = http.map(|http| ("--http".to_owned(), http));
    let own = [(key, address)].into_iter();
    let all: Vec<_> = own.chain(gateway.cloned()).chain(http).collect();
    address::check_apart(&all)
}

fn gateway_listener((key, address): (String, SocketAddr)) -> Result<TcpListener> {
    let listener = listen_for_clients(address)
        .with_context(|| format!("cannot listen on {key} = \"{address}\""))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Watches standard input on a separate thread. The parent process holds the other end of the pipe,
/// which the system closes however the parent ends.
fn end_of_input() -> oneshot::Receiver<()> {
    let (gone, told) = oneshot::channel();
    std::thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        let mut ignored = [0; 64];
        loop {
            match input.read(&mut ignored) {
                Ok(0) => break,
                Err(error) if error.kind() != std::io::ErrorKind::Interrupted => break,
                Ok(_) | Err(_) => {}
            }
        }
        // Fails if the node has stopped already.
        let _ = gone.send(());
    });
    told
}
