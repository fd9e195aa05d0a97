//! Arguments of `ionian status`.

use crate::cluster_args::ClusterArgs;
use clap::Args;

/// Show whether the cluster serves, how many more nodes may fail, every node, and what is wrong
///
/// Asks every node and judges from all answers together: whether enough acceptors for a quorum
/// answer, whether they follow the leader, whether every role is running. Exit codes: 0 healthy, 1
/// not serving (or no answer), 3 degraded: the cluster serves, but something is missing or fewer
/// nodes may fail than the deployment is meant to tolerate, 4 unknown: nodes run, and refuse to
/// show their status to this command.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  ionian status\n  ionian status --at 10.0.0.2:17400 --probe\n  \
    ionian status --wait --timeout 60               until it is healthy, or for a minute"
)]
pub(crate) struct Arguments {
    /// Print one JSON document instead of tables
    #[arg(long)]
    pub(crate) json: bool,
    /// Also show every role with its figures that are not 0
    #[arg(long, conflicts_with = "json")]
    pub(crate) roles: bool,
    /// Also send a command without effect through the log, and show its latency
    #[arg(long)]
    pub(crate) probe: bool,
    /// Ask again until the cluster is healthy
    #[arg(long)]
    pub(crate) wait: bool,
    /// Stop waiting after this many seconds
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 60,
        requires = "wait",
        allow_negative_numbers = true
    )]
    pub(crate) timeout: u32,
    #[command(flatten)]
    pub(crate) cluster_args: ClusterArgs,
}
