//! Command-line arguments.

use crate::schedule::Kind;
use clap::{Parser, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

/// The longest time without an acknowledged write while programs are exchanged, in milliseconds.
const WRITE_LIMIT_MS: u64 = 2000;

/// How long the exchange of all programs, and back, usually takes.
const ROLL: Duration = Duration::from_secs(60);

/// Real processes of Ionian under load and faults; at the end everything that clients were told is
/// checked
///
/// Starts a deployment on free ports of this machine, with durability `disk`. Clients work on it
/// through the Redis protocol while nodes are killed, stopped, started and denied disk space. Then
/// the faults end, and it is checked that every acknowledged write is there exactly once, that each
/// key's history is linearizable, and that all replicas hold the same.
///
/// Exits with code 0 when all of that holds, 1 when not, 2 on bad usage. After a failure the data,
/// the logs and the histories of the keys concerned are kept, and the command that repeats the
/// schedule is printed.
#[derive(Clone, Debug, Parser)]
#[command(name = "torture", bin_name = "cargo xtask torture")]
pub(crate) struct Arguments {
    /// How long faults are injected, in seconds
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=604_800))]
    pub(crate) seconds: u64,
    /// Seed of faults and requests [default: random]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// The deployment; `ionian config presets` lists them
    #[arg(long, value_name = "NAME", default_value = ionian_deployment::DEFAULT_PRESET)]
    pub(crate) preset: String,
    /// Change a setting of the deployment; repeatable [default: snapshots and catch-up by snapshot
    /// ten times as often as usual]
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) overrides: Vec<String>,
    /// Kinds of faults [default: all that need no other flag]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "KIND")]
    pub(crate) faults: Vec<Kind>,
    /// No faults: then no command may fail, and no connection
    #[arg(long, conflicts_with_all = ["faults", "members", "former"])]
    pub(crate) no_faults: bool,
    /// All connections use TLS, with certificates that are replaced again and again, and so is the
    /// authority that signs them
    #[arg(long)]
    pub(crate) tls: bool,
    /// How long the certificates of `--tls` are valid, in seconds; each is replaced when between a
    /// third and a half of that is over
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(6..=86_400))]
    pub(crate) certificate_seconds: u64,
    /// Also replace nodes through `ionian member replace`
    #[arg(long)]
    pub(crate) members: bool,
    /// Mean time between two faults, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 1500, value_parser = clap::value_parser!(u64).range(10..=3_600_000))]
    pub(crate) gap_ms: u64,
    /// Number of clients; every other one sends pipelines of up to 16 requests
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) clients: u16,
    /// Number of sets of unusual clients: one writes values of up to 8 MiB, one sends pipelines and
    /// reads late, one sends partial commands
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(0..=16))]
    pub(crate) odd_clients: u16,
    /// Break a promise on purpose: the exit code must be 1
    #[arg(long = "break", value_enum, value_name = "HOW")]
    pub(crate) sabotage: Option<Sabotage>,
    /// The program `ionian` of an earlier release: in the first half of the time every second start
    /// of a node uses it, then all nodes get the present program and the level is raised
    #[arg(long, value_name = "FILE")]
    pub(crate) former: Option<PathBuf>,
    /// Instead of faults: all nodes begin with the former program; every node, one after the other,
    /// gets the present one, and then the former one again, N times, with SIGKILL at every step. At
    /// last all get the present program and the level is raised
    #[arg(
        long,
        value_name = "N",
        requires = "former",
        conflicts_with_all = ["seconds", "faults", "gap_ms", "members", "sabotage"],
        value_parser = clap::value_parser!(u16).range(1..=1000)
    )]
    pub(crate) rolls: Option<u16>,
    /// The longest time without an acknowledged write, in milliseconds; a longer one is a failure
    /// [default: 2000 with `--rolls`, otherwise no limit]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    pub(crate) write_limit_ms: Option<u64>,
    /// The program `ionian` [default: the one in the directory of this program]
    #[arg(long, value_name = "FILE")]
    pub(crate) ionian: Option<PathBuf>,
    /// The directory for the run and its report
    #[arg(long, value_name = "DIR", default_value = "target/torture")]
    pub(crate) data: PathBuf,
}

/// Promises that can be broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sabotage {
    /// While all nodes are down, each gets an older state of its directory
    Rollback,
    /// While all nodes are down, their directories are emptied
    Forget,
    /// The certificates of `--tls` are not replaced
    Expire,
}

impl Arguments {
    /// The kinds of faults that this machine supports.
    pub(crate) fn kinds(&self) -> Vec<Kind> {
        if self.no_faults || self.rolls.is_some() {
            return Vec::new();
        }
        let mut kinds = match self.faults.as_slice() {
            [] => vec![
                Kind::Kill,
                Kind::Terminate,
                Kind::Pause,
                Kind::FullDisk,
                Kind::Lose,
                Kind::Cut,
                Kind::Clock,
                Kind::Roll,
            ],
            chosen => chosen.to_vec(),
        };
        if self.members && !kinds.contains(&Kind::Replace) {
            kinds.push(Kind::Replace);
        }
        kinds
    }

    /// How long the run takes, roughly if the number of rolls decides it.
    pub(crate) fn duration(&self) -> Duration {
        match self.rolls {
            None => Duration::from_secs(self.seconds),
            Some(times) => ROLL * u32::from(times),
        }
    }

