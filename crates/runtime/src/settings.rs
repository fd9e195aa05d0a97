//! What a node is told before it starts.

use ionian_kernel::layout::{Layout, NodeId};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;

/// Which cluster a node belongs to. Nodes that differ in any part of it refuse each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The name of the cluster.
    pub cluster: String,
    /// A digest of the deployment: two nodes with different ideas of who does what must not talk.
    pub deployment: u64,
    /// The name of the protocol.
    pub protocol: String,
}

/// What survives the end of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Everything that a role persists.
    Disk,
    /// Only vital records (small and rare, such as promises), and those only with a data directory.
    Memory,
}

/// How a node with [`Durability::Disk`] uses the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskOptions {
    /// When the log has grown by so much, what is not needed any more is cut off.
    pub checkpoint_bytes: u64,
    /// The size of one file of the log: a multiple of 4096, at least 8192, at most 2^30.
    pub segment_bytes: u64,
}

impl Default for DiskOptions {
    fn default() -> Self {
        DiskOptions { checkpoint_bytes: 64 << 20, segment_bytes: 16 << 20 }
    }
}

/// Everything that a node needs to know of the world before it starts.
#[derive(Debug)]
pub struct NodeSettings {
    /// The cluster.
    pub identity: Identity,
    /// Which of the deployment's nodes this is.
    pub node: NodeId,
    /// Its name in the deployment.
    pub name: String,
    /// Where it listens, for peers and for status queries.
    pub address: SocketAddr,
    /// A socket that listens already, in place of `address`: for whoever must know the port before
    /// the node runs.
    pub listener: Option<TcpListener>,
    /// The addresses of all nodes, this one included, by [`NodeId`].
    pub peers: Vec<SocketAddr>,
    /// Which role instance lives where.
    pub layout: Layout,
    /// What survives the end of the process.
    pub durability: Durability,
    /// How the disk is used, if it is.
    pub disk: DiskOptions,
    /// Where that is kept. Without it nothing is, and a node that is started again does not know
    /// that it lived before. [`Durability::Disk`] needs it.
    pub data: Option<PathBuf>,
}
