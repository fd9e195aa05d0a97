//! `ionian node`: one node in the foreground.

use crate::arguments;
use crate::family::{self, Work};
use crate::gateway_app;
use crate::places::Places;
use anyhow::{Context, Result};
use ionian_deployment::{Deployment, Durability};
use ionian_kernel::layout::NodeId;
use ionian_kernel::machine::StateMachine;
use ionian_kernel::protocol::Protocol;
use ionian_machines::kv::Kv;
use ionian_runtime::{Application, DiskOptions, Identity, LaneHandle, NodeSettings, run_node_blocking};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::io::Read;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::path::PathBuf;
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tracing_subscriber::EnvFilter;

/// Clients that the system holds for us while the event loop is busy.
const BACKLOG: i32 = 1024;

pub(crate) fn run(arguments: &arguments::Node) -> Result<ExitCode> {
    begin_log();
    let deployment = Deployment::load(&arguments.config)?.with_overrides(&arguments.overrides)?;
    let id = NodeId(deployment.place(&arguments.name)? as u16);
    let data = Places::new(&arguments.data).node(&arguments.name);
    // Asked for before anything else takes time, so that the starter's end is never missed.
    let starter = arguments.supervised.then(end_of_input);
    raise_file_limit();
    let protocol = deployment.protocol.clone();
    family::with_protocol(&protocol, Run { deployment, id, data, starter })??;
    Ok(ExitCode::SUCCESS)
}

/// Words of the log go to standard error; `RUST_LOG` says which.
fn begin_log() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false).init();
}

struct Run {
    deployment: Deployment,
    id: NodeId,
    data: PathBuf,
    /// Completes when whoever started this process is gone.
    starter: Option<oneshot::Receiver<()>>,
}

impl Work for Run {
    type Output = Result<()>;

    fn run<P: Protocol>(self) -> Result<()> {
        let Run { deployment, id, data, starter } = self;
        let (layout, config) = family::configure::<P>(&deployment)?;
        let peers = addresses(&deployment)?;
        let place = usize::from(id.0);
        let name = deployment.nodes[place].name.clone();
        // Here and not on the loop: an address that is taken is to be told before the node takes part.
        let gateway = gateway_listener(&deployment, id)?;
        let settings = NodeSettings {
            identity: Identity {
                cluster: deployment.cluster.clone(),
                deployment: deployment.digest(),
                protocol: deployment.protocol.clone(),
            },
            node: id,
            name: name.clone(),
            address: peers[place],
            listener: None,
            peers,
            layout,
            durability: match deployment.durability {
                Durability::Memory => ionian_runtime::Durability::Memory,
                Durability::Disk => ionian_runtime::Durability::Disk,
            },
            disk: DiskOptions::default(),
            data: Some(data),
        };
        if deployment.durability == Durability::Memory {
            tracing::info!("durability = memory: when this process ends, what it held is gone");
        }
        tracing::info!("node {name} of cluster {} starts at {}", deployment.cluster, settings.address);
        let machine = || Box::new(Kv::default()) as Box<dyn StateMachine>;
        let application = move |handle: LaneHandle| match gateway {
            Some(listener) => gateway_app::start(&deployment, &name, listener, handle),
            None => Box::new(()) as Box<dyn Application>,
        };
        run_node_blocking::<P>(settings, config, machine, application, shutdown(starter))?;
        tracing::info!("stopped");
        Ok(())
    }
}

/// Where every node is found, by its place in the deployment.
fn addresses(deployment: &Deployment) -> Result<Vec<SocketAddr>> {
    let nodes = deployment.nodes.iter();
    nodes.map(|node| resolve(&format!("node.{}.address", node.name), &node.address)).collect()
}

/// The socket address of `host:port`. IPv4 first where a name has both: nodes listen on one address.
pub(crate) fn resolve(key: &str, text: &str) -> Result<SocketAddr> {
    let context = || format!("{key} = {text:?} cannot be resolved");
    let found: Vec<SocketAddr> = text.to_socket_addrs().with_context(context)?.collect();
    let first = found.iter().find(|address| address.is_ipv4()).or(found.first());
    first.copied().with_context(context)
}

fn gateway_listener(deployment: &Deployment, id: NodeId) -> Result<Option<TcpListener>> {
    let node = &deployment.nodes[usize::from(id.0)];
    let Some(text) = &node.gateway else { return Ok(None) };
    let key = format!("node.{}.gateway", node.name);
    let address = resolve(&key, text)?;
    let listener = listen(address).with_context(|| format!("cannot listen on {key} = {text:?}"))?;
    listener.set_nonblocking(true)?;
    Ok(Some(listener))
}

/// Listens with more room than the standard library gives: clients come in storms.
pub(crate) fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = socket2::Socket::new(socket2::Domain::for_address(address), socket2::Type::STREAM, None)?;
    // A restarted node takes its port back at once.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Completes when the node is to stop.
async fn shutdown(starter: Option<oneshot::Receiver<()>>) {
    let why = tokio::select! {
        () = signalled(SignalKind::terminate()) => "SIGTERM",
        () = signalled(SignalKind::interrupt()) => "SIGINT",
        () = gone(starter) => "whoever started this node is gone",
    };
    tracing::info!("stopping: {why}");
}

/// Completes when the signal arrives.
async fn signalled(kind: SignalKind) {
    match signal(kind) {
        Ok(mut signals) => drop(signals.recv().await),
        Err(error) => {
            tracing::warn!("signals cannot be waited for: {error}");
            std::future::pending().await
        }
    }
}

async fn gone(starter: Option<oneshot::Receiver<()>>) {
    match starter {
        Some(gone) => drop(gone.await),
        None => std::future::pending().await,
    }
}

/// Watches standard input on a thread of its own: the starter holds the other end of the pipe, which the
/// system closes however the starter ends.
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
        // It fails when the node has stopped already.
        let _ = gone.send(());
    });
    told
}

/// Every client is an open file, and the usual soft limit of 1024 is below the gateway's own.
fn raise_file_limit() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
        && let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
    {
        tracing::warn!("the limit of {soft} open files cannot be raised: {error}");
    }
}
