//! What every protocol of Ionian shares: roles and how they are driven, names, quorum systems, the
//! log's windows, sessions, elections, time and randomness.
//!
//! The crate is `no_std`: what is built on it reads no clock, opens no socket, spawns no thread and
//! iterates no randomly seeded map, because it cannot. The same inputs give the same outputs.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod client;
pub mod guard;
pub mod id;
pub mod inner;
pub mod layout;
pub mod machine;
pub mod membership;
pub mod node;
pub mod preset;
pub mod protocol;
pub mod quorum_spec;
pub mod random;
pub mod role;
pub mod salvage;
pub mod service;
pub mod setting;
pub mod status;
pub mod time;
pub mod wire;
