//! The torture harness: real processes of the release binary under load and faults, and a check of
//! everything that clients were told. See docs/torture.md.
//!
//! | file | job |
//! |---|---|
//! | `arguments` | what can be typed |
//! | `run` | one run from beginning to end |
//! | `schedule`, `faults` | which faults come when; how each is done |
//! | `cluster` | the processes: which a fault has in hand, how they are limited and replaced |
//! | `client`, `keys` | who asks, how, and on what; what was asked and told |
//! | `odd` | clients that are a burden: large values, replies not read, halves of commands |
//! | `roll` | clients while all nodes are stopped in order: no reply may be lost |
//! | `exchange` | programs of two releases, exchanged again and again |
//! | `loss` | logs that lose a part |
//! | `gateway` | where clients connect to, and with which certificate |
//! | `certificates`, `rotation` | short-lived certificates; their replacement |
//! | `network` | forwarders between the nodes, which can hold back one direction |
//! | `model`, `ledger`, `judge` | what answers are right |
//! | `statuses` | what nodes report |
//! | `settle` | what must be found when the faults are over |
//! | `report` | what is counted and shown |
//!
//! Processes, ports, figures of processes and numbers come from the crate `harness`.
//!
//! On the same processes and connections, without faults, stand the measurements: see
//! docs/measurements.md.
//!
//! | file | job |
//! |---|---|
//! | `measure/arguments` | what can be typed |
//! | `measure/soak`, `curve` | whether memory and disk stay flat under load |
//! | `measure/restart`, `tail` | how soon a node that was killed is back; what it finds |
//! | `measure/group_commit` | how many commands share a sync |
//! | `measure/burden`, `crowd` | whether small commands are answered among burdensome clients; those |
//! | `measure/bench`, `load` | the cluster, who asks |
//! | `measure/figures` | percentiles, and the machine |

#![forbid(unsafe_code)]

mod arguments;
mod certificates;
mod client;
mod cluster;
mod exchange;
mod faults;
mod gateway;
mod judge;
mod keys;
mod ledger;
mod lives;
mod loss;
mod measure;
mod model;
mod network;
mod odd;
mod report;
mod roll;
mod rotation;
mod run;
mod schedule;
mod settle;
mod statuses;

use arguments::Arguments;
use clap::Parser;
use measure::{Measurement, Measurements};
use std::process::ExitCode;

/// Faults under load, and the final check.
pub fn torture() -> ExitCode {
    exit("torture", run::run(&Arguments::parse()))
}

/// A measurement.
pub fn measure() -> ExitCode {
    let Measurements { measurement } = Measurements::from_command_line();
    let (name, result) = match &measurement {
        Measurement::Soak(arguments) => ("soak", measure::soak(arguments)),
        Measurement::RestartTime(arguments) => ("restart-time", measure::restart_time(arguments)),
        Measurement::GroupCommit(arguments) => ("group-commit", measure::group_commit(arguments)),
        Measurement::Burden(arguments) => ("burden", measure::burden(arguments)),
        Measurement::Burn => ("burn", measure::burn()),
    };
    exit(name, result)
}

fn exit(name: &str, result: anyhow::Result<bool>) -> ExitCode {
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{name}: {error:#}");
            if error.is::<ionian_deployment::DeploymentError>() {
                ExitCode::from(2)
            } else {
                ExitCode::FAILURE
            }
        }
    }
}
