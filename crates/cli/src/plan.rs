//! `ionian plan`: the deployment with the fewest nodes that carries a load.

mod arguments;
mod file;

use crate::config;
use crate::output::{self, say};
use crate::source;
use crate::waiting;
use anyhow::{Context, Result, ensure};
pub(crate) use arguments::Arguments;
use arguments::Asked;
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
    if arguments.example {
        output::print(format_args!("{}", file::EXAMPLE));
        return Ok(ExitCode::SUCCESS);
    }
    let of_file = arguments.file.as_deref().map(file::read).transpose()?;
    let asked = of_file.as_ref().unwrap_or(&arguments.asked);
    let wanted = wanted(asked, arguments);
    wanted
        .check()
        .map_err(|error| BadUsage(error.to_string()))?;
    if let Some(out) = &arguments.out {
        // Before the search, which may take a while.
        config::check_free(out, arguments.force)?;
    }
    let prices = match &asked.demands {
        Some(file) => {
            let text = read(file, MAX_TEXT);
            let prices = text.and_then(|text| Prices::parse(&text));
            prices.with_context(|| format!("--demands {}", file.display()))?
        }
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

fn wanted(asked: &Asked, arguments: &Arguments) -> Wanted {
    let protocol = &asked.protocol;
    Wanted {
        workload: Workload {
            writes: asked.writes,
            reads: asked.reads,
            level: asked.level.read_level(),
            value_bytes: asked.value_bytes as usize,
            pipeline: asked.pipeline as usize,
            connections: asked.connections as usize,
        },
        f: asked.f as usize,
        durability: asked.durability.durability(),
        protocol: (protocol != arguments::ANY).then(|| protocol.clone()),
        headroom: asked.headroom,
        speed: asked.speed,
        addresses: source::preset_options(arguments.listen, Some(arguments.node_port)),
    }
}

/// The text of a file that has at most this many bytes.
fn read(file: &Path, most: usize) -> Result<String> {
    let mut text = String::new();
    // One byte more than is allowed, so that a larger file is refused.
    let limit = most as u64 + 1;
    waiting::for_file(file, || {
        File::open(file)?.take(limit).read_to_string(&mut text)
    })?;
    ensure!(text.len() <= most, "has more than {most} bytes");
    Ok(text)
}
