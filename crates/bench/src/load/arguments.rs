//! What can be typed.

use super::encode::MOST_KEYS;
use super::target::Target;
use super::workload::{Mix, Skew};
use clap::{Args, ValueEnum, value_parser};
use ionian_program::{BadUsage, Credentials, Level};
use std::path::PathBuf;
use std::str::FromStr;

/// Requests in flight with `--lanes`, unless it is said.
const IN_FLIGHT: usize = 128;

/// The most bytes of values that a connection sends at once.
const UNIT_BYTES: u64 = 64 << 20;

/// Connections, unless it is said.
const CLIENTS: usize = 64;

/// The flags of `ionian bench` itself.
#[derive(Clone, Debug, Args)]
pub struct Load {
    #[command(flatten)]
    pub(crate) servers: Servers,
    #[command(flatten)]
    pub(crate) asks: Asks,
    #[command(flatten)]
    pub(crate) course: Course,
}

/// Who is measured.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "What is measured")]
pub(crate) struct Servers {
    /// A server that speaks the Redis protocol; repeated, connections are spread over all of them
    /// [default: a cluster that is started for the run]
    #[arg(long, value_name = "redis://HOST:PORT")]
    pub(crate) target: Vec<Target>,
    /// Directory with a certificate (tls.crt, tls.key, ca.crt): the servers of --target have TLS
    #[arg(long, value_name = "DIR", requires = "target")]
    pub(crate) tls: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) credentials: Credentials,
    /// Write into servers of --target and --versus that hold keys already; without it those are
    /// left alone
    #[arg(long)]
    pub(crate) yes: bool,
    /// A process of this machine whose processor time is to be counted; can be repeated
    #[arg(long, value_name = "NAME=PID", requires = "target")]
    pub(crate) pid: Vec<Account>,
    /// Start this deployment, on free ports and in a directory that is removed afterwards; `ionian
    /// config presets` lists them [default: colocated]
    #[arg(long, value_name = "NAME", conflicts_with_all = ["target", "file"])]
    pub(crate) preset: Option<String>,
    /// Start the deployment of this file, on free ports and in a directory that is removed
    /// afterwards
    #[arg(long, value_name = "FILE", conflicts_with = "target")]
    pub(crate) file: Option<PathBuf>,
    /// Change a setting of the deployment; can be repeated
    #[arg(long = "set", value_name = "KEY=VALUE", conflicts_with = "target")]
    pub(crate) overrides: Vec<String>,
    /// What the cluster keeps on disk [default: memory, or that of the file]
    #[arg(long, value_enum, conflicts_with = "target")]
    pub(crate) durability: Option<Durability>,
    /// Where the cluster's directory is made [default: the system's directory for temporary files]
    #[arg(long, value_name = "DIR", conflicts_with = "target")]
    pub(crate) data: Option<PathBuf>,
    /// Ask through the client lane of the library and not through the Redis protocol: this process
    /// is then the first node that has one, and its processor time is that of node and client
    /// together
    #[arg(long, conflicts_with_all = ["target", "versus", "clients", "rate", "pipeline", "threads", "strict"])]
    pub(crate) lanes: bool,
    /// Another server, measured in turns with the first; repeated, connections are spread over all
    /// of them
    #[arg(long, value_name = "redis://HOST:PORT")]
    pub(crate) versus: Vec<Target>,
    /// A process of the other server whose processor time is to be counted; can be repeated
    #[arg(long, value_name = "NAME=PID", requires = "versus")]
    pub(crate) versus_pid: Vec<Account>,
}

