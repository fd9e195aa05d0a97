//! The arguments of `ionian trace`.

use crate::cluster_args::ClusterArgs;
use crate::login::Login;
use clap::{Args, Subcommand};
use std::ffi::OsString;
#[cfg(feature = "otel")]
use std::path::PathBuf;

/// Show the path of a command through all roles, and what slow commands waited for
///
/// Nodes note which messages their roles receive and send only while they are asked to. docs:
/// tracing.md.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    after_help = "Examples:\n  ionian trace exec SET name Ionian\n  \
    ionian trace record --one-in 1000 --seconds 3600\n  ionian trace slow"
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: TraceCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TraceCommand {
    /// Send one command, and print its path as a tree and as a list of what its reply waited for
    ///
    /// All nodes note everything for ten seconds.
    Exec {
        /// The gateway to send it to [default: the first that can be reached]
        #[arg(long, value_name = "ADDR")]
        gateway: Option<String>,
        #[command(flatten)]
        login: Login,
        #[command(flatten)]
        shown: Shown,
        /// The command and its arguments
        #[arg(
            required = true,
            trailing_var_arg = true,
            allow_hyphen_values = true,
            value_name = "CMD ARG"
        )]
        words: Vec<OsString>,
    },
    /// Print what slow commands waited for, the newest first
    ///
    /// A command is slow if it takes as long as the setting slow_ms says. What roles did is known
    /// while nodes record all commands and for as long as their notes last; otherwise the share of
    /// the gateway, and what nodes waited long for meanwhile: the disk, or the processor.
    Slow {
        /// At most this many commands
        #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=128))]
        count: u32,
        #[command(flatten)]
        shown: Shown,
    },
    /// Print what the commands waited for that clients have traced or that are in a sample, the
    /// newest first
    Kept {
        /// At most this many commands
        #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=128))]
        count: u32,
        #[command(flatten)]
        shown: Shown,
    },
    /// Send the commands that gateways keep, the slow ones, the traced ones and the sample, to a
    /// collector of OpenTelemetry
    ///
    /// Asks once a second, until it is stopped.
    #[cfg(feature = "otel")]
    Export {
        /// The collector, which takes OTLP over HTTP: http:// or https://
        #[arg(long, value_name = "http://HOST:PORT", default_value = "http://127.0.0.1:4318", value_parser = super::export::endpoint)]
        otlp: hyper::Uri,
        /// Certificates, as PEM, of the authorities that may have signed that of the collector; for
        /// https://
        #[arg(long, value_name = "FILE")]
        otlp_ca: Option<PathBuf>,
        /// Send what is there, and end
        #[arg(long)]
        once: bool,
        #[command(flatten)]
        cluster_args: ClusterArgs,
    },
    /// Have all nodes note what they do for a sample of commands, or for all
    Record {
        /// One in this number of commands; 1 for all
        #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
        one_in: u64,
        /// For how long
        #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
        seconds: u64,
        #[command(flatten)]
        cluster_args: ClusterArgs,
    },
}

/// Which cluster, and how it is printed.
#[derive(Debug, Args)]
pub(crate) struct Shown {
    /// Print one JSON document instead of text
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) cluster_args: ClusterArgs,
}
