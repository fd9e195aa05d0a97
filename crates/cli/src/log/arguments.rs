//! Arguments of `ionian log`.

use clap::{Args, Subcommand};
use ionian_runtime::storage::skips::CommandName;
use std::path::PathBuf;

/// Show the commands in the logs of stopped nodes, and skip a command on which the state machine
/// panics
///
/// docs/operations.md describes the procedure.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    after_help = "Examples:\n  \
        ionian log show --data /var/lib/ionian          the failing and the skipped commands\n  \
        ionian log show 17 --data /var/lib/ionian       the commands of slot 17\n  \
        ionian log skip 17/3:5/00c0ffee00c0ffee --data /var/lib/ionian"
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: LogCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LogCommand {
    Show(Show),
    Skip(Skip),
}

/// Print the commands of a slot, with their names; without a slot, the command on which each node's
/// state machine panicked, those that it executed when its process was killed, and the skipped ones
///
/// For a slot it prints the last vote of each acceptor. Only deployments of multipaxos are
/// supported.
#[derive(Debug, Args)]
pub(crate) struct Show {
    /// The slot number
    pub(crate) slot: Option<u64>,
    /// The data directory of stopped nodes, or of one of them (DIR/nodes/NAME)
    #[arg(long, value_name = "DIR", default_value = crate::cluster_args::DATA)]
    pub(crate) data: PathBuf,
}

/// Make stopped nodes skip a command permanently: the last resort if the state machine panics on it
///
/// The client gets an error for the command, also if it repeats it, and the command changes
/// nothing. Every node of the cluster must skip the same commands; nodes with different lists
/// refuse each other. A running node refuses, and so does a node whose snapshot shows that it has
/// executed the command.
#[derive(Debug, Args)]
pub(crate) struct Skip {
    /// The name of the command, SLOT/SESSION:NUMBER/DIGEST, from the node's last log line or from
    /// `ionian log show`
    pub(crate) command: CommandName,
    /// The data directory of stopped nodes, all of which are changed, or of one of them
    /// (DIR/nodes/NAME)
    #[arg(long, value_name = "DIR", default_value = crate::cluster_args::DATA)]
    pub(crate) data: PathBuf,
    /// Execute the command again, on nodes whose log has not passed it
    #[arg(long)]
    pub(crate) undo: bool,
}
