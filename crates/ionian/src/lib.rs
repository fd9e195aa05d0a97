//! State machine replication in which every bottleneck can be scaled on its own: the library.
//!
//! Implement [`StateMachine`] for your service, choose a deployment, and get linearizable writes
//! and reads from any number of threads:
//!
//! ```
//! use ionian::{NotARead, ReadLevel, RestoreError, StateMachine, Timestamp};
//!
//! /// Remembers the longest word it was told.
//! #[derive(Default)]
//! struct Longest(Vec<u8>);
//!
//! impl StateMachine for Longest {
//!     fn apply(&mut self, _: Timestamp, command: &[u8], reply: &mut Vec<u8>) {
//!         if command.len() > self.0.len() {
//!             self.0 = command.to_vec();
//!         }
//!         reply.extend_from_slice(&self.0);
//!     }
//!     fn read(&self, _: Timestamp, query: &[u8], reply: &mut Vec<u8>) -> Result<(), NotARead> {
//!         if !query.is_empty() {
//!             return Err(NotARead);
//!         }
//!         reply.extend_from_slice(&self.0);
//!         Ok(())
//!     }
//!     fn snapshot(&self, out: &mut Vec<u8>) {
//!         out.extend_from_slice(&self.0);
//!     }
//!     fn restore(&mut self, snapshot: &[u8]) -> Result<(), RestoreError> {
//!         self.0 = snapshot.to_vec();
//!         Ok(())
//!     }
//! }
//!
//! let cluster = ionian::start::<Longest>("colocated")?;
//! let client = cluster.client();
//! client.write_blocking("short")?;
//! client.write_blocking("longer")?;
//! assert_eq!(client.read_blocking("", ReadLevel::Linearizable)?, "longer");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! That is a cluster in one process; `examples/counter.rs` is a complete program. [`Node`] is one
//! node of a cluster of several machines, which `docs/library.md` in the repository is about, with
//! `examples/tally.rs`. With the feature `testing` there is `testing` (with the feature of that
//! name): your machine in the simulator.
//!
//! The deployments are those of the `ionian` command; see `docs/` in the repository for what each
//! role does and what can be tuned. What a node does is logged by the crate `tracing`; nothing
//! subscribes to that but you.
#![forbid(unsafe_code)]

mod node;
mod shared_log;
#[cfg(feature = "testing")]
pub mod testing;

pub use ionian_deployment::{
    Deployment, DeploymentError, Durability as DeploymentDurability, Node as NodeDescription,
    Placed, PresetOptions, presets,
};
pub use ionian_kernel::client::{ReadLevel, Refusal};
pub use ionian_kernel::dependencies;
pub use ionian_kernel::id::ClientId;
pub use ionian_kernel::layout::{LayoutError, NodeId};
pub use ionian_kernel::machine::{Footprint, Frozen, NotARead, Parts, RestoreError, StateMachine};
pub use ionian_kernel::protocol::Protocol;
pub use ionian_kernel::time::Timestamp;
pub use ionian_machines::kv::Kv;
pub use ionian_protocols::registry::types::*;
pub use ionian_runtime::in_process::cluster::ClusterError;
pub use ionian_runtime::{
    Client, Cluster, ClusterOptions, DiskOptions, Durability, LogError, NodeError, NodeStatus,
    QueryError,
};
pub use node::{Node, NodeOptions, Origin};
pub use shared_log::{Position, SharedLog, SharedLogError, Subscription, Unexpected};

/// The code blocks of the README and of the documents, so that the compiler checks them.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../../README.md")]
    mod readme {}
    #[doc = include_str!("../../../docs/library.md")]
    mod library {}
}

/// Why a cluster or a node does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The deployment is not well formed.
    #[error(transparent)]
    Deployment(#[from] DeploymentError),
    /// The cluster does not run.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The node does not run.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// The deployment is not valid for its protocol.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The protocol does not exist.
    #[error("unknown protocol {0:?}")]
    Protocol(String),
}

/// Starts a cluster of the MultiPaxos deployment `preset` in this process, each node on a thread of
/// its own, all replicating machines of type `M`. Its data is kept in memory and gone with
/// it: [`start_deployment`] keeps it on disk.
///
/// # Errors
/// When there is no such preset, when it is one of another protocol (see [`start_deployment`]), or
/// when the operating system gives no thread or port.
pub fn start<M: StateMachine + Default + 'static>(
    preset: &str,
) -> Result<Cluster<MultiPaxos>, StartError> {
    let deployment = Deployment::preset(preset, &PresetOptions::default())?;
    start_deployment(
        &deployment,
        || Box::new(M::default()),
        ClusterOptions::in_memory(),
    )
}

/// As [`start`], for any deployment and protocol: `start_deployment::<Unreplicated>(..)`, for one.
/// What survives and where it is kept is said by `options`, as [`ClusterOptions::on_disk`] for one;
/// the durability in the deployment is not used, and neither are its addresses: nodes speak over
/// ports that are free.
///
/// # Errors
/// When the deployment is not one of the protocol, the operating system gives no thread or port, or
/// a data directory cannot be used.
pub fn start_deployment<P: Protocol>(
    deployment: &Deployment,
    machine: impl Fn() -> Box<dyn StateMachine> + Send + Sync + 'static,
    options: ClusterOptions,
) -> Result<Cluster<P>, StartError> {
    let layout = deployment.layout(P::KINDS)?;
    Ok(Cluster::start_with(layout, machine, options)?)
}
