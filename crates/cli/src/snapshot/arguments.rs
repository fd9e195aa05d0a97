//! Arguments of `ionian snapshot`.

use crate::cluster_args::ClusterArgs;
use clap::{Args, Subcommand, value_parser};
use std::path::PathBuf;

/// Back up a cluster, inspect a backup, and start a new cluster from one
///
/// docs/backup.md describes the procedure.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    after_help = "Examples:\n  \
        ionian snapshot save backup.snapshot                 of the running cluster of ./ionian-data\n  \
        ionian snapshot save --into backups --keep 7         and remove all but the newest 7\n  \
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

/// Save the state of a running cluster to a file, without stopping clients
///
/// The file is the state at one position of the log. It contains every write that was acknowledged
/// before the command started, and each later write completely or not at all.
#[derive(Debug, Args)]
pub(crate) struct Save {
    /// The file to write; it must not exist
    #[arg(required_unless_present = "into", conflicts_with_all = ["into", "keep", "metrics"])]
    pub(crate) file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) series: Option<Series>,
    #[command(flatten)]
    pub(crate) cluster_args: ClusterArgs,
    /// Save the state of the most advanced replica even if too few nodes answer to tell whether it
    /// is complete
    #[arg(long)]
    pub(crate) allow_stale: bool,
    /// Copy the last snapshot of one stopped node instead, from its directory (DIR/nodes/NAME); it
    /// lacks all later writes
    #[arg(long, value_name = "NODE_DIR", conflicts_with_all = ["data", "config", "at", "allow_stale"])]
    pub(crate) stopped: Option<PathBuf>,
}

/// Backups at regular times, of which the newest are kept.
#[derive(Debug, Args)]
pub(crate) struct Series {
    /// Write a new file in this directory, named after the cluster and the time
    #[arg(long, value_name = "DIR", required = false, requires = "keep", conflicts_with_all = ["stopped", "allow_stale"])]
    pub(crate) into: PathBuf,
    /// Then remove older files that `--into DIR` has written for this cluster, so that N are left
    #[arg(long, value_name = "N", required = false, requires = "into", value_parser = value_parser!(u16).range(1..=10_000))]
    pub(crate) keep: u16,
    /// Write the time of this backup to FILE (*.prom), for the textfile collector of Prometheus'
    /// node_exporter
    #[arg(long, value_name = "FILE", requires = "into")]
    pub(crate) metrics: Option<PathBuf>,
}

/// Show the origin of a snapshot and verify it
///
/// Exits with code 1 if the snapshot is damaged.
#[derive(Debug, Args)]
pub(crate) struct Inspect {
    /// A file of `save` or `salvage`, or the directory of a stopped node
    pub(crate) file: PathBuf,
    /// Print one JSON document
    #[arg(long)]
    pub(crate) json: bool,
}

/// Create the data directories of a new cluster that starts from a snapshot
///
/// Create the directories of all nodes from the same file before you start any node.
#[derive(Debug, Args)]
pub(crate) struct Restore {
    /// The snapshot
    pub(crate) file: PathBuf,
    /// The deployment of the new cluster, with a new cluster name
    #[arg(long, value_name = "FILE")]
    pub(crate) config: PathBuf,
    /// The data directory of the new cluster; each node's directory is DIR/nodes/NAME, which must
    /// be empty
    #[arg(long, value_name = "DIR")]
    pub(crate) data: PathBuf,
    /// Create this node's directory only, on its machine
    #[arg(long, value_name = "NODE")]
    pub(crate) node: Option<String>,
    /// Allow the new cluster to have the name of the old one: only if no node of the old cluster
    /// will ever start again
    #[arg(long)]
    pub(crate) same_name: bool,
}

/// Save what the directories of some nodes contain, when too few are left for a quorum
///
/// Takes the newest snapshot that a replica has stored, and executes after it what the nodes voted
/// for. Reports how far that went, which writes may be missing, and which writes may appear
/// although they were never acknowledged. Changes nothing in the directories.
#[derive(Debug, Args)]
pub(crate) struct Salvage {
    /// The directories of stopped nodes of one cluster (DIR/nodes/NAME)
    #[arg(required = true, value_name = "NODE_DIR")]
    pub(crate) directories: Vec<PathBuf>,
    /// The file to write; it must not exist
    #[arg(long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// Continue after slots without a known vote: saves more writes, but a later write may be
    /// present without an earlier one
    #[arg(long)]
    pub(crate) past_holes: bool,
    /// The deployment of the cluster, to tell whether the directories are enough for a complete
    /// state
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}
