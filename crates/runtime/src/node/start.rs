//! Starts a node from its settings, runs it, and stops it.

use super::application::{Application, LaneHandle, Submissions, level_of_features};
use super::audit_lines::RefusedLines;
use super::clock::Clock;
use super::delays::Delays;
use super::event_loop::{EventLoop, NodeInfo, Shutdown};
use super::feed;
use super::guard::MachineGuard;
use super::instances::InstanceFactory;
use super::io::NodeIo;
use super::listener::{Listener, Warnings};
use super::membership::KnownMembership;
use super::peer_tasks;
use super::roles::Runnable;
use super::settings::NodeSettings;
use super::startup::Startup;
use super::state::{ExitReason, State};
use super::{certificates, unix_socket};
use crate::admin::backup::Backups;
use crate::admin::server::AdminServer;
use crate::error::NodeError;
use crate::storage::directory::DataDirectory;
use crate::storage::error::LogError;
use crate::storage::executing::Executing;
use crate::storage::identity::{DirectoryId, IdentityFile};
use crate::storage::log::{self, Durability, Log, Past};
use crate::storage::machine_failure::MachineFailure;
use crate::storage::membership_file;
use crate::storage::skips::Skips;
use crate::storage::stamp::Stamp;
use crate::tasks::Tasks;
use crate::transport::admission::Admission;
use crate::transport::connection::Transport;
use crate::transport::peers::Peers;
use ionian_kernel::level::Level;
use ionian_kernel::machine::StateMachine;
use ionian_kernel::protocol::{AnyProtocol, Description};
use ionian_kernel::trace::Recording;
use std::future::Future;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, LocalSet};

/// For how long a node notes the sample of the deployment for traces.
const UNTIL_IT_STOPS: Duration = Duration::from_secs(100 * 365 * 86_400);

/// Makes an empty state machine.
type MakeMachine = Box<dyn Fn() -> Box<dyn StateMachine>>;

/// Makes the application of a node.
type Attach<'a> = Box<dyn FnOnce(LaneHandle) -> Box<dyn Application> + 'a>;

/// How long a node that stops waits for its peers to receive what was written to them.
const CLOSE_LIMIT: Duration = Duration::from_secs(1);

/// Runs one node until `shutdown` completes. Then the node drains: it hands leadership over,
/// accepts no new clients and answers those that wait, for at most
/// [`Options::drain`](ionian_kernel::layout::Options::drain). It writes out everything that waits,
/// and stops. Must be called within a [`LocalSet`], whose thread becomes the node's event loop.
///
/// `application` is called on the loop before any role is started, and may start tasks with
/// [`tokio::task::spawn_local`].
///
/// # Errors
/// If the node cannot start, or its disk fails.
pub async fn run_node(
    protocol: Runnable,
    settings: NodeSettings,
    machine: impl Fn() -> Box<dyn StateMachine> + 'static,
    application: impl FnOnce(LaneHandle) -> Box<dyn Application>,
    shutdown: impl Future<Output = ()> + 'static,
) -> Result<(), NodeError> {
    let (machine, shutdown) = (Box::new(machine), Box::pin(shutdown));
    run(protocol, settings, machine, Box::new(application), shutdown).await
}

/// As [`run_node`], without type parameters: it is compiled with this crate.
async fn run(
    protocol: Runnable,
    mut settings: NodeSettings,
    machine: MakeMachine,
    application: Attach<'_>,
    shutdown: Shutdown,
) -> Result<(), NodeError> {
    let description = protocol.protocol().description();
    check(protocol.protocol(), &settings)?;
    settings.startup.report(Startup::Opening);
    let storage = Storage::open(description.kinds, &settings)?;
    let own = storage.identities.as_ref().map(IdentityFile::own);
    let factory = InstanceFactory {
        node: settings.node,
        seed: entropy(),
        keeps_records: settings.durability == Durability::Disk,
        predecessors: own.map_or(0, DirectoryId::predecessors),
        machine,
        guard: storage.guard.clone(),
    };
    let seed = factory.seed;
    let feed = settings.feed.take();
    let (node, listener) = assemble(protocol, settings, storage, factory, application)?;
    if let Some(feed) = feed {
        node.tasks
            .spawn(feed::publish(node.event_loop.clone(), feed));
    }
    let listening = node.accept_connections(listener, seed);
    node.run(listening, shutdown).await
}

