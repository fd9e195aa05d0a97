//! Arguments that several commands share: which cluster, and how to change it.

use clap::Args;
use std::path::PathBuf;

/// The default data directory.
pub(crate) const DATA: &str = "./ionian-data";

/// Options of all commands that change a running cluster.
#[derive(Debug, Args)]
pub(crate) struct ChangeArgs {
    /// Do not wait until the change is finished
    #[arg(long)]
    pub(crate) no_wait: bool,
    #[command(flatten)]
    pub(crate) cluster_args: ClusterArgs,
}

/// Options that name the cluster.
#[derive(Debug, Args)]
pub(crate) struct ClusterArgs {
    /// The data directory of `ionian up` or `ionian node`
    #[arg(long, value_name = "DIR", default_value = DATA)]
    pub(crate) data: PathBuf,
    /// A deployment file, instead of the one in the data directory
    #[arg(long, value_name = "FILE", conflicts_with = "data")]
    pub(crate) config: Option<PathBuf>,
    /// Address of any running node of the cluster, which provides the addresses of the others
    #[arg(long, value_name = "HOST:PORT", conflicts_with_all = ["data", "config"])]
    pub(crate) at: Option<String>,
    /// Directory with the certificate of an operator or monitor (tls.crt, tls.key, ca.crt), for
    /// nodes with TLS. Not needed for nodes on this machine that run in the data directory
    #[arg(long, value_name = "DIR")]
    pub(crate) tls: Option<PathBuf>,
}
