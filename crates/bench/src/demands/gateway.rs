//! What a gateway spends on a command beside its client lane: the processor time of nodes with a
//! gateway, less what their roles spend by the model.

use super::{Demands, measured, pooled};
use crate::load::{self, arguments::Load};
use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use ionian_deployment::{Deployment, PresetOptions};
use ionian_harness::numbers::median;
use ionian_planner::counted::{count, together};
use ionian_planner::demand::{Node, SystemCalls};
use ionian_planner::line::Line;
use ionian_planner::prices::{Commands, Corner, Costs};
use ionian_program::BadUsage;
use ionian_program::output::say_on_stderr;

/// Connections of the load: as many as `ionian bench` has by default.
const CONNECTIONS: usize = 64;

#[derive(Parser)]
struct Typed {
    #[command(flatten)]
    load: Load,
}

/// Measures two pipelines in a preset. The fewer other processes there are, the less do their
/// wake-ups disturb: one server alone is best.
///
/// # Errors
/// If the cluster cannot be measured.
pub(super) fn measure(preset: &str, calls: &SystemCalls, arguments: &Demands) -> Result<Line> {
    let deployment = Deployment::preset(preset, &PresetOptions::default())
        .map_err(|error| BadUsage(format!("--gateways {preset}: {error}")))?;
    let gateways = deployment.nodes.iter();
    let gateways = gateways.filter(|node| node.gateway.is_some());
    let gateways: Vec<&str> = gateways.map(|node| node.name.as_str()).collect();
    let beside = |corner: Corner| {
        let roles = roles(&deployment, &gateways, calls, corner, arguments.rounds)?;
        let all = live(preset, &gateways, corner, arguments.seconds)?;
        say_on_stderr!(
            "pipeline {}: gateways spend {all:.2} us on a command, of which roles {roles:.2}",
            corner.pipeline
        );
        anyhow::Ok((1.0 / corner.pipeline as f64, (all - roles).max(0.0)))
    };
    // Over requests for each command.
    let (short, long) = (beside(Corner::SMALL)?, beside(Corner::PIPELINED)?);
    Ok(Line::through(long, short))
}

/// What the roles of all nodes with a gateway together spend on a write, by the model.
fn roles(
    deployment: &Deployment,
    gateways: &[&str],
    calls: &SystemCalls,
    corner: Corner,
    rounds: u32,
) -> Result<f64> {
    let commands = Commands::Writes;
    let costs = Costs {
        commands,
        corner,
        messages: pooled(&measured(deployment, commands, corner, rounds)?),
    };
    let counted = count(deployment, commands, corner, together(CONNECTIONS))?;
    let priced = counted.priced(&costs, calls);
    let nodes = priced.nodes.iter();
    let nodes = nodes.filter(|node| gateways.contains(&node.name.as_str()));
    let us: f64 = nodes.map(Node::demand_us).sum();
    Ok(us / corner.pipeline as f64)
}

/// Microseconds of processor time that all nodes with a gateway together spend on a write.
fn live(preset: &str, gateways: &[&str], corner: Corner, seconds: u32) -> Result<f64> {
    let typed = Typed::try_parse_from([
        "bench",
        "--preset",
        preset,
        "--clients",
        &CONNECTIONS.to_string(),
        "--pipeline",
        &corner.pipeline.to_string(),
        "--value-bytes",
        &corner.value_bytes.to_string(),
        "--seconds",
        &seconds.to_string(),
    ])?;
    let outcome = load::measure(&typed.load, |_| bail!("no node is to run here"))?;
    let side = outcome.sides.first().context("a cluster was measured")?;
    let of_round = |round: &load::Round| {
        let all = side.processes.iter().zip(&round.processor_us);
        let of_gateways = all.filter(|(name, _)| gateways.contains(&name.as_str()));
        of_gateways.map(|(_, us)| us).sum::<f64>()
    };
    ensure!(
        side.rounds.iter().all(|round| round.answered > 0),
        "{preset}: in some round nothing was answered"
    );
    let rounds: Vec<f64> = side.rounds.iter().map(of_round).collect();
    Ok(median(&rounds))
}
