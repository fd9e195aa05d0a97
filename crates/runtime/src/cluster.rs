//! A whole cluster inside one process, each node on a thread of its own: for users of the library and
//! for tests. The nodes speak to each other over loopback, as they would from machine to machine.

use crate::application::{Application, LaneHandle};
use crate::node::{NodeError, run_node};
use crate::settings::{DiskOptions, Durability, Identity, NodeSettings};
use crate::status::{NodeStatus, StatusError, query_status};
use bytes::Bytes;
use ionian_kernel::client::{Operation, ReadLevel, Refusal, Reply, Request};
use ionian_kernel::id::ClientId;
use ionian_kernel::layout::{Layout, LayoutError, NodeId};
use ionian_kernel::machine::StateMachine;
use ionian_kernel::protocol::Protocol;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::task::LocalSet;

/// How many calls are taken over from other threads at once.
const CALLS_AT_ONCE: usize = 256;

/// What can be chosen for a cluster in one process: begin with [`on_disk`](ClusterOptions::on_disk) or
/// [`in_memory`](ClusterOptions::in_memory).
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// A directory under which each node keeps what survives it, its vital records at least. Without it a
    /// node that was stopped cannot be started again: it would have forgotten its promises.
    pub data: Option<PathBuf>,
    /// What survives a node. [`Durability::Disk`] needs a data directory.
    pub durability: Durability,
    /// How the disk is used, if it is.
    pub disk: DiskOptions,
}

impl ClusterOptions {
    /// Nodes keep everything below `data`, and a cluster that is started there again goes on where it was.
    pub fn on_disk(data: impl Into<PathBuf>) -> Self {
        ClusterOptions { data: Some(data.into()), durability: Durability::Disk, disk: DiskOptions::default() }
    }

    /// Nothing outlives its node.
    pub fn in_memory() -> Self {
        ClusterOptions { data: None, durability: Durability::Memory, disk: DiskOptions::default() }
    }
}

/// Why there is no cluster.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The layout is not one of the protocol.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// A node did not start.
    #[error("node {}: {source}", node.0)]
    Node {
        /// Which.
        node: NodeId,
        /// Why.
        source: NodeError,
    },
    /// No port or no thread is to be had.
    #[error("the operating system gives no port or no thread: {0}")]
    System(#[from] std::io::Error),
    /// A node that keeps nothing cannot come back.
    #[error("node {} has no data directory: started again it would have forgotten its promises", .0.0)]
    NoData(NodeId),
    /// The node runs.
    #[error("node {} is running", .0.0)]
    Running(NodeId),
    /// The layout has no client lane.
    #[error("the layout has no client lane")]
    NoLane,
}

/// A running cluster. Dropping it stops all nodes.
pub struct Cluster<P: Protocol> {
    layout: Layout,
    config: P::Config,
    machine: Arc<dyn Fn() -> Box<dyn StateMachine> + Send + Sync>,
    options: ClusterOptions,
    addresses: Vec<SocketAddr>,
    nodes: Vec<Option<Running>>,
    lanes: Arc<Vec<Lane>>,
    next_lane: AtomicUsize,
}

struct Running {
    stop: oneshot::Sender<Stop>,
    thread: JoinHandle<Result<(), NodeError>>,
}

enum Stop {
    InOrder,
    AtOnce,
}

/// A client lane and the way to the node where it lives.
struct Lane {
    id: ClientId,
    node: NodeId,
    /// Replaced when the node is started again.
    calls: RwLock<mpsc::UnboundedSender<Call>>,
}

/// What becomes of a call.
type Answer = Result<Bytes, Refusal>;

struct Call {
    lane: ClientId,
    operation: Operation,
    payload: Bytes,
    answer: oneshot::Sender<Answer>,
}

impl<P: Protocol> Cluster<P> {
    /// Starts a cluster of as many nodes as the layout names, and returns when all of them run. What it is
    /// told is kept in memory and gone with it; [`start_with`](Self::start_with) keeps it on disk.
    ///
    /// # Errors
    /// When the layout is not one of the protocol, or a node does not start.
    pub fn start(
        layout: Layout,
        machine: impl Fn() -> Box<dyn StateMachine> + Send + Sync + 'static,
    ) -> Result<Self, ClusterError> {
        Self::start_with(layout, machine, ClusterOptions::in_memory())
    }

