//! The contract between roles and drivers: roles, nodes, ids, layouts, membership, the state
//! machine, the codec, time and randomness.
//!
//! The crate is `no_std`: code that uses only it cannot read a clock, open a socket, spawn a thread
//! or iterate a randomly seeded map. The same inputs give the same outputs.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod adapted;
pub mod client;
pub mod dependencies;
pub mod guard;
pub mod histogram;
pub mod id;
pub mod layout;
pub mod level;
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
mod set;
pub mod setting;
pub mod small_map;
pub mod status;
pub mod time;
pub mod trace;
pub mod wire;
pub mod work;
