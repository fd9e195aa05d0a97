//! The command `ionian`: a replicated key-value store for any Redis client, and the commands that
//! operate it. The tools (`ionian bench`, `ionian sim`) are another program, which this one starts:
//! see the crates `program` and `tools`.
//!
//! | file | job |
//! |---|---|
//! | `arguments` | command-line arguments and help texts |
//! | `node` | one node in the foreground; `gateway_app` connects its gateway to its client lane |
//! | `up` | every node of a deployment as a supervised process |
//! | `config`, `status`, `drain`, `member`, `options`, `exec` | one command each |
//! | `snapshot` | backups: save, inspect, restore, salvage |
//! | `log` | the logs of stopped nodes: show, skip |
//! | `family` | access to a protocol by its name |
//! | `source` | how a command finds the deployment of its cluster |
//! | `places` | the paths in a data directory |
//! | `version` | the text of `--version` |

#![forbid(unsafe_code)]

extern crate alloc;

mod arguments;
mod config;
mod drain;
mod exec;
mod family;
mod gateway_app;
mod log;
mod member;
mod node;
mod options;
mod places;
mod snapshot;
mod source;
mod status;
mod up;
mod version;
mod waiting;

use anyhow::Result;
use arguments::{Arguments, Command};
use clap::Parser;
use ionian_program::{exit_code, output, tools};
use std::process::ExitCode;

fn main() -> ExitCode {
    exit_code(match tools::are_asked_for(std::env::args_os()) {
        // Their flags are not parsed here, but by the program that executes them.
        true => start_tools(),
        false => run(&Arguments::parse().command),
    })
}

fn start_tools() -> Result<ExitCode> {
    match tools::start()? {}
}

fn run(command: &Command) -> Result<ExitCode> {
    match command {
        Command::Up(arguments) => up::run(arguments),
        Command::Node(arguments) => node::run(arguments),
        Command::Config(arguments) => config::run(arguments),
        Command::Status(arguments) => status::run(arguments),
        Command::Drain(arguments) => drain::run(arguments),
        Command::Member(arguments) => member::run(arguments),
        Command::Options(arguments) => options::run(arguments),
        Command::Exec(arguments) => exec::run(arguments),
        Command::Sim | Command::Bench => start_tools(),
        Command::Log(arguments) => log::run(arguments),
        Command::Snapshot(arguments) => snapshot::run(arguments),
    }
}
