//! What can be typed after `ionian snapshot`.

use crate::arguments::Whereabouts;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Back up a cluster, look at a backup, and start a new cluster from one
///
/// docs/backup.md goes through it in order.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    after_help = "Examples:\n  \
        ionian snapshot save backup.snapshot                 of the running cluster of ./ionian-data\n  \
        ionian snapshot inspect backup.snapshot\n  \
        ionian snapshot restore backup.snapshot --config new.toml --data new-data\n  \
        ionian snapshot salvage data/nodes/n1 --output rescued.snapshot\n                                                       \
        when more nodes are lost than the quorums bear"
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: SnapshotCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SnapshotCommand {
    Save(Save),
    Inspect(Inspect),
    Restore(Restore),
    Salvage(Salvage),
}

/// Save the state of a running cluster to a file, while clients go on
///
/// The file holds every write that was acknowledged before the command began, and for each later
/// one all of it or nothing: it is the state at one place of the log.
#[derive(Debug, Args)]
pub(crate) struct Save {
    /// The file to write; it must not exist
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) whereabouts: Whereabouts,
    /// Save what the furthest replica has even if too few acceptors answer to know whether it is
    /// everything
    #[arg(long)]
    pub(crate) allow_stale: bool,
    /// Copy the last snapshot of one stopped node instead, from its directory (DIR/nodes/NAME);
    /// what came after it is not in it
    #[arg(long, value_name = "NODE_DIR", conflicts_with_all = ["data", "config", "at", "allow_stale"])]
    pub(crate) stopped: Option<PathBuf>,
}

/// Say what a snapshot is of and whether it is sound
///
/// Exits with code 1 when it is not.
#[derive(Debug, Args)]
pub(crate) struct Inspect {
    /// A file of `save` or `salvage`, or the directory of a stopped node
    pub(crate) file: PathBuf,
    /// Print one JSON document
    #[arg(long)]
    pub(crate) json: bool,
}

/// Make the data directories of a new cluster that begins with a snapshot
///
/// Every node of the new cluster must be made from the same file before any of them is started.
#[derive(Debug, Args)]
pub(crate) struct Restore {
    /// The snapshot
    pub(crate) file: PathBuf,
    /// The deployment of the new cluster, with a name of its own
    #[arg(long, value_name = "FILE")]
    pub(crate) config: PathBuf,
    /// Where the new cluster's data goes; each node's to DIR/nodes/NAME, which must be empty
    #[arg(long, value_name = "DIR")]
    pub(crate) data: PathBuf,
    /// Make this node's directory alone, on its machine
    #[arg(long, value_name = "NAME")]
    pub(crate) node: Option<String>,
    /// Let the new cluster have the name of the old one: only if no node of that will ever be
    /// started again
    #[arg(long)]
    pub(crate) same_name: bool,
}

/// Save what can be saved from the directories of some nodes, when too few are left for a quorum
///
/// Takes the newest snapshot that a replica stored and executes what the acceptors there voted for
/// after it. Says how far that went, and what may be missing or appear that was never acknowledged.
/// Changes nothing in the directories.
#[derive(Debug, Args)]
pub(crate) struct Salvage {
    /// The directories of stopped nodes of one cluster (DIR/nodes/NAME)
    #[arg(required = true, value_name = "NODE_DIR")]
    pub(crate) directories: Vec<PathBuf>,
    /// The file to write; it must not exist
    #[arg(long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// Go on behind slots of which nothing is known: saves more writes, but a later write may then
    /// be there without an earlier one
    #[arg(long)]
    pub(crate) past_holes: bool,
    /// The cluster's deployment: tells whether the directories are enough for everything to be
    /// there
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}
