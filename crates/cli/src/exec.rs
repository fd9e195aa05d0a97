//! `ionian exec`: one command over the Redis protocol.

use crate::address::endpoint;
use crate::cluster_args::{ClusterArgs, DATA};
use crate::contact;
use crate::data_paths::DataPaths;
use crate::login::Login;
use crate::output::{self, say_on_stderr};
use crate::source;
use crate::waiting;
use anyhow::{Context, Result, bail};
use clap::Args;
use ionian_deployment::Configuration;
use ionian_program::{BadUsage, Level};
use ionian_redis_client::{Connection, Limits, Reply};
use ionian_runtime::NodeTls;
use ionian_tls::Expected;
use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// The gateway if neither the command line nor the data directory names one.
const DEFAULT_GATEWAY: &str = "127.0.0.1:7379";

const LIMITS: Limits = Limits {
    connect: Duration::from_secs(2),
    // Longer than any gateway lets a client wait.
    reply: Duration::from_secs(60),
    reply_bytes: 1 << 30,
};

/// Send one command to the cluster and print the reply as redis-cli does
///
/// Exits with code 1 when the reply is an error.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  ionian exec SET name Ionian\n  ionian exec GET name\n  \
    ionian exec --at 127.0.0.1:7380 --consistency eventual GET name"
)]
pub(crate) struct Arguments {
    /// The gateway to connect to [default: the first reachable gateway of the deployment in the
    /// data directory, or 127.0.0.1:7379]
    #[arg(long, value_name = "ADDR")]
    pub(crate) at: Option<String>,
    /// The data directory of `ionian up` [default: ./ionian-data, if it holds a deployment]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Directory with a certificate (tls.crt, tls.key, ca.crt), for gateways with TLS [default:
    /// that of `ionian up --tls` in the data directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) tls: Option<PathBuf>,
    /// A deployment file, which names the gateways
    #[arg(long, value_name = "FILE", conflicts_with_all = ["at", "data"])]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) login: Login,
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
    pub(crate) words: Vec<OsString>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    refuse_option(&arguments.words)?;
    let options = Arguments::augment_args(clap::Command::new("exec"));
    let hint = misplaced(&arguments.words, &options);
    let connection = connect(arguments);
    let mut connection = match hint.clone() {
        Some(hint) => connection.context(hint)?,
        None => connection?,
    };
    arguments.login.log_in(&mut connection)?;
    if let Some(level) = arguments.consistency {
        let reply = connection.call(&[b"IONIAN", b"CONSISTENCY", level.name().as_bytes()])?;
        if let Reply::Error(error) = reply {
            bail!("the gateway refuses the consistency level: {error}");
        }
    }
    let words: Vec<&[u8]> = arguments.words.iter().map(|word| word.as_bytes()).collect();
    let reply = connection.call(&words);
    let reply = match &arguments.at {
        Some(at) => reply.with_context(|| {
            format!(
                "no reply from {at}, which must be a gateway's address, not the one for other nodes"
            )
        })?,
        None => reply?,
    };
    print(&reply)?;
    if !matches!(reply, Reply::Error(_)) {
        return Ok(ExitCode::SUCCESS);
    }
    hint.iter().for_each(|hint| say_on_stderr!("{hint}"));
    Ok(ExitCode::FAILURE)
}

/// What to say of a command that has failed and in which one of these options may be meant for this
/// program.
pub(crate) fn misplaced(words: &[OsString], options: &clap::Command) -> Option<String> {
    let longs: Vec<_> = options
        .get_arguments()
        .filter_map(clap::Arg::get_long)
        .collect();
    let is_option = |word: &&OsString| {
        let name = word.to_str().and_then(|word| word.strip_prefix("--"));
        name.is_some_and(|name| longs.contains(&name))
    };
    let word = words.iter().find(is_option)?.display();
    Some(format!(
        "{word} was sent as a part of the command: options come before it"
    ))
}

/// Prints a reply: as redis-cli does on a terminal, and otherwise unchanged.
pub(crate) fn print(reply: &Reply) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let mut text = Vec::new();
    if out.is_terminal() {
        write_for_people(reply, "", &mut text);
    } else {
        write_raw(reply, &mut text);
    }
    text.push(b'\n');
    out.write_all(&text)
        .and_then(|()| out.flush())
        .context("cannot print the reply")
}

