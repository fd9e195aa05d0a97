//! What survives a process: the data directory of a node, and the log that its roles' records go to.

pub(crate) mod directory;
pub(crate) mod disk_log;
pub mod error;
pub(crate) mod identity;
pub(crate) mod log;
pub mod machine_failure;
pub mod membership_file;
pub(crate) mod memory_log;
pub mod offline;
pub(crate) mod recovery;
mod sealed;
pub mod skips;
pub(crate) mod snapshots;
pub(crate) mod stamp;
mod vital;
