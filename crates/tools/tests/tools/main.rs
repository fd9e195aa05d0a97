//! The binary `ionian-tools` as `ionian` starts it: real processes on loopback ports.

mod bench;
#[path = "../../../cli/tests/ionian/common.rs"]
mod common;
mod pair;
mod sim;
#[cfg(feature = "toy")]
mod toy;

use std::process::{Command, Output};

fn tools() -> Command {
    Command::new(env!("CARGO_BIN_EXE_ionian-tools"))
}

fn run(arguments: &[&str]) -> Output {
    tools().args(arguments).output().unwrap()
}