/// A reply as text, whatever its bytes are.
pub(crate) fn plain(reply: &Reply) -> String {
    let mut text = Vec::new();
    write_raw(reply, &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// Checks that the command does not begin with what looks like an option: no command of Redis does.
pub(crate) fn refuse_option(words: &[OsString]) -> Result<()> {
    match words.first() {
        Some(word) if word.as_bytes().starts_with(b"-") => {
            let why = format!("{} is no option here, and no command", word.display());
            Err(BadUsage(why).into())
        }
        _ => Ok(()),
    }
}

/// The certificate for gateways with TLS: the one that was named, or that of the data directory.
fn identity(named: Option<&Path>, data: Option<&Path>) -> Result<Option<NodeTls>> {
    let made = data.map(|data| DataPaths::new(data).tls().join("operator"));
    let directory = named
        .map(Path::to_owned)
        .or(made.filter(|made| made.exists()));
    let expected = Expected::any();
    directory
        .map(|directory| contact::load(&directory, expected))
        .transpose()
}

fn open(address: SocketAddr, (gateway, tls): (&str, Option<&NodeTls>)) -> Result<Connection> {
    let Some(tls) = tls else {
        return Ok(Connection::open(address, LIMITS)?);
    };
    let host = gateway.rsplit_once(':').map_or(gateway, |(host, _)| host);
    let host = host.trim_matches(['[', ']']);
    let config = tls.live.loaded().gateway_client.clone();
    Ok(Connection::open_tls(address, host, config, LIMITS)?)
}

/// Connects to the gateway that was named, or to the first that can be reached.
fn connect(arguments: &Arguments) -> Result<Connection> {
    let data = arguments.data.as_deref().unwrap_or(Path::new(DATA));
    let mut advice = RUNNING;
    let gateways: Vec<String> = match (&arguments.at, &arguments.config) {
        (Some(at), _) if endpoint(at).is_none() => {
            let why = format!("--at {at:?}: must be the HOST:PORT of a gateway");
            return Err(BadUsage(why).into());
        }
        (Some(at), _) => vec![at.clone()],
        (None, Some(file)) => gateways(&Configuration::founded(waiting::for_deployment(file)?)),
        (None, None) => match (source::known_in(data)?, &arguments.data) {
            (Some(known), _) => gateways(&known),
            (None, None) => {
                advice = "Is the cluster running? `ionian up` starts one";
                vec![DEFAULT_GATEWAY.to_owned()]
            }
            (None, Some(data)) => bail!(
                "{} holds no deployment: name a gateway with --at HOST:PORT",
                data.display()
            ),
        },
    };
    let tls = identity(
        arguments.tls.as_deref(),
        (arguments.at.is_none() && arguments.config.is_none()).then_some(data),
    )?;
    first_of(&gateways, tls.as_ref(), advice)
}

/// What to do if no gateway of a cluster that is known can be reached.
const RUNNING: &str = "`ionian status` shows which nodes run, and which of them drain";

fn gateways(known: &Configuration) -> Vec<String> {
    let nodes = known.nodes().into_values();
    nodes.filter_map(|node| node.gateway.clone()).collect()
}

/// Connects to a gateway of this cluster: the one that was named, or the first that can be reached.
pub(crate) fn connect_within(
    known: &Configuration,
    named: Option<&str>,
    cluster_args: &ClusterArgs,
) -> Result<Connection> {
    let is_local = cluster_args.at.is_none() && cluster_args.config.is_none();
    let data = is_local.then_some(&*cluster_args.data);
    let tls = identity(cluster_args.tls.as_deref(), data)?;
    let gateways = named.map_or_else(|| gateways(known), |named| vec![named.to_owned()]);
    first_of(&gateways, tls.as_ref(), RUNNING)
}

/// How long a gateway may take to answer PING, if there is another.
const PING: Duration = Duration::from_secs(2);

/// Connects to the first of these gateways that can be reached and, if there are several, answers.
fn first_of(gateways: &[String], tls: Option<&NodeTls>, advice: &str) -> Result<Connection> {
    let is_choice = gateways.len() > 1;
    let connect = |gateway: &String| {
        // The error names it.
        let address = ionian_runtime::resolve(gateway)?;
        let mut connection = open(address, (gateway, tls)).with_context(|| gateway.clone())?;
        if is_choice {
            connection.ping(PING).with_context(|| gateway.clone())?;
        }
        anyhow::Ok(connection)
    };
    let mut failures = Vec::new();
    for gateway in gateways {
        match connect(gateway) {
            Ok(connection) => return Ok(connection),
            Err(error) => failures.push(output::explain(&error)),
        }
    }
    bail!(
        "no gateway can be reached: {}. {advice}",
        failures.join("; ")
    )
}

/// The bytes unchanged, one line for each element.
fn write_raw(reply: &Reply, out: &mut Vec<u8>) {
    match reply {
        Reply::SimpleString(bytes) | Reply::BulkString(bytes) => out.extend_from_slice(bytes),
        Reply::Error(text) => out.extend_from_slice(text.as_bytes()),
        Reply::Integer(number) => out.extend_from_slice(number.to_string().as_bytes()),
        Reply::Null => {}
        Reply::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(b'\n');
                }
                write_raw(item, out);
            }
        }
    }
}

