//! Administration: what operators and tools ask of a running node. Each request has its client and
//! its server side in one file; `server` dispatches.

pub mod backup;
pub mod change;
pub(crate) mod control;
pub mod membership;
pub mod query;
pub(crate) mod server;
pub mod status;
