//! What can be typed.

use clap::builder::PossibleValuesParser;
use ionian_deployment::MACHINES;
use std::path::PathBuf;

/// Measure the service demand of a role: processor time per command of one instance that is never
/// idle
///
/// A process with the role alone is started as in a deployment of its own machines; this program
/// plays the rest of the deployment to it, over real connections, so cheaply that the role is what
/// is busy. Demand is its processor time, user and system, by the commands that it had a part in.
/// If every instance has a processor of its own, a deployment's peak is the smallest of instances /
/// (share x demand) over its roles.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    ionian bench role leader                     unbatched, as in the preset compartmentalized\n  \
    ionian bench role leader --preset batched    batches of 100 commands\n  \
    ionian bench role node --preset mencius      one of three nodes with every role on each\n  \
    ionian bench role all --json demands.json    everything that the figures need")]
pub struct Role {
    /// leader, proxy_leader, acceptor, replica, batcher, read_batcher, unbatcher, disseminator,
    /// stabilizer, server; `node`, a whole node of a deployment that has every role on each; or
    /// `all`, of all presets
    pub role: String,
    /// The deployment that it is part of [default: compartmentalized; for the roles that it does
    /// not have one that has]
    #[arg(long, value_name = "NAME")]
    pub preset: Option<String>,
    /// Commands in a batch, where the deployment has batchers
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub batch: u64,
    /// Size of the values set [default: 16]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub value_bytes: Option<u32>,
    /// How many keys there are
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub keys: u64,
    /// Commands under way at most [default: 4096, among real ones 8192, or up to 512 batches; fewer
    /// of large values]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(512..=51_200))]
    pub in_flight: Option<u64>,
    /// Commands that a client sends a batcher at once
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub gathered: u64,
    /// Seconds before measuring begins
    #[arg(long, value_name = "SECONDS", default_value_t = 0.5, value_parser = seconds)]
    pub warm_up: f64,
    /// Seconds to measure
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
    pub seconds: f64,
    /// The part of its time that the process may run, so that it is busy while it runs [default:
    /// halved from 1 until it is]
    #[arg(long, value_name = "PART", value_parser = share)]
    pub share: Option<f64>,
    /// Run the rest of the deployment for real, in place of the parts of it that forge messages:
    /// more expensive, so that the process must run for a smaller part of its time. What is found
    /// is by command of the whole deployment, answers included
    #[arg(long)]
    pub real: bool,
    /// What executes the commands: kv, or nothing, which leaves what replication costs by itself
    #[arg(long, value_name = "NAME", default_value = "kv", value_parser = PossibleValuesParser::new(MACHINES))]
    pub machine: String,
    /// How often each is measured; the median counts
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// Change a setting of the deployment, such as options.window_slots=1024; can be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub overrides: Vec<String>,
    /// Write the result to a file, or with `-` to standard output in place of the table
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
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
