//! A whole cluster inside one process, each node on its own thread: for users of the library and
//! for tests. The nodes communicate over loopback, as they would between machines.

use super::client::{Client, Lane};
use super::hosted::{Hosted, Stop};
use super::local_reads::Desk;
use crate::admin::query::QueryError;
use crate::admin::status::query_status;
use crate::error::NodeError;
use crate::node::audit::AuditCheck;
use crate::node::roles::Runnable;
use crate::node::settings::NodeSettings;
use crate::node::startup::StartupWatch;
use crate::status::NodeStatus;
use crate::storage::disk_log::DiskOptions;
use crate::storage::log::Durability;
use crate::transport::handshake::Identity;
use ionian_kernel::id::ClientId;
use ionian_kernel::layout::{Layout, LayoutError, NodeId};
use ionian_kernel::machine::StateMachine;
use ionian_kernel::protocol::Protocol;
use std::marker::PhantomData;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The options of a cluster in one process: start with [`on_disk`](ClusterOptions::on_disk) or
/// [`in_memory`](ClusterOptions::in_memory).
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// The directory in which each node has its data directory, for vital records at least. Without
    /// it a node that was stopped cannot start again, because its promises are lost.
    pub data: Option<PathBuf>,
    /// What survives the end of a node. [`Durability::Disk`] needs a data directory.
    pub durability: Durability,
    /// How the disk is used with [`Durability::Disk`].
    pub disk: DiskOptions,
}

impl ClusterOptions {
    /// Nodes store everything below `data`, and a cluster that is started there again continues.
    pub fn on_disk(data: impl Into<PathBuf>) -> Self {
        ClusterOptions {
            data: Some(data.into()),
            durability: Durability::Disk,
            disk: DiskOptions::default(),
        }
    }

    /// Nothing survives the end of a node.
    pub fn in_memory() -> Self {
        ClusterOptions {
            data: None,
            durability: Durability::Memory,
            disk: DiskOptions::default(),
        }
    }
}

/// Why a cluster or a node of it did not start.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The layout is not a deployment of the protocol.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// A node did not start.
    #[error("node {}: {source}", node.0)]
    Node {
        /// The node.
        node: NodeId,
        /// The reason.
        source: NodeError,
    },
    /// The operating system provides no port or no thread.
    #[error("cannot get a port or start a thread: {0}")]
    System(#[from] std::io::Error),
    /// A node without a data directory cannot start again.
    #[error("node {} has no data directory: it cannot start again, because its promises are lost", .0.0)]
    NoData(NodeId),
    /// The node is running already.
    #[error("node {} is running", .0.0)]
    Running(NodeId),
    /// The layout has no client lane.
    #[error("the layout has no client lane")]
    NoLane,
}

/// A running cluster. Dropping it stops all nodes.
pub struct Cluster<P: Protocol> {
    layout: Layout,
    machine: Arc<dyn Fn() -> Box<dyn StateMachine> + Send + Sync>,
    options: ClusterOptions,
    addresses: Vec<SocketAddr>,
    nodes: Vec<Option<Hosted>>,
    lanes: Arc<Vec<Lane>>,
    next_lane: AtomicUsize,
    /// One for all: a closure may be called by the replica of any node.
    desk: Arc<Desk>,
    protocol: PhantomData<fn() -> P>,
}

