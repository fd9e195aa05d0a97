//! The service demand of each role: what one saturated process that has nothing else to do spends on a command.
//!
//! `stage` starts the process and plays the rest of its deployment to it (`emulated`), with `multipaxos` and
//! `unreplicated` saying who plays what; `flow` keeps so much under way that the process is never idle.

pub mod arguments;

mod commands;
mod emulated;
mod flow;
mod multipaxos;
mod stage;
mod unreplicated;
mod work;

use anyhow::{Result, ensure};
use arguments::Role;
use ionian_deployment::{Deployment, PresetOptions};
use stage::{Measured, Scene};
use std::process::ExitCode;
use std::time::Duration;
use work::Work;

/// What is measured for `all`: preset, role, value sizes.
const ALL: &[(&str, &[&str])] = &[
    ("compartmentalized", &["leader", "proxy_leader", "acceptor", "replica"]),
    ("batched", &["batcher", "leader", "proxy_leader", "acceptor", "replica", "unbatcher", "read_batcher"]),
    ("unreplicated", &["server"]),
    ("unreplicated-batched", &["server"]),
];

/// Runs it.
///
/// # Errors
/// When a process cannot be started, or nothing flows.
pub fn run(arguments: &Role) -> Result<ExitCode> {
    let chosen: Vec<(&str, &str)> = match arguments.role.as_str() {
        "all" => ALL.iter().flat_map(|(preset, roles)| roles.iter().map(move |role| (*preset, *role))).collect(),
        role => vec![(arguments.preset.as_deref().unwrap_or(home(role)), role)],
    };
    println!(
        "{:<22} {:<13} {:<8} {:>5} {:>10} {:>8} {:>6} {:>7} {:>7} {:>8} {:>8} {:>7}",
        "deployment",
        "role",
        "work",
        "batch",
        "commands/s",
        "us/cmd",
        "busy",
        "in/cmd",
        "out/cmd",
        "B in",
        "B out",
        "cmds/wr"
    );
    for (preset, role) in chosen {
        ensure!(
            !Work::of(role).is_empty(),
            "role {role:?}: must be leader, proxy_leader, acceptor, replica, batcher, read_batcher, unbatcher or server"
        );
        for work in Work::of(role) {
            let mut rounds = Vec::new();
            let scene = scene(arguments, preset, role, *work)?;
            for _ in 0..arguments.rounds {
                rounds.push(scene.clone().run()?);
            }
            rounds.sort_by(|a, b| demand(a).total_cmp(&demand(b)));
            let m = rounds[rounds.len() / 2];
            let per = |x: u64| x as f64 / m.commands as f64;
            println!(
                "{preset:<22} {role:<13} {:<8} {:>5} {:>10.0} {:>8.3} {:>5.0}% {:>7.2} {:>7.2} {:>8.1} {:>8.1} {:>7.1}",
                work.name(),
                scene.batch,
                m.commands as f64 / m.seconds,
                demand(&m),
                m.cpu_us as f64 / m.seconds / 1e4,
                per(m.messages_in),
                per(m.messages_out),
                per(m.bytes_in),
                per(m.bytes_out),
                m.commands as f64 / m.writes.max(1) as f64
            );
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn demand(measured: &Measured) -> f64 {
    measured.cpu_us as f64 / measured.commands as f64
}

/// The preset that a role is measured in when nobody says.
fn home(role: &str) -> &'static str {
    match role {
        "batcher" | "unbatcher" | "read_batcher" => "batched",
        "server" => "unreplicated",
        _ => "compartmentalized",
    }
}

fn scene(arguments: &Role, preset: &str, role: &str, work: Work) -> Result<Scene> {
    let deployment = Deployment::preset(preset, &PresetOptions::default())?;
    let batched = deployment.nodes.iter().flat_map(|node| &node.roles).any(|placed| placed.role == "batcher");
    let batch = if batched { arguments.batch } else { 1 };
    let mut overrides = vec!["durability=memory".to_owned(), format!("options.batch_commands={}", arguments.batch)];
    overrides.extend_from_slice(&arguments.overrides);
    Ok(Scene {
        deployment: deployment.with_overrides(&overrides)?,
        role: role.to_owned(),
        work,
        batch,
        value_bytes: arguments.value_bytes as usize,
        keys: arguments.keys,
        in_flight: arguments.in_flight.unwrap_or(4096.max(512 * batch)),
        gathered: arguments.gathered,
        warm_up: Duration::from_secs_f64(arguments.warm_up),
        window: Duration::from_secs_f64(arguments.seconds),
        ionian: std::env::current_exe()?,
        root: std::env::temp_dir().join(format!("ionian-bench-role-{}", std::process::id())),
    })
}
