//! Command-line arguments and help texts of the tools.

use clap::{Args, Parser, Subcommand, ValueEnum};
use ionian_program::completions;
pub(crate) use ionian_program::{BadUsage, Level};
use std::path::PathBuf;

/// The tools of `ionian` that are not part of the server. Run them as `ionian bench` and `ionian
/// sim`: `ionian` starts this program from its own directory.
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
    Sim(Box<Sim>),
    Bench(Box<crate::bench::Bench>),
    #[command(hide = true)]
    Completions(completions::Arguments),
}

/// Test a protocol in the deterministic simulator, under faults
///
/// The simulator loses, repeats and delays messages, pauses, partitions and crashes nodes, and
/// checks clients' histories for linearizability.
///
/// Each seed is one run, and the same seed gives the same run. A failing seed is printed with the
/// command that replays it.
#[derive(Debug, Args)]
#[command(after_help = format!("Examples:\n  \
    ionian sim                                          500 seeds of MultiPaxos on three nodes\n  \
    ionian sim --preset batched --seeds 0..10000\n  \
    ionian sim --durability amnesia                     nodes come back without their memory\n  \
    ionian sim --canary no-fence                        a defect on purpose: is it caught?\n  \
    ionian sim --seed 17 --trace 17.trace               one run, every event of it\n  \
    ionian sim --play crates/sim/tests/plays/write.play one scripted scenario\n\n\
    Canaries of any protocol: {}.\n\
    Canaries of one protocol: {}.", crate::sim::driver_canary_names(), crate::sim::canary_names()))]
pub(crate) struct Sim {
    /// The protocol [default: that of the deployment, or multipaxos]
    #[arg(long, value_name = "NAME", value_parser = clap::builder::PossibleValuesParser::new(ionian_protocols::registry::NAMES))]
    pub(crate) protocol: Option<String>,
    /// The deployment to simulate [default: the protocol's smallest, or what the canary needs]
    #[arg(long, value_name = "NAME", conflicts_with = "config")]
    pub(crate) preset: Option<String>,
    /// A deployment file to simulate
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Each seed on a deployment of its own, drawn from the seed: any number of nodes, failures and
    /// roles, any placement and quorums that the protocol accepts
    #[arg(long, conflicts_with_all = ["preset", "config", "overrides"])]
    pub(crate) layouts: bool,
    /// Change a setting of the deployment; repeatable
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) overrides: Vec<String>,
    /// Seeds to run; the end is excluded [default: 0..500, or what the canary needs]
    #[arg(long, value_name = "A..B", value_parser = seeds)]
    pub(crate) seeds: Option<core::ops::Range<u64>>,
    /// Run this seed only
    #[arg(long, value_name = "N", conflicts_with = "seeds", value_parser = clap::value_parser!(u64).range(..u64::MAX))]
    pub(crate) seed: Option<u64>,
    /// What survives a crash: the disk (`disk`); nothing, and the node does not return (`memory`);
    /// nothing, and the node returns (`amnesia`) [default: disk, or what the canary needs]
    #[arg(long, value_enum)]
    pub(crate) durability: Option<Survives>,
    /// Consistency level of all reads [default: a mix of all levels]
    #[arg(long, value_enum, value_name = "LEVEL")]
    pub(crate) reads: Option<Level>,
    /// Approximate number of client requests per run
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub(crate) operations: u64,
    /// Change the membership while clients work: replace, add and remove nodes, abandon changes
    #[arg(long)]
    pub(crate) changes: bool,
    /// Build in this defect; the exit code is 0 if a seed fails because of it, 1 if none does
    #[arg(long, value_name = "NAME")]
    pub(crate) canary: Option<String>,
    /// Write every event of the run to FILE; with several seeds, of the first that fails
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Run all seeds, even after a failure
    #[arg(long)]
    pub(crate) keep_going: bool,
    /// Run the scripted scenario in FILE, on the cluster that it names, in place of seeds
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "protocol", "preset", "config", "layouts", "overrides", "seeds", "seed", "durability", "reads",
        "operations", "changes", "canary", "trace", "keep_going",
    ])]
    pub(crate) play: Option<PathBuf>,
    /// With --play: write the traces that FILE expects anew
    #[arg(long, requires = "play")]
    pub(crate) rewrite: bool,
}

/// What survives a crash of a simulated node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Survives {
    Disk,
    Memory,
    Amnesia,
}

pub(crate) fn seeds(text: &str) -> Result<core::ops::Range<u64>, String> {
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
