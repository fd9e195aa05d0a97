//! What a command costs each role: a whole deployment of real roles in one process, where every
//! node receives bytes and makes bytes, as in the runtime, but no system call is made.
//!
//! `cargo xtask costs` counts instructions with it, `tests/allocations.rs` allocations. Both are
//! the same on every run, which no clock is: so they can be a gate. The tools measure time with it
//! (`ionian bench figure`); what a real process costs, system calls included, is another question
//! (`ionian bench role`).
//!
//! | file | job |
//! |---|---|
//! | `case` | which deployments are counted for the gate, and with which commands |
//! | `load` | which commands arrive |
//! | `cluster` | all nodes of a deployment, and the bursts of commands that pass through them |
//! | `member` | one node: its roles, the bytes that arrive, the bytes that leave |
//! | `count` | how nodes are counted |
//!
//! Where the instructions of the leader of `compartmentalized` go (`role-cost` prints which
//! function stands for which role):
//!
//! ```text
//! cargo build --release -p ionian-costs
//! valgrind --tool=callgrind --callgrind-out-file=costs.callgrind \
//!     --toggle-collect=ionian_costs::count::group_1 \
//!     target/release/role-cost "compartmentalized, write" 20
//! callgrind_annotate costs.callgrind
//! ```
#![forbid(unsafe_code)]

pub mod case;
mod cluster;
pub mod count;
mod load;
mod member;

pub use cluster::{Run, Traffic, begin, begin_with, group_name};
pub use load::{Commands, KeyValue, Load, Service};
pub use member::Hire;
