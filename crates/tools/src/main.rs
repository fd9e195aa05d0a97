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
use clap::Parser;
use ionian_program::{exit_code, family, output, version};
use std::process::ExitCode;
use std::sync::LazyLock;

/// The release of this program, with the commit where it is known.
static RELEASE: LazyLock<String> = LazyLock::new(|| version::release(option_env!("IONIAN_COMMIT")));

fn main() -> ExitCode {
    exit_code(run())
}

fn run() -> Result<ExitCode> {
    version::check_starter(&RELEASE)?;
    match &Arguments::parse().command {
        Command::Sim(arguments) => sim::run(arguments),
        Command::Bench(arguments) => bench::run(arguments),
    }
}
