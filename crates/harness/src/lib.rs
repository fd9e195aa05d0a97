//! What tools share that load, break and measure real processes of Ionian: a cluster of them on
//! this machine, the ports it needs, what each process holds and uses, on which machine, and how
//! such figures are written.
//!
//! | file | job |
//! |---|---|
//! | `cluster` | the processes of a deployment: start, watch, kill |
//! | `ports` | unused ports |
//! | `process` | memory and processor time of a process, the size of a directory |
//! | `host` | the machine |
//! | `numbers` | medians, and how numbers are written |
#![forbid(unsafe_code)]

pub mod cluster;
pub mod host;
pub mod numbers;
pub mod ports;
pub mod process;

pub use cluster::{Cluster, Member};
