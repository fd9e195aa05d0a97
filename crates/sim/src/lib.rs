//! The deterministic simulator: the same roles that run in production, on an event heap with a
//! seeded network, seeded disks and seeded clients.
//!
//! [`run_seed`] runs one seed of a [`Scenario`] with a [`Simulated`] protocol: while there are
//! faults, clients work on few keys; then the faults stop, and the cluster must finish everything
//! and come to rest: each lane is answered, each replica reaches the end of the log, each node
//! takes part again, and leaders lead what is theirs. What is checked: the roles' invariants and
//! every [`Oracle`] after each event; that all copies of the machine execute the same, each command
//! once; that answers are linearizable, or what the weaker read levels promise; that refused
//! commands have no effect and acknowledged ones are never lost. The same seed gives the same
//! trace.
//!
//! A [play] is the opposite of a seed: a text that says step by step what happens.
//!
//! [performance] is another driver: no faults, but each node has a processor of its own that takes
//! its time.
#![forbid(unsafe_code)]
#![warn(clippy::disallowed_methods, clippy::disallowed_types)]

extern crate alloc;

mod clock;
mod configurations;
mod disk;
mod event;
mod fault;
mod faults;
mod giving_up;
mod healing;
mod history;
mod journal;
pub mod layouts;
mod leaving;
mod levels;
pub mod linearizability;
mod loops;
mod losing;
pub mod machine;
mod meddling;
mod membership;
pub mod model;
mod network;
mod node;
mod oracle;
pub mod performance;
pub mod play;
mod report;
mod rest;
mod roles;
mod run;
mod scenario;
mod swarm;
mod trace;
mod variations;
mod workers;
mod workload;
mod world;

pub use event::Micros;
pub use journal::Order;
pub use oracle::{Oracle, View};
pub use report::{Failure, FailureKind, Report};
pub use roles::{AnyInstance, AnyMessage, Simulated};
pub use run::{Outcome, Summary, Watch, run_seed, run_seed_watched, run_seed_with, run_seeds};
pub use scenario::{Canary, Durability, Faults, Scenario};
pub use trace::Sink;
pub use variations::variations;
