//! Administration: requests of operators and tools to a running node. Each file contains the client
//! and the server side of its request; `server` dispatches.

pub mod backup;
pub mod change;
pub mod contact;
pub(crate) mod control;
pub mod membership;
pub mod query;
pub(crate) mod server;
pub mod status;
pub mod traces;
