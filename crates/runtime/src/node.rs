//! Assembles a node from its settings, runs it, and stops it.

use crate::admission::Admission;
use crate::application::{Application, LaneHandle, Submissions};
use crate::backup::Backups;
use crate::connection::Transport;
use crate::directory::DataDirectory;
use crate::disk_log::{self, DiskLog, DiskPast};
use crate::event_loop::{About, End, EventLoop};
use crate::following::{Following, Nursery};
use crate::guard::{MachineFailure, MachineGuard};
use crate::identity::Register;
use crate::log::{Log, LogError};
use crate::membership;
use crate::memory_log::{MemoryLog, Recovered};
use crate::peer::Peers;
use crate::settings::{Durability, NodeSettings};
use crate::skips::Skips;
use crate::stamp::Stamp;
use crate::tasks::Tasks;
use crate::world::Outside;
use bytes::Bytes;
use ionian_deployment::DeploymentError;
use ionian_kernel::id::{ClientId, Epoch};
use ionian_kernel::layout::{Address, NodeId};
use ionian_kernel::machine::{RestoreError, StateMachine};
use ionian_kernel::node::Node;
use ionian_kernel::protocol::Protocol;
use ionian_kernel::random::Random;
use ionian_kernel::role::Lsn;
use ionian_kernel::wire::{Reader, WireError};
use std::future::Future;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::LocalSet;

/// How long a node that stops waits for its peers to take what was written to them.
const FAREWELL_LIMIT: Duration = Duration::from_secs(1);

/// Why a node does not run.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// Something is wrong with the data directory, at the start or later.
    #[error(transparent)]
    Log(#[from] LogError),
    /// Other nodes know this one by another data directory.
    #[error("node {} refuses this node: {reason}", by.0)]
    Estranged {
        /// Who said so last.
        by: NodeId,
        /// What it said.
        reason: String,
    },
    /// A record is not one of the role instance that wrote it.
    #[error(
        "a record of {role} {index} in the data directory cannot be read: {source}. Has the deployment been changed \
         since it was written?"
    )]
    Record {
        /// The role that wrote it.
        role: String,
        /// The instance that wrote it.
        index: u8,
        /// What is wrong.
        source: WireError,
    },
    /// A snapshot is not one of the role instance that it is named after.
    #[error(
        "the snapshot of {role} {index} in the data directory cannot be used: {source}. Has the deployment or the \
         program been changed since it was written?"
    )]
    Snapshot {
        /// The role that stored it.
        role: String,
        /// The instance that stored it.
        index: u8,
        /// What is wrong.
        source: RestoreError,
    },
    /// The deployment is not well formed, or has no such node.
    #[error(transparent)]
    Deployment(DeploymentError),
    /// The node was a member of its cluster once.
    #[error(
        "node {name} is not a member of the cluster any more, since epoch {epoch} at the latest: its data can be deleted"
    )]
    Removed {
        /// Its name.
        name: String,
        /// The epoch that it knows of.
        epoch: u32,
    },
    /// The address that the deployment gives the node is none.
    #[error("the node's address {address:?} cannot be resolved: {source}")]
    Address {
        /// The address.
        address: String,
        /// Why not.
        source: std::io::Error,
    },
    /// The log has led to a membership that this program cannot use.
    #[error("the membership of epoch {epoch} cannot be used: {text}")]
    Membership {
        /// The epoch.
        epoch: u32,
        /// Why not.
        text: String,
    },
    /// The state machine panicked. What it was doing had no effect that anyone was told of.
    #[error("{failure}{}", written_down(file.as_deref()))]
    Machine {
        /// What it was doing.
        failure: Box<MachineFailure>,
        /// The file that says so, with the bytes of the command.
        file: Option<PathBuf>,
    },
    /// The settings contradict each other.
    #[error("{0}")]
    Settings(String),
    /// The operating system gives no event queue or thread.
    #[error("cannot start the event loop: {0}")]
    Start(std::io::Error),
}

fn written_down(file: Option<&Path>) -> String {
    file.map_or_else(String::new, |file| {
        format!(
            ". See {}, and docs/operations.md for the way out",
            file.display()
        )
    })
}

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
    let (log, past) = open_log::<P>(&settings, directory, &stamp, proof, &log_wake)?;
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
    let host = event_loop.clone();
    let (known, own_tasks) = (admission.clone(), tasks.clone());
    let transport = Transport {
        identity,
        node: id,
        name: name.clone(),
        peers: peers.clone(),
        host,
        admission: known,
        tasks: own_tasks,
        seed,
        backups,
        skips: guard.skips().to_string(),
    };
    let listening = Rc::new(transport).start(listener);

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
        (Some(data), Some(known)) => membership::store(data, known),
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

