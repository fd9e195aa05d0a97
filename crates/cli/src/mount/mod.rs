//! `ionian mount`: a directory that shows the file system of a cluster.

#[cfg(feature = "mount")]
mod mounted;

use crate::cluster_args::ClusterArgs;
use clap::Args;
#[cfg(feature = "mount")]
pub(crate) use mounted::run;
use std::path::PathBuf;

/// Mount the file system of a cluster (machine = netfs) at a directory
///
/// Runs in the foreground: prints one line that begins with `ready` when the directory is mounted,
/// and unmounts it on Ctrl-C or SIGTERM. Connects to any node, and to another one when that node
/// fails. If no node answers, programs get an I/O error after 8 s at most.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    ionian up --set machine=netfs                 a cluster that replicates files\n  \
    ionian mount /mnt/shared                      that of ./ionian-data\n  \
    ionian mount /mnt/shared --at 10.0.0.2:17400  a cluster on other machines")]
pub(crate) struct Arguments {
    /// An existing directory
    pub(crate) directory: PathBuf,
    /// Let the kernel use names, attributes and pages for this long without asking the cluster:
    /// faster, but changes of other mounts can remain unseen as long [default: 0]
    #[arg(
        long,
        value_name = "MILLISECONDS",
        default_value_t = 0,
        hide_default_value = true
    )]
    pub(crate) stale_ms: u64,
    /// Let other users use the directory, too
    #[arg(long)]
    pub(crate) allow_other: bool,
    #[command(flatten)]
    pub(crate) cluster_args: ClusterArgs,
}

/// Says how to get a program that can mount.
#[cfg(not(feature = "mount"))]
pub(crate) fn run(_: &Arguments) -> anyhow::Result<std::process::ExitCode> {
    anyhow::bail!(
        "this program was built without mounts: `cargo build --release -p ionian-cli --features mount` builds it with \
         them, and packages have them"
    )
}
