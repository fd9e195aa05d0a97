//! Command-line arguments.

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Measurements of Ionian: real processes of the release build on free ports of this machine
///
/// Each exits with code 0 if the measurement succeeded and its limits hold, 1 if not, 2 on bad
/// usage.
#[derive(Debug, Parser)]
#[command(name = "measure", bin_name = "cargo xtask")]
pub(crate) struct Measurements {
    #[command(subcommand)]
    pub(crate) measurement: Measurement,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Measurement {
    Soak(Soak),
    RestartTime(RestartTime),
    GroupCommit(GroupCommit),
    Burden(Burden),
    /// Keep a processor busy until the standard input ends
    #[command(hide = true)]
    Burn,
}

/// Minimum number of samples; with fewer a quarter of the time is meaningless.
const SAMPLES: f64 = 16.0;

impl Measurements {
    /// Parses the command line; exits if the values make no sense.
    pub(crate) fn from_command_line() -> Self {
        let measurements = Measurements::parse();
        if let Err(text) = measurements.check() {
            Measurements::command()
                .error(ErrorKind::ValueValidation, text)
                .exit();
        }
        measurements
    }

    fn check(&self) -> Result<(), String> {
        let Measurement::Soak(Soak { minutes, every, .. }) = &self.measurement else {
            return Ok(());
        };
        let (fewest, most) = (SAMPLES * every / 60.0, 1e6);
        match *every > 0.0 && (fewest..=most).contains(minutes) {
            true => Ok(()),
            false => Err(format!(
                "--minutes {minutes} --every {every}: at least {SAMPLES} samples are needed, in {most} minutes at most"
            )),
        }
    }
}

/// The arguments of all measurements.
#[derive(Clone, Debug, Args)]
pub(crate) struct Common {
    /// The deployment; `ionian config presets` lists them
    #[arg(long, value_name = "NAME", default_value = ionian_deployment::DEFAULT_PRESET)]
    pub(crate) preset: String,
    /// Change a setting of the deployment; repeatable
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) overrides: Vec<String>,
    /// Length of each value in bytes
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub(crate) value_bytes: u32,
    /// The program `ionian` [default: the one in the directory of this program]
    #[arg(long, value_name = "FILE")]
    pub(crate) ionian: Option<PathBuf>,
    /// The directory for the nodes' data and the results
    #[arg(long, value_name = "DIR", default_value = "target/measure")]
    pub(crate) data: PathBuf,
}

/// Whether memory and disk stay flat in an endless run over a fixed set of keys
///
/// Starts a deployment with durability `disk` and sets all keys; then clients set and get keys of
/// that set at random. Every few seconds it is noted how much memory each node's process holds, how
/// much its directory holds, and how far the load has come. Prints a line a minute and leaves a
/// table (CSV) and a picture (SVG) of all.
///
/// Exits with code 1 when a node held more memory or disk in the last quarter of the time than in
/// the second, by more than the tolerance: the maxima are compared. Of disk, one file of the log
/// (16 MiB) more is always allowed.
#[derive(Clone, Debug, Args)]
pub(crate) struct Soak {
    /// Duration in minutes
    #[arg(long, value_name = "N", default_value_t = 30.0)]
    pub(crate) minutes: f64,
    /// Number of keys
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) keys: u64,
    /// Number of connections, distributed over all gateways
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) clients: u16,
    /// Percentage of reads
    #[arg(long, value_name = "PERCENT", default_value_t = 20, value_parser = clap::value_parser!(u8).range(0..=99))]
    pub(crate) reads: u8,
    /// Seconds between two samples
    #[arg(long, value_name = "N", default_value_t = 5.0)]
    pub(crate) every: f64,
    /// Allowed growth of a maximum
    #[arg(long, value_name = "PERCENT", default_value_t = 10.0)]
    pub(crate) tolerance: f64,
    /// Make something grow on purpose: the exit code must be 1
    #[arg(long = "break", value_enum, value_name = "HOW")]
    pub(crate) sabotage: Option<Sabotage>,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// What can be made to grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sabotage {
    /// Every key is new
    Keys,
}