/// What is asked.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "What is asked")]
pub(crate) struct Asks {
    /// How many connections there are; each sends when it has its replies [default: 64]
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..=20_000))]
    clients: Option<u64>,
    /// Start this number of commands a second, whether earlier ones are answered or not; latency
    /// counts from when a command was to be begun, and --clients is how many can be on their way
    #[arg(long, value_name = "PER_SECOND", value_parser = positive)]
    pub(crate) rate: Option<f64>,
    /// Send this number of commands at once [default: 1]
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..=10_000))]
    pipeline: Option<u64>,
    /// Keep this number of requests in flight, with --lanes [default: 128]
    #[arg(long, value_name = "N", requires = "lanes", value_parser = value_parser!(u64).range(1..=1_000_000))]
    in_flight: Option<u64>,
    /// How many of a hundred commands read (GET); the others write (SET)
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = value_parser!(u8).range(0..=100))]
    reads: u8,
    /// Append to streams: writes are XADD with 0-* and MAXLEN ~ 1000, reads are XREVRANGE of the
    /// last entry
    #[arg(long)]
    append: bool,
    /// How fresh reads must be, where gateways of Ionian are asked [default: linearizable]
    #[arg(long, value_enum, value_name = "LEVEL")]
    pub(crate) level: Option<Level>,
    /// How long values are
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = value_parser!(u32).range(0..=1 << 20))]
    value_bytes: u32,
    /// How many keys there are; before reads are measured, all are written
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = value_parser!(u64).range(1..=MOST_KEYS))]
    keys: u64,
    /// How commands are spread over the keys: uniform, zipfian, zipfian:THETA, or point:P, where a
    /// fraction P goes to one
    #[arg(long, value_name = "SKEW", default_value = "uniform")]
    skew: Skew,
    /// Decides which keys are asked for
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
}

/// How long, how often, and where the results go.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "How it is measured")]
pub(crate) struct Course {
    /// Seconds before the time that counts, in each round
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = not_negative)]
    pub(crate) warm_up: f64,
    /// Seconds that count, in each round
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, value_parser = positive)]
    pub(crate) seconds: f64,
    /// How often it is measured
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = value_parser!(u16).range(1..=1000))]
    pub(crate) rounds: u16,
    /// Threads of the load generator
    #[arg(long, value_name = "N", value_parser = value_parser!(u16).range(1..=64))]
    threads: Option<u16>,
    /// Fail when the load generator's own processor time was the limit
    #[arg(long)]
    pub(crate) strict: bool,
    /// Write every round as a line of comma separated values
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    /// Write everything as one JSON document; with `-` to standard output, and the table to
    /// standard error
    #[arg(long, value_name = "FILE|-")]
    pub(crate) json: Option<PathBuf>,
}

/// What survives the end of a node of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Durability {
    Disk,
    Memory,
}

impl Durability {
    /// Its name in a deployment file.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Durability::Disk => "disk",
            Durability::Memory => "memory",
        }
    }
}

/// `NAME=PID`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) name: String,
    pub(crate) process: u32,
}

impl FromStr for Account {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('=').filter(|(name, _)| !name.is_empty());
        match parts.map(|(name, process)| (name.to_owned(), process.parse())) {
            Some((name, Ok(process))) => Ok(Account { name, process }),
            _ => Err("must be NAME=PID, such as server=4711".to_owned()),
        }
    }
}

impl Asks {
    pub(crate) fn mix(&self) -> Mix {
        Mix {
            keys: self.keys,
            skew: self.skew,
            reads: self.reads,
            value_bytes: self.value_bytes as usize,
            append: self.append,
        }
    }

    pub(crate) fn clients(&self) -> usize {
        self.clients.map_or(CLIENTS, |clients| clients as usize)
    }

    pub(crate) fn pipeline(&self) -> u64 {
        self.pipeline.unwrap_or(1)
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
            .map_or(IN_FLIGHT, |in_flight| in_flight as usize)
    }
}

impl Course {
    pub(crate) fn threads(&self) -> usize {
        self.threads.map_or(1, usize::from)
    }
}

impl Load {
    /// Refuses what makes no sense together.
    ///
    /// # Errors
    /// Says why.
    pub(crate) fn check(&self) -> Result<(), BadUsage> {
        let Load {
            servers,
            asks,
            course,
        } = self;
        let (clients, threads) = (asks.clients(), course.threads());
        let refuse = |text: String| Err(BadUsage(text));
        if servers.credentials.are_named() && servers.target.is_empty() {
            return refuse(
                "--user and --password-file are of the servers of --target, and there are none"
                    .to_owned(),
            );
        }
        if threads > clients {
            return refuse(format!(
                "--threads {threads}: of {clients} connections, some threads would have none"
            ));
        }
        if asks.pipeline() * u64::from(asks.value_bytes) > UNIT_BYTES {
            let (mib, value_bytes) = (UNIT_BYTES >> 20, asks.value_bytes);
            return refuse(format!(
                "--pipeline {} --value-bytes {value_bytes}: more than {mib} MiB at once on each connection",
                asks.pipeline()
            ));
        }
        if asks.level.is_some() && asks.reads == 0 {
            return refuse(
                "--level is about reads, and there are none: say --reads PERCENT".to_owned(),
            );
        }
        if asks.level.is_some() && !servers.versus.is_empty() {
            return refuse(
                "--level is of gateways of Ionian alone, and cannot be asked of --versus"
                    .to_owned(),
            );
        }
        if course.json == Some("-".into()) && course.csv == Some("-".into()) {
            return refuse("--json - and --csv -: standard output takes one of them".to_owned());
        }
        let names = |accounts: &[Account]| {
            accounts
                .iter()
                .map(|account| account.name.clone())
                .collect::<Vec<_>>()
        };
        for names in [names(&servers.pid), names(&servers.versus_pid)] {
            if let Some(twice) = names
                .iter()
                .enumerate()
                .find(|(place, name)| names[..*place].contains(name))
            {
                return refuse(format!(
                    "two processes are called {:?}: give each a name of its own",
                    twice.1
                ));
            }
        }
        Ok(())
    }
}