    /// As [`start`](Self::start), with options.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_with(
        layout: Layout,
        machine: impl Fn() -> Box<dyn StateMachine> + Send + Sync + 'static,
        options: ClusterOptions,
    ) -> Result<Self, ClusterError> {
        let config = P::configure(layout.clone())?;
        if layout.count(0) == 0 {
            return Err(ClusterError::NoLane);
        }
        // All ports first, so that every node can be told all of them.
        let bind = |_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let nodes = layout.nodes().last().map_or(0, |highest| highest.0 + 1);
        let listeners = (0..nodes).map(bind).collect::<Result<Vec<_>, _>>()?;
        let addresses = listeners.iter().map(TcpListener::local_addr).collect::<Result<Vec<_>, _>>()?;
        let nodes = listeners.iter().map(|_| None).collect();
        let lane = |(index, node)| Lane { id: ClientId(index), node, calls: RwLock::new(mpsc::unbounded_channel().0) };
        let lanes = Arc::new(layout.places(0).iter().map(lane).collect());
        let (machine, next_lane) = (Arc::new(machine), AtomicUsize::new(0));
        let mut cluster = Cluster { layout, config, machine, options, addresses, nodes, lanes, next_lane };
        for (index, listener) in (0..).zip(listeners) {
            cluster.start_node(NodeId(index), listener)?;
        }
        Ok(cluster)
    }

    fn start_node(&mut self, node: NodeId, listener: TcpListener) -> Result<(), ClusterError> {
        let settings = self.settings(node, listener);
        let (config, machine) = (self.config.clone(), self.machine.clone());
        let (calls, queue) = mpsc::unbounded_channel();
        let (stop, stopped) = oneshot::channel();
        let (started, starting) = std::sync::mpsc::channel();
        let body = move || {
            let machine = move || machine();
            let application = move |handle: LaneHandle| {
                let _ = started.send(());
                serve_calls(handle, queue)
            };
            run_thread::<P>(settings, config, machine, application, stopped)
        };
        let thread = std::thread::Builder::new().name(format!("ionian-{}", name(node))).spawn(body)?;
        if starting.recv().is_err() {
            // The thread has ended without getting so far, and says why.
            let source = match thread.join() {
                Ok(Err(source)) => source,
                Ok(Ok(())) => NodeError::Settings("it stopped at once".into()),
                Err(panic) => std::panic::resume_unwind(panic),
            };
            return Err(ClusterError::Node { node, source });
        }
        for lane in self.lanes.iter().filter(|lane| lane.node == node) {
            *lane.calls.write().expect("nobody panics with it") = calls.clone();
        }
        self.nodes[node.0 as usize] = Some(Running { stop, thread });
        Ok(())
    }

    fn settings(&self, node: NodeId, listener: TcpListener) -> NodeSettings {
        let name = name(node);
        NodeSettings {
            identity: Identity { cluster: "in-process".into(), founding: 0, protocol: P::NAME.into() },
            node,
            address: self.addresses[node.0 as usize],
            listener: Some(listener),
            peers: (0..).map(NodeId).zip(self.addresses.iter().map(SocketAddr::to_string)).collect(),
            layout: self.layout.clone(),
            configuration: None,
            durability: self.options.durability,
            disk: self.options.disk,
            data: self.options.data.as_ref().map(|data| data.join(&name)),
            name,
        }
    }

    /// A handle on the next client lane in turn.
    pub fn client(&self) -> Client {
        let turn = self.next_lane.fetch_add(1, Ordering::Relaxed);
        Client { lanes: self.lanes.clone(), lane: turn % self.lanes.len() }
    }

    /// A handle on one client lane.
    ///
    /// # Panics
    /// When there is no such lane.
    pub fn client_on(&self, lane: ClientId) -> Client {
        assert!((lane.0 as usize) < self.lanes.len(), "there is no client lane {}", lane.0);
        Client { lanes: self.lanes.clone(), lane: lane.0 as usize }
    }

    /// How many nodes there are, running or not.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Where a node listens.
    pub fn address(&self, node: NodeId) -> SocketAddr {
        self.addresses[node.0 as usize]
    }

    /// Asks a node for its status, waiting on the calling thread, which must not run an async runtime;
    /// one that does asks by [`query_status`].
    ///
    /// # Errors
    /// When it does not run or does not answer within five seconds.
    pub fn status(&self, node: NodeId) -> Result<NodeStatus, StatusError> {
        let address = self.address(node);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|source| StatusError::Io { address, source })?;
        runtime.block_on(query_status(address, Duration::from_secs(5)))
    }

    /// Ends a node as a crash would: nothing more is written, its memory is lost. Returns when its
    /// thread has ended.
    ///
    /// # Errors
    /// When the node had failed before.
    pub fn kill(&mut self, node: NodeId) -> Result<(), NodeError> {
        self.end(node, Stop::AtOnce)
    }

    /// Stops a node in order. Returns when its thread has ended.
    ///
    /// # Errors
    /// When the node had failed before.
    pub fn stop(&mut self, node: NodeId) -> Result<(), NodeError> {
        self.end(node, Stop::InOrder)
    }

    fn end(&mut self, node: NodeId, how: Stop) -> Result<(), NodeError> {
        let Some(Running { stop, thread }) = self.nodes[node.0 as usize].take() else { return Ok(()) };
        // It fails when the node has ended by itself.
        let _ = stop.send(how);
        match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    /// Starts a node that was killed or stopped. It has what survived by the cluster's durability.
    ///
    /// # Errors
    /// When the node runs, keeps nothing, or does not start.
    pub fn restart(&mut self, node: NodeId) -> Result<(), ClusterError> {
        if self.nodes[node.0 as usize].is_some() {
            return Err(ClusterError::Running(node));
        }
        if self.options.data.is_none() {
            return Err(ClusterError::NoData(node));
        }
        let listener = TcpListener::bind(self.address(node))?;
        self.start_node(node, listener)
    }
}

