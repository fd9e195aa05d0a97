//! What a command costs each role: one role alone on a node, with the messages of all roles around
//! it forged.
//!
//! `cargo xtask costs` counts instructions with it, `tests/allocations.rs` allocations. Both are
//! the same on every run, which no clock is: so they can be a gate. What a command costs on a real
//! machine, system calls and all, is another question.
//!
//! | file | job |
//! |---|---|
//! | `stage` | a node with one role, and what lies outside it |
//! | `forge` | commands and answers of others |
//! | `surroundings` | what others say in the other protocols |
//! | `cases` | which roles are driven, in which deployment |
//! | the others | one a role: says to it what it hears in the steady state |
//!
//! Where the instructions go:
//!
//! ```text
//! cargo build --release -p ionian-costs
//! valgrind --tool=callgrind --callgrind-out-file=leader.callgrind \
//!     --toggle-collect=ionian_costs::stage::Stage::pass target/release/role-cost leader 1000
//! callgrind_annotate leader.callgrind
//! ```
#![forbid(unsafe_code)]

mod acceptor;
mod batchers;
pub mod cases;
mod client;
mod forge;
mod leader;
mod proxy_leader;
mod replica;
pub mod stage;
mod surroundings;
mod unbatcher;

use stage::Stage;

/// Says to a role what it hears in the steady state.
pub trait Drive {
    /// Says what belongs to one burst. The stage is then to [pass](Stage::pass) it.
    fn burst(&mut self, stage: &mut Stage) -> Burst;
}

/// What a burst holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Burst {
    /// The commands that pass the role.
    pub commands: usize,
    /// How many messages and replies must leave it for them, each counted once for every
    /// destination: a role that ignored what it was told would be cheap.
    pub due: usize,
}
