//! What can be typed, and the help texts: the part of `ionian` that this program carries out.

use clap::{Args, Parser, Subcommand, ValueEnum};
pub(crate) use ionian_program::{BadUsage, Level};
use std::path::PathBuf;

/// The tools of `ionian` that are not part of the server. Use them as `ionian bench` and `ionian
/// sim`: `ionian` starts this program, which lies beside it.
#[derive(Debug, Parser)]
#[command(
    name = "ionian",
    bin_name = "ionian",
    version = ionian_program::version::TEXT.as_str(),
    arg_required_else_help = true
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Sim(Sim),
    Bench(Box<crate::bench::Bench>),
}

/// Try a protocol in the deterministic simulator, under faults
///
/// Messages are lost, repeated and delayed, nodes pause, part and crash, and clients' histories are
/// checked for linearizability.
///
/// Each seed is one run, and the same seed gives the same run. A failing seed is printed with the
/// command that replays it.
#[derive(Debug, Args)]
#[command(after_help = format!("Examples:\n  \
    ionian sim                                          500 seeds of MultiPaxos on three nodes\n  \
    ionian sim --preset batched --seeds 0..10000\n  \
    ionian sim --durability amnesia                     nodes come back without their memory\n  \
    ionian sim --canary unfenced                        a defect on purpose: is it caught?\n  \
    ionian sim --seed 17 --trace 17.trace               one run, every event of it\n\n\
    Canaries of any protocol: {}.\n\
    Canaries of one protocol: {}.", crate::sim::driver_canary_names(), crate::sim::canary_names()))]
pub(crate) struct Sim {
    /// The protocol [default: that of the deployment, or multipaxos]
    #[arg(long, value_name = "NAME", value_parser = clap::builder::PossibleValuesParser::new(ionian_protocols::registry::NAMES))]
    pub(crate) protocol: Option<String>,
    /// The deployment to simulate [default: the protocol's smallest]
    #[arg(long, value_name = "NAME", conflicts_with = "config")]
    pub(crate) preset: Option<String>,
    /// A deployment file to simulate
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Change a setting of the deployment; can be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) overrides: Vec<String>,
    /// Which seeds to run; the last is not one of them
    #[arg(long, value_name = "A..B", default_value = "0..500", value_parser = seeds)]
    pub(crate) seeds: core::ops::Range<u64>,
    /// Run this seed alone
    #[arg(long, value_name = "N", conflicts_with = "seeds", value_parser = clap::value_parser!(u64).range(..u64::MAX))]
    pub(crate) seed: Option<u64>,
    /// What a crash leaves: everything on disk; nothing, and the node stays away; or nothing, and
    /// it comes back [default: disk, or what the canary needs]
    #[arg(long, value_enum)]
    pub(crate) durability: Option<Survives>,
    /// The level of all reads [default: all levels, mixed]
    #[arg(long, value_enum, value_name = "LEVEL")]
    pub(crate) reads: Option<Level>,
    /// About how many requests clients make in a run
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub(crate) operations: u64,
    /// Change the membership while clients work: nodes are replaced, added and removed, changes
    /// abandoned
    #[arg(long)]
    pub(crate) changes: bool,
    /// Build this defect in on purpose; the exit code is 0 when it is caught and 1 when it is not
    #[arg(long, value_name = "NAME")]
    pub(crate) canary: Option<String>,
    /// Write every event of the run to FILE; of many seeds, those of the first that fails
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Run all seeds, whatever fails
    #[arg(long)]
    pub(crate) keep_going: bool,
}

/// What of a node outlives a crash in the simulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Survives {
    Disk,
    Memory,
    Amnesia,
}

fn seeds(text: &str) -> Result<core::ops::Range<u64>, String> {
    let number = |text: &str| {
        text.trim()
            .parse::<u64>()
            .map_err(|_| format!("{text:?} is not a whole number"))
    };
    let (first, end) = text
        .split_once("..")
        .ok_or("must be A..B, such as 0..1000")?;
    let range = number(first)?..number(end)?;
    if range.is_empty() {
        Err("the first seed must be below the end".to_owned())
    } else {
        Ok(range)
    }
}