impl<P: Protocol> Drop for Cluster<P> {
    fn drop(&mut self) {
        // All are told before any is waited for.
        let running: Vec<Running> = self.nodes.iter_mut().filter_map(Option::take).collect();
        let tell = |Running { stop, thread }| {
            let _ = stop.send(Stop::InOrder);
            thread
        };
        let threads: Vec<_> = running.into_iter().map(tell).collect();
        for thread in threads {
            if let Err(panic) = thread.join()
                && !std::thread::panicking()
            {
                std::panic::resume_unwind(panic);
            }
        }
    }
}

fn name(node: NodeId) -> String {
    format!("n{}", node.0)
}

/// The body of a node's thread.
fn run_thread<P: Protocol>(
    settings: NodeSettings,
    config: P::Config,
    machine: impl Fn() -> Box<dyn StateMachine> + 'static,
    application: impl FnOnce(LaneHandle) -> Box<dyn Application>,
    stop: oneshot::Receiver<Stop>,
) -> Result<(), NodeError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(NodeError::Start)?;
    let (in_order, stopped) = oneshot::channel::<()>();
    let shutdown = async move {
        let _ = stopped.await;
    };
    let at_once = async move {
        match stop.await {
            Ok(Stop::AtOnce) => {}
            // The cluster was dropped, or wants it in order: the node ends by itself.
            Ok(Stop::InOrder) | Err(_) => {
                let _ = in_order.send(());
                std::future::pending::<()>().await;
            }
        }
    };
    LocalSet::new().block_on(&runtime, async move {
        tokio::select! {
            result = run_node::<P>(settings, config, machine, application, shutdown) => result,
            () = at_once => Ok(()),
        }
    })
}

/// The application of an in-process node: takes calls over from other threads.
struct Calls {
    open: Rc<RefCell<HashMap<u64, oneshot::Sender<Answer>>>>,
    drains: Rc<Cell<bool>>,
}

