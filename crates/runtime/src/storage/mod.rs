//! What survives a process: a node's data directory, and the log for the records of its roles.

pub(crate) mod directory;
pub(crate) mod disk_log;
pub mod error;
pub mod executing;
pub(crate) mod identity;
pub(crate) mod log;
pub mod machine_failure;
pub mod membership_file;
pub(crate) mod memory_log;
pub mod offline;
mod pace;
pub(crate) mod recovery;
mod sealed;
pub mod skips;
pub(crate) mod snapshots;
pub(crate) mod stamp;
mod stored;
mod vital;
