//! The protocols of Ionian: one folder a protocol, one file a role, named as in the papers. In the
//! folder of a protocol `mod.rs` opens with the chart of all messages and lists the roles in the
//! order data flows; `config.rs`, where there is one, says which layouts are deployments of the
//! protocol.
//!
//! Two folders are no protocols: [`parts`] has the rules that roles of several protocols share, and
//! [`pigpaxos`] has the relay, a role of MultiPaxos and S-Paxos. [`unreplicated`] is one server, to
//! measure the others against.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod branches;
pub mod craq;
pub mod epaxos;
mod failures;
pub mod mencius;
pub mod multipaxos;
pub mod parts;
pub mod pigpaxos;
mod places;
pub mod psmr;
pub mod registry;
pub mod scalog;
pub mod spaxos;
/// A protocol for tests.
#[cfg(feature = "toy")]
#[path = "../tests/toy/mod.rs"]
pub mod toy;
pub mod unreplicated;
