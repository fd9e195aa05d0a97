//! What a command costs each role of each preset: a whole deployment of real roles in one process,
//! where every node receives bytes and makes bytes, as in the runtime, but no system call is made.
//!
//! `cargo xtask costs` counts instructions with it, `tests/allocations.rs` allocations. Both are
//! the same on every run, which no clock is: so they can be a gate. What a command costs on a real
//! machine, system calls included, is another question (`ionian bench role`).
//!
//! | file | job |
//! |---|---|
//! | `case` | which deployments are measured, and with which commands |
//! | `load` | these commands |
//! | `cluster` | all nodes of a deployment, and the bursts of commands that pass through them |
//! | `member` | one node: its roles, the bytes that arrive, the bytes that leave |
//! | `count` | one function for each group of nodes, so that a profiler can tell them apart |
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

pub use cluster::Run;
pub use load::Load;
