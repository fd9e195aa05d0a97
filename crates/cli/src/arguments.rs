//! What can be typed, and the help texts.

use clap::{Args, Parser, Subcommand, ValueEnum};
pub(crate) use ionian_program::{BadUsage, Level};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Where data goes when nobody says otherwise.
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
/// Prints one line that begins with `ready` and holds the client addresses as soon as clients are
/// served. A node that ends is started again: at once at first, after up to 5 s when it keeps
/// ending, and up to 30 s when it says that it cannot run. Ctrl-C stops all of them in order, a
/// second Ctrl-C at once.
///
/// What was started is written to DIR/deployment.toml, with DIR/run/NODE.pid and DIR/logs/NODE.log
/// for each node. Started again with the same DIR, the same deployment runs again.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    ionian up                                       three nodes, every role on each\n  \
    ionian up --preset compartmentalized            every role apart, 22 processes\n  \
    ionian up my.toml --data /var/lib/ionian        a deployment of your own\n  \
    ionian up --data b --listen 127.0.0.1:8379 --node-port 18400\n                                                  \
    a second cluster beside the first\n  \
    ionian up --set options.batch_commands=10       see `ionian config init -` for all settings")]
pub(crate) struct Up {
    /// A deployment file, as `ionian config init` writes it
    #[arg(conflicts_with_all = ["preset", "node_port", "config"])]
    pub(crate) file: Option<PathBuf>,
    /// The same
    #[arg(long, value_name = "FILE", conflicts_with_all = ["preset", "node_port"])]
    pub(crate) config: Option<PathBuf>,
    /// A deployment that comes with Ionian; `ionian config presets` lists them [default: colocated]
    #[arg(long, value_name = "NAME")]
    pub(crate) preset: Option<String>,
    /// Where deployment, logs and the nodes' data go
    #[arg(long, value_name = "DIR", default_value = DATA)]
    pub(crate) data: PathBuf,
    /// Where the first gateway serves clients; the others follow on the next ports [default:
    /// 127.0.0.1:7379]
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<SocketAddr>,
    /// The port where the first node of a preset is found by the others; they follow on the next
    /// ports [default: 17400]
    #[arg(long, value_name = "PORT")]
    pub(crate) node_port: Option<u16>,
    /// What survives the end of a process: with `disk` everything, with `memory` nothing [default:
    /// disk, or that of the file or directory]
    #[arg(long, value_enum)]
    pub(crate) durability: Option<Durability>,
    /// Only report nodes that end; do not start them again
    #[arg(long)]
    pub(crate) no_restart: bool,
    /// Change a setting of the deployment, such as f=2 or node.n0.roles=leader,acceptor*2; can be
    /// repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) overrides: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Durability {
    Disk,
    Memory,
}

/// Run one node in the foreground, as a service manager would
///
/// It runs until SIGTERM or SIGINT. Every node of a new cluster is started with the same deployment
/// file. A node that is added later asks any of the others with --join. What a node has learned of
/// changes of the membership is in its data directory, and counts when it is started again. Exits
/// with code 1 and one line that says why when the node cannot run, with code 0 when it is told to
/// stop or has been removed from the cluster.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  ionian node n0 --config /etc/ionian.toml --data /var/lib/ionian\n  \
    ionian node n3 --join 10.0.0.1:17400 --data /var/lib/ionian"
)]
#[command(group = clap::ArgGroup::new("beginning").required(true).args(["config", "join"]))]
pub(crate) struct Node {
    /// The node's name in the deployment file
    pub(crate) name: String,
    /// The deployment file that the cluster was founded with
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// A node of the running cluster that this one is to join, or has joined
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) join: Option<String>,
    /// The data directory; the node's own is DIR/nodes/NAME
    #[arg(long, value_name = "DIR")]
    pub(crate) data: PathBuf,
    /// Where it listens for other nodes, in place of its address in the deployment: behind address
    /// translation, in a container
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) listen: Option<String>,
    /// Where it listens for clients, in place of its gateway in the deployment
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) gateway_listen: Option<String>,
    /// Change a setting of the deployment for this node; can be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) overrides: Vec<String>,
    /// Stop when standard input ends: whoever started this node holds the other end
    #[arg(long, hide = true)]
    pub(crate) supervised: bool,
    /// By how many milliseconds it misreads the wall clock: for tests of what wrong clocks do to a
    /// cluster
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
        /// Where the first gateway serves clients; the others follow on the next ports [default:
        /// 127.0.0.1:7379]
        #[arg(long, value_name = "ADDR")]
        listen: Option<SocketAddr>,
        /// The port where the first node is found by the others; they follow on the next ports
        #[arg(long, value_name = "PORT", default_value_t = 17400)]
        node_port: u16,
        /// Change a setting, such as options.batch_commands=10; can be repeated
        #[arg(long = "set", value_name = "KEY=VALUE")]
        overrides: Vec<String>,
        /// Overwrite the file if there is one
        #[arg(long)]
        force: bool,
        /// The file to write; `-` is standard output
        #[arg(default_value = "ionian.toml")]
        file: PathBuf,
    },
    /// Say what is wrong with a deployment file, or what it amounts to
    Check {
        /// The file
        file: PathBuf,
        /// Change a setting before checking; can be repeated
        #[arg(long = "set", value_name = "KEY=VALUE")]
        overrides: Vec<String>,
    },
    /// List the deployments that come with Ionian
    Presets,
}

