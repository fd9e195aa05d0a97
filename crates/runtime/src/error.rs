//! Why a node stops, or does not start.

use crate::storage::error::LogError;
use crate::storage::machine_failure::MachineFailure;
use ionian_deployment::DeploymentError;
use ionian_kernel::layout::NodeId;
use ionian_kernel::machine::RestoreError;
use ionian_kernel::wire::WireError;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

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