/// How soon a node that was killed is back
///
/// Builds a state in a cluster with durability `disk`: a number of keys, a snapshot of them stored
/// by every replica, and then a number of commands more that are in no snapshot. Then nodes are
/// killed with SIGKILL and started again: one after the other, all at once, and all at once with
/// nothing of their directories in the system's cache. Measured is the time from the start of the
/// process until it listens, until its replica has executed all that was executed before, and until
/// its gateway serves a linearizable read of the last write.
///
/// Exits with code 1 when the longest time exceeds the limit.
#[derive(Clone, Debug, Args)]
pub(crate) struct RestartTime {
    /// Number of keys
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) keys: u64,
    /// Number of commands after the snapshot
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) tail: u64,
    /// How these commands arrive
    #[arg(long, value_enum, value_name = "HOW", default_value = "pipelined")]
    pub(crate) shape: Shape,
    /// Repetitions of each measurement
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) rounds: u16,
    /// Time limit in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
    pub(crate) limit: f64,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// How commands arrive at the gateways.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shape {
    /// 32 connections with pipelines of 64: many commands per slot
    Pipelined,
    /// One after the other: one command per slot. Sets `options.snapshot_slots` to its maximum,
    /// because by default a snapshot would be made after 65,536
    Single,
}

/// How many commands share a sync of the disk, and what that costs
///
/// Loads a cluster with SET by 1, 16, 128 and 1024 connections that wait for each reply, with
/// durability `disk` and with `memory` in turn. Prints the medians over the rounds.
#[derive(Clone, Debug, Args)]
pub(crate) struct GroupCommit {
    /// Numbers of commands in flight
    #[arg(long, value_delimiter = ',', value_name = "N", default_values_t = [1, 16, 128, 1024], value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub(crate) in_flight: Vec<u16>,
    /// Repetitions of each measurement
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) rounds: u16,
    /// Duration of each measurement in seconds, after a second of warm-up
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) seconds: u64,
    /// Number of different keys
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) keys: u64,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Whether a small command is answered while other clients are a burden, and what they cost
///
/// Starts a cluster with durability `disk` beside processes that keep the processors busy. One
/// client at each gateway sets a key of its own, one command at a time. Then others come: some
/// write large values, some send pipelines of SET and read no reply, some ask for large values and
/// read nothing. They leave, and some seconds later the small commands are looked at again. Prints
/// how long these took, the most memory that each node's process held, and the most disk that all
/// directories held beside what was sent.
///
/// Exits with code 1 when a limit is exceeded.
#[derive(Clone, Debug, Args)]
pub(crate) struct Burden {
    /// Duration of the overload in seconds
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) seconds: u64,
    /// Number of processes that keep a processor busy
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(0..=1000))]
    pub(crate) burners: u16,
    /// Number of clients that write large values, each repeatedly to the same key
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(0..=1000))]
    pub(crate) large: u16,
    /// Maximum length of these values in bytes, including key and protocol
    #[arg(long, value_name = "N", default_value_t = 8 << 20, value_parser = clap::value_parser!(u32).range(1 << 10..=64 << 20))]
    pub(crate) large_bytes: u32,
    /// Number of clients that send SET of 1 KiB continuously and read no reply
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(0..=1000))]
    pub(crate) deaf: u16,
    /// Number of clients that request a value of 1 MiB twice and read nothing
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=1000))]
    pub(crate) askers: u16,
    /// Limit for the 99th percentile of small commands during the overload, in milliseconds; an
    /// unanswered command counts as infinite. 0: no limit
    #[arg(long, value_name = "MS", default_value_t = 2000)]
    pub(crate) during: u32,
    /// The same from five seconds after the overload
    #[arg(long, value_name = "MS", default_value_t = 200)]
    pub(crate) after: u32,
    /// Maximum memory of a node in MiB
    #[arg(long, value_name = "MIB", default_value_t = 512)]
    pub(crate) memory: u64,
    /// Maximum disk space of all nodes together, as a multiple of the bytes sent; 160 MiB per node
    /// are always allowed
    #[arg(long, value_name = "N", default_value_t = 3.0)]
    pub(crate) disk: f64,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_typed_makes_sense() {
        Measurements::command().debug_assert();
        let Measurement::GroupCommit(defaults) =
            Measurements::parse_from(["measure", "group-commit"]).measurement
        else {
            panic!("it is another measurement")
        };
        assert_eq!(defaults.in_flight, [1, 16, 128, 1024]);
        for nonsense in ["many", "0"] {
            assert!(
                Measurements::try_parse_from(["measure", "group-commit", "--in-flight", nonsense])
                    .is_err()
            );
        }
        let typed = |minutes| {
            Measurements::try_parse_from(["measure", "soak", minutes])
                .unwrap()
                .check()
        };
        assert_eq!(typed("--minutes=2"), Ok(()));
        let nonsense = [
            "--minutes=1",
            "--minutes=0",
            "--minutes=-3",
            "--minutes=inf",
            "--minutes=nan",
            "--every=0",
        ];
        assert!(nonsense.iter().all(|minutes| typed(minutes).is_err()));
    }
}