/// Show whether the cluster serves, how many more nodes may fail, and every node and role
///
/// Asks every node and goes by what they say together: whether enough acceptors answer for a
/// quorum, whether they follow the leader, whether each role is there. Exit codes: 0 healthy, 1 not
/// serving (or no answer at all), 3 degraded: it serves, but something is lacking or fewer nodes
/// may fail than the deployment is meant for.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  ionian status\n  ionian status --at 10.0.0.2:17400 --probe\n  \
    ionian status --wait --timeout 60               until it is healthy, or for a minute"
)]
pub(crate) struct Status {
    /// Print one JSON document instead of tables
    #[arg(long)]
    pub(crate) json: bool,
    /// Also put a command that changes nothing through the log, and say how long that took
    #[arg(long)]
    pub(crate) probe: bool,
    /// Ask again until the cluster is healthy
    #[arg(long)]
    pub(crate) wait: bool,
    /// For how many seconds to ask at most
    #[arg(long, value_name = "SECONDS", default_value_t = 60, requires = "wait")]
    pub(crate) timeout: u64,
    #[command(flatten)]
    pub(crate) whereabouts: Whereabouts,
}

/// Have a node do without clients and leadership, before it is stopped or its machine is worked on
///
/// The node takes no new clients, answers those that wait, closes idle connections, and has another
/// node lead. It stays a member and goes on voting and executing, until it is stopped, or told with
/// --undo that it may serve and lead again. SIGTERM does the same before the node stops. Exits with
/// code 0 as soon as nothing is left, with 1 when something is left after --timeout.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ionian drain n1
  ionian drain n1 --undo")]
pub(crate) struct Drain {
    /// The node's name
    pub(crate) node: String,
    /// Let it serve clients and lead again
    #[arg(long)]
    pub(crate) undo: bool,
    /// How long to wait until nothing is left [default: options.drain_ms of the deployment]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) timeout: Option<u64>,
    #[command(flatten)]
    pub(crate) whereabouts: Whereabouts,
}

/// Show and change which nodes and roles a running cluster has
///
/// A change goes through the cluster's log. Acceptors and replicas are changed in two steps,
/// between which both the old and the new ones are in force; everything else changes at once. The
/// cluster goes on serving. Each command waits until the change is finished and says what that
/// waits for. An interrupted wait changes nothing: the cluster finishes by itself, and the same
/// command waits for it again.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
#[command(after_help = "Examples:\n  \
    ionian member list\n  \
    ionian member replace n1 n3 --address 10.0.0.4:17400       n1 is dead, n3 takes its roles\n  \
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
    /// Show the nodes, their roles with their numbers, and the change under way
    List {
        /// Print the deployment file of the cluster as it is, or as it will be, for `member apply`
        #[arg(long)]
        toml: bool,
        #[command(flatten)]
        whereabouts: Whereabouts,
    },
    /// Add a node
    Add {
        /// Its name
        name: String,
        #[command(flatten)]
        place: Place,
        /// Its roles, such as leader,acceptor,replica
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
    /// Remove a node with its roles
    Remove {
        /// Its name
        name: String,
        #[command(flatten)]
        shape: Shape,
        #[command(flatten)]
        how: How,
    },
    /// Let a new node take the roles of another, dead or alive
    Replace {
        /// The node to be replaced
        old: String,
        /// The name of the new one
        new: String,
        #[command(flatten)]
        place: Place,
        #[command(flatten)]
        how: How,
    },
    /// Change to the deployment that a file says; what it does not number and is there already
    /// stays what it is
    Apply {
        /// The file, as `ionian member list --toml` writes it
        file: PathBuf,
        #[command(flatten)]
        how: How,
    },
    /// Go back to the deployment before the change that is under way
    Abandon {
        #[command(flatten)]
        how: How,
    },
}

/// Where a new node is.
#[derive(Debug, Args)]
pub(crate) struct Place {
    /// Where the other nodes find it
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) address: String,
    /// Where it serves Redis clients, if it does
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) gateway: Option<String>,
}

/// What else a change can change.
#[derive(Debug, Args)]
pub(crate) struct Shape {
    /// How the acceptors are arranged afterwards, such as majority or "grid 2x2"
    #[arg(long, value_name = "QUORUMS")]
    pub(crate) quorums: Option<String>,
    /// How many nodes may fail afterwards
    #[arg(long, value_name = "N")]
    pub(crate) f: Option<usize>,
}

/// Where a change goes to.
#[derive(Debug, Args)]
pub(crate) struct How {
    /// Do not wait until the change is finished
    #[arg(long)]
    pub(crate) no_wait: bool,
    #[command(flatten)]
    pub(crate) whereabouts: Whereabouts,
}

/// Which cluster is meant.
#[derive(Debug, Args)]
pub(crate) struct Whereabouts {
    /// The data directory of `ionian up` or `ionian node`
    #[arg(long, value_name = "DIR", default_value = DATA)]
    pub(crate) data: PathBuf,
    /// A deployment file, in place of the data directory's
    #[arg(long, value_name = "FILE", conflicts_with = "data")]
    pub(crate) config: Option<PathBuf>,
    /// Any running node of the cluster, by the address where the others find it: it says who the
    /// others are
    #[arg(long, value_name = "HOST:PORT", conflicts_with_all = ["data", "config"])]
    pub(crate) at: Option<String>,
}

/// Show and change the options of a running cluster
///
/// A change goes through the cluster's log: every node takes it over while it runs, and finds it
/// again when it is started once more, whatever its file says.
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
    /// Show every option with its value, its default and where it is changed
    List {
        #[command(flatten)]
        whereabouts: Whereabouts,
    },
    /// Change options for all nodes, all of them or none
    Set {
        /// What to change, such as window_slots=1024
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
    /// Whom to ask [default: the first gateway of the data directory's deployment that can be
    /// reached, or 127.0.0.1:7379]
    #[arg(long, value_name = "ADDR")]
    pub(crate) at: Option<String>,
    /// The data directory of `ionian up` [default: ./ionian-data, if it holds a deployment]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// What a read must have seen
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