    /// The longest time without an acknowledged write, if there is a limit.
    pub(crate) fn write_limit(&self) -> Option<Duration> {
        let of_rolls = self.rolls.map(|_| WRITE_LIMIT_MS);
        self.write_limit_ms.or(of_rolls).map(Duration::from_millis)
    }

    /// The settings of the deployment: logs are truncated, and snapshots sent, often enough to be
    /// tested.
    pub(crate) fn settings(&self) -> Vec<String> {
        let often = [
            "options.snapshot_slots=6000",
            "options.window_slots=2048",
            "options.retained_slots=2048",
        ];
        // The former release founds the cluster too.
        let first = self.former.iter().map(|_| "level=17".to_owned());
        let often = often.map(String::from).into_iter();
        often
            .chain(first)
            .chain(self.overrides.iter().cloned())
            .collect()
    }

    /// The command that repeats the schedule of this run.
    pub(crate) fn repeat(&self, seed: u64) -> String {
        let schedule = match self.rolls {
            None => format!("--seconds {} --gap-ms {}", self.seconds, self.gap_ms),
            Some(times) => format!("--rolls {times}"),
        };
        let mut words = vec![
            format!(
                "cargo xtask torture {schedule} --seed {seed} --preset {}",
                self.preset
            ),
            format!(
                "--clients {} --odd-clients {}",
                self.clients, self.odd_clients
            ),
        ];
        let limit = self.write_limit_ms;
        words.extend(limit.map(|ms| format!("--write-limit-ms {ms}")));
        words.extend(
            self.overrides
                .iter()
                .map(|setting| format!("--set {setting}")),
        );
        let name = |value: clap::builder::PossibleValue| value.get_name().to_owned();
        let kinds: Vec<String> = self
            .faults
            .iter()
            .filter_map(ValueEnum::to_possible_value)
            .map(name)
            .collect();
        if !kinds.is_empty() {
            words.push(format!("--faults {}", kinds.join(",")));
        }
        for (is_given, word) in [
            (self.members, "--members"),
            (self.no_faults, "--no-faults"),
            (self.tls, "--tls"),
        ] {
            words.extend(is_given.then(|| word.to_owned()));
        }
        if self.tls {
            words.push(format!(
                "--certificate-seconds {}",
                self.certificate_seconds
            ));
        }
        if let Some(former) = &self.former {
            words.push(format!("--former {}", former.display()));
        }
        if let Some(how) = self.sabotage.and_then(|how| how.to_possible_value()) {
            words.push(format!("--break {}", how.get_name()));
        }
        words.join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_that_repeats_a_run_says_all_that_decides_it() {
        let words = "torture --seconds 9 --faults kill,full-disk --members --break forget --set f=1 --clients 3 --odd-clients 2 --former old --tls --certificate-seconds 8";
        let arguments = Arguments::parse_from(words.split(' '));
        let repeat = arguments.repeat(5);
        let again = Arguments::parse_from(repeat.trim_start_matches("cargo xtask ").split(' '));
        assert_eq!(again.seed, Some(5));
        assert_eq!(again.repeat(5), repeat);
        assert_eq!(again.kinds(), [Kind::Kill, Kind::FullDisk, Kind::Replace]);
        assert_eq!(again.sabotage, Some(Sabotage::Forget));
        assert_eq!((again.tls, again.certificate_seconds), (true, 8));
        let calm = Arguments::parse_from(["torture", "--no-faults"]);
        assert!(calm.kinds().is_empty() && calm.repeat(5).ends_with(" --no-faults"));
    }

    fn rolls(more: &str) -> Result<Arguments, String> {
        let words = format!("torture --rolls 20 {more}");
        Arguments::try_parse_from(words.split_whitespace()).map_err(|error| error.to_string())
    }

    #[test]
    fn rolls_have_no_other_faults_and_a_limit() {
        let twenty = rolls("--former old --tls").unwrap();
        assert!(twenty.kinds().is_empty());
        assert_eq!(twenty.write_limit(), Some(Duration::from_secs(2)));
        assert_eq!(twenty.duration(), Duration::from_secs(1200));
        let other = rolls("--former old --write-limit-ms 500").unwrap();
        assert_eq!(other.write_limit(), Some(Duration::from_millis(500)));
        let repeat = other.repeat(5);
        let again = Arguments::parse_from(repeat.trim_start_matches("cargo xtask ").split(' '));
        assert_eq!(again.repeat(5), repeat);
        assert_eq!((again.rolls, again.write_limit_ms), (Some(20), Some(500)));
        let faults = Arguments::parse_from(["torture", "--former", "old"]);
        assert_eq!(faults.write_limit(), None);
    }

    #[test]
    fn what_rolls_do_not_go_with_is_refused_by_name() {
        assert!(rolls("").unwrap_err().contains("--former <FILE>"));
        for (refused, name) in [
            ("--seconds 60", "--seconds <N>"),
            ("--faults kill", "--faults <KIND>"),
            ("--gap-ms 100", "--gap-ms <MS>"),
            ("--members", "--members"),
            ("--no-faults", "--no-faults"),
            ("--break forget", "--break <HOW>"),
        ] {
            let error = rolls(&format!("--former old {refused}")).unwrap_err();
            assert!(
                error.contains("cannot be used with") && error.contains(name),
                "{refused}: {error}"
            );
        }
        let none = Arguments::try_parse_from(["torture", "--former", "old", "--rolls", "0"]);
        assert!(none.unwrap_err().to_string().contains("1..=1000"));
    }
}
