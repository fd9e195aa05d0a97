//! The service demand of each role: what one saturated process that has nothing else to do spends on a command.
//!
//! `stage` starts the process and plays the rest of its deployment to it (`emulated`), with `multipaxos`, `mencius`,
//! `spaxos` and `unreplicated` saying who plays what and `commands` forging what is said; `flow` keeps so much under way
//! that the process is never idle. `work` says what a role can be given to do, `shown` how the result looks.

pub mod arguments;

mod commands;
mod emulated;
mod flow;
mod mencius;
mod multipaxos;
mod shown;
mod spaxos;
mod stage;
mod unreplicated;
mod work;

use crate::BadUsage;
use crate::model::demand::ROLES;
use anyhow::Result;
use arguments::Role;
use ionian_deployment::{Deployment, PresetOptions};
use shown::Shown;
use stage::{Measured, Scene};
use std::process::ExitCode;
use std::time::Duration;
use work::Work;

/// What is measured for `all`: preset, roles, sizes of values. Those of figure 29 are 100 and 1000 bytes.
const ALL: &[(&str, &[&str], &[u32])] = &[
    ("compartmentalized", &["leader", "proxy_leader", "acceptor", "replica"], &[16, 100, 1000]),
    ("batched", &["batcher", "leader", "proxy_leader", "acceptor", "replica", "unbatcher", "read_batcher"], &[16]),
    ("mencius-compartmentalized", &["leader", "proxy_leader", "acceptor", "replica"], &[16]),
    ("mencius-batched", &["leader", "proxy_leader", "acceptor", "replica"], &[16]),
    (
        "spaxos-compartmentalized",
        &["disseminator", "stabilizer", "leader", "proxy_leader", "acceptor", "replica"],
        &[16],
    ),
    ("spaxos-batched", &["disseminator", "stabilizer", "leader", "proxy_leader", "acceptor", "replica"], &[16]),
    ("unreplicated", &["server"], &[16, 100, 1000]),
    ("unreplicated-batched", &["server"], &[16]),
];

/// Bytes of a batch, of all commands under way, and of all keys with their values.
const MAX_BATCH_BYTES: u64 = 16 << 20;
const MAX_STATE_BYTES: u64 = 1 << 30;
const MAX_BYTES_UNDER_WAY: u64 = 64 << 20;

/// One thing to measure.
struct Task<'a> {
    preset: &'a str,
    role: &'a str,
    work: Work,
    value_bytes: u32,
}

/// Runs it.
///
/// # Errors
/// When what was typed names no role, a process cannot be started, or nothing flows.
pub fn run(arguments: &Role) -> Result<ExitCode> {
    let mut shown = Shown::begin(arguments)?;
    for task in tasks(arguments)? {
        let scene = scene(arguments, &task)?;
        let rounds = (0..arguments.rounds).map(|_| scene.clone().run()).collect::<Result<Vec<_>>>()?;
        shown.add(&task, &scene, median(rounds))?;
    }
    shown.end()?;
    Ok(ExitCode::SUCCESS)
}

/// The round with the median demand.
fn median(mut rounds: Vec<Measured>) -> Measured {
    rounds.sort_by(|a, b| a.demand_us().total_cmp(&b.demand_us()));
    rounds[rounds.len() / 2]
}

fn tasks(arguments: &Role) -> Result<Vec<Task<'_>>> {
    let role = arguments.role.as_str();
    if role == "all" {
        if arguments.preset.is_some() || arguments.value_bytes.is_some() {
            return Err(BadUsage(
                "all: measures presets and sizes of its own, without --preset and --value-bytes".into(),
            )
            .into());
        }
        let every = ALL.iter().flat_map(|(preset, roles, sizes)| {
            sizes.iter().flat_map(move |size| roles.iter().flat_map(move |role| every_work(preset, role, *size)))
        });
        return Ok(every.collect());
    }
    if work::of(role).is_empty() {
        let known: Vec<&str> = ROLES.iter().map(|(role, _)| *role).collect();
        return Err(BadUsage(format!("role {role:?}: must be {} or all", known.join(", "))).into());
    }
    let preset = arguments.preset.as_deref().unwrap_or(home(role));
    Ok(every_work(preset, role, arguments.value_bytes.unwrap_or(16)).collect())
}

