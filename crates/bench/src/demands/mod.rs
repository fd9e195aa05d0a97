//! `ionian bench demands`: what messages, system calls and gateways cost on this machine, as a file
//! for `ionian plan --demands`.
//!
//! Messages are measured in whole deployments inside this process (`model`), gateways live
//! (`gateway`).

mod gateway;

use crate::model::Workload;
use crate::model::kernel;
use crate::model::measure::{Clock, measure};
use crate::report;
use anyhow::Result;
use clap::Args;
use ionian_deployment::{Deployment, PresetOptions};
use ionian_harness::host::Machine;
use ionian_planner::demand::{Measured, SystemCalls};
use ionian_planner::line::Line;
use ionian_planner::prices::{Commands, Corner, Costs, Price, Prices, Provenance};
use ionian_program::BadUsage;
use ionian_program::output::say_on_stderr;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

/// Keys that are written and read.
const KEYS: usize = 1000;

/// Measure what messages, system calls and gateways cost, as a file for `ionian plan`
///
/// Runs each deployment in one process, as `ionian bench figure` does, and measures the processor
/// time of every message: of writes and of reads of each level, small and large values, and long
/// pipelines. Then it starts a cluster and measures what its gateways spend beside that. It takes a
/// minute or two for each preset.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  \
    ionian bench demands --preset colocated --preset batched --gateways colocated --out demands.json\n  \
    ionian plan --writes 50000 --demands demands.json")]
pub struct Demands {
    /// A deployment whose messages are measured; can be repeated
    #[arg(long = "preset", value_name = "NAME", required = true)]
    presets: Vec<String>,
    /// The deployment whose gateways are measured: the fewer processes it has, the better
    #[arg(long, value_name = "NAME")]
    gateways: String,
    /// Where the result is written; with `-` to standard output
    #[arg(long, value_name = "FILE", default_value = "-")]
    out: PathBuf,
    /// How often each is measured; the median counts
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Seconds for which each load on gateways is measured
    #[arg(long, value_name = "SECONDS", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
}

/// Measures, and writes the file.
///
/// # Errors
/// If there is no such preset, or something cannot be measured.
pub fn run(arguments: &Demands) -> Result<ExitCode> {
    let mut prices = Prices {
        measured: provenance(arguments),
        system_calls: kernel::measure()?,
        gateway: Line::default(),
        presets: BTreeMap::new(),
    };
    for name in &arguments.presets {
        let deployment = Deployment::preset(name, &PresetOptions::default())
            .map_err(|error| BadUsage(format!("--preset {name}: {error}")))?;
        let mut costs = Vec::new();
        for commands in Commands::ALL {
            for corner in Corner::ALL {
                let measured = measured(&deployment, commands, corner, arguments.rounds)?;
                costs.push(Costs {
                    commands,
                    corner,
                    messages: pooled(&measured),
                });
            }
        }
        prices.presets.insert(name.clone(), costs);
        say_on_stderr!("measured the messages of {name}");
    }
    prices.gateway = gateway::measure(&arguments.gateways, &prices.system_calls, arguments)?;
    report::write(
        &arguments.out,
        &(serde_json::to_string_pretty(&prices)? + "\n"),
    )?;
    Ok(ExitCode::SUCCESS)
}

fn provenance(arguments: &Demands) -> Provenance {
    let presets = arguments.presets.iter();
    let presets: String = presets.map(|name| format!(" --preset {name}")).collect();
    Provenance {
        date: report::today(),
        machine: Machine::look().to_string(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: format!(
            "ionian bench demands{presets} --gateways {} --rounds {} --seconds {}",
            arguments.gateways, arguments.rounds, arguments.seconds
        ),
    }
}

/// What each node spends in this process; the kernel is priced apart.
fn measured(
    deployment: &Deployment,
    commands: Commands,
    corner: Corner,
    rounds: u32,
) -> Result<Measured> {
    let (read_fraction, read_level) = commands.share_of_reads();
    let options = deployment.options.options();
    let mut workload = Workload {
        read_fraction,
        read_level,
        value_bytes: corner.value_bytes,
        pipeline: corner.pipeline,
        ..Workload::writes(options.batch_commands)
    };
    // As much as a single client lane takes.
    let burst = workload.load(KEYS, false).burst;
    workload.burst = Some(burst.min(options.lane.in_flight));
    let clock = Clock::Processor {
        kernel: SystemCalls::default(),
        rounds: rounds as usize,
    };
    measure(deployment, &workload, (KEYS, false), clock)
}

/// What a message costs on average over all nodes that handle it.
fn pooled(measured: &Measured) -> BTreeMap<String, Price> {
    let mut sums: BTreeMap<&str, (f64, Price)> = BTreeMap::new();
    for ((_, name), message) in measured.nodes.iter().flat_map(|node| &node.messages) {
        let cost = message.cost.times(message.per_command);
        let by = message.by;
        let (count, sum) = sums.entry(*name).or_insert((
            0.0,
            Price {
                by,
                cost: Line::default(),
            },
        ));
        // Nodes that differ in what the cost depends on: what the first says is what the file says.
        let cost = match sum.by == by {
            true => cost,
            false => Line::fixed(message.demand_us()),
        };
        sum.cost.fixed_us += cost.fixed_us;
        sum.cost.unit_us += cost.unit_us;
        *count += message.per_command;
    }
    let price = |(name, (count, sum)): (&str, (f64, Price))| {
        let cost = sum.cost.times(1.0 / count);
        (name.to_owned(), Price { cost, ..sum })
    };
    sums.into_iter().map(price).collect()
}
