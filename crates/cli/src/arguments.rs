//! Command-line arguments and help texts.

use clap::{Args, Parser, Subcommand, ValueEnum};
pub(crate) use ionian_program::{BadUsage, Level};
use std::net::SocketAddr;
use std::path::PathBuf;

/// The default data directory.
pub(crate) const DATA: &str = "./ionian-data";

/// State machine replication made of small roles: a linearizable key-value store behind any Redis
/// client.
#[derive(Debug, Parser)]
#[command(
    name = "ionian",
    version = crate::version::TEXT.as_str(),
    arg_required_else_help = true,
    after_help = "A first cluster:\n  \
        ionian up                      three nodes on this machine, clients at 127.0.0.1:7379\n  \
        redis-cli -p 7379              any Redis client talks to it\n  \
        ionian status                  who leads, who is behind, who is down\n\n\
        Exit codes: 0 done, 1 a job that failed, 2 bad usage; of `ionian status` also 3, a degraded cluster."
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Up(Up),
    Node(Node),
    Config(Config),
    Status(Status),
    Drain(Drain),
    Member(Member),
    Options(Options),
    Exec(Exec),
    #[command(about = ionian_program::tools::SIM)]
    Sim,
    #[command(about = ionian_program::tools::BENCH)]
    Bench,
    Snapshot(crate::snapshot::arguments::Arguments),
    Log(crate::log::arguments::Arguments),
}

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
    ionian up --preset compartmentalized            every role in its own process, 22 processes\n  \
    ionian up my.toml --data /var/lib/ionian        your own deployment\n  \
    ionian up --data b --listen 127.0.0.1:8379 --node-port 18400\n                                                  \
    a second cluster beside the first\n  \
    ionian up --set options.batch_commands=10       see `ionian config init -` for all settings")]
pub(crate) struct Up {
    /// A deployment file, as `ionian config init` writes it
    #[arg(conflicts_with_all = ["preset", "node_port", "config"])]
    pub(crate) file: Option<PathBuf>,
    /// Same as FILE
    #[arg(long, value_name = "FILE", conflicts_with_all = ["preset", "node_port"])]
    pub(crate) config: Option<PathBuf>,
    /// A deployment that comes with Ionian; `ionian config presets` lists them [default: colocated]
    #[arg(long, value_name = "NAME")]
    pub(crate) preset: Option<String>,
    /// Directory for the deployment, the logs and the nodes' data
    #[arg(long, value_name = "DIR", default_value = DATA)]
    pub(crate) data: PathBuf,
    /// Client address of the first gateway; the other gateways use the next ports [default:
    /// 127.0.0.1:7379]
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<SocketAddr>,
    /// Port on which the first node of a preset accepts other nodes; the other nodes use the next
    /// ports [default: 17400]
    #[arg(long, value_name = "PORT")]
    pub(crate) node_port: Option<u16>,
    /// What survives the end of a process: with `disk` everything, with `memory` nothing [default:
    /// disk, or that of the file or directory]
    #[arg(long, value_enum)]
    pub(crate) durability: Option<Durability>,
    /// Report nodes that end, but do not restart them
    #[arg(long)]
    pub(crate) no_restart: bool,
    /// Change a setting of the deployment, such as f=2 or node.n0.roles=leader,acceptor*2;
    /// repeatable
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) overrides: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Durability {
    Disk,
    Memory,
}

