//! `ionian bench`: what can be measured.

use anyhow::Result;
use clap::{Args, Subcommand};
use ionian_bench::{figure, load, role};
use std::process::ExitCode;

/// Measure servers under load, the service demand of a role, or the papers' figures
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Bench {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    load: load::arguments::Load,
}

#[derive(Debug, Subcommand)]
enum Command {
    Role(role::arguments::Role),
    Figure(figure::arguments::Figure),
}

pub(crate) fn run(arguments: &Bench) -> Result<ExitCode> {
    match &arguments.command {
        None => load::run(&arguments.load),
        Some(Command::Role(arguments)) => role::run(arguments),
        Some(Command::Figure(arguments)) => figure::run(arguments),
    }
}
