//! Assembles a node from its settings, runs it, and stops it.

use super::application::{Application, LaneHandle, Submissions};
use super::event_loop::{About, End, EventLoop};
use super::following::Following;
use super::guard::MachineGuard;
use super::instances::{Nursery, build};
use super::io::Outside;
use super::listener::Listener;
use super::peer_tasks;
use super::settings::NodeSettings;
use crate::admin::backup::Backups;
use crate::admin::server::AdminServer;
use crate::error::NodeError;
use crate::storage::directory::DataDirectory;
use crate::storage::error::LogError;
use crate::storage::identity::Register;
use crate::storage::log;
use crate::storage::log::Durability;
use crate::storage::machine_failure::MachineFailure;
use crate::storage::membership_file;
use crate::storage::skips::Skips;
use crate::storage::stamp::Stamp;
use crate::tasks::Tasks;
use crate::transport::admission::Admission;
use crate::transport::connection::Transport;
use crate::transport::peer::Peers;
use ionian_kernel::id::ClientId;
use ionian_kernel::machine::StateMachine;
use ionian_kernel::protocol::Protocol;
use std::future::Future;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::LocalSet;

/// How long a node that stops waits for its peers to take what was written to them.
const FAREWELL_LIMIT: Duration = Duration::from_secs(1);

/// Runs one node until `shutdown` completes. Then it drains: it hands leadership over, takes no new
/// clients in and answers those that wait, for at most
/// [`Options::drain`](ionian_kernel::layout::Options::drain); everything that waits is written out,
/// and the node stops. Must be called within a [`LocalSet`], whose thread becomes the node's event
/// loop.
///
/// `application` is called on the loop before any role is started, and may start tasks of its own
/// with [`tokio::task::spawn_local`].
///
/// # Errors
/// When the node cannot start, or when its disk fails.
pub async fn run_node<P: Protocol>(
    settings: NodeSettings,
    config: P::Config,
    machine: impl Fn() -> Box<dyn StateMachine> + 'static,
    application: impl FnOnce(LaneHandle) -> Box<dyn Application>,
    shutdown: impl Future<Output = ()> + 'static,
) -> Result<(), NodeError> {
    check::<P>(&settings)?;
    let stamp = Stamp {
        cluster: settings.identity.cluster.clone(),
        protocol: settings.identity.protocol.clone(),
        node: settings.name.clone(),
    };
    let skips = settings
        .data
        .as_deref()
        .map(Skips::stored)
        .transpose()?
        .unwrap_or_default();
    let guard = Arc::new(MachineGuard::new(skips));
    let log_wake = Arc::new(Notify::new());
    let directory = settings
        .data
        .as_deref()
        .map(DataDirectory::open)
        .transpose()?
        .map(Rc::new);
    let register = directory
        .clone()
        .map(|directory| Register::open(directory, &stamp))
        .transpose()?;
    let proof = register
        .as_ref()
        .filter(|register| register.has_log())
        .map(Register::path);
    let (log, past) = match (settings.durability, directory) {
        (Durability::Disk, Some(directory)) => {
            let (disk, kinds) = (settings.disk, P::KINDS);
            log::open_disk(directory, &stamp, proof, kinds, disk, &log_wake)?
        }
        (_, directory) => log::open_memory(directory, &stamp, proof)?,
    };
    let amnesiac = past.is_lost();
    let seed = entropy();
    let keeps_records = settings.durability == Durability::Disk;
    let nursery = Nursery {
        node: settings.node,
        seed,
        keeps_records,
        machine: Box::new(machine),
        guard: guard.clone(),
    };
    let built = guard.catch(|| build::<P>(&settings, &config, &nursery, past));
    let node = built.map_err(|failure| machine_failed(failure, settings.data.as_deref()))??;
    keep_membership(&settings)?;
    let listener = listen(settings.listener, settings.address)?;
    let admission = Rc::new(Admission::new(register, settings.peers.len() - 1)?);
    admission.say_what_it_waits_for();

    let lanes = settings
        .layout
        .near::<ClientId>(0, settings.node)
        .iter()
        .collect();
    let submissions = Submissions::new(lanes);
    let tasks = Rc::new(Tasks::default());
    let ending = Ending {
        tasks: tasks.clone(),
        submissions: submissions.clone(),
    };
    let peers = Peers::new(
        settings.node,
        settings.layout.epoch,
        &settings.peers,
        tasks.clone(),
    );
    let peers = Rc::new(peers);
    if let Some(configuration) = &settings.configuration {
        peers.set_distances(&configuration.distances(settings.node));
    }
    let application = application(LaneHandle::new(submissions.clone()));
    let outside = Outside::new(&settings.layout, peers.clone(), log, application);
    let (patience, drain) = (
        settings.layout.options.lane.patience,
        settings.layout.options.drain,
    );
    let backups = Backups::new(settings.layout.options.snapshot_bytes_per_second);
    let NodeSettings {
        identity,
        node: id,
        name,
        configuration,
        data,
        clock_ahead_ms,
        ..
    } = settings;
    let following = Following::new(
        configuration,
        &name,
        data.clone(),
        nursery,
        admission.clone(),
    );
    let about = About {
        identity: identity.clone(),
        node: id,
        name: name.clone(),
        amnesiac,
        admission: admission.clone(),
        patience,
        drain,
        clock_ahead_ms,
    };
    let event_loop = Rc::new(EventLoop::new(
        node,
        outside,
        following,
        submissions,
        log_wake,
        about,
    ));
    let transport = Rc::new(Transport {
        identity,
        node: id,
        name: name.clone(),
        peers: peers.clone(),
        handler: event_loop.clone(),
        admission: admission.clone(),
        tasks: tasks.clone(),
        seed,
        skips: guard.skips().to_string(),
    });
    tasks.spawn(peer_tasks::start_for_all(transport.clone()));
    let answers = Listener {
        transport,
        admin: AdminServer::new(event_loop.clone(), name.clone(), backups),
        tasks: tasks.clone(),
    };
    let listening = tasks.spawn(Rc::new(answers).run(listener));

    let result = tokio::select! {
        biased;
        error = admission.end() => Err(error),
        // Before the loop's end, which a panic of the machine is too.
        failure = guard.failed() => Err(machine_failed(failure, data.as_deref())),
        result = run_as_task(event_loop.clone(), shutdown) => result,
    };
    event_loop.close();
    let result = result.and_then(|end| event_loop.close_log().map(|()| end));
    listening.abort();
    if result.is_ok() {
        let farewell = tokio::time::timeout(FAREWELL_LIMIT, peers.close_gracefully()).await;
        if farewell.is_err() {
            tracing::info!("stopped before every peer had taken what was written to it");
        }
    }
    tasks.finish().await;
    drop(ending);
    if result? == End::Removed {
        let epoch = peers.epoch().0;
        tracing::info!(
            "node {name} is not a member of the cluster any more, since epoch {epoch} at the latest: it stops, and its data can be deleted"
        );
    }
    Ok(())
}

