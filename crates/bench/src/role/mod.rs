//! The service demand of each role: what one saturated process that has nothing else to do spends
//! on a command.
//!
//! `stage` starts the process and plays the rest of its deployment to it (`emulated`), with
//! `multipaxos`, `mencius`, `spaxos` and `unreplicated` saying who plays what and `commands`
//! forging the messages; `flow` keeps so much under way that the process is never idle, and where
//! the bench is too slow for that `throttle` slows the process down. `whole` has whole nodes
//! measured in place of roles. `work` says what a role can be given to do, `shown` how the result
//! looks.

pub mod arguments;

mod commands;
mod emulated;
mod flow;
mod mencius;
mod multipaxos;
mod shown;
mod spaxos;
mod stage;
mod throttle;
mod unreplicated;
mod whole;
mod work;

use crate::model::demand::{KV, NODE, NOTHING, ROLES, SATURATED};
use anyhow::Result;
use arguments::Role;
use ionian_deployment::{Deployment, PresetOptions};
use ionian_harness::cluster::program;
use ionian_program::BadUsage;
use shown::Shown;
use stage::{Measured, Scene};
use std::process::ExitCode;
use std::time::Duration;
use work::Work;

/// What is measured for `all`: preset, roles, sizes of values. Those of figure 29 are 100 and 1000
/// bytes.
const ALL: &[(&str, &[&str], &[u32])] = &[
    (whole::PRESETS[0], &[NODE], &[16]),
    (whole::PRESETS[1], &[NODE], &[16]),
    (whole::PRESETS[2], &[NODE], &[16]),
    (
        "compartmentalized",
        &["leader", "proxy_leader", "acceptor", "replica"],
        &[16, 100, 1000],
    ),
    (
        "batched",
        &[
            "batcher",
            "leader",
            "proxy_leader",
            "acceptor",
            "replica",
            "unbatcher",
            "read_batcher",
        ],
        &[16],
    ),
    (
        "mencius-compartmentalized",
        &["leader", "proxy_leader", "acceptor", "replica"],
        &[16],
    ),
    (
        "mencius-batched",
        &["leader", "proxy_leader", "acceptor", "replica"],
        &[16],
    ),
    (
        "spaxos-compartmentalized",
        &[
            "disseminator",
            "stabilizer",
            "leader",
            "proxy_leader",
            "acceptor",
            "replica",
        ],
        &[16],
    ),
    (
        "spaxos-batched",
        &[
            "disseminator",
            "stabilizer",
            "leader",
            "proxy_leader",
            "acceptor",
            "replica",
        ],
        &[16],
    ),
    ("unreplicated", &["server"], &[16, 100, 1000]),
    ("unreplicated-batched", &["server"], &[16]),
];

/// Parts of the time that a process is given, one after the other, until it is busy for all of it.
const SHARES: [f64; 7] = [1.0, 0.5, 0.25, 0.125, 1.0 / 16.0, 1.0 / 32.0, 1.0 / 64.0];

/// Bytes of a batch, of all commands under way, and of all keys with their values.
const MAX_BATCH_BYTES: u64 = 16 << 20;
const MAX_STATE_BYTES: u64 = 1 << 30;
const MAX_BYTES_UNDER_WAY: u64 = 64 << 20;

/// What is measured once more for `all`, with a state machine that does nothing: what is left is
/// replication.
const WITHOUT_EXECUTION: &[(&str, &str)] = &[
    ("baseline", NODE),
    ("mencius", NODE),
    ("spaxos", NODE),
    ("compartmentalized", "replica"),
    ("unreplicated", "server"),
];

/// What is measured once more for `all`, among real roles: so the forged ones are held against
/// them.
const AMONG_REAL: &[(&str, &str)] = &[
    ("compartmentalized", "leader"),
    ("compartmentalized", "proxy_leader"),
    ("compartmentalized", "acceptor"),
    ("compartmentalized", "replica"),
];

