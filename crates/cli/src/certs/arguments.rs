//! Arguments of `ionian certs`.

use super::DAYS;
use crate::cluster_args::ClusterArgs;
use clap::builder::TypedValueParser;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Make, renew and list the certificates of a cluster
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: CertsCommand,
}

fn days() -> impl TypedValueParser<Value = u32> {
    clap::value_parser!(u32).range(1..=3650)
}

fn client_name(text: &str) -> Result<String, &'static str> {
    let is_allowed = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    let fits = (1..=64).contains(&text.len()) && text.chars().all(is_allowed);
    let fits = fits && !text.starts_with('.');
    fits.then(|| text.to_owned())
        .ok_or("must be up to 64 letters, digits, '-', '_' and '.', and not begin with '.'")
}

#[derive(Debug, Subcommand)]
pub(crate) enum CertsCommand {
    /// Make a certificate authority, and certificates for all nodes, an operator and a monitor
    #[command(
        after_help = "Examples:\n  ionian certs create --config cluster.toml --out certs\n  \
        ionian node n0 --config cluster.toml --data /var/lib/ionian --tls certs/nodes/n0\n  \
        ionian status --config cluster.toml --tls certs/operator"
    )]
    Create {
        /// The deployment file, which names the nodes and their addresses
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// The directory to write
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
        /// Days until the certificates expire; the authority is valid for ten years
        #[arg(long, value_name = "DAYS", default_value_t = DAYS, value_parser = days())]
        days: u32,
    },
    /// Make new certificates with the authority in DIR for all nodes, people and clients, also for
    /// nodes that have none yet
    Renew {
        /// The deployment file, which names the nodes and their addresses
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// The directory that `ionian certs create` has written
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
        /// Days until the certificates expire
        #[arg(long, value_name = "DAYS", default_value_t = DAYS, value_parser = days())]
        days: u32,
    },
    /// Make a certificate for a client with the authority in DIR
    ///
    /// Nodes with `--client-user certificate` take its owner for the user of the same name, without
    /// a password.
    #[command(
        after_help = "Examples:\n  ionian certs client web --config cluster.toml --out certs\n  \
        redis-cli --tls --cacert certs/ca.crt --cert certs/clients/web/tls.crt \
        --key certs/clients/web/tls.key"
    )]
    Client {
        /// The client's name
        #[arg(value_parser = client_name)]
        name: String,
        /// The deployment file, which names the cluster
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// The directory that `ionian certs create` has written
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
        /// Days until the certificate expires
        #[arg(long, value_name = "DAYS", default_value_t = DAYS, value_parser = days())]
        days: u32,
    },
    /// Show the certificates that the running nodes use, and whom they trust
    ///
    /// Exits with code 1 if a node does not answer, has no TLS, or refuses its files.
    #[command(after_help = "Examples:\n  ionian certs status\n  \
        ionian certs status --fresh --config cluster.toml --tls certs/monitor")]
    Status {
        /// Wait until each node has read its files again, to see what became of new ones: that
        /// takes 10 s, or until SIGHUP
        #[arg(long)]
        fresh: bool,
        #[command(flatten)]
        cluster_args: ClusterArgs,
    },
}