impl<P: Protocol> Cluster<P> {
    /// Starts a cluster of all nodes in the layout, and returns when all of them run. Its state is
    /// in memory and ends with it; [`start_with`](Self::start_with) stores it on disk.
    ///
    /// # Errors
    /// If the layout is not a deployment of the protocol, or a node does not start.
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
        P::configure(layout.clone())?;
        if layout.count(0) == 0 {
            return Err(ClusterError::NoLane);
        }
        // All ports first, because every node must know all of them.
        let bind = |_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let nodes = layout.nodes().last().map_or(0, |highest| highest.0 + 1);
        let listeners = (0..nodes).map(bind).collect::<Result<Vec<_>, _>>()?;
        let addresses = listeners
            .iter()
            .map(TcpListener::local_addr)
            .collect::<Result<Vec<_>, _>>()?;
        let nodes = listeners.iter().map(|_| None).collect();
        let lane = |(index, node)| Lane::closed(ClientId(index), node);
        let lanes = Arc::new(layout.places(0).iter().map(lane).collect());
        let (machine, next_lane) = (Arc::new(machine), AtomicUsize::new(0));
        let mut cluster = Cluster {
            layout,
            machine,
            options,
            addresses,
            nodes,
            lanes,
            next_lane,
            desk: Desk::new(),
            protocol: PhantomData,
        };
        for (index, listener) in (0..).zip(listeners) {
            cluster.start_node(NodeId(index), listener)?;
        }
        Ok(cluster)
    }

    fn start_node(&mut self, node: NodeId, listener: TcpListener) -> Result<(), ClusterError> {
        let settings = self.settings(node, listener);
        let machine = self.machine.clone();
        let (protocol, desk) = (Runnable::of::<P>(), self.desk.clone());
        let hosted = Hosted::start_at(protocol, desk, settings, move || machine());
        let (hosted, calls) = hosted.map_err(|source| match source {
            NodeError::Start(source) => ClusterError::System(source),
            source => ClusterError::Node { node, source },
        })?;
        for lane in self.lanes.iter().filter(|lane| lane.node == node) {
            lane.lead_to(calls.clone());
        }
        self.nodes[node.0 as usize] = Some(hosted);
        Ok(())
    }

    fn settings(&self, node: NodeId, listener: TcpListener) -> NodeSettings {
        let name = name(node);
        NodeSettings {
            identity: Identity {
                cluster: "in-process".into(),
                founding: 0,
                at_levels: Vec::new(),
                protocol: P::NAME.into(),
            },
            node,
            address: self.addresses[node.0 as usize],
            listener: Some(listener),
            peers: (0..)
                .map(NodeId)
                .zip(self.addresses.iter().map(SocketAddr::to_string))
                .collect(),
            layout: self.layout.clone(),
            configuration: None,
            durability: self.options.durability,
            disk: self.options.disk,
            tls: None,
            clock_ahead_ms: 0,
            startup: StartupWatch::default(),
            feed: None,
            audit: AuditCheck::default(),
            data: self.options.data.as_ref().map(|data| data.join(&name)),
            name,
        }
    }

    /// A handle on the next client lane, round robin.
    pub fn client(&self) -> Client {
        let turn = self.next_lane.fetch_add(1, Ordering::Relaxed);
        Client::new(self.lanes.clone(), turn % self.lanes.len())
    }

    /// A handle on one client lane.
    ///
    /// # Panics
    /// If there is no such lane.
    pub fn client_on(&self, lane: ClientId) -> Client {
        assert!(
            (lane.0 as usize) < self.lanes.len(),
            "there is no client lane {}",
            lane.0
        );
        Client::new(self.lanes.clone(), lane.0 as usize)
    }

    /// The address on which a node listens.
    pub fn address(&self, node: NodeId) -> SocketAddr {
        self.addresses[node.0 as usize]
    }

    /// Asks a node for its status. Blocks the calling thread, which must not run an async runtime;
    /// a thread that does uses [`query_status`].
    ///
    /// # Errors
    /// If the node does not run or does not answer within five seconds.
    pub fn status(&self, node: NodeId) -> Result<NodeStatus, QueryError> {
        let address = self.address(node);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime?.block_on(query_status(address, Duration::from_secs(5)))
    }

    /// Ends a node as a crash would: it writes nothing more, and its memory is lost. Returns when
    /// its thread has ended.
    ///
    /// # Errors
    /// If the node had failed before.
    pub fn kill(&mut self, node: NodeId) -> Result<(), NodeError> {
        self.end(node, Stop::AtOnce)
    }

    /// Stops a node in order. Returns when its thread has ended.
    ///
    /// # Errors
    /// If the node had failed before.
    pub fn stop(&mut self, node: NodeId) -> Result<(), NodeError> {
        self.end(node, Stop::InOrder)
    }

    fn end(&mut self, node: NodeId, how: Stop) -> Result<(), NodeError> {
        let Some(mut hosted) = self.nodes[node.0 as usize].take() else {
            return Ok(());
        };
        hosted.ask_to_stop(how);
        hosted.wait()
    }

    /// Starts a node that was killed or stopped. It has what survived with the cluster's
    /// durability.
    ///
    /// # Errors
    /// If the node runs, has no data directory, or does not start.
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
        // All nodes are asked to stop before the first is waited for.
        let mut running: Vec<Hosted> = self.nodes.iter_mut().filter_map(Option::take).collect();
        running
            .iter_mut()
            .for_each(|hosted| hosted.ask_to_stop(Stop::InOrder));
    }
}

fn name(node: NodeId) -> String {
    format!("n{}", node.0)
}
