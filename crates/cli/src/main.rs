//! The command `ionian`: a replicated key-value store for any Redis client, and the commands that
//! operate it. The tools (`ionian bench`, `ionian sim`) are another program, which this one starts:
//! see the crates `program` and `tools`.
//!
//! | file | job |
//! |---|---|
//! | `node` | one node in the foreground; `gateway_app` (for Redis clients) and `netfs_app` (for
//! mounts) connect what listens at its gateway address to its client lane |
//! | `up` | every node of a deployment as a supervised process |
//! | `config`, `status`, `drain`, `member`, `options`, `exec`, `mount` | one command each |
//! | `plan` | which deployment carries a load |
//! | `advise` | what limits a running cluster |
//! | `trace` | the path of a command through all roles |
//! | `metrics` | the metrics that nodes report |
//! | `snapshot` | backups: save, inspect, restore, salvage |
//! | `certs` | certificates of nodes and operators |
//! | `log` | the logs of stopped nodes: show, skip |
//! | `cluster_args` | arguments that several commands share |
//! | `source` | how a command finds the deployment of its cluster |
//! | `protocols` | access to a protocol by its name |
//! | `data_paths`, `durable` | the paths in a data directory; writing files there |
//! | `completions`, `manual` | what shells and `man` show of the arguments |
//! | `address`, `contact` | socket addresses; how this process identifies itself to nodes |
//! | `version` | the text of `--version` |
//!
//! A command owns its arguments: they are in its file, or in `arguments.rs` of its folder.

#![forbid(unsafe_code)]
#![deny(clippy::print_stderr)]

extern crate alloc;

mod address;
mod advise;
mod certs;
mod cluster_args;
mod completions;
mod config;
mod contact;
mod data_paths;
mod drain;
mod durable;
mod exec;
mod gateway_app;
mod log;
mod login;
mod manual;
mod member;
mod metrics;
mod mount;
mod netfs_app;
mod node;
mod options;
mod plan;
mod protocols;
mod signals;
mod snapshot;
mod source;
mod status;
mod trace;
mod up;
mod upgrade;
mod version;
mod waiting;

use anyhow::Result;
use clap::{Parser, Subcommand};
use ionian_program::output::{self, say_on_stderr};
use ionian_program::{exit_code, tools};
use std::process::ExitCode;

/// State machine replication made of small roles: a linearizable key-value store behind any Redis
/// client.
#[derive(Debug, Parser)]
#[command(
    name = "ionian",
    version = crate::version::TEXT.as_str(),
    arg_required_else_help = true,
    after_help = "A first cluster:\n  \
        ionian up                      three nodes on this machine, clients at 127.0.0.1:7379\n  \
        redis-cli -p 7379              any Redis client talks to it\n  \
        ionian status                  who leads, who is behind, who is down\n\n\
        Exit codes: 0 done, 1 a job that failed, 2 bad usage; of `ionian status` also 3, a degraded\n\
        cluster, and 4, one whose nodes refuse to show their status."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Up(up::Arguments),
    Node(node::Arguments),
    Config(config::Arguments),
    Plan(plan::Arguments),
    Advise(advise::Arguments),
    Status(status::Arguments),
    Drain(drain::Arguments),
    Member(member::Arguments),
    Options(options::Arguments),
    Upgrade(upgrade::Arguments),
    Exec(exec::Arguments),
    Trace(trace::Arguments),
    Mount(mount::Arguments),
    #[command(about = tools::SIM)]
    Sim,
    #[command(about = tools::BENCH)]
    Bench,
    Snapshot(snapshot::Arguments),
    Log(log::Arguments),
    Completions(ionian_program::completions::Arguments),
    Man(manual::Arguments),
    Metrics(metrics::Arguments),
    Certs(certs::Arguments),
}

fn main() -> ExitCode {
    let done = match tools::are_asked_for(std::env::args_os()) {
        // Their flags are not parsed here, but by the program that executes them.
        true => start_tools(),
        false => run(&Arguments::parse().command),
    };
    let advice = done.as_ref().err().and_then(contact::advice);
    let code = exit_code(done);
    advice.iter().for_each(|advice| say_on_stderr!("{advice}"));
    output::settle();
    code
}

fn start_tools() -> Result<ExitCode> {
    match tools::start()? {}
}

fn run(command: &Command) -> Result<ExitCode> {
    match command {
        Command::Up(arguments) => up::run(arguments),
        Command::Node(arguments) => node::run(arguments),
        Command::Config(arguments) => config::run(arguments),
        Command::Plan(arguments) => plan::run(arguments),
        Command::Advise(arguments) => advise::run(arguments),
        Command::Status(arguments) => status::run(arguments),
        Command::Drain(arguments) => drain::run(arguments),
        Command::Member(arguments) => member::run(arguments),
        Command::Options(arguments) => options::run(arguments),
        Command::Upgrade(arguments) => upgrade::run(arguments),
        Command::Exec(arguments) => exec::run(arguments),
        Command::Trace(arguments) => trace::run(arguments),
        Command::Mount(arguments) => mount::run(arguments),
        Command::Sim | Command::Bench => start_tools(),
        Command::Log(arguments) => log::run(arguments),
        Command::Metrics(arguments) => metrics::run(arguments),
        Command::Certs(arguments) => certs::run(arguments),
        Command::Snapshot(arguments) => snapshot::run(arguments),
        Command::Completions(arguments) => completions::run(arguments),
        Command::Man(arguments) => manual::run(arguments),
    }
}
