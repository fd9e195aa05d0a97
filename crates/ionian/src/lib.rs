//! State machine replication in which every bottleneck can be scaled on its own: the library.
//!
//! Implement [`Machine`] for your service, choose a deployment, and get linearizable writes and
//! reads from any number of threads:
//!
//! ```
//! use ionian::{Context, Machine, ReadLevel, Typed, TypedClient};
//! use serde::{Deserialize, Serialize};
//!
//! /// Remembers the longest word it was told.
//! #[derive(Default, Serialize, Deserialize)]
//! struct Longest(String);
//!
//! impl Machine for Longest {
//!     type Command = String;
//!     type Reply = String;
//!     type Query = ();
//!     type Answer = String;
//!
//!     fn apply(&mut self, _: &Context, word: String) -> String {
//!         if word.len() > self.0.len() {
//!             self.0 = word;
//!         }
//!         self.0.clone()
//!     }
//!     fn read(&self, _: &Context, (): ()) -> String {
//!         self.0.clone()
//!     }
//! }
//!
//! let cluster = ionian::start::<Typed<Longest>>("colocated")?;
//! let client = TypedClient::<Longest>::new(cluster.client());
//! client.write_blocking(&"short".into())?;
//! client.write_blocking(&"longer".into())?;
//! assert_eq!(client.read_blocking(&(), ReadLevel::Linearizable)?, "longer");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`StateMachine`] is the trait beneath, with bytes instead of types: for a format of your own,
//! snapshots that are written piece by piece, and parallel execution.
//!
//! That is a cluster in one process; `examples/counter.rs` is a complete program. [`Node`] is one
//! node of a cluster of several machines, which `docs/library.md` in the repository is about, with
//! `examples/tally.rs`. With the feature `testing` there is `testing` (with the feature of that
//! name): your machine in the simulator. With the feature `metrics`, `Node::metrics`.
//!
//! The deployments are those of the `ionian` command; see `docs/` in the repository for what each
//! role does and what can be tuned. What a node does is logged by the crate `tracing`; nothing
//! subscribes to that but you.
#![forbid(unsafe_code)]
// The process is the user's.
#![forbid(clippy::exit)]

mod node;
mod shared_log;
#[cfg(feature = "testing")]
pub mod testing;
mod typed;

pub use ionian_deployment::{
    Deployment, DeploymentError, Durability as DeploymentDurability, Node as NodeDescription,
    Placed, PresetOptions, presets,
};
pub use ionian_kernel::client::{ReadLevel, Refusal};
pub use ionian_kernel::dependencies;
pub use ionian_kernel::guard::LogCommand;
pub use ionian_kernel::id::{ClientId, SessionId, Slot};
pub use ionian_kernel::layout::{LayoutError, NodeId};
pub use ionian_kernel::machine::{Footprint, Frozen, NotARead, Parts, RestoreError, StateMachine};
pub use ionian_kernel::protocol::Protocol;
pub use ionian_kernel::random::Random;
pub use ionian_kernel::time::Timestamp;
pub use ionian_machines::kv::Kv;
pub use ionian_protocols::registry::types::*;
pub use ionian_runtime::in_process::cluster::ClusterError;
pub use ionian_runtime::{
    Client, Cluster, ClusterOptions, DiskOptions, Durability, Freshness, LocalReadError, LogError,
    NodeError, NodeStatus, Published, QueryError, Receipt, TlsMode,
};
pub use ionian_tls::TlsError;
#[cfg(feature = "metrics")]
pub use node::Metrics;
pub use node::{Node, NodeOptions, Origin, Tls};
pub use shared_log::{Position, SharedLog, SharedLogError, Subscription, Unexpected};
pub use typed::{CommandOrigin, Context, Machine, Typed, TypedClient, TypedError};

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
    /// The certificate of the node cannot be used.
    #[error("the certificate in {}: {source}", directory.display())]
    Tls {
        /// The directory of the certificate.
        directory: std::path::PathBuf,
        /// What is wrong with it. Boxed, because errors are rare and a small `Result` is cheaper to
        /// move.
        source: Box<TlsError>,
    },
}

type Started = Cluster<MultiPaxos>;

/// Starts a cluster of the MultiPaxos deployment `preset` in this process, each node on a thread of
/// its own, all replicating machines of type `M`. Its data is kept in memory and gone with
/// it: [`start_deployment`] keeps it on disk.
///
/// # Errors
/// When there is no such preset, when it is one of another protocol (see [`start_deployment`]), or
/// when the operating system gives no thread or port.
pub fn start<M: StateMachine + Default + 'static>(preset: &str) -> Result<Started, StartError> {
    start_in_memory(preset, || Box::new(M::default()))
}

/// No type parameters: what it calls, which is most of the driver, is compiled with this crate.
fn start_in_memory(
    preset: &str,
    machine: fn() -> Box<dyn StateMachine>,
) -> Result<Started, StartError> {
    let deployment = Deployment::preset(preset, &PresetOptions::default())?;
    start_deployment(&deployment, machine, ClusterOptions::in_memory())
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
