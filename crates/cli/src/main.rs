//! The command `ionian`: a replicated key-value store behind any Redis client, and the tools around
//! it.
//!
//! | file | job |
//! |---|---|
//! | `arguments` | what can be typed, and the help texts |
//! | `node` | one node in the foreground; `gateway_app` puts its gateway and its client lane together |
//! | `up` | every node of a deployment as a process of its own, supervised |
//! | `config`, `status`, `drain`, `member`, `options`, `exec`, `sim` | one command each |
//! | `bench` | load, service demand, the papers' figures: crate `ionian-bench` |
//! | `snapshot` | backups: save, inspect, restore, salvage |
//! | `log` | the logs of stopped nodes: show, skip |
//! | `family` | from a protocol's name to its type |
//! | `source` | where a command finds its deployment |
//! | `places` | what lies where in a data directory |
//! | `version` | what this program is |
//! | `output` | printing that survives a closed pipe |

#![forbid(unsafe_code)]

extern crate alloc;

mod arguments;
mod bench;
mod config;
mod drain;
mod exec;
mod family;
mod gateway_app;
mod log;
mod member;
mod node;
mod options;
mod output;
mod places;
mod resp;
mod sim;
mod snapshot;
mod source;
mod status;
mod up;
mod version;
mod waiting;

use arguments::{Arguments, BadUsage, Command};
use clap::Parser;
use ionian_deployment::DeploymentError;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Whether what was typed is wrong, and not a file or what came of the work: a deployment that is
/// wrong and in no file comes from flags.
fn is_bad_usage(error: &anyhow::Error) -> bool {
    let typed = error
        .chain()
        .next()
        .and_then(|cause| cause.downcast_ref::<DeploymentError>());
    typed.is_some_and(|error| error.file.is_none())
        || error.is::<BadUsage>()
        || error.is::<ionian_bench::BadUsage>()
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Up(arguments) => up::run(&arguments),
        Command::Node(arguments) => node::run(&arguments),
        Command::Config(arguments) => config::run(&arguments),
        Command::Status(arguments) => status::run(&arguments),
        Command::Drain(arguments) => drain::run(&arguments),
        Command::Member(arguments) => member::run(&arguments),
        Command::Options(arguments) => options::run(&arguments),
        Command::Exec(arguments) => exec::run(&arguments),
        Command::Sim(arguments) => sim::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Log(arguments) => log::run(&arguments),
        Command::Snapshot(arguments) => snapshot::run(&arguments),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("ionian: {}", output::explain(&error));
            if is_bad_usage(&error) {
                ExitCode::from(2)
            } else {
                ExitCode::FAILURE
            }
        }
    }
}
