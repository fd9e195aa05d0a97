//! What the programs `ionian` (crate `cli`) and `ionian-tools` (crate `tools`) share, so that a
//! user sees one command: its allocator, its texts on standard output and standard error, its exit
//! codes, its version, and the way from one program to the other.
//!
//! | file | job |
//! |---|---|
//! | `beside` | finds a program of ours in the directory of the one that runs |
//! | `completions` | what shells complete |
//! | `tools` | the subcommands of `ionian` that `ionian-tools` carries out |
//! | `line_queue` | lines that a thread writes |
//! | `output` | standard output that may be closed; an error in one line |
//! | `outcome` | the exit code of a command, and which errors are bad usage |
//! | `family` | from the names in a deployment to a protocol's type and to a state machine |
//! | `credentials` | a user of the cluster and its password, as flags |
//! | `level` | how fresh reads are, as a flag |
//! | `version` | what `--version` prints |
#![forbid(unsafe_code)]
#![deny(clippy::print_stderr)]

pub mod beside;
pub mod completions;
pub mod family;
pub mod line_queue;
pub mod output;
pub mod tools;
pub mod version;

mod credentials;
mod level;
mod outcome;

pub use credentials::Credentials;
pub use level::Level;
pub use outcome::{BadUsage, INTERRUPTED, code_of, exit_code};

/// Of every program that links this crate.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
