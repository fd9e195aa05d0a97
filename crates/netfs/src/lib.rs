//! NetFS: a replicated file system (P-SMR V-B), which `ionian mount` mounts.
//!
//! ```text
//! program -> kernel -> /dev/fuse -> front -> client -> TCP -> serve -> client lane -> the log
//!                                                                                     machine
//! ```
//!
//! | module | job |
//! |---|---|
//! | `machine` | the state machine: a tree of files in memory |
//! | `wire` | commands, queries and replies as bytes |
//! | `serve` | what a node runs at its `gateway` address |
//! | `client` | sends requests to any node, again if need be |
//! | `front` | the file system that the kernel asks |
//! | `attr`, `errno` | attributes of files, errors |
//!
//! docs/netfs.md is for users.
#![forbid(unsafe_code)]

mod attr;
mod client;
mod errno;
#[cfg(feature = "mount")]
mod front;
#[warn(clippy::disallowed_methods, clippy::disallowed_types)]
mod machine;
mod serve;
mod wire;

pub use attr::{Attr, Kind, ROOT, Time};
pub use client::{Answer, Client, ConnectError, PATIENCE, Transport, Unanswered};
pub use errno::Errno;
#[cfg(feature = "mount")]
pub use front::{Mount, MountError, Options, Volume};
pub use machine::{Limits, NAME, NetFs, WINDOW};
pub use serve::{ServeLimits, Server};
pub use wire::{
    Change, Command, Content, Cursor, Entry, MAX_CONTENT, Malformed, Query, Rename, Reply, SetAttr,
    SetTime, Space, Stamp, decode_answer,
};