/// What a node has opened in its data directory.
struct Storage {
    guard: Arc<MachineGuard>,
    identities: Option<IdentityFile>,
    log: Log,
    past: Past,
    /// Notified by the threads of the log.
    log_wake: Arc<Notify>,
}

impl Storage {
    fn open(kinds: &'static [&'static str], settings: &NodeSettings) -> Result<Self, NodeError> {
        let stamp = Stamp {
            cluster: settings.identity.cluster.clone(),
            protocol: settings.identity.protocol.clone(),
            node: settings.name.clone(),
        };
        let data = settings.data.as_deref();
        let skips = data.map(Skips::stored).transpose()?.unwrap_or_default();
        let directory = data.map(DataDirectory::open).transpose()?.map(Rc::new);
        let executing = data.map(Executing::open).transpose()?;
        let executing = executing.unwrap_or_else(Executing::nowhere);
        for command in executing.unfinished() {
            tracing::error!(
                id = "E0504",
                "{command}. If it does so again, see `ionian log show`, and docs/operations.md"
            );
        }
        let identities = directory
            .clone()
            .map(|directory| IdentityFile::open(directory, &stamp))
            .transpose()?;
        let proof = identities
            .as_ref()
            .filter(|identities| identities.has_log())
            .map(IdentityFile::path);
        let log_wake = Arc::new(Notify::new());
        let (log, past) = match (settings.durability, directory) {
            (Durability::Disk, Some(directory)) => {
                log::open_disk(directory, &stamp, proof, kinds, settings.disk, &log_wake)?
            }
            (_, directory) => log::open_memory(directory, &stamp, proof)?,
        };
        Ok(Storage {
            guard: Arc::new(MachineGuard::new(skips, executing)),
            identities,
            log,
            past,
            log_wake,
        })
    }
}

/// Recovers the roles and assembles the node. It listens already, but accepts no connection yet.
fn assemble(
    protocol: Runnable,
    mut settings: NodeSettings,
    storage: Storage,
    factory: InstanceFactory,
    application: Attach<'_>,
) -> Result<(Running, TcpListener), NodeError> {
    let Storage {
        guard,
        identities,
        log,
        past,
        log_wake,
    } = storage;
    let amnesiac = past.is_lost();
    let readmits = protocol.protocol().description().readmits;
    let mut roles = guard
        .catch(|| protocol.recover(&settings.layout, factory, past, &settings.startup))
        .map_err(|failure| machine_failed(failure, settings.data.as_deref()))??;
    keep_membership(&settings)?;
    let listener = listen(settings.listener.take(), settings.address)?;
    let admission = Rc::new(Admission::new(
        identities,
        settings.peers.len() - 1,
        readmits,
    )?);
    admission.log_waiting();

    let lanes = settings.layout.client_lanes(settings.node).iter().collect();
    let known = settings.configuration.as_ref();
    let level = known.map_or(Level::FIRST, |known| known.membership.level);
    let submissions = Submissions::new(lanes, level_of_features(protocol.protocol(), level));
    let tasks = Rc::new(Tasks::default());
    let cleanup = Cleanup {
        tasks: tasks.clone(),
        submissions: submissions.clone(),
    };
    let peers = peers_of(&settings, &tasks);
    let clock = Clock::start(settings.clock_ahead_ms);
    let one_in = settings.layout.options.trace_one_in as u64;
    if one_in > 0 {
        let now = clock.now();
        let until = now + UNTIL_IT_STOPS;
        roles.record(now, Recording { one_in, until });
    }
    let loops = settings.layout.options.loops;
    let mut application = application(LaneHandle::new(submissions.clone()));
    if one_in > 0 {
        application.keep(one_in, UNTIL_IT_STOPS);
    }
    let io = NodeIo::new((&settings.layout, clock), peers.clone(), log, application);
    if loops > 1 {
        roles
            .spread(loops, &io, &log_wake)
            .map_err(NodeError::Start)?;
    }
    let state = State::new(
        (protocol.protocol(), roles),
        io,
        (
            KnownMembership::new(&settings),
            Delays::new(settings.layout.options.clients.slower_than),
        ),
        admission.clone(),
        submissions.clone(),
    );
    let info = NodeInfo::new(&settings, amnesiac, admission.clone(), guard.clone());
    let event_loop = Rc::new(EventLoop::new(state, submissions, log_wake, clock, info));
    let running = Running {
        event_loop,
        guard,
        admission,
        peers,
        settings,
        tasks,
        cleanup,
    };
    Ok((running, listener))
}

