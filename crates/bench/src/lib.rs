//! How fast it is, by three measures: **live** (`load`: throughput, latency and processor time of
//! servers that run), **service demand** (`role`: the processor time that one saturated instance of
//! a role spends on a command) and **simulated** (`figure`: deployments that do not fit on this
//! machine, from the demands).
//!
//! `demands` measures what `ionian plan` computes with, `payload` makes commands of the key-value
//! store, `report` writes tables.
#![forbid(unsafe_code)]

pub mod demands;
pub mod figure;
pub mod load;
mod model;
mod payload;
mod report;
pub mod role;
