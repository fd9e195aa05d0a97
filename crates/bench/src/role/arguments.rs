//! What can be typed.

use clap::builder::PossibleValuesParser;
use ionian_deployment::MACHINES;
use std::path::PathBuf;

const VALUE_BYTES: u32 = 16;
const KEYS: u64 = 10_000;
const WARM_UP: f64 = 0.5;
const SECONDS: f64 = 1.0;
const ROUNDS: u32 = 3;
const MACHINE: &str = "kv";

/// Measure the service demand of a role: processor time per command of one process that is never
/// idle
///
/// Starts one node of a deployment as a process of its own, and runs all other nodes of the
/// deployment, and its clients, in this process, over real connections. Demand is the processor
/// time of that node, user and system, by the commands of the whole deployment. If every node has
/// a processor of its own, a deployment's peak is 1 / demand of its busiest node. Beside each
/// demand stands what the same node spends when the whole deployment runs in one process and the
/// costs of system calls are added, as `ionian bench figure` measures it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    ionian bench role leader                     unbatched, as in the preset compartmentalized\n  \
    ionian bench role leader --preset batched --batch 100\n  \
    ionian bench role node --preset mencius      one of three nodes with every role on each\n  \
    ionian bench role all --preset batched       every role of a preset\n  \
    ionian bench role all --json demands.json    every role of every preset")]
pub struct Role {
    /// A role that lives alone on its nodes, or shares them with one other role; `node`, where more
    /// roles share a node; or `all`
    pub role: String,
    /// The deployment that it is part of [default: the first preset that has the role; for `all`
    /// every preset]
    #[arg(long, value_name = "NAME")]
    pub preset: Option<String>,
    /// Commands in a batch, where the deployment forms batches [default: what the deployment says]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub batch: Option<u64>,
    /// Percentage of reads, which are linearizable
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub reads: u8,
    /// Size of the values set
    #[arg(long, value_name = "BYTES", default_value_t = VALUE_BYTES, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub value_bytes: u32,
    /// How many keys there are
    #[arg(long, value_name = "N", default_value_t = KEYS, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub keys: u64,
    /// Commands under way at most [default: 8192, or 512 of --batch; fewer of large values]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(512..=48_000))]
    pub in_flight: Option<u64>,
    /// Seconds before measuring begins
    #[arg(long, value_name = "SECONDS", default_value_t = WARM_UP, value_parser = seconds)]
    pub warm_up: f64,
    /// Seconds to measure
    #[arg(long, value_name = "SECONDS", default_value_t = SECONDS, value_parser = seconds)]
    pub seconds: f64,
    /// The part of its time that the process may run, so that it is busy while it runs [default:
    /// halved from 1 until it is]
    #[arg(long, value_name = "PART", value_parser = share)]
    pub share: Option<f64>,
    /// What executes the commands: kv, or nothing, which leaves what replication costs by itself
    #[arg(long, value_name = "NAME", default_value = MACHINE, value_parser = PossibleValuesParser::new(MACHINES))]
    pub machine: String,
    /// How often each is measured; the median counts
    #[arg(long, value_name = "N", default_value_t = ROUNDS, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// Change a setting of the deployment, such as options.window_slots=1024; can be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub overrides: Vec<String>,
    /// Write the result to a file, or with `-` to standard output in place of the table
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

impl Role {
    /// This role of this preset, and nothing else said.
    pub(crate) fn of(role: &str, preset: &str) -> Self {
        Role {
            role: role.to_owned(),
            preset: Some(preset.to_owned()),
            batch: None,
            reads: 0,
            value_bytes: VALUE_BYTES,
            keys: KEYS,
            in_flight: None,
            warm_up: WARM_UP,
            seconds: SECONDS,
            share: None,
            machine: MACHINE.to_owned(),
            rounds: ROUNDS,
            overrides: Vec::new(),
            json: None,
        }
    }

    /// Measures for a moment only: to see that it works.
    pub(crate) fn hurry(&mut self) {
        (self.warm_up, self.seconds) = (0.1, 0.2);
        (self.share, self.rounds) = (Some(1.0), 1);
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text
        .parse()
        .map_err(|_| format!("{text:?} is not a number"))?;
    if (0.01..=3600.0).contains(&seconds) {
        Ok(seconds)
    } else {
        Err("must be 0.01 to 3600".to_owned())
    }
}

fn share(text: &str) -> Result<f64, String> {
    let share: f64 = text
        .parse()
        .map_err(|_| format!("{text:?} is not a number"))?;
    if (0.01..=1.0).contains(&share) {
        Ok(share)
    } else {
        Err("must be 0.01 to 1".to_owned())
    }
}
