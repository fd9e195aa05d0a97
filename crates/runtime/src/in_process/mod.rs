//! Nodes and clusters inside one process, with handles on their client lanes for other threads.

pub(crate) mod client;
pub mod cluster;
pub(crate) mod freshness;
pub(crate) mod hosted;
pub(crate) mod local_reads;
pub(crate) mod serving;