fn peers_of(settings: &NodeSettings, tasks: &Rc<Tasks>) -> Rc<Peers> {
    let NodeSettings {
        node,
        layout,
        peers,
        configuration,
        ..
    } = settings;
    let peers = Peers::new(*node, layout.epoch, peers, tasks.clone());
    if let Some(configuration) = configuration {
        peers.set_distances(&configuration.distances(*node));
    }
    Rc::new(peers)
}

/// A node that is ready to run.
struct Running {
    event_loop: Rc<EventLoop>,
    guard: Arc<MachineGuard>,
    admission: Rc<Admission>,
    peers: Rc<Peers>,
    settings: NodeSettings,
    tasks: Rc<Tasks>,
    /// The last field: when the node is dropped, its other parts are dropped before.
    cleanup: Cleanup,
}

impl Running {
    /// Starts the tasks of the peers and the task that accepts connections; returns the latter.
    fn accept_connections(&self, listener: TcpListener, seed: u64) -> AbortHandle {
        let transport = Rc::new(Transport {
            identity: self.settings.identity.clone(),
            node: self.settings.node,
            name: self.settings.name.clone(),
            peers: self.peers.clone(),
            handler: self.event_loop.clone(),
            admission: self.admission.clone(),
            tasks: self.tasks.clone(),
            seed,
            skips: self.guard.skips().to_string(),
            tls: self.settings.tls.clone(),
        });
        self.tasks
            .spawn(peer_tasks::start_for_all(transport.clone()));
        let backups = Backups::new(self.settings.layout.options.snapshot_bytes_per_second);
        let name = self.settings.name.clone();
        let answers = Listener {
            transport,
            admin: AdminServer::new(self.event_loop.clone(), name, backups),
            tasks: self.tasks.clone(),
            warnings: Warnings::default(),
            refused: RefusedLines::default(),
            audit: self.settings.audit.clone(),
        };
        let answers = Rc::new(answers);
        if let (Some(tls), data) = (&self.settings.tls, &self.settings.data) {
            let task = certificates::keep_current(tls.clone(), self.peers.clone());
            self.tasks.spawn(task);
            if let Some(socket) = data.as_deref().and_then(unix_socket::listen) {
                self.tasks.spawn(answers.clone().run_local(socket));
            }
        }
        let listening = self.tasks.spawn(answers.run(listener));
        self.report_listening();
        listening
    }

    fn report_listening(&self) {
        let (watch, admission) = (self.settings.startup.clone(), self.admission.clone());
        let takes_part = admission.is_admitted();
        watch.report(Startup::Listening { takes_part });
        if !takes_part {
            self.tasks.spawn(async move {
                admission.admitted().await;
                watch.report(Startup::TakesPart);
            });
        }
    }

    /// Runs the event loop until it ends, then stops the node in order. `listening` is the task
    /// that accepts connections.
    async fn run(self, listening: AbortHandle, shutdown: Shutdown) -> Result<(), NodeError> {
        let data = self.settings.data.as_deref();
        let result = tokio::select! {
            biased;
            error = self.admission.end() => Err(error),
            // Before the result of the loop: a panic of the machine ends the loop too.
            failure = self.guard.failed() => Err(machine_failed(failure, data)),
            result = run_as_task(self.event_loop.clone(), shutdown) => result,
        };
        self.event_loop.close();
        let result = result.and_then(|reason| self.event_loop.close_log().map(|()| reason));
        listening.abort();
        if result.is_ok() {
            let closed = tokio::time::timeout(CLOSE_LIMIT, self.peers.close_gracefully()).await;
            if closed.is_err() {
                tracing::info!("stopped before every peer had received what was written to it");
            }
        }
        self.tasks.finish().await;
        drop(self.cleanup);
        self.guard.executing().close();
        if result? == ExitReason::Removed {
            let (name, epoch) = (&self.settings.name, self.peers.epoch().0);
            tracing::info!(
                "node {name} is not a member of the cluster any more, since epoch {epoch} at the latest: it stops, and its data can be deleted"
            );
        }
        Ok(())
    }
}

