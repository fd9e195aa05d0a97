//! `ionian up`: every node of a deployment as a supervised process on this machine.
//!
//! | file | job |
//! |---|---|
//! | `directory` | the data directory: who uses it, which deployment it holds, which node
//! directories start empty |
//! | `founded` | which nodes had directories here |
//! | `http` | where the nodes serve the dashboard |
//! | `ports` | whether the addresses are free |
//! | `members` | which nodes run here |
//! | `supervisor` | the processes: start, watch, restart, stop |
//! | `reason` | why a process has ended, and what was said of that |
//! | `backoff` | the delay before the next restart of a node |
//! | `ready` | when the cluster serves clients |

mod arguments;
mod backoff;
mod directory;
mod founded;
mod http;
mod members;
mod ports;
mod ready;
mod reason;
mod supervisor;

use crate::certs;
use crate::contact;
use crate::data_paths::DataPaths;
use crate::output::{self, say_on_stderr};
use crate::protocols;
use crate::signals;
use crate::source;
use crate::waiting;
use anyhow::{Context, Result, anyhow, bail};
pub(crate) use arguments::Arguments;
use directory::LockedDirectory;
use http::Http;
use ionian_deployment::{Configuration, Deployment, Durability, Node};
use ionian_kernel::id::Epoch;
use ionian_kernel::layout::NodeId;
use ionian_kernel::level::Level;
use ionian_program::BadUsage;
use ionian_program::line_queue::LineQueue;
use ionian_runtime::has_taken_part;
use members::Members;
use ports::{InUse, Taken};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::future::Future;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;
use supervisor::{Ended, Refusal, Supervisor};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// After this time `up` prints what the start waits for.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    // Restarts and stops wait for no process that reads what this says.
    output::write_errors_by_thread();
    signals::ignore_others();
    let file = arguments.file.as_ref().or(arguments.config.as_ref());
    if let Some(directory) = file.filter(|file| file.is_dir()) {
        let directory = directory.display();
        let why = format!(
            "{directory} is a directory, and no deployment file; a data directory is named with --data"
        );
        return Err(BadUsage(why).into());
    }
    let places = DataPaths::for_nodes(&arguments.data)?;
    let there = source::in_directory(places.root())?;
    let level = there.as_ref().map_or(Level::LATEST, |there| there.level);
    // Before the directory is created: a mistyped name leaves nothing behind.
    let file = file
        .map(|file| waiting::for_file(file, || Deployment::load_or(file, level)))
        .transpose()?;
    // So do unsuitable settings of a new cluster. One that exists is read when it is locked.
    if there.is_none() {
        let deployment = checked(&places, arguments, file.clone())?;
        check_apart(&deployment, &deployment.nodes, arguments)?;
    }
    let claimed = directory::claim(&places)?;
    let earlier = source::in_directory(places.root())?;
    let deployment = checked(&places, arguments, file)?;
    let runs_in_memory = deployment.durability == Durability::Memory;
    // With durability "memory" the cluster starts from its founding deployment.
    let members = if runs_in_memory {
        None
    } else {
        Some(Members::look(&places, &deployment)?)
    };
    let has_changed = members.as_ref().is_some_and(Members::have_changed);
    let moves = earlier
        .as_ref()
        .is_some_and(|earlier| directory::moves(earlier, &deployment));
    if has_changed && moves {
        bail!(
            "the membership of this cluster has changed since it was founded, and its addresses are those of the \
             membership: omit the flags that give others (--node-port, --listen, --set node.NAME.gateway, a file). To \
             move a node, replace it by a node of another name: ionian member replace"
        );
    }
    let (target, nodes) = match &members {
        None => (&deployment, deployment.nodes.clone()),
        Some(members) => (members.known().target(), members.here()),
    };
    check_apart(target, &nodes, arguments)?;
    directory::wait_for_earlier_nodes(&claimed, &nodes)?;
    if !runs_in_memory {
        founded::check(&places, &nodes)?;
    }
    let is_new = runs_in_memory || {
        let has_run = |node: &Node| has_taken_part(&places.node(&node.name));
        !nodes.iter().any(has_run)
    };
    if let Some(Err(why)) = arguments
        .http
        .map(|first| Http::at(first).check(&numbered(target, &nodes)))
    {
        bail!("--http: {why}. Stop what uses it, or choose others with --http HOST:PORT");
    }
    let taken = ports::taken(&nodes)?;
    // The others may be able to serve without the nodes that cannot start.
    if is_new || taken.len() == nodes.len() {
        ports::check(&taken, !has_changed)?;
    }
    if runs_in_memory {
        warn_about_memory();
        if directory::delete_memory_nodes(&claimed)? {
            say_on_stderr!(
                "This is a new and empty cluster: the data of the earlier one in this directory is lost."
            );
        }
    }
    for why in protocols::cautions(&deployment)? {
        say_on_stderr!("{why}");
    }
    directory::write(&claimed, &deployment, has_changed)?;
    if !runs_in_memory {
        founded::make(&places, &nodes)?;
    }
    let members = Members::look(&places, &deployment)?;
    let has_tls = arguments.tls || places.tls().exists();
    if has_tls {
        certs::prepare(&places.tls(), &deployment.cluster)?;
    }
    contact::identify_as(None, Some(places.root()))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(supervise(
        &claimed,
        (members, &taken),
        (!arguments.no_restart, is_new, has_tls),
        (&deployment, arguments),
    ))
}

