//! Arguments of `ionian up`.

use crate::cluster_args::DATA;
use clap::{Args, ValueEnum};
use ionian_deployment::MAX_NODES;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Start every node of a deployment on this machine, each as a process, and keep them running
///
/// Prints one line that begins with `ready` and lists the client addresses as soon as the cluster
/// serves clients. A node that ends is restarted: immediately the first time, after at most 5 s if
/// it keeps ending, after at most 30 s if it reports that it cannot run. Ctrl-C stops all nodes in
/// order, a second Ctrl-C kills them.
///
/// The deployment is written to DIR/deployment.toml, each node's process id to DIR/run/NODE.pid and
/// its log to DIR/logs/NODE.log. A later `ionian up` with the same DIR runs the same deployment.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    ionian up                                       three nodes, every role on each\n  \
    ionian up --nodes 5 --data five                 any two may fail\n  \
    ionian up --preset compartmentalized            every role in its own process, 22 processes\n  \
    ionian up my.toml --data /var/lib/ionian        your own deployment\n  \
    ionian up --data b --listen 127.0.0.1:8379 --node-port 18400\n                                                  \
    a second cluster beside the first\n  \
    ionian up --set options.batch_commands=10       see `ionian config init -` for all settings")]
pub(crate) struct Arguments {
    /// A deployment file, as `ionian config init` writes it
    #[arg(conflicts_with_all = ["preset", "nodes", "node_port", "config"])]
    pub(crate) file: Option<PathBuf>,
    /// Same as FILE
    #[arg(long, value_name = "FILE", conflicts_with_all = ["preset", "nodes", "node_port"])]
    pub(crate) config: Option<PathBuf>,
    /// A deployment that comes with Ionian; `ionian config presets` lists them [default: colocated]
    #[arg(long, value_name = "NAME")]
    pub(crate) preset: Option<String>,
    /// How many nodes, of which a minority may fail, for presets whose nodes are all alike
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=MAX_NODES as i64))]
    pub(crate) nodes: Option<u16>,
    /// Directory for the deployment, the logs and the nodes' data
    #[arg(long, value_name = "DIR", default_value = DATA)]
    pub(crate) data: PathBuf,
    /// Client address of the first gateway; the other gateways use the next ports [default:
    /// 127.0.0.1:7379]
    #[arg(long, value_name = "HOST:PORT", value_parser = socket_address)]
    pub(crate) listen: Option<SocketAddr>,
    /// Port on which the first node of a preset accepts other nodes; the other nodes use the next
    /// ports [default: 17400]
    #[arg(long, value_name = "PORT")]
    pub(crate) node_port: Option<u16>,
    /// What survives the end of a process: with `disk` everything, with `memory` nothing [default:
    /// disk, or that of the file or directory]
    #[arg(long, value_enum)]
    pub(crate) durability: Option<Durability>,
    /// Serve the dashboard, metrics and health over HTTP: the first node at this address, the
    /// others at the next ports [default: 127.0.0.1, 2021 ports above the gateways (9400), if those
    /// are free; none with --tls. Without a value: 127.0.0.1:9400]
    #[arg(
        long,
        value_name = "HOST:PORT",
        num_args = 0..=1,
        default_missing_value = "127.0.0.1:9400",
        value_parser = socket_address
    )]
    pub(crate) http: Option<SocketAddr>,
    /// Serve no dashboard
    #[arg(long, conflicts_with = "http")]
    pub(crate) no_http: bool,
    /// Secure all connections: makes certificates in DIR/tls, or uses those that are there
    #[arg(long)]
    pub(crate) tls: bool,
    /// Report nodes that end, but do not restart them
    #[arg(long)]
    pub(crate) no_restart: bool,
    /// Change a setting of the deployment, such as durability=memory or
    /// node.n0.roles=leader,acceptor*2; repeatable
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) overrides: Vec<String>,
}

fn socket_address(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse()
        .map_err(|_| "must be HOST:PORT with an IP address as the host, such as 127.0.0.1:7379")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Durability {
    Disk,
    Memory,
}