/// In the format of redis-cli on a terminal; the lines after the first begin with `indent`.
fn write_for_people(reply: &Reply, indent: &str, out: &mut Vec<u8>) {
    match reply {
        Reply::SimpleString(bytes) => out.extend_from_slice(bytes),
        Reply::BulkString(bytes) => out.extend_from_slice(quoted(bytes).as_bytes()),
        Reply::Error(text) => out.extend_from_slice(format!("(error) {text}").as_bytes()),
        Reply::Integer(number) => out.extend_from_slice(format!("(integer) {number}").as_bytes()),
        Reply::Null => out.extend_from_slice(b"(nil)"),
        Reply::Array(items) if items.is_empty() => out.extend_from_slice(b"(empty array)"),
        Reply::Array(items) => {
            let width = items.len().to_string().len();
            let deeper = format!("{indent}{}", " ".repeat(width + 2));
            for (index, item) in items.iter().enumerate() {
                let lead = if index == 0 {
                    String::new()
                } else {
                    format!("\n{indent}")
                };
                out.extend_from_slice(format!("{lead}{:>width$}) ", index + 1).as_bytes());
                write_for_people(item, &deeper, out);
            }
        }
    }
}

/// In double quotes, with everything that is not plain ASCII escaped.
fn quoted(bytes: &[u8]) -> String {
    let mut text = String::from("\"");
    for byte in bytes {
        match byte {
            b'"' => text.push_str("\\\""),
            b'\\' => text.push_str("\\\\"),
            b'\n' => text.push_str("\\n"),
            b'\r' => text.push_str("\\r"),
            b'\t' => text.push_str("\\t"),
            0x07 => text.push_str("\\a"),
            0x08 => text.push_str("\\b"),
            b' '..=b'~' => text.push(char::from(*byte)),
            other => text.push_str(&format!("\\x{other:02x}")),
        }
    }
    text.push('"');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn people(reply: &Reply) -> String {
        let mut out = Vec::new();
        write_for_people(reply, "", &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn replies_look_as_in_redis_cli() {
        let bulk = |bytes: &'static [u8]| Reply::BulkString(bytes.into());
        assert_eq!(people(&bulk(b"a\"\n\xff")), r#""a\"\n\xff""#);
        assert_eq!(people(&Reply::Error("ERR no".into())), "(error) ERR no");
        assert_eq!(people(&Reply::Array(vec![])), "(empty array)");
        let nested = Reply::Array(vec![
            Reply::Integer(7),
            Reply::Array(vec![bulk(b"x"), Reply::Null]),
            Reply::SimpleString("OK".into()),
        ]);
        assert_eq!(
            people(&nested),
            "1) (integer) 7\n2) 1) \"x\"\n   2) (nil)\n3) OK"
        );
        let mut raw = Vec::new();
        write_raw(&nested, &mut raw);
        assert_eq!(raw, b"7\nx\n\nOK");
    }
}
