//! The torture harness: real processes of the release binary under load and faults, and a check of everything
//! that clients were told. See docs/torture.md.
//!
//! | file | job |
//! |---|---|
//! | `arguments` | what can be typed |
//! | `run` | one run from beginning to end |
//! | `schedule`, `faults` | which faults come when; how each is done |
//! | `cluster`, `ports` | the processes, and where they listen |
//! | `client`, `resp`, `keys` | who asks, how, and on what; what was asked and told |
//! | `model`, `ledger`, `judge` | what answers are right |
//! | `settle` | what must be found when the faults are over |
//! | `report` | what is counted and shown |

#![forbid(unsafe_code)]

mod arguments;
mod client;
mod cluster;
mod faults;
mod judge;
mod keys;
mod ledger;
mod model;
mod ports;
mod report;
mod resp;
mod run;
mod schedule;
mod settle;

use arguments::Arguments;
use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    match run::run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("torture: {error:#}");
            if error.is::<ionian_deployment::DeploymentError>() { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}