/// The node stops because of its machine: stores the reason in the data directory.
fn machine_failed(failure: Box<MachineFailure>, data: Option<&Path>) -> NodeError {
    let mut file = None;
    if let Some(data) = data {
        match failure.store(data) {
            Ok(path) => file = Some(path),
            Err(error) => {
                tracing::error!(
                    id = "E0202",
                    "cannot store why the state machine failed: {error}"
                )
            }
        }
    }
    NodeError::Machine { failure, file }
}

/// Stores the membership, so that a node that starts again knows at least this one, even if the
/// deployment file has changed.
fn keep_membership(settings: &NodeSettings) -> Result<(), LogError> {
    match (&settings.data, &settings.configuration) {
        // A full disk does not keep a node from its start.
        (Some(data), Some(known)) if membership_file::stored(data)?.as_ref() != Some(known) => {
            membership_file::store(data, known)
        }
        _ => Ok(()),
    }
}

/// Runs the loop in its own task: the system's event queue then puts it after the readers that
/// become ready at the same moment. The future that enters a `LocalSet` would come before them.
async fn run_as_task(
    event_loop: Rc<EventLoop>,
    shutdown: Shutdown,
) -> Result<ExitReason, NodeError> {
    let mut task = AbortOnDrop(tokio::task::spawn_local(async move {
        event_loop.run(shutdown).await
    }));
    match (&mut task.0).await {
        Ok(result) => result,
        // An assertion of a role failed: this process must not continue.
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => unreachable!("only this function can abort the task"),
        },
    }
}

struct AbortOnDrop<T>(tokio::task::JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Ends the tasks of a node and closes its lane handles, even if the node is dropped.
struct Cleanup {
    tasks: Rc<Tasks>,
    submissions: Rc<Submissions>,
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        self.submissions.close();
        self.tasks.stop();
    }
}

/// Runs one node on the calling thread; see [`run_node`].
///
/// # Errors
/// As [`run_node`].
pub fn run_node_blocking(
    protocol: Runnable,
    settings: NodeSettings,
    machine: impl Fn() -> Box<dyn StateMachine> + 'static,
    application: impl FnOnce(LaneHandle) -> Box<dyn Application>,
    shutdown: impl Future<Output = ()> + 'static,
) -> Result<(), NodeError> {
    let (machine, shutdown) = (Box::new(machine), Box::pin(shutdown));
    run_blocking(protocol, settings, machine, Box::new(application), shutdown)
}

/// As [`run_node_blocking`], without type parameters: the loop that calls tasks is compiled with
/// this crate.
fn run_blocking(
    protocol: Runnable,
    settings: NodeSettings,
    machine: MakeMachine,
    application: Attach<'_>,
    shutdown: Shutdown,
) -> Result<(), NodeError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(NodeError::Start)?;
    let run = run(protocol, settings, machine, application, shutdown);
    LocalSet::new().block_on(&runtime, run)
}

fn check(protocol: &dyn AnyProtocol, settings: &NodeSettings) -> Result<(), NodeError> {
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
    let Description { kinds, name, .. } = protocol.description();
    if layout.instances.len() > kinds.len() {
        let text = format!(
            "the layout has more kinds of roles than the protocol '{}' has",
            name
        );
        return Err(NodeError::Settings(text));
    }
    // Before anything is written to the data directory.
    let configured = protocol.configure(layout.clone());
    configured.map_err(|error| {
        NodeError::Settings(format!("this is not a deployment of {name}: {error}"))
    })
}

/// A random number of the operating system, which seeds the standard library's hasher. Two
/// processes of a node must not draw the same: a client lane would continue the session of the
/// earlier process, and replicas would treat its new commands as executed.
fn entropy() -> u64 {
    RandomState::new().build_hasher().finish()
}

fn listen(
    bound: Option<std::net::TcpListener>,
    address: SocketAddr,
) -> Result<TcpListener, NodeError> {
    let listen = || {
        // As tokio's own function, this lets a restarted node use its port again at once.
        let listener = match bound {
            Some(listener) => listener,
            None => std::net::TcpListener::bind(address)?,
        };
        listener.set_nonblocking(true)?;
        TcpListener::from_std(listener)
    };
    listen().map_err(|source| NodeError::Listen { address, source })
}
