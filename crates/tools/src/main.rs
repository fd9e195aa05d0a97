//! The program `ionian-tools`: the subcommands of `ionian` that are not linked into the server.
//! `ionian` starts it from its own directory, with the arguments that were typed.
//!
//! | file | job |
//! |---|---|
//! | `arguments` | what can be typed, and the help texts |
//! | `bench` | load, service demand, the papers' figures: crate `ionian-bench` |
//! | `sim` | a protocol under the deterministic simulator |

#![forbid(unsafe_code)]

mod arguments;
mod bench;
mod sim;

use anyhow::Result;
use arguments::{Arguments, Command};
use clap::{CommandFactory, Parser};
use ionian_program::{exit_code, family, output, version};
use std::process::ExitCode;

fn main() -> ExitCode {
    exit_code(run())
}

fn run() -> Result<ExitCode> {
    version::check_starter()?;
    match &Arguments::parse().command {
        Command::Sim(arguments) => sim::run(arguments),
        Command::Bench(arguments) => bench::run(arguments),
        Command::Completions(arguments) => {
            Ok(arguments.print(Arguments::command(), |_| Vec::new()))
        }
    }
}
