//! The service demand of a real process: what one node of a deployment spends on a command when it
//! is busy all the time, among real nodes, system calls included; and beside it what the same node
//! spends when the deployment runs in one process (`model`).
//!
//! `stage` starts the process, runs the rest of its deployment in this one, and measures; `clients`
//! keeps commands in flight; the process costs less than all the rest, so `throttle` slows it down.
//! `shown` says how the result looks.

pub mod arguments;

mod clients;
mod shown;
mod stage;
mod throttle;

use crate::figure::deployments;
use crate::model::Workload;
use crate::model::measure::{self, Clock};
use anyhow::{Context, Result};
use arguments::Role;
use ionian_costs::{Load, group_name};
use ionian_deployment::CLIENT;
use ionian_harness::cluster::program;
use ionian_kernel::client::ReadLevel;
use ionian_planner::demand::Node;
use ionian_program::BadUsage;
use ionian_protocols::registry;
use shown::Shown;
pub(crate) use stage::Measured;
use stage::Scene;
use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;

/// Machines that the clients are on: one for each node of the smallest presets, so that leaders
/// that share the log have as much to do as each other.
const LANES: usize = 3;

/// Parts of the time that a process is given, one after the other, until it is busy for all of it.
const SHARES: [f64; 7] = [1.0, 0.5, 0.25, 0.125, 1.0 / 16.0, 1.0 / 32.0, 1.0 / 64.0];

/// A process that had less of a processor than this was not saturated.
const SATURATED: f64 = 0.9;

/// How often the deployment is measured in one process.
const ROUNDS_IN_PROCESS: usize = 5;

/// Bytes of a batch, of all commands under way, and of all keys with their values.
const MAX_BATCH_BYTES: u64 = 16 << 20;
const MAX_STATE_BYTES: u64 = 1 << 30;
const MAX_BYTES_UNDER_WAY: u64 = 64 << 20;

/// Commands in flight, unless they are typed: the process is stopped for a while, and what is to
/// keep it busy then must wait for it. No lane has more than its limit.
const IN_FLIGHT: u64 = 8192;
const MAX_IN_FLIGHT: u64 = 48_000;

/// A node of a preset that stands for all with the same roles.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Group {
    preset: &'static str,
    /// What they are called ([`group_name`]).
    name: String,
    /// The first of them.
    node: usize,
}

/// What was found.
pub(crate) struct Outcome {
    group: Group,
    scene: Scene,
    pub(crate) rounds: Vec<Measured>,
    /// The same node when the deployment runs in one process.
    pub(crate) modelled: Node,
}

/// Runs it.
///
/// # Errors
/// When what was typed names no role, a process cannot be started, or nothing flows.
pub fn run(arguments: &Role) -> Result<ExitCode> {
    let groups = wanted(arguments)?;
    let mut shown = Shown::begin(arguments)?;
    let clock = Clock::processor(ROUNDS_IN_PROCESS)?;
    for group in groups {
        shown.add(&measure(arguments, group, clock)?)?;
    }
    shown.end()?;
    Ok(ExitCode::SUCCESS)
}

/// Measures all that was typed, and shows nothing.
///
/// # Errors
/// As [`run`].
pub(crate) fn measure_all(arguments: &Role) -> Result<Vec<Outcome>> {
    let clock = Clock::processor(ROUNDS_IN_PROCESS)?;
    let groups = wanted(arguments)?.into_iter();
    groups
        .map(|group| measure(arguments, group, clock))
        .collect()
}

fn measure(arguments: &Role, group: Group, clock: Clock) -> Result<Outcome> {
    let scene = scene(arguments, &group)?;
    let workload = Workload {
        read_fraction: scene.load.read_fraction,
        skew: scene.load.skew,
        read_level: scene.load.read_level,
        batch: scene.deployment.options.options().batch_commands,
        pipeline: scene.load.pipeline,
        value_bytes: scene.load.value_bytes,
        burst: None,
    };
    let keys = scene.load.keys;
    let measured = measure::measure(&scene.deployment, &workload, (keys, false), clock)?;
    let id = scene.deployment.ids()[group.node];
    let modelled = measured.nodes.into_iter().find(|node| node.id == id);
    let (scene, rounds) = busy(arguments, scene)?;
    Ok(Outcome {
        modelled: modelled.context("every node is measured")?,
        group,
        scene,
        rounds,
    })
}

