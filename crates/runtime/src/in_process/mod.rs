//! Nodes and clusters inside one process, with handles on their client lanes for other threads.

pub(crate) mod client;
pub mod cluster;
pub(crate) mod hosted;
