//! The driver on real sockets, clocks and files: nodes and clusters that are threads of the test.

extern crate alloc;

mod backup;
mod callers;
mod cluster;
#[allow(unreachable_pub)]
mod common;
mod connections;
mod data;
mod disk;
mod distance;
mod ended;
mod frames;
mod golden;
mod greeting;
mod identity;
mod levels;
mod loops;
mod membership;
#[allow(unreachable_pub)]
mod membership_nodes;
mod pki;
mod poison;
mod protocols;
#[allow(unreachable_pub)]
mod support;
mod tls;