/// Finds the part of the time in which the bench can keep the process busy, or comes nearest to it,
/// unless it was typed, and measures all rounds with it.
fn busy(arguments: &Role, mut scene: Scene) -> Result<(Scene, Vec<Measured>)> {
    let shares: &[f64] = match &arguments.share {
        Some(share) => std::slice::from_ref(share),
        None => &SHARES,
    };
    let mut busiest: Option<(f64, Measured)> = None;
    for share in shares {
        scene.share = *share;
        let round = scene.clone().measure()?;
        if busiest.is_none_or(|(_, known)| round.busy() > known.busy()) {
            busiest = Some((*share, round));
        }
        if round.is_busy() {
            break;
        }
    }
    let (share, first) = busiest.expect("there is a share");
    scene.share = share;
    let mut rounds = vec![first];
    while rounds.len() < arguments.rounds as usize {
        rounds.push(scene.clone().measure()?);
    }
    Ok((scene, rounds))
}

/// The round with the median demand.
pub(crate) fn median(rounds: &[Measured]) -> Measured {
    let mut sorted = rounds.to_vec();
    sorted.sort_by(|a, b| a.demand_us().total_cmp(&b.demand_us()));
    sorted[sorted.len() / 2]
}

/// The least and the most microseconds for each command.
pub(crate) fn range(rounds: &[Measured]) -> (f64, f64) {
    let us = rounds.iter().map(Measured::demand_us);
    us.fold((f64::INFINITY, 0.0), |(least, most), us| {
        (us.min(least), us.max(most))
    })
}

/// What was typed: every group, or the first that has the role.
fn wanted(arguments: &Role) -> Result<Vec<Group>> {
    let mut presets: Vec<&'static str> = ionian_deployment::presets()
        .map(|(_, preset)| preset.name)
        .collect();
    if let Some(typed) = &arguments.preset {
        let known = presets.join(", ");
        presets.retain(|preset| preset == typed);
        if presets.is_empty() {
            return Err(BadUsage(format!("--preset {typed}: must be one of {known}")).into());
        }
    }
    let groups = presets
        .into_iter()
        .map(groups)
        .collect::<Result<Vec<_>>>()?;
    let groups = groups.concat();
    let role = arguments.role.as_str();
    if role == "all" {
        return Ok(groups);
    }
    let has = |group: &&Group| group.name == role || group.name.split('+').any(|one| one == role);
    match groups.iter().find(has) {
        Some(group) => Ok(vec![group.clone()]),
        None => {
            let mut known = BTreeSet::new();
            let new = groups.iter().filter(|group| known.insert(&group.name));
            let names: Vec<&str> = new.map(|group| group.name.as_str()).collect();
            let of = arguments.preset.as_ref();
            let of = of.map_or_else(String::new, |preset| format!(" of the preset {preset}"));
            let names = names.join(", ");
            Err(BadUsage(format!("role {role:?}{of}: must be {names}, or all")).into())
        }
    }
}

/// The distinct groups of nodes of a preset, without those that have clients only.
fn groups(preset: &'static str) -> Result<Vec<Group>> {
    let deployment = deployments::preset(preset, LANES)?;
    let protocol =
        registry::description(&deployment.protocol).context("a preset has a protocol")?;
    let mut groups: Vec<Group> = Vec::new();
    for (node, described) in deployment.nodes.iter().enumerate() {
        let here = described.instances();
        let kinds = protocol.kinds.iter().copied();
        let kinds: Vec<&str> = kinds.filter(|kind| here.contains_key(kind)).collect();
        let name = group_name(&kinds);
        if name != CLIENT && groups.iter().all(|known| known.name != name) {
            groups.push(Group { preset, name, node });
        }
    }
    Ok(groups)
}