/// What an earlier process of the node has left behind.
enum Past {
    Memory(Recovered),
    Disk(Box<DiskPast>),
}

impl Past {
    /// Whether there was an earlier process, and most of what it knew is gone.
    fn is_lost(&self) -> bool {
        matches!(self, Past::Memory(recovered) if recovered.existed)
    }
}

/// `identity` is the file that says that the node has taken part, if it has.
fn open_log<P: Protocol>(
    settings: &NodeSettings,
    directory: Option<Rc<DataDirectory>>,
    stamp: &Stamp,
    identity: Option<PathBuf>,
    wake: &Arc<Notify>,
) -> Result<(Log, Past), LogError> {
    match (settings.durability, directory) {
        (Durability::Disk, Some(directory)) => {
            let (log, past) =
                DiskLog::open(directory, stamp, identity, P::KINDS, settings.disk, wake)?;
            Ok((Log::Disk(Box::new(log)), Past::Disk(Box::new(past))))
        }
        (_, directory) => {
            let (log, recovered) = MemoryLog::open(directory, stamp, identity)?;
            Ok((Log::Memory(Box::new(log)), Past::Memory(recovered)))
        }
    }
}

/// Random numbers of the operating system, by which the standard library's hasher is keyed. No two
/// lives of a node may draw the same: a client lane would take up the session of its earlier life,
/// and be told that its new commands are executed already.
fn entropy() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Makes the instances of this node and gives each what it stored before.
fn build<P: Protocol>(
    settings: &NodeSettings,
    config: &P::Config,
    nursery: &Nursery,
    past: Past,
) -> Result<Node<P>, NodeError> {
    let mut node = Node::new(config, nursery.keeps_records);
    nursery.populate(&mut node, (&settings.layout, config), past.is_lost());
    // In a cluster that has never changed, whoever has a record lives where it was written.
    let may_have_left = settings.layout.epoch > Epoch::default();
    let mut left = 0;
    let mut has_left = |node: &Node<P>, from: Address| {
        let has_left = may_have_left && !node.hosts(from);
        left += u64::from(has_left);
        has_left
    };
    match past {
        Past::Memory(recovered) => {
            for (position, record) in (1..).zip(recovered.records) {
                if has_left(&node, record.from) {
                    continue;
                }
                recover(&mut node, record.from, Lsn(position), &record.record)?;
            }
        }
        Past::Disk(past) => {
            let DiskPast { snapshots, records } = *past;
            let hosted = settings.layout.on_node(settings.node);
            match may_have_left {
                true => snapshots.delete_others(&hosted)?,
                false => snapshots.check_owners(&hosted)?,
            }
            for address in hosted {
                let Some((stamp, snapshot)) = snapshots.load(address)? else {
                    continue;
                };
                let restored = node.restore(address, stamp, &snapshot);
                let (role, index) = (role_name::<P>(address), address.index);
                restored.map_err(|source| NodeError::Snapshot {
                    role,
                    index,
                    source,
                })?;
            }
            for entry in records {
                let entry = entry.map_err(LogError::from)?;
                let (from, lsn) = (disk_log::author(&entry), Lsn(entry.lsn));
                if has_left(&node, from) {
                    continue;
                }
                recover(&mut node, from, lsn, &entry.record.into())?;
            }
        }
    }
    if left > 0 {
        tracing::info!("{left} records of roles that have left this node are passed over");
    }
    Ok(node)
}

fn recover<P: Protocol>(
    node: &mut Node<P>,
    from: Address,
    lsn: Lsn,
    record: &Bytes,
) -> Result<(), NodeError> {
    let mut reader = Reader::new(record);
    let read = node
        .recover(from, lsn, &mut reader)
        .and_then(|()| reader.finish());
    read.map_err(|source| NodeError::Record {
        role: role_name::<P>(from),
        index: from.index,
        source,
    })
}

fn role_name<P: Protocol>(address: Address) -> String {
    P::KINDS
        .get(address.kind as usize)
        .map_or("an unknown role", |name| name)
        .to_owned()
}

/// Different instances draw different numbers, and so do those that have the same number one after
/// the other.
pub(crate) fn seed_of(seed: u64, epoch: Epoch, address: Address) -> u64 {
    let who = u64::from(address.kind) << 8 | u64::from(address.index);
    Random::new(seed ^ who << 48 ^ u64::from(epoch.0)).any()
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
