//! The deployment file: which nodes a cluster has, which roles live on each, and how the protocol
//! is tuned. Text in, a [`Layout`](ionian_kernel::layout::Layout) out.
//!
//! What only a protocol can judge ("2f+1 acceptors") is left to
//! [`Protocol::configure`](ionian_kernel::protocol::Protocol::configure); this crate makes sure
//! that the file says something, and that what it says is not absurd.

#![forbid(unsafe_code)]
#![warn(clippy::disallowed_methods, clippy::disallowed_types)]

mod change;
mod check;
mod configuration;
mod deployment;
mod digest;
mod endpoint;
mod error;
mod file;
mod given;
mod network;
mod numbers;
mod options;
mod preset;
mod quorums;
mod set;
mod words;

pub use configuration::Configuration;
pub use deployment::{
    CLIENT, Deployment, Durability, MACHINES, MAX_F, MAX_NODES, MAX_TEXT, Node, Placed,
};
pub use error::{DeploymentError, Place, Problem};
pub use network::{Distance, Link, Network};
pub use options::{Settings, all as all_settings, at_start, settings};
pub use preset::{DEFAULT_PRESET, PresetOptions, presets};
pub use set::keys;