/// Run one node in the foreground, as a service manager does
///
/// The node runs until SIGTERM or SIGINT. Start every node of a new cluster with the same
/// deployment file. A node that is added later joins through any other node (--join). The data
/// directory stores changes of the membership, and they override the file at the next start. Exits
/// with code 1 and a one-line reason if the node cannot run; with code 0 after a signal or when the
/// node has been removed from the cluster.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  ionian node n0 --config /etc/ionian.toml --data /var/lib/ionian\n  \
    ionian node n3 --join 10.0.0.1:17400 --data /var/lib/ionian"
)]
#[command(group = clap::ArgGroup::new("beginning").required(true).args(["config", "join"]))]
pub(crate) struct Node {
    /// The node's name in the deployment file
    pub(crate) name: String,
    /// The deployment file with which the cluster was founded
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Address of any node of the running cluster, to join it or to rejoin it
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) join: Option<String>,
    /// The data directory; the node uses DIR/nodes/NAME
    #[arg(long, value_name = "DIR")]
    pub(crate) data: PathBuf,
    /// Listen here for other nodes instead of at the node's address in the deployment (address
    /// translation, containers)
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) listen: Option<String>,
    /// Listen here for clients instead of at the node's gateway address in the deployment
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) gateway_listen: Option<String>,
    /// Change a setting of the deployment for this node; repeatable
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) overrides: Vec<String>,
    /// Stop when standard input ends, because the parent process holds the other end
    #[arg(long, hide = true)]
    pub(crate) supervised: bool,
    /// Offset of the wall clock in milliseconds, to test what wrong clocks do to a cluster
    #[arg(
        long,
        hide = true,
        value_name = "MS",
        default_value_t = 0,
        allow_negative_numbers = true
    )]
    pub(crate) clock_ahead_ms: i64,
}

/// Write and check deployment files
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Config {
    #[command(subcommand)]
    pub(crate) command: ConfigCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Write a deployment file with every setting explained
    #[command(
        after_help = "Examples:\n  ionian config init\n  ionian config init --preset batched batched.toml\n  \
        ionian config init -                            to standard output"
    )]
    Init {
        /// The deployment to begin with; `ionian config presets` lists them
        #[arg(long, value_name = "NAME", default_value = ionian_deployment::DEFAULT_PRESET)]
        preset: String,
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

/// Show whether the cluster serves, how many more nodes may fail, and every node and role
///
/// Asks every node and judges from all answers together: whether enough acceptors for a quorum
/// answer, whether they follow the leader, whether every role is running. Exit codes: 0 healthy, 1
/// not serving (or no answer), 3 degraded: the cluster serves, but something is missing or fewer
/// nodes may fail than the deployment is meant to tolerate.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  ionian status\n  ionian status --at 10.0.0.2:17400 --probe\n  \
    ionian status --wait --timeout 60               until it is healthy, or for a minute"
)]
pub(crate) struct Status {
    /// Print one JSON document instead of tables
    #[arg(long)]
    pub(crate) json: bool,
    /// Also send a command without effect through the log, and show its latency
    #[arg(long)]
    pub(crate) probe: bool,
    /// Ask again until the cluster is healthy
    #[arg(long)]
    pub(crate) wait: bool,
    /// Stop waiting after this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60, requires = "wait")]
    pub(crate) timeout: u64,
    #[command(flatten)]
    pub(crate) whereabouts: Whereabouts,
}

/// Take clients and leadership away from a node, before it is stopped or its machine is serviced
///
/// The node accepts no new clients, answers pending commands, closes idle connections, and hands
/// leadership to another node. It remains a member, and continues to vote and to execute, until it
/// stops or --undo lets it serve and lead again. SIGTERM does the same before the node stops. Exits
/// with code 0 as soon as nothing is left, with 1 if something is left after --timeout.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ionian drain n1
  ionian drain n1 --undo")]
pub(crate) struct Drain {
    /// The node's name
    pub(crate) node: String,
    /// Let the node serve clients and lead again
    #[arg(long)]
    pub(crate) undo: bool,
    /// Limit for the wait [default: options.drain_ms of the deployment]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) timeout: Option<u64>,
    #[command(flatten)]
    pub(crate) whereabouts: Whereabouts,
}

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
    ionian member replace n1 n3 --address 10.0.0.4:17400       n1 failed, n3 takes its roles\n  \
    ionian member add n4 --address 10.0.0.5:17400 --roles proxy_leader,replica\n  \
    ionian member remove n4\n  \
    ionian member list --toml > next.toml                      edit it, then\n  \
    ionian member apply next.toml")]
