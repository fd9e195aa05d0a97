//! The binary as its users run it: real processes on loopback ports.

mod addresses;
mod audit;
mod blocked;
mod cluster;
mod commands;
mod common;
mod dashboard;
mod disks;
mod drain;
mod every_preset;
mod failures;
mod killed;
mod kubernetes;
mod library;
mod log;
mod logs;
mod manual;
mod member;
mod metrics;
#[cfg(feature = "mount")]
mod mount;
mod names;
mod options;
mod plan;
mod readmitted;
mod resp;
mod secrets;
mod secured;
mod service;
mod snapshot;
mod status;
mod streams;
mod tls;
mod tools;
#[cfg(feature = "toy")]
mod toy;
mod trace;
mod up;
mod upgrade;
mod users;