/// The node stops because of its machine: puts down why, where it can be looked at.
fn machine_failed(failure: Box<MachineFailure>, data: Option<&Path>) -> NodeError {
    let mut file = None;
    if let Some(data) = data {
        match failure.store(data) {
            Ok(path) => file = Some(path),
            Err(error) => {
                tracing::error!("what the state machine failed on is not written down: {error}")
            }
        }
    }
    NodeError::Machine { failure, file }
}

/// A node that is started again knows what it knew, whatever has become of the file that it was
/// started with.
fn keep_membership(settings: &NodeSettings) -> Result<(), LogError> {
    match (&settings.data, &settings.configuration) {
        (Some(data), Some(known)) => membership_file::store(data, known),
        _ => Ok(()),
    }
}

/// Runs the loop as a task of its own: the system's event queue then puts it behind the readers
/// that became ready in the same moment, where the future that a `LocalSet` is entered with comes
/// first.
async fn run_as_task<P: Protocol>(
    event_loop: Rc<EventLoop<P>>,
    shutdown: impl Future<Output = ()> + 'static,
) -> Result<End, NodeError> {
    let mut task = AbortOnDrop(tokio::task::spawn_local(async move {
        event_loop.run(shutdown).await
    }));
    match (&mut task.0).await {
        Ok(result) => result,
        // A role's assertion failed: this process must not go on without it.
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => unreachable!("nobody else can stop the task"),
        },
    }
}

struct AbortOnDrop<T>(tokio::task::JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Whatever becomes of the node, its tasks end with it and its handles know.
struct Ending {
    tasks: Rc<Tasks>,
    submissions: Rc<Submissions>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.submissions.close();
        self.tasks.stop();
    }
}

/// Runs one node on the calling thread; see [`run_node`].
///
/// # Errors
/// As [`run_node`].
pub fn run_node_blocking<P: Protocol>(
    settings: NodeSettings,
    config: P::Config,
    machine: impl Fn() -> Box<dyn StateMachine> + 'static,
    application: impl FnOnce(LaneHandle) -> Box<dyn Application>,
    shutdown: impl Future<Output = ()> + 'static,
) -> Result<(), NodeError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(NodeError::Start)?;
    LocalSet::new().block_on(
        &runtime,
        run_node::<P>(settings, config, machine, application, shutdown),
    )
}

fn check<P: Protocol>(settings: &NodeSettings) -> Result<(), NodeError> {
    let NodeSettings {
        layout,
        peers,
        node,
        durability,
        data,
        ..
    } = settings;
    if *durability == Durability::Disk && data.is_none() {
        return Err(NodeError::Settings(
            "durability \"disk\" needs a data directory".into(),
        ));
    }
    if let Some(missing) = layout
        .nodes()
        .iter()
        .chain([node])
        .find(|node| !peers.contains_key(node))
    {
        return Err(NodeError::Settings(format!(
            "no address is given for node {}",
            layout.name(*missing)
        )));
    }
    if layout.instances.len() > P::KINDS.len() {
        let text = format!(
            "the layout has more kinds of roles than the protocol '{}' has",
            P::NAME
        );
        return Err(NodeError::Settings(text));
    }
    Ok(())
}

/// Random numbers of the operating system, by which the standard library's hasher is keyed. No two
/// lives of a node may draw the same: a client lane would take up the session of its earlier life,
/// and be told that its new commands are executed already.
fn entropy() -> u64 {
    RandomState::new().build_hasher().finish()
}

fn listen(
    bound: Option<std::net::TcpListener>,
    address: SocketAddr,
) -> Result<TcpListener, NodeError> {
    let listen = || {
        // Like tokio's own, this lets a restarted node take its port back at once.
        let listener = match bound {
            Some(listener) => listener,
            None => std::net::TcpListener::bind(address)?,
        };
        listener.set_nonblocking(true)?;
        TcpListener::from_std(listener)
    };
    listen().map_err(|source| NodeError::Listen { address, source })
}
