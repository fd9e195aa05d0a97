//! What can be typed after `ionian log`.

use clap::{Args, Subcommand};
use ionian_runtime::storage::skips::CommandName;
use std::path::PathBuf;

/// Look at the commands in the logs of stopped nodes, and leave one out on which the state machine
/// panics
///
/// docs/operations.md goes through it in order.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    after_help = "Examples:\n  \
        ionian log show --data /var/lib/ionian          on what the state machine failed, and what is left out\n  \
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

/// Print the commands of a slot, with their names; without a slot, what each node failed on last
/// and leaves out
///
/// What is printed of a slot is what the acceptors of these nodes voted for last. A deployment of
/// multipaxos alone has commands there.
#[derive(Debug, Args)]
pub(crate) struct Show {
    /// The slot
    pub(crate) slot: Option<u64>,
    /// The data directory of stopped nodes, or that of one of them (DIR/nodes/NAME)
    #[arg(long, value_name = "DIR", default_value = crate::arguments::DATA)]
    pub(crate) data: PathBuf,
}

/// Have stopped nodes leave out a command, for good: the last resort when the state machine panics
/// on it
///
/// The command is answered with an error, now and when it is sent again, and changes nothing. Every
/// node of the cluster must leave out the same commands: nodes that do not refuse each other. A
/// node that has executed the command, as its snapshot says, refuses; so does one that runs.
#[derive(Debug, Args)]
pub(crate) struct Skip {
    /// The command's name, SLOT/SESSION:NUMBER/DIGEST, as the node's last line or `ionian log show`
    /// says it
    pub(crate) command: CommandName,
    /// The data directory of stopped nodes, all of which are changed, or that of one of them
    /// (DIR/nodes/NAME)
    #[arg(long, value_name = "DIR", default_value = crate::arguments::DATA)]
    pub(crate) data: PathBuf,
    /// Execute the command after all, on nodes that have left out none of their log so far
    #[arg(long)]
    pub(crate) undo: bool,
}
