//! Arguments of `ionian node`.

use super::logging::LogFormat;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

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
pub(crate) struct Arguments {
    /// The node's name in the deployment file
    #[arg(value_name = "NODE")]
    pub(crate) name: String,
    /// The deployment file with which the cluster was founded
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Address of any node of the running cluster, to join it or to rejoin it; or those of several,
    /// of which some may have failed
    #[arg(long, value_name = "HOST:PORT,...", value_delimiter = ',')]
    pub(crate) join: Vec<String>,
    /// The data directory; the node uses DIR/nodes/NODE
    #[arg(long, value_name = "DIR")]
    pub(crate) data: PathBuf,
    /// Listen here for other nodes instead of at the node's address in the deployment (address
    /// translation, containers)
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) listen: Option<String>,
    /// Listen here for clients instead of at the node's gateway address in the deployment
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) gateway_listen: Option<String>,
    /// The form of log lines; docs/messages.md lists ids and fields
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    pub(crate) log_format: LogFormat,
    /// Serve the dashboard (/), metrics (/metrics) and health (/livez, /readyz, /healthz/cluster)
    /// over HTTP here
    #[arg(long, value_name = "HOST:PORT", value_parser = http_address)]
    pub(crate) http: Option<String>,
    /// Run without HTTP if that address is taken
    #[arg(long, hide = true, requires = "http")]
    pub(crate) http_optional: bool,
    /// A name, besides IP addresses and localhost, by which HTTP clients may address this node;
    /// repeatable
    #[arg(long = "http-host", value_name = "NAME", requires = "http")]
    pub(crate) http_hosts: Vec<String>,
    /// Directory with the node's certificate (tls.crt, tls.key, ca.crt): secures the connections to
    /// other nodes and operators, and to clients
    #[arg(long, value_name = "DIR")]
    pub(crate) tls: Option<PathBuf>,
    /// Which connections a node with --tls accepts: `required` only those with TLS; `permissive`
    /// also others, while the nodes of a running cluster are switched one by one
    #[arg(long, value_enum, default_value_t = Mode::Required, requires = "tls")]
    pub(crate) tls_mode: Mode,
    /// Whether clients of a node with --tls need certificates; `off` serves them without TLS
    #[arg(long, value_enum, default_value_t = Clients::None, requires = "tls")]
    pub(crate) client_tls: Clients,
    /// Whether the certificate of a client logs it in: with `certificate` the client
    /// ionian://CLUSTER/client/NAME is the user NAME from the beginning, without a password. Needs
    /// --client-tls required
    #[arg(long, value_enum, default_value_t = ClientUser::Off, requires = "tls")]
    pub(crate) client_user: ClientUser,
    /// Append the audit log to this file, one JSON line for each event, not to standard error
    #[arg(long, value_name = "FILE")]
    pub(crate) audit: Option<PathBuf>,
    /// What happens while that file takes no lines: with `best-effort` those that do not fit into
    /// memory are dropped and counted; with `required` the node also refuses to change members,
    /// options and users, to drain and to send a snapshot. Commands with data are never refused
    #[arg(long, value_enum, value_name = "MODE", default_value_t = AuditMode::BestEffort,
        requires = "audit")]
    pub(crate) audit_mode: AuditMode,
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

fn http_address(text: &str) -> Result<String, &'static str> {
    let endpoint = crate::address::endpoint(text).map(str::to_owned);
    endpoint.ok_or("must be HOST:PORT, such as 127.0.0.1:9400")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AuditMode {
    BestEffort,
    Required,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    Permissive,
    Required,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Clients {
    Off,
    None,
    Optional,
    Required,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ClientUser {
    Off,
    Certificate,
}
