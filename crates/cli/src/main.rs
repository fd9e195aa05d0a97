//! The command `ionian`: a replicated key-value store behind any Redis client, and the tools around it.
//!
//! | file | job |
//! |---|---|
//! | `arguments` | what can be typed, and the help texts |
//! | `node` | one node in the foreground; `gateway_app` puts its gateway and its client lane together |
//! | `up` | every node of a deployment as a process of its own, supervised |
//! | `config`, `status`, `exec`, `sim` | one command each |
//! | `family` | from a protocol's name to its type |
//! | `source` | where a command finds its deployment |
//! | `places` | what lies where in a data directory |

#![forbid(unsafe_code)]

extern crate alloc;

mod arguments;
mod config;
mod exec;
mod family;
mod gateway_app;
mod node;
mod places;
mod resp;
mod sim;
mod source;
mod status;
mod up;

use arguments::{Arguments, Command};
use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Up(arguments) => up::run(&arguments),
        Command::Node(arguments) => node::run(&arguments),
        Command::Config(arguments) => config::run(&arguments),
        Command::Status(arguments) => status::run(&arguments),
        Command::Exec(arguments) => exec::run(&arguments),
        Command::Sim(arguments) => sim::run(&arguments),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("ionian: {error:#}");
            ExitCode::FAILURE
        }
    }
}