/// One thing to measure.
struct Task<'a> {
    preset: &'a str,
    role: &'a str,
    work: Work,
    value_bytes: u32,
    machine: &'a str,
    real: bool,
}

/// Runs it.
///
/// # Errors
/// When what was typed names no role, a process cannot be started, or nothing flows.
pub fn run(arguments: &Role) -> Result<ExitCode> {
    let mut shown = Shown::begin(arguments)?;
    for task in tasks(arguments)? {
        let scene = scene(arguments, &task)?;
        let (scene, rounds) = measure(arguments, scene)?;
        shown.add(&task, &scene, &rounds)?;
    }
    shown.end()?;
    Ok(ExitCode::SUCCESS)
}

/// Finds the part of the time in which the bench can keep the process busy, or comes nearest to it,
/// unless it was typed, and measures all rounds with it.
fn measure(arguments: &Role, mut scene: Scene) -> Result<(Scene, Vec<Measured>)> {
    let shares: &[f64] = match &arguments.share {
        Some(share) => std::slice::from_ref(share),
        None => &SHARES,
    };
    let mut busiest: Option<(f64, Measured)> = None;
    for share in shares {
        scene.share = *share;
        let round = scene.clone().run()?;
        if busiest.is_none_or(|(_, known)| round.busy() > known.busy()) {
            busiest = Some((*share, round));
        }
        if round.busy() >= SATURATED {
            break;
        }
    }
    let (share, first) = busiest.expect("there is a share");
    scene.share = share;
    let mut rounds = vec![first];
    while rounds.len() < arguments.rounds as usize {
        rounds.push(scene.clone().run()?);
    }
    Ok((scene, rounds))
}

/// The round with the median demand.
fn median(rounds: &[Measured]) -> Measured {
    let mut sorted = rounds.to_vec();
    sorted.sort_by(|a, b| a.demand_us().total_cmp(&b.demand_us()));
    sorted[sorted.len() / 2]
}

fn tasks(arguments: &Role) -> Result<Vec<Task<'_>>> {
    let role = arguments.role.as_str();
    if role == "all" {
        if arguments.preset.is_some() || arguments.value_bytes.is_some() {
            return Err(BadUsage(
                "all: measures presets and sizes of its own, without --preset and --value-bytes"
                    .into(),
            )
            .into());
        }
        let every = ALL.iter().flat_map(|(preset, roles, sizes)| {
            let sizes = sizes.iter();
            sizes.flat_map(move |size| {
                roles
                    .iter()
                    .flat_map(move |role| every_work(preset, role, *size, KV))
            })
        });
        let bare = WITHOUT_EXECUTION.iter();
        let bare = bare.flat_map(|(preset, role)| every_work(preset, role, 16, NOTHING));
        let real = AMONG_REAL
            .iter()
            .map(|(preset, role)| among_real(preset, role, 16, KV));
        return Ok(every
            .chain(bare.filter(|task| task.work != Work::Read))
            .chain(real)
            .collect());
    }
    if work::of(role).is_empty() {
        let known: Vec<&str> = ROLES.iter().map(|(role, _)| *role).collect();
        return Err(BadUsage(format!(
            "role {role:?}: must be {} or all",
            known.join(", ")
        ))
        .into());
    }
    let preset = arguments.preset.as_deref().unwrap_or(home(role));
    if role == NODE && !whole::PRESETS.contains(&preset) {
        return Err(BadUsage(format!(
            "node: --preset must be {}, which have every role on each node",
            whole::PRESETS.join(", ").replace(", spaxos", " or spaxos")
        ))
        .into());
    }
    let (value_bytes, machine) = (
        arguments.value_bytes.unwrap_or(16),
        arguments.machine.as_str(),
    );
    match arguments.real {
        true => Ok(vec![among_real(preset, role, value_bytes, machine)]),
        false => Ok(every_work(preset, role, value_bytes, machine).collect()),
    }
}

