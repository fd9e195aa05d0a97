//! `ionian plan`: the deployment with the fewest nodes that carries a load.

mod arguments;

use crate::config;
use crate::output::{self, say};
use crate::source;
use anyhow::{Context, Result};
pub(crate) use arguments::Arguments;
use ionian_planner::model::Counts;
use ionian_planner::plan::{Wanted, plan};
use ionian_planner::prices::{MAX_TEXT, Prices};
use ionian_planner::workload::Workload;
use ionian_program::BadUsage;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let wanted = wanted(arguments);
    wanted
        .check()
        .map_err(|error| BadUsage(error.to_string()))?;
    if let Some(out) = &arguments.out {
        // Before the search, which may take a while.
        config::check_free(out, arguments.force)?;
    }
    let prices = match &arguments.demands {
        Some(file) => read(file).with_context(|| format!("--demands {}", file.display()))?,
        None => Prices::shipped()?,
    };
    let plan = plan(&wanted, &prices, &Counts::default())?;
    if let Some(out) = &arguments.out {
        config::write(out, &plan.deployment.to_toml(), arguments.force)?;
    }
    match arguments.json {
        true => say!("{}", serde_json::to_string_pretty(&plan)?),
        false => output::print(format_args!("{}", plan.page())),
    }
    Ok(ExitCode::SUCCESS)
}

fn wanted(arguments: &Arguments) -> Wanted {
    let protocol = &arguments.protocol;
    Wanted {
        workload: Workload {
            writes: arguments.writes,
            reads: arguments.reads,
            level: arguments.level.read_level(),
            value_bytes: arguments.value_bytes as usize,
            pipeline: arguments.pipeline as usize,
            connections: arguments.connections as usize,
        },
        f: arguments.f as usize,
        durability: arguments.durability.durability(),
        protocol: (protocol != arguments::ANY).then(|| protocol.clone()),
        headroom: arguments.headroom,
        speed: arguments.speed,
        addresses: source::preset_options(arguments.listen, Some(arguments.node_port)),
    }
}

fn read(file: &Path) -> Result<Prices> {
    let mut text = String::new();
    // One byte more than is allowed, so that a larger file is refused.
    let limit = MAX_TEXT as u64 + 1;
    File::open(file)?.take(limit).read_to_string(&mut text)?;
    Prices::parse(&text)
}