/// The deployment to run, if this program can run it.
fn checked(
    places: &DataPaths,
    arguments: &Arguments,
    file: Option<Deployment>,
) -> Result<Deployment> {
    let deployment = directory::deployment(places, arguments, file)?;
    protocols::check(&deployment)?;
    protocols::machine(&deployment)?;
    Ok(deployment)
}

/// Checks that the addresses of the nodes that run here are apart. A node that has left, or leaves,
/// may have those of a later one.
fn check_apart(target: &Deployment, here: &[Node], arguments: &Arguments) -> Result<()> {
    ports::check_apart(&numbered(target, here), arguments.http.map(Http::at))
}

/// The members that run here, with their numbers.
fn numbered<'a>(target: &'a Deployment, here: &[Node]) -> Vec<(NodeId, &'a Node)> {
    let members = target.ids().into_iter().zip(&target.nodes);
    members
        .filter(|(_, member)| here.iter().any(|node| node.name == member.name))
        .collect()
}

fn warn_about_memory() {
    say_on_stderr!(
        "durability = memory: nothing is stored, and a node loses its state when its process ends. The others \
         continue without it as long as at most f nodes are lost at a time. With durability = disk nothing is lost."
    );
}

async fn supervise(
    claimed: &LockedDirectory,
    (mut members, taken): (Members, &Taken),
    (restart, is_new, has_tls): (bool, bool, bool),
    (deployment, arguments): (&Deployment, &Arguments),
) -> Result<ExitCode> {
    let nodes = members.here();
    let http = http(arguments, &members, &nodes, has_tls);
    let drain = deployment.options.options().drain;
    let mut signals = Signals::listen()?;
    let mut supervisor = Supervisor::new(
        claimed.places(),
        members.cluster(),
        (restart, is_new, has_tls),
        drain,
        http,
    )?;
    for node in &nodes {
        members.start(node, &mut supervisor)?;
    }
    let missing = Missing::default();
    let known = members.known().clone();
    let ready = tokio::select! {
        biased;
        () = signals.stop() => None,
        ended = supervisor.run_until_ready(serving(&nodes, &missing), |refusal| {
            let node = nodes.iter().find(|node| node.name == refusal.node);
            let in_use = node.and_then(|node| ports::still_in_use(taken, node));
            let instead = instead(&known, &refusal.node, in_use.as_ref());
            do_without(refusal, &missing, instead);
        }) => Some(ended),
    };
    let result = match ready {
        None => Ok(()),
        Some(Err(ended)) => Err(ended),
        Some(Ok(())) => {
            let served: Vec<&Node> = nodes
                .iter()
                .filter(|node| !missing.borrow().contains(&node.name))
                .collect();
            let pages = served.iter().filter_map(|node| {
                let address = http?.of(members.number(node)?)?;
                Some(format!("http://{address}/"))
            });
            let pages: Vec<String> = pages.collect();
            let (served, machine) = ((&served[..], &pages[..]), &deployment.machine);
            announce(served, machine, claimed.places(), has_tls);
            tokio::select! {
                biased;
                () = signals.stop() => Ok(()),
                ended = supervisor.run(Members::LOOK_EVERY, |supervisor| members.start_newcomers(supervisor)) => Err(ended),
            }
        }
    };
    if result.is_ok() {
        say_on_stderr!("stopping; Ctrl-C again to stop at once");
    }
    supervisor.stop(signals.stop()).await;
    match result {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(Ended::AtStart(Refusal { node, how })) if is_new => Err(anyhow!(
            "node {node} does not start: {how}. A new cluster begins with all of its nodes, so the others are stopped: see to \
             what {node} says (all of it is in {}), and start again",
            claimed.places().log(&node).display()
        )),
        Err(Ended::AtStart(Refusal { node, how })) => Err(anyhow!(
            "node {node} does not start: {how}. The other nodes do not start either, see above"
        )),
        Err(Ended::All) => Err(anyhow!("no node is left")),
    }
}