fn positive(text: &str) -> Result<f64, String> {
    let number = text
        .parse::<f64>()
        .ok()
        .filter(|number| (1e-3..=1e7).contains(number));
    number.ok_or_else(|| "must be a number from 0.001 to 10000000".to_owned())
}

fn not_negative(text: &str) -> Result<f64, String> {
    if text.parse() == Ok(0.0) {
        Ok(0.0)
    } else {
        positive(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory, Parser};

    #[derive(Parser)]
    struct Bench {
        #[command(flatten)]
        load: Load,
    }

    fn parse(words: &str) -> Result<Load, clap::Error> {
        Ok(Bench::try_parse_from(std::iter::once("bench").chain(words.split_whitespace()))?.load)
    }

    #[test]
    fn without_a_word_a_closed_loop_on_a_cluster_in_memory_is_meant() {
        Bench::command().debug_assert();
        let Load {
            servers,
            asks,
            course,
        } = parse("").unwrap();
        assert!(
            servers.target.is_empty()
                && servers.versus.is_empty()
                && !servers.lanes
                && asks.rate.is_none()
        );
        assert_eq!(
            (
                asks.clients(),
                asks.pipeline(),
                asks.in_flight(),
                course.threads()
            ),
            (64, 1, 128, 1)
        );
        assert_eq!(
            asks.mix(),
            Mix {
                keys: 100_000,
                skew: Skew::Uniform,
                reads: 0,
                value_bytes: 16,
                append: false,
            }
        );
    }

    #[test]
    fn what_excludes_each_other_is_refused() {
        let at = "--target redis://h:1";
        for words in [
            "--pid a=1".to_owned(),
            "--tls certs".to_owned(),
            "--versus-pid a=1".to_owned(),
            "--in-flight 5".to_owned(),
            format!("{at} --preset colocated"),
            format!("{at} --file x"),
            format!("{at} --set f=1"),
            format!("{at} --durability disk"),
            format!("{at} --lanes"),
            "--preset colocated --file x".to_owned(),
            "--lanes --clients 5".to_owned(),
            "--lanes --rate 5".to_owned(),
            "--lanes --versus redis://h:1".to_owned(),
            "--reads 101".to_owned(),
            "--lanes --strict".to_owned(),
            "--rate 0".to_owned(),
            "--rate 1e9".to_owned(),
            "--rate nan".to_owned(),
            "--seconds -1".to_owned(),
            "--keys 0".to_owned(),
            "--skew some".to_owned(),
            format!("{at} --pid 5"),
        ] {
            assert!(parse(&words).is_err(), "{words}");
        }
        for (words, says) in [
            ("--clients 2 --threads 3", "of 2 connections"),
            ("--pipeline 100 --value-bytes 1000000", "64 MiB"),
            ("--level eventual", "--reads PERCENT"),
            (
                "--level eventual --reads 5 --versus redis://h:1",
                "--versus",
            ),
            ("--json - --csv -", "standard output"),
            ("--user eva", "--target"),
            ("--target redis://h:1 --pid a=1 --pid a=2", "\"a\""),
        ] {
            assert!(
                parse(words).unwrap().check().unwrap_err().0.contains(says),
                "{words}"
            );
        }
        assert!(
            parse(
                "--target redis://h:1 --pid a=1 --pid b=2 --warm-up 0 --level eventual --reads 5"
            )
            .unwrap()
            .check()
            .is_ok()
        );
    }
}
