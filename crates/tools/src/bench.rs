//! `ionian bench`: load and measurements.

use crate::family;
use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use ionian_bench::load::ThisNode;
use ionian_bench::{demands, figure, load, role};
use ionian_runtime::{NodeSettings, Runnable, run_node_blocking};
use std::process::ExitCode;

/// Measure servers under load, the service demand of a role, or the papers' figures
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, after_help = load::EXAMPLES)]
pub(crate) struct Bench {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    load: load::arguments::Load,
}

#[derive(Debug, Subcommand)]
enum Command {
    Role(role::arguments::Role),
    Demands(demands::Demands),
    Figure(figure::arguments::Figure),
}

pub(crate) fn run(arguments: &Bench) -> Result<ExitCode> {
    match &arguments.command {
        None => load::run(&arguments.load, run_node),
        Some(Command::Role(arguments)) => role::run(arguments),
        Some(Command::Demands(arguments)) => demands::run(arguments),
        Some(Command::Figure(arguments)) => figure::run(arguments),
    }
}

/// Runs a node inside the load generator.
fn run_node(node: ThisNode) -> Result<()> {
    let ThisNode {
        configuration,
        name,
        data,
        application,
        stop,
    } = node;
    let name_of_protocol = &configuration.deployment.protocol;
    let protocol = Runnable::named(name_of_protocol);
    let protocol = protocol.with_context(|| family::unknown(name_of_protocol))?;
    let machine = family::machine(&configuration.deployment, &[])?;
    let settings = NodeSettings::new(protocol.protocol(), configuration, &name, Some(&data))?;
    let stopped = async { drop(stop.await) };
    Ok(run_node_blocking(
        protocol,
        settings,
        machine,
        application,
        stopped,
    )?)
}