/// Where nodes serve the dashboard: at the address of the flag, or beside the gateways. With TLS
/// only by the flag, because the page has no TLS.
fn http(arguments: &Arguments, members: &Members, nodes: &[Node], has_tls: bool) -> Option<Http> {
    if arguments.no_http || (has_tls && arguments.http.is_none()) {
        return None;
    }
    if let Some(first) = arguments.http {
        return Some(Http::at(first));
    }
    let numbered = nodes
        .iter()
        .filter_map(|node| Some((members.number(node)?, node)));
    let numbered: Vec<_> = numbered.collect();
    match Http::beside_gateways(&numbered) {
        Ok(http) => Some(http),
        Err(why) => {
            say_on_stderr!("no dashboard: {why}. --http HOST:PORT serves it elsewhere");
            None
        }
    }
}

/// The nodes that failed to start while the others run.
type Missing = RefCell<BTreeSet<String>>;

/// Why a node does not start, if its address is in use, and what to do about it if its cause cannot
/// be removed.
fn instead(known: &Configuration, node: &str, in_use: Option<&InUse>) -> (Option<String>, String) {
    let how = in_use.map(ToString::to_string);
    if let Some(InUse { key, .. }) = in_use.filter(|_| known.epoch() == Epoch::default()) {
        let moved = format!("stop `ionian up`, and start it with --set {key}=HOST:PORT");
        return (how, moved);
    }
    let is_joining = known.deployment.place(node).is_err() && known.next.is_some();
    let instead = match protocols::fixed_members(known) {
        Ok(Some(reason)) => format!("found another cluster, since {reason} (docs/backup.md)"),
        _ if is_joining => format!(
            "go back to the members before it (ionian member abandon), and change them again, with a node of another \
             name than {node}"
        ),
        _ => format!("replace it by a node of another name (ionian member replace {node} NEW)"),
    };
    (how, instead)
}

/// The others continue, because the cluster may be able to serve without this node.
fn do_without(
    Refusal { node, how }: Refusal,
    missing: &Missing,
    (seen, instead): (Option<String>, String),
) {
    let how = seen.unwrap_or(how);
    say_on_stderr!(
        "node {node} does not start: {how}. The others serve without it if they are a quorum (see `ionian status`). Remove \
         the cause, and the node restarts; or {instead}"
    );
    missing.borrow_mut().insert(node);
}

/// Completes when every gateway serves, except those of nodes that failed to start. Prints a line
/// if that takes long.
async fn serving(nodes: &[Node], missing: &Missing) {
    let ready = ready::all_serve(nodes, |node| missing.borrow().contains(&node.name));
    tokio::pin!(ready);
    if tokio::time::timeout(PATIENCE, &mut ready).await.is_err() {
        say_on_stderr!(
            "not ready after {} s; see `ionian status` and the logs of the nodes. Still waiting.",
            PATIENCE.as_secs()
        );
        ready.await;
    }
}

/// The line that scripts wait for, and a line for people.
fn announce(
    (nodes, pages): (&[&Node], &[String]),
    machine: &str,
    places: &DataPaths,
    has_tls: bool,
) {
    let gateways: Vec<&str> = nodes
        .iter()
        .filter_map(|node| node.gateway.as_deref())
        .collect();
    let mut text = format!("ready {}\n", gateways.join(" "));
    if machine == ionian_netfs::NAME {
        let data = places.root().display();
        text.push_str(&format!("mount it: ionian mount DIR --data {data}\n"));
    } else if let Some((host, port)) = gateways.first().and_then(|first| first.rsplit_once(':')) {
        let host = match host.trim_matches(['[', ']']) {
            "127.0.0.1" | "localhost" | "0.0.0.0" | "::" => String::new(),
            host => format!(" -h {host}"),
        };
        let bundle = places.tls().join("ca.crt");
        let tls = match has_tls {
            true => format!(" --tls --cacert {}", bundle.display()),
            false => String::new(),
        };
        text.push_str(&format!(
            "connect with any Redis client, to any of these: redis-cli{tls}{host} -p {port}\n"
        ));
    }
    // Every node serves the same page.
    if let Some(first) = pages.first() {
        text.push_str(&format!("dashboard: {first}\n"));
    }
    // The reader of standard output may be gone or stopped, which is not a reason to stop.
    let mut out = LineQueue::begin(std::io::stdout(), |_| {});
    let _ = out.write_all(text.as_bytes());
}

/// The signals that stop `up`: Ctrl-C, SIGTERM, the end of the terminal.
struct Signals([Signal; 3]);

impl Signals {
    fn listen() -> Result<Self> {
        let listen = |kind| signal(kind).context("cannot install signal handlers");
        Ok(Signals([
            listen(SignalKind::interrupt())?,
            listen(SignalKind::terminate())?,
            listen(SignalKind::hangup())?,
        ]))
    }

    fn stop(&mut self) -> impl Future<Output = ()> {
        let [interrupt, terminate, hangup] = &mut self.0;
        async move {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                _ = hangup.recv() => {}
            }
        }
    }
}
