//! The real driver: it puts sockets, clocks, files and threads around the roles of one node.
//!
//! A node is one event loop on one thread ([`run_node`]). The loop takes in everything that has
//! arrived, runs the roles until nothing is queued, makes their records durable, lets the
//! [`Application`] finish its burst, and then writes once to every connection that something was
//! said to. Each file has one job, in the order in which data flows:
//!
//! | file | job |
//! |---|---|
//! | `settings` | what a node is told before it starts |
//! | `node` | assembles a node, starts it, runs it, stops it |
//! | `connection` | dials, accepts, and reads connections |
//! | `handshake` | who may talk to whom, and the words for why not |
//! | `admission`, `identity` | a node whose data was deleted or exchanged is noticed |
//! | `frame` | cuts the byte stream into messages |
//! | `event_loop` | the pump: from messages taken in to messages written |
//! | `world` | what roles ask of the outside: sends, records, replies |
//! | `guard`, `skips` | a machine that panics; commands that are left out because of it |
//! | `following` | what a node does when the membership has changed |
//! | `membership` | the membership on disk, and talk about it |
//! | `peer`, `outgoing` | the other nodes and the bytes that wait for them |
//! | `pace` | a delay and a bandwidth between sites, for tests and demonstrations |
//! | `log` | what survives the process |
//! | `memory_log`, `vital` | with durability "memory" |
//! | `disk_log`, `snapshots` | with durability "disk" |
//! | `directory` | one process at a time |
//! | `sealed` | small files with a checksum |
//! | `application` | the border to whoever uses client lanes |
//! | `status` | figures for people and tools |
//! | `backup` | snapshots for whoever asks a running node for one |
//! | `offline` | the data directory of a node that does not run: read, and made from a snapshot |
//! | `joining` | waiting until the others have made the node a member |
//! | `hosted`, `client` | a node on a thread of its own, and calls to it from other threads |
//! | `cluster` | a whole cluster inside one process |
//!
//! Everything is written for several loops in one node though there is one now: a loop owns its
//! node state, peers, counters and timers, and shares nothing with another thread.
#![forbid(unsafe_code)]

extern crate alloc;

mod admission;
pub mod application;
mod backup;
mod chronicle;
mod client;
mod clock;
pub mod cluster;
mod connection;
mod directory;
mod disk_log;
mod event_loop;
mod following;
pub mod frame;
pub mod guard;
mod handshake;
mod hosted;
mod identity;
mod joining;
mod log;
pub mod membership;
mod memory_log;
pub mod node;
pub mod offline;
mod outgoing;
mod pace;
mod peer;
mod sealed;
pub mod settings;
pub mod skips;
mod snapshots;
mod stamp;
pub mod status;
mod tasks;
mod vital;
mod world;

pub use application::{Application, LaneHandle};
pub use backup::{RemoteSnapshot, query_snapshot};
pub use client::{Calls, Client};
pub use cluster::{Cluster, ClusterOptions};
pub use hosted::{Hosted, Stop};
pub use identity::has_taken_part;
pub use joining::wait_for_membership;
pub use log::LogError;
pub use node::{NodeError, run_node, run_node_blocking};
pub use settings::{DiskOptions, Durability, Identity, NodeSettings, resolve};
pub use status::{DrainStatus, NodeStatus, StatusError, query_status, request_drain};
