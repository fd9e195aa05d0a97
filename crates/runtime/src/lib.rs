//! The real driver: it runs the roles of one node with sockets, clocks, files and threads.
//!
//! A node is one event loop on one thread ([`run_node`]), or several. Each run of the loop takes in
//! everything that has arrived, runs the roles until nothing is queued, makes their records
//! durable, calls the [`Application`] at the end of the burst, and then writes once to each
//! connection with output.
//!
//! Reading order: a file imports only from files above it in this table, so no files import each
//! other in a circle.
//!
//! | module | file | job |
//! |---|---|---|
//! | `status` | | the types of a node's status report |
//! | `storage` | `error` | what can be wrong with a data directory |
//! | | `directory` | the data directory: one process at a time |
//! | | `stamp`, `sealed` | the owner in every file; small files with a checksum |
//! | | `identity` | the ids of this node's directory and of its peers' |
//! | | `membership_file`, `skips` | the membership; the commands to skip |
//! | | `machine_failure` | why the state machine failed |
//! | | `recovery`, `vital`, `memory_log` | the log with durability "memory" |
//! | | `snapshots`, `disk_log` | the log with durability "disk" |
//! | | `log` | the log of a node, with either durability |
//! | | `offline` | the data directory of a stopped node: read, or made from a snapshot |
//! | `error` | | why a node stops |
//! | `process` | | what the system says of the process |
//! | `tasks` | | the tasks of a node, which end with it |
//! | `transport` | `frame` | cuts the byte stream into messages |
//! | | `stream`, `channel` | a connection in its handshake; its halves, plain or encrypted |
//! | | `link_shaper`, `outgoing`, `peer`, `peers` | the other nodes; the bytes that wait for each |
//! | | `admission` | whether this node may take part |
//! | | `hello`, `handshake` | the first messages on a connection; who may connect |
//! | | `security`, `caller` | TLS before them; what each caller may ask for |
//! | | `membership_exchange` | the membership on a connection |
//! | | `connection`, `dial`, `welcome` | the connection to a peer, and its two sides |
//! | `admin` | `contact`, `query` | the client side of requests from operators and tools |
//! | | `change` | changes of the membership: planned, checked, requested |
//! | | `control` | the node as requests see it |
//! | | `status`, `membership`, `backup`, `traces` | both sides of each other request |
//! | | `server` | dispatches requests on the server side |
//! | `node` | `settings` | what a node is started with |
//! | | `application` | the interface for users of client lanes |
//! | | `clock`, `event_log`, `guard` | time; events to log; panics of the state machine |
//! | | `notes` | what is noted for traces |
//! | | `loop_roles` | the roles of one loop without the type of their protocol |
//! | | `loops` | further event loops, which run roles on threads of their own |
//! | | `io` | what roles ask of the driver: sends, records, replies |
//! | | `instances` | creates role instances and recovers their records |
//! | | `membership` | the membership that the node knows |
//! | | `busy` | how much time roles spend on messages |
//! | | `roles` | the roles of a node without the type of their protocol |
//! | | `state` | the roles and what they share |
//! | | `event_loop`, `control` | the main loop, which runs the roles; requests to it |
//! | | `feed` | what the node publishes for readers on other threads |
//! | | `audit`, `audit_lines` | what needs a line of the audit log; the lines about requests |
//! | | `listener`, `peer_tasks` | accepts connections; the tasks for each peer |
//! | | `unix_socket`, `certificates` | administration from this machine; new certificates |
//! | | `start`, `startup` | starts a node, runs it, stops it; how far the start is |
//! | | `joining` | waits until the node is a member |
//! | `in_process` | `freshness` | how fresh a read must be |
//! | | `local_reads` | reads by closures of this process |
//! | | `serving` | the calls of other threads, on the event loop |
//! | | `client` | calls from other threads |
//! | | `hosted`, `cluster` | a node on a thread; a whole cluster in one process |
//!
//! A loop owns its roles, counters and timers. The main loop also owns the peers, the log and the
//! application; no loop shares anything with another thread, they pass values.
#![forbid(unsafe_code)]

extern crate alloc;

pub mod status;
pub mod storage;
pub mod traces;

pub mod error;
mod process;
mod tasks;

pub mod transport;

pub mod admin;

pub mod node;

pub mod in_process;

pub use admin::backup::{RemoteSnapshot, query_snapshot};
pub use admin::change::request_change;
pub use admin::contact::Contact;
pub use admin::membership::query_membership;
pub use admin::query::QueryError;
pub use admin::status::{Addressee, query_status, request_drain};
pub use admin::traces::{Record, query_notes};
pub use error::NodeError;
pub use in_process::client::{Calls, Client};
pub use in_process::cluster::{Cluster, ClusterOptions};
pub use in_process::freshness::{Freshness, LocalReadError, Receipt};
pub use in_process::hosted::{Hosted, Stop};
pub use node::application::{Application, Kept, LaneHandle};
pub use node::audit::AuditCheck;
pub use node::feed::{PUBLISHED_EVERY, Published, StatusFeed, StatusReader, status_feed};
pub use node::joining::wait_for_membership;
pub use node::roles::Runnable;
pub use node::settings::NodeSettings;
pub use node::start::{run_node, run_node_blocking};
pub use node::startup::{Startup, StartupWatch};
pub use process::memory_bytes;
pub use status::{DrainStatus, NodeStatus};
pub use storage::disk_log::DiskOptions;
pub use storage::error::LogError;
pub use storage::identity::has_taken_part;
pub use storage::log::Durability;
pub use transport::handshake::Identity;
pub use transport::names::resolve;
pub use transport::security::{NodeTls, ONLY_TLS, TlsMode};