fn serve_calls(handle: LaneHandle, mut queue: mpsc::UnboundedReceiver<Call>) -> Box<dyn Application> {
    let open = Rc::new(RefCell::new(HashMap::new()));
    let drains = Rc::new(Cell::new(false));
    let calls = Calls { open: open.clone(), drains: drains.clone() };
    tokio::task::spawn_local(async move {
        let mut batch = Vec::new();
        let mut token = 0;
        while queue.recv_many(&mut batch, CALLS_AT_ONCE).await > 0 {
            for Call { lane, operation, payload, answer } in batch.drain(..) {
                if drains.get() {
                    // The node is about to stop. It fails when the caller has lost interest.
                    let _ = answer.send(Err(Refusal::Unavailable));
                    continue;
                }
                token += 1;
                open.borrow_mut().insert(token, answer);
                handle.submit(lane, Request { token, operation, payload });
            }
            if handle.is_closed() {
                // Whoever waits learns by the closing of the channel that there will be no answer.
                return open.borrow_mut().clear();
            }
        }
    });
    Box::new(calls)
}

impl Application for Calls {
    fn on_reply(&mut self, _: ClientId, reply: Reply) {
        if let Some(answer) = self.open.borrow_mut().remove(&reply.token) {
            // It fails when the caller has lost interest.
            let _ = answer.send(reply.outcome);
        }
    }

    fn drain(&mut self, drains: bool) {
        self.drains.set(drains);
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        self.open.borrow_mut().clear();
    }
}

/// A handle on one client lane of a cluster, for use from any thread. Clones share the lane, and with
/// it the order that sequential reads are promised.
#[derive(Clone)]
pub struct Client {
    lanes: Arc<Vec<Lane>>,
    lane: usize,
}

impl Client {
    /// The lane.
    pub fn lane(&self) -> ClientId {
        self.lanes[self.lane].id
    }

    /// Has a command executed exactly once by every replica and returns the state machine's reply.
    ///
    /// # Errors
    /// [`Refusal::Unavailable`] at once when the lane's node does not run, [`Refusal::Unknown`] when it
    /// stops meanwhile; otherwise what the lane says.
    pub async fn write(&self, command: impl Into<Bytes>) -> Result<Bytes, Refusal> {
        self.call(Operation::Write, command.into()).await
    }

    /// Has a query answered by one replica.
    ///
    /// # Errors
    /// As [`write`](Self::write), and [`Refusal::NotARead`].
    pub async fn read(&self, query: impl Into<Bytes>, level: ReadLevel) -> Result<Bytes, Refusal> {
        self.call(Operation::Read(level), query.into()).await
    }

    /// As [`write`](Self::write), waiting on the calling thread, which must not run an async runtime.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_blocking(&self, command: impl Into<Bytes>) -> Result<Bytes, Refusal> {
        self.begin(Operation::Write, command.into())?.blocking_recv().unwrap_or(Err(Refusal::Unknown))
    }

    /// As [`read`](Self::read), waiting on the calling thread, which must not run an async runtime.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_blocking(&self, query: impl Into<Bytes>, level: ReadLevel) -> Result<Bytes, Refusal> {
        self.begin(Operation::Read(level), query.into())?.blocking_recv().unwrap_or(Err(Refusal::Unknown))
    }

    async fn call(&self, operation: Operation, payload: Bytes) -> Result<Bytes, Refusal> {
        self.begin(operation, payload)?.await.unwrap_or(Err(Refusal::Unknown))
    }

    /// Hands the request over; the answer comes by the channel.
    fn begin(&self, operation: Operation, payload: Bytes) -> Result<oneshot::Receiver<Answer>, Refusal> {
        let Lane { id, calls, .. } = &self.lanes[self.lane];
        let (answer, answered) = oneshot::channel();
        let call = Call { lane: *id, operation, payload, answer };
        let calls = calls.read().expect("nobody panics with it");
        calls.send(call).map_err(|_| Refusal::Unavailable)?;
        Ok(answered)
    }
}