pub(crate) struct Member {
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
        whereabouts: Whereabouts,
    },
    /// Add a node
    Add {
        /// The name of the node
        name: String,
        #[command(flatten)]
        place: Place,
        /// Roles of the node, such as leader,acceptor,replica
        #[arg(
            long,
            value_name = "ROLE,ROLE",
            default_value = "",
            hide_default_value = true
        )]
        roles: String,
        #[command(flatten)]
        shape: Shape,
        #[command(flatten)]
        how: How,
    },
    /// Remove a node and its roles
    Remove {
        /// The name of the node
        name: String,
        #[command(flatten)]
        shape: Shape,
        #[command(flatten)]
        how: How,
    },
    /// Replace a running or failed node by a new one, which takes over its roles
    Replace {
        /// The node to replace
        old: String,
        /// The name of the new node
        new: String,
        #[command(flatten)]
        place: Place,
        #[command(flatten)]
        how: How,
    },
    /// Change to the deployment in a file; instances without a number in the file keep the number
    /// they have
    Apply {
        /// The file, as `ionian member list --toml` writes it
        file: PathBuf,
        #[command(flatten)]
        how: How,
    },
    /// Go back to the deployment before the change in progress
    Abandon {
        #[command(flatten)]
        how: How,
    },
}

/// The addresses of a new node.
#[derive(Debug, Args)]
pub(crate) struct Place {
    /// Where other nodes reach the node
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) address: String,
    /// Where the node serves Redis clients; without it the node has no gateway
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) gateway: Option<String>,
}

/// Settings that can change together with the members.
#[derive(Debug, Args)]
pub(crate) struct Shape {
    /// Arrangement of the acceptors after the change, such as majority or "grid 2x2"
    #[arg(long, value_name = "QUORUMS")]
    pub(crate) quorums: Option<String>,
    /// Number of nodes that may fail after the change
    #[arg(long, value_name = "N")]
    pub(crate) f: Option<usize>,
}

/// Options of all commands that change a running cluster.
#[derive(Debug, Args)]
pub(crate) struct How {
    /// Do not wait until the change is finished
    #[arg(long)]
    pub(crate) no_wait: bool,
    #[command(flatten)]
    pub(crate) whereabouts: Whereabouts,
}

/// Options that name the cluster.
#[derive(Debug, Args)]
pub(crate) struct Whereabouts {
    /// The data directory of `ionian up` or `ionian node`
    #[arg(long, value_name = "DIR", default_value = DATA)]
    pub(crate) data: PathBuf,
    /// A deployment file, instead of the one in the data directory
    #[arg(long, value_name = "FILE", conflicts_with = "data")]
    pub(crate) config: Option<PathBuf>,
    /// Address of any running node of the cluster, which provides the addresses of the others
    #[arg(long, value_name = "HOST:PORT", conflicts_with_all = ["data", "config"])]
    pub(crate) at: Option<String>,
}

/// Show and change the options of a running cluster
///
/// A change goes through the cluster's log. Every node applies it while running and stores it;
/// after a restart it overrides the deployment file.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
#[command(
    after_help = "Examples:\n  ionian options list\n  ionian options set heartbeat_ms=50 election_timeout_ms=200"
)]
pub(crate) struct Options {
    #[command(subcommand)]
    pub(crate) command: OptionsCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum OptionsCommand {
    /// Show every option with its value, its default and where to change it
    List {
        #[command(flatten)]
        whereabouts: Whereabouts,
    },
    /// Change options on all nodes; either all of the given changes take effect or none
    Set {
        /// The changes, such as window_slots=1024
        #[arg(required = true, value_name = "KEY=VALUE")]
        settings: Vec<String>,
        #[command(flatten)]
        how: How,
    },
}

/// Send one command to the cluster and print the reply as redis-cli does
///
/// Exits with code 1 when the reply is an error.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  ionian exec SET name Ionian\n  ionian exec GET name\n  \
    ionian exec --at 127.0.0.1:7380 --consistency eventual GET name"
)]
pub(crate) struct Exec {
    /// The gateway to connect to [default: the first reachable gateway of the deployment in the
    /// data directory, or 127.0.0.1:7379]
    #[arg(long, value_name = "ADDR")]
    pub(crate) at: Option<String>,
    /// The data directory of `ionian up` [default: ./ionian-data, if it holds a deployment]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Consistency level of reads
    #[arg(long, value_enum, value_name = "LEVEL")]
    pub(crate) consistency: Option<Level>,
    /// The command and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "CMD ARG"
    )]
    pub(crate) words: Vec<std::ffi::OsString>,
}
