//! Arguments of `ionian config`.

use clap::{Args, Subcommand};
use ionian_deployment::MAX_NODES;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Write and check deployment files
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: ConfigCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Write a deployment file with every setting explained
    #[command(
        after_help = "Examples:\n  ionian config init\n  ionian config init --preset batched batched.toml\n  \
        ionian config init --nodes 5                    any two may fail\n  \
        ionian config init --hosts 10.0.0.1,10.0.0.2,10.0.0.3\n  \
        ionian config init -                            to standard output"
    )]
    Init {
        /// The deployment to begin with; `ionian config presets` lists them
        #[arg(
            long,
            value_name = "NAME",
            default_value = ionian_deployment::DEFAULT_PRESET
        )]
        preset: String,
        /// How many nodes, of which a minority may fail, for presets whose nodes are all alike
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=MAX_NODES as i64))]
        nodes: Option<u16>,
        /// The machine of each node, all with the same ports: names or addresses
        #[arg(
            long,
            value_name = "HOST,HOST",
            value_delimiter = ',',
            conflicts_with = "listen"
        )]
        hosts: Vec<String>,
        /// Client address of the first gateway; the other gateways use the next ports [default:
        /// 127.0.0.1:7379]
        #[arg(long, value_name = "ADDR")]
        listen: Option<SocketAddr>,
        /// Port on which the first node accepts other nodes; the other nodes use the next ports
        #[arg(long, value_name = "PORT", default_value_t = 17400)]
        node_port: u16,
        /// Change a setting, such as options.batch_commands=10; repeatable
        #[arg(long = "set", value_name = "KEY=VALUE")]
        overrides: Vec<String>,
        /// Overwrite an existing file
        #[arg(long)]
        force: bool,
        /// The file to write; `-` is standard output
        #[arg(default_value = "ionian.toml")]
        file: PathBuf,
    },
    /// Validate a deployment file and print a summary
    Check {
        /// The file
        file: PathBuf,
        /// Change a setting before checking; repeatable
        #[arg(long = "set", value_name = "KEY=VALUE")]
        overrides: Vec<String>,
    },
    /// List the deployments that come with Ionian
    Presets,
}
