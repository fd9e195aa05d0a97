//! The Redis protocol front: any Redis client talks to the replicated key-value store through it.
//!
//! [`Gateway`] is what a node starts: sockets on the node's event loop, requests out, replies in.
//! [`Connection`] is all there is to one client without its socket, which is how it is tested.
//!
//! | file | job |
//! |---|---|
//! | `serve`, `socket`, `slots` | sockets, and which reply belongs to whom |
//! | `refused` | clients that are not served, or no longer |
//! | `connection`, `output` | the order of commands and replies; what goes into one compound |
//! | `parser`, `inline` | from bytes to words |
//! | `transaction` | MULTI, EXEC, WATCH |
//! | `commands` | what the gateway answers itself |
//! | `reply`, `resp3`, `info` | from answers to bytes |
//! | `tracking` | what a client that caches receives |
//! | `host`, `limits`, `peers` | what all connections share |
//! | `waiting`, `awaited` | clients that wait until a stream grows, their streams |
//! | `rights`, `acl_log` | who may do what, and what was refused |
//! | `audit` | lines of the audit log, and what needs one |
//! | `login` | clients that have to log in and have not; what certificates say |
//! | `quotas`, `pauses` | how much of the gateway each user may take; what waits for that |
//! | `following` | keeps the copy of the users up to date |
//! | `demand` | how much work and growth is demanded at once |
//! | `room` | how many replies are on their way at once |
//! | `measured` | what metrics say of clients and commands |
//! | `slowlog`, `traces` | commands that took long; commands that are traced |
//! | `usage`, `process` | what INFO says of commands and of the process |

#![forbid(unsafe_code)]

mod acl_log;
mod audit;
mod awaited;
mod commands;
mod connection;
mod demand;
mod drain;
mod following;
mod host;
mod info;
mod inline;
mod limits;
mod login;
mod measured;
mod memory;
mod output;
mod parser;
mod pauses;
mod peers;
mod process;
mod quotas;
mod refused;
mod reply;
mod resp3;
mod rights;
mod room;
mod serve;
mod slots;
mod slowlog;
mod socket;
mod timeouts;
mod traces;
mod tracking;
mod transaction;
mod usage;
mod waiting;

pub use connection::Connection;
pub use host::Host;
pub use info::InfoWriter;
pub use limits::Limits;
pub use measured::{DENIALS, Family, Measured, Outcome};
pub use parser::{Parser, ProtocolError};
pub use peers::Peer;
pub use serve::Gateway;
pub use socket::ClientTls;
pub use traces::Kept;