fn every_work<'a>(
    preset: &'a str,
    role: &'a str,
    value_bytes: u32,
    machine: &'a str,
) -> impl Iterator<Item = Task<'a>> {
    let real = role == NODE;
    work::of(role).iter().map(move |work| Task {
        preset,
        role,
        work: *work,
        value_bytes,
        machine,
        real,
    })
}

/// A write, among real roles.
fn among_real<'a>(preset: &'a str, role: &'a str, value_bytes: u32, machine: &'a str) -> Task<'a> {
    Task {
        preset,
        role,
        work: Work::Write,
        value_bytes,
        machine,
        real: true,
    }
}

/// The preset that a role is measured in unless another is typed.
fn home(role: &str) -> &'static str {
    match role {
        "batcher" | "unbatcher" | "read_batcher" => "batched",
        "disseminator" | "stabilizer" => "spaxos-compartmentalized",
        "server" => "unreplicated",
        NODE => "baseline",
        _ => "compartmentalized",
    }
}

fn has_role(deployment: &Deployment, role: &str) -> bool {
    deployment
        .nodes
        .iter()
        .any(|node| node.instances().contains_key(role))
}

/// What may be under way at most. More than 51,200 commands of one lane would be beyond its
/// session's window, and what is under way lies in memory, several times.
fn in_flight(arguments: &Role, batch: u64, value_bytes: u32, real: bool) -> Result<u64> {
    // Among real ones the process is stopped for longer, and what is to keep it busy then must lie
    // there.
    let least = if real { 8192 } else { 4096 };
    let command_bytes = u64::from(value_bytes) + 64;
    if batch * command_bytes > MAX_BATCH_BYTES {
        let text = format!(
            "--batch {batch} of --value-bytes {value_bytes}: a batch must be at most {MAX_BATCH_BYTES} bytes"
        );
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
            let text = format!(
                "--in-flight {typed} with --value-bytes {value_bytes}: must be at most {room}"
            );
            Err(BadUsage(text).into())
        }
        Some(typed) => Ok(typed),
        None => Ok(least.max(512 * batch).min(51_200).min(room).max(batch)),
    }
}

fn scene(arguments: &Role, task: &Task<'_>) -> Result<Scene> {
    let deployment = match task.real {
        true => crate::figure::deployments::preset(task.preset, whole::LANES)?,
        false => Deployment::preset(task.preset, &PresetOptions::default())?,
    };
    let batched = has_role(&deployment, "batcher");
    let batch = if batched { arguments.batch } else { 1 };
    let in_flight = in_flight(arguments, batch, task.value_bytes, task.real)?;
    // A bench that cannot keep up, on a machine that others use too, is not to be taken for a
    // leader that is gone, nor is what it has yet to answer to be sent again.
    let patient = [
        "durability=memory",
        "options.election_timeout_ms=60000",
        "options.resend_after_ms=2000",
    ];
    let mut overrides = patient.map(str::to_owned).to_vec();
    overrides.push(format!("options.batch_commands={batch}"));
    overrides.push(format!("machine={}", task.machine));
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
        machine: task.machine.to_owned(),
        real: task.real,
        share: 1.0,
        warm_up: Duration::from_secs_f64(arguments.warm_up),
        window: Duration::from_secs_f64(arguments.seconds),
        ionian: program(None)?,
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
                assert!(
                    *role == NODE || has_role(&known, role),
                    "{preset} has no {role}"
                );
                assert!(!work::of(role).is_empty(), "{role} has nothing to do");
            }
        }
    }

    #[test]
    fn the_median_round_counts() {
        let round = |cpu_us| Measured {
            commands: 10,
            cpu_us,
            seconds: 1.0,
            ..Measured::default()
        };
        assert_eq!(median(&[round(30), round(10), round(20)]).cpu_us, 20);
    }
}
