//! The protocols of Ionian: one folder a protocol, one file a role, named as in the papers. Every
//! folder has the same shape: `mod.rs` opens with the chart of all messages, `config.rs` says which
//! layouts are deployments of the protocol, and the roles follow in the order data flows.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod branches;
pub mod mencius;
pub mod multipaxos;
pub mod parts;
pub mod pigpaxos;
pub mod registry;
pub mod spaxos;
/// A protocol for tests.
#[cfg(feature = "toy")]
#[path = "../tests/toy/mod.rs"]
pub mod toy;
pub mod unreplicated;
