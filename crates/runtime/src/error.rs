//! Why a node stops, or does not start.

use crate::storage::error::LogError;
use crate::storage::machine_failure::MachineFailure;
use ionian_deployment::DeploymentError;
use ionian_kernel::id::Index;
use ionian_kernel::layout::NodeId;
use ionian_kernel::machine::RestoreError;
use ionian_kernel::wire::WireError;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Why a node stopped or did not start.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The node cannot listen on its address.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The answer of the operating system.
        source: std::io::Error,
    },
    /// The data directory cannot be used, at the start or later.
    #[error(transparent)]
    Log(#[from] LogError),
    /// Other nodes know this node by another data directory.
    #[error("node {} refuses this node: {reason}", by.0)]
    IdentityMismatch {
        /// The node that refused last.
        by: NodeId,
        /// Its reason.
        reason: String,
    },
    /// A role instance cannot read one of its records.
    #[error(
        "a record of {role} {index} in the data directory cannot be read: {source}. Has the deployment been changed \
         since it was written?"
    )]
    Record {
        /// The role that wrote it.
        role: String,
        /// The instance that wrote it.
        index: Index,
        /// What is wrong.
        source: WireError,
    },
    /// A role instance cannot read its snapshot.
    #[error(
        "the snapshot of {role} {index} in the data directory cannot be used: {source}. Has the deployment or the \
         program been changed since it was written?"
    )]
    Snapshot {
        /// The role that stored it.
        role: String,
        /// The instance that stored it.
        index: Index,
        /// What is wrong.
        source: RestoreError,
    },
    /// The deployment is not valid, or has no such node.
    #[error(transparent)]
    Deployment(DeploymentError),
    /// The node was a member of its cluster before.
    #[error(
        "node {name} is not a member of the cluster any more, since epoch {epoch} at the latest: its data can be deleted"
    )]
    Removed {
        /// The name of the node.
        name: String,
        /// The epoch that the node knows.
        epoch: u32,
    },
    /// The address of the node in the deployment cannot be resolved.
    #[error("the node's address {address:?} cannot be resolved: {source}")]
    Address {
        /// The address.
        address: String,
        /// The answer of the operating system.
        source: std::io::Error,
    },
    /// The log has led to a membership that this program cannot use.
    #[error("the membership of epoch {epoch} cannot be used: {text}")]
    Membership {
        /// The epoch.
        epoch: u32,
        /// The reason.
        text: String,
    },
    /// The state machine panicked. Nothing that it was doing was acknowledged.
    #[error("{failure}{}", written_down(file.as_deref()))]
    Machine {
        /// What it was doing.
        failure: Box<MachineFailure>,
        /// The file that contains the failure, with the bytes of the command.
        file: Option<PathBuf>,
    },
    /// The settings contradict each other.
    #[error("{0}")]
    Settings(String),
    /// The operating system provides no event queue or thread.
    #[error("cannot start the event loop: {0}")]
    Start(std::io::Error),
}

fn written_down(file: Option<&Path>) -> String {
    file.map_or_else(String::new, |file| {
        format!(
            ". See {}, and docs/operations.md for what to do",
            file.display()
        )
    })
}
