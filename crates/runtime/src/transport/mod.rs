//! Connections between the nodes of a cluster.

pub(crate) mod admission;
pub(crate) mod caller;
pub(crate) mod channel;
pub(crate) mod connection;
pub(crate) mod dial;
pub mod frame;
pub(crate) mod handshake;
pub(crate) mod hello;
mod link_shaper;
pub(crate) mod membership_exchange;
pub(crate) mod names;
pub(crate) mod outgoing;
pub(crate) mod peer;
pub(crate) mod peers;
pub(crate) mod security;
pub(crate) mod stream;
pub(crate) mod welcome;
