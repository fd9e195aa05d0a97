//! What every protocol of Ionian shares: roles and how they are driven, names, quorum systems, the
//! log's windows, sessions, elections, time and randomness.
//!
//! The crate is `no_std`: what is built on it reads no clock, opens no socket, spawns no thread and
//! iterates no randomly seeded map, because it cannot. The same inputs give the same outputs.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod batch;
pub mod client;
pub mod election;
pub mod executor;
pub mod flow;
pub mod guard;
pub mod id;
pub mod inner;
pub mod lane;
pub mod layout;
pub mod machine;
pub mod membership;
pub mod node;
pub mod preset;
pub mod protocol;
pub mod quorum;
pub mod random;
pub mod role;
pub mod service;
pub mod session;
pub mod setting;
pub mod slot_map;
pub mod status;
pub mod suspicion;
pub mod time;
pub mod window;
pub mod wire;