fn every_work<'a>(preset: &'a str, role: &'a str, value_bytes: u32) -> impl Iterator<Item = Task<'a>> {
    work::of(role).iter().map(move |work| Task { preset, role, work: *work, value_bytes })
}

/// The preset that a role is measured in when nobody says.
fn home(role: &str) -> &'static str {
    match role {
        "batcher" | "unbatcher" | "read_batcher" => "batched",
        "disseminator" | "stabilizer" => "spaxos-compartmentalized",
        "server" => "unreplicated",
        _ => "compartmentalized",
    }
}

fn has_role(deployment: &Deployment, role: &str) -> bool {
    deployment.nodes.iter().any(|node| node.instances().contains_key(role))
}

/// What may be under way at most. More than 51,200 commands of one lane would be beyond its session's window, and what
/// is under way lies in memory, several times.
fn in_flight(arguments: &Role, batch: u64, value_bytes: u32) -> Result<u64> {
    let command_bytes = u64::from(value_bytes) + 64;
    if batch * command_bytes > MAX_BATCH_BYTES {
        let text =
            format!("--batch {batch} of --value-bytes {value_bytes}: a batch must be at most {MAX_BATCH_BYTES} bytes");
        return Err(BadUsage(text).into());
    }
    if arguments.keys * command_bytes > MAX_STATE_BYTES {
        let keys = arguments.keys;
        let text = format!(
            "--keys {keys} of --value-bytes {value_bytes}: all must be at most {MAX_STATE_BYTES} bytes together"
        );
        return Err(BadUsage(text).into());
    }
    let room = MAX_BYTES_UNDER_WAY / command_bytes;
    match arguments.in_flight {
        Some(typed) if typed > room => {
            let text = format!("--in-flight {typed} with --value-bytes {value_bytes}: must be at most {room}");
            Err(BadUsage(text).into())
        }
        Some(typed) => Ok(typed),
        None => Ok(4096.max(512 * batch).min(51_200).min(room).max(batch)),
    }
}

fn scene(arguments: &Role, task: &Task<'_>) -> Result<Scene> {
    let deployment = Deployment::preset(task.preset, &PresetOptions::default())?;
    let batched = has_role(&deployment, "batcher");
    let batch = if batched { arguments.batch } else { 1 };
    let in_flight = in_flight(arguments, batch, task.value_bytes)?;
    // A bench that cannot keep up is not to be taken for a leader that is gone.
    let mut overrides = ["durability=memory", "options.election_timeout_ms=60000"].map(str::to_owned).to_vec();
    overrides.push(format!("options.batch_commands={batch}"));
    overrides.extend_from_slice(&arguments.overrides);
    Ok(Scene {
        deployment: deployment.with_overrides(&overrides)?,
        role: task.role.to_owned(),
        work: task.work,
        batch,
        value_bytes: task.value_bytes as usize,
        keys: arguments.keys,
        in_flight,
        gathered: arguments.gathered,
        warm_up: Duration::from_secs_f64(arguments.warm_up),
        window: Duration::from_secs_f64(arguments.seconds),
        ionian: std::env::current_exe()?,
        root: std::env::temp_dir().join(format!("ionian-bench-role-{}", std::process::id())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_measures_every_role_that_can_be_measured() {
        for (preset, roles, _) in ALL {
            let known = Deployment::preset(preset, &PresetOptions::default()).expect("a preset");
            for role in *roles {
                assert!(has_role(&known, role), "{preset} has no {role}");
                assert!(!work::of(role).is_empty(), "{role} has nothing to do");
            }
        }
    }

    #[test]
    fn the_median_round_counts() {
        let round = |cpu_us| Measured { commands: 10, cpu_us, seconds: 1.0, ..Measured::default() };
        assert_eq!(median(vec![round(30), round(10), round(20)]).cpu_us, 20);
    }
}
