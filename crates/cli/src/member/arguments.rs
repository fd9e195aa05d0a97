//! Arguments of `ionian member`.

use crate::cluster_args::{ChangeArgs, ClusterArgs, DATA};
use clap::{Args, Subcommand};
use ionian_deployment::MAX_F;
use std::path::PathBuf;

/// Show and change which nodes and roles a running cluster has
///
/// A change goes through the cluster's log. Acceptors and replicas change in two steps, between
/// which the old and the new configuration are both in force; all other roles change at once. The
/// cluster continues to serve. Each command waits until the change is finished and shows what it
/// waits for. If you interrupt the wait, the change continues; run the same command again to wait
/// for it.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
#[command(after_help = "Examples:\n  \
    ionian member list\n  \
    ionian member replace n1 n3 --address 10.0.0.4:17400 --gateway 10.0.0.4:7379\n  \
    ionian member add n4 --address 10.0.0.5:17400 --roles proxy_leader,replica\n  \
    ionian member remove n4\n  \
    ionian member readmit n2 --lost ID --data /var/lib/ionian\n  \
    ionian member list --toml > next.toml                      edit it, then\n  \
    ionian member apply next.toml")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: MemberCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum MemberCommand {
    /// Show the nodes, the numbers of their roles, and the change in progress
    List {
        /// Print the deployment file of the cluster as it is (or will be after the change), for
        /// `member apply`
        #[arg(long)]
        toml: bool,
        #[command(flatten)]
        cluster_args: ClusterArgs,
    },
    /// Add a node
    Add {
        /// The name of the node
        name: String,
        #[command(flatten)]
        address_args: AddressArgs,
        /// Roles of the node, such as leader,acceptor,replica
        #[arg(
            long,
            value_name = "ROLE,ROLE",
            default_value = "",
            hide_default_value = true
        )]
        roles: String,
        #[command(flatten)]
        quorum_args: QuorumArgs,
        #[command(flatten)]
        change_args: ChangeArgs,
    },
    /// Remove a node and its roles
    Remove {
        /// The name of the node
        #[arg(value_name = "NODE")]
        name: String,
        #[command(flatten)]
        quorum_args: QuorumArgs,
        #[command(flatten)]
        change_args: ChangeArgs,
    },
    /// Replace a running or failed node by a new one, which takes over its roles
    Replace {
        /// The node to replace
        old: String,
        /// The name of the new node
        new: String,
        #[command(flatten)]
        address_args: AddressArgs,
        #[command(flatten)]
        change_args: ChangeArgs,
    },
    /// Change to the deployment in a file; instances without a number in the file keep the number
    /// they have
    Apply {
        /// The file, as `ionian member list --toml` writes it
        file: PathBuf,
        #[command(flatten)]
        change_args: ChangeArgs,
    },
    /// Have a node take part again whose data directory is lost, where the protocol allows it
    /// (epaxos)
    ///
    /// Start the node with an empty directory first: the others refuse it, and it prints this
    /// command with the id of the lost one. Then start it again. The lost directory can never be
    /// used again, and until `ionian status` says that the node remembers everything, it counts as
    /// one of those that may fail.
    Readmit {
        /// The name of the node, which is stopped
        #[arg(value_name = "NODE")]
        name: String,
        /// The id of the lost directory, as the other nodes know it
        #[arg(long, value_name = "ID")]
        lost: String,
        /// The data directory that the node is started with; its own is DIR/nodes/NODE
        #[arg(long, value_name = "DIR", default_value = DATA)]
        data: PathBuf,
    },
    /// Go back to the deployment before the change in progress
    Abandon {
        #[command(flatten)]
        change_args: ChangeArgs,
    },
}

/// The addresses of a new node.
#[derive(Debug, Args)]
pub(crate) struct AddressArgs {
    /// Where other nodes reach the node
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) address: String,
    /// Where the node serves Redis clients; without it the node has no gateway, and cannot replace
    /// one that has
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) gateway: Option<String>,
}

/// Settings that can change together with the members.
#[derive(Debug, Args)]
pub(crate) struct QuorumArgs {
    /// Arrangement of the acceptors after the change, such as majority or "grid 2x2"
    #[arg(long, value_name = "QUORUMS")]
    pub(crate) quorums: Option<String>,
    /// Number of nodes that may fail after the change
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u8).range(0..=MAX_F as i64))]
    pub(crate) f: Option<u8>,
}