/// What may be under way at most. It lies in memory, several times.
fn in_flight(arguments: &Role) -> Result<u64> {
    let Role {
        value_bytes, keys, ..
    } = *arguments;
    let batch = arguments.batch.unwrap_or(1);
    let command_bytes = u64::from(value_bytes) + 64;
    let refuse = |text: String| Err(BadUsage(text).into());
    if batch * command_bytes > MAX_BATCH_BYTES {
        return refuse(format!(
            "--batch {batch} of --value-bytes {value_bytes}: a batch must be at most {MAX_BATCH_BYTES} bytes"
        ));
    }
    if keys * command_bytes > MAX_STATE_BYTES {
        return refuse(format!(
            "--keys {keys} of --value-bytes {value_bytes}: all must be at most {MAX_STATE_BYTES} bytes together"
        ));
    }
    let room = MAX_BYTES_UNDER_WAY / command_bytes;
    match arguments.in_flight {
        Some(typed) if typed > room => refuse(format!(
            "--in-flight {typed} with --value-bytes {value_bytes}: must be at most {room}"
        )),
        Some(typed) => Ok(typed),
        None => Ok(IN_FLIGHT
            .max(512 * batch)
            .min(MAX_IN_FLIGHT)
            .min(room)
            .max(batch)),
    }
}

fn scene(arguments: &Role, group: &Group) -> Result<Scene> {
    let mut deployment = deployments::preset(group.preset, LANES)?;
    // The distances of a preset with sites are simulated, and would only slow the load down.
    deployment.network = None;
    deployment
        .nodes
        .iter_mut()
        .for_each(|node| node.site = None);
    let in_flight = in_flight(arguments)?;
    // A bench that cannot keep up, on a machine that others use too, is not to be taken for a
    // leader that is gone, nor is what it has yet to answer to be sent again.
    let patient = [
        "options.election_timeout_ms=60000",
        "options.resend_after_ms=2000",
    ];
    let mut overrides = patient.map(str::to_owned).to_vec();
    let batch = arguments.batch.iter();
    overrides.extend(batch.map(|batch| format!("options.batch_commands={batch}")));
    overrides.push(format!("machine={}", arguments.machine));
    overrides.extend_from_slice(&arguments.overrides);
    let load = Load {
        read_fraction: f64::from(arguments.reads) / 100.0,
        skew: 0.0,
        read_level: ReadLevel::Linearizable,
        value_bytes: arguments.value_bytes as usize,
        pipeline: 1,
        keys: arguments.keys as usize,
        burst: in_flight as usize,
        filled: true,
        separate_clients: false,
    };
    Ok(Scene {
        deployment: deployment.with_overrides(&overrides)?,
        node: group.node,
        load,
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

    fn anything() -> Role {
        Role {
            preset: None,
            ..Role::of("all", "")
        }
    }

    #[test]
    fn every_preset_has_groups_and_all_of_them_are_wanted() {
        let all = wanted(&anything()).unwrap();
        for (_, preset) in ionian_deployment::presets() {
            assert!(all.iter().any(|group| group.preset == preset.name));
        }
        let of = |preset| {
            let groups = groups(preset).unwrap();
            groups
                .into_iter()
                .map(|group| group.name)
                .collect::<Vec<_>>()
        };
        assert_eq!(of("colocated"), ["node"]);
        assert_eq!(
            of("compartmentalized"),
            ["leader", "proxy_leader", "acceptor", "replica"]
        );
        assert_eq!(of("unreplicated"), ["server"]);
    }

    #[test]
    fn a_role_is_measured_in_the_first_preset_that_has_it() {
        let of = |role: &str| {
            let typed = Role {
                role: role.to_owned(),
                ..anything()
            };
            wanted(&typed).map(|groups| format!("{} of {}", groups[0].name, groups[0].preset))
        };
        assert_eq!(of("node").unwrap(), "node of colocated");
        assert_eq!(of("leader").unwrap(), "leader of compartmentalized");
        assert_eq!(
            of("read_batcher").unwrap(),
            "batcher+read_batcher of batched"
        );
        let error = of("client").unwrap_err().to_string();
        assert!(error.contains("must be node, leader"), "{error}");
    }

    #[test]
    fn the_median_round_counts() {
        let round = |cpu_us| Measured {
            commands: 10,
            cpu_us,
            seconds: 1.0,
            ..Measured::default()
        };
        let rounds = [round(30), round(10), round(20)];
        assert_eq!(median(&rounds).cpu_us, 20);
        assert_eq!(range(&rounds), (1.0, 3.0));
    }
}
