//! What the roles of replication protocols have in common: batches of commands, the client lane,
//! sessions, the execution of the log, quorum systems, elections, the detection of failures, and
//! values by slot. A role calls these parts; a driver does not know them.
//!
//! Like the [kernel](ionian_kernel) it is `no_std`: no part reads a clock, opens a socket or
//! iterates a randomly seeded map.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod backoff;
pub mod batch;
pub mod distance;
pub mod election;
pub mod executor;
pub mod flow;
pub mod lane;
mod names;
pub mod page;
pub mod queue;
pub mod quorum;
pub mod session;
pub mod settled;
pub mod slot_map;
pub mod suspicion;
pub mod window;
