//! The processes: start, watch, restart, stop.
//!
//! One task per node owns its process. A shared value tells the tasks to stop, and a channel
//! carries failures at the first start.

use super::backoff::Backoff;
use super::http::Http;
use super::reason::{Reported, reason};
use crate::certs;
use crate::contact;
use crate::data_paths::DataPaths;
use crate::drain;
use crate::output::{self, say_on_stderr};
use anyhow::{Context, Result};
use ionian_deployment::Node;
use ionian_kernel::layout::NodeId;
use ionian_runtime::storage::executing::unfinished;
use ionian_runtime::storage::membership_file;
use ionian_runtime::{Addressee, request_drain};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::future::Future;
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

/// How long a node may take to stop after the end of its drain, before it is killed.
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// Why no node runs any more.
pub(crate) enum Ended {
    /// A node refused to run during the start, and the others cannot run without it.
    AtStart(Refusal),
    /// Every node has ended and none will be restarted.
    All,
}

/// A node that ended by itself at its first start, with its reason.
pub(crate) struct Refusal {
    pub(crate) node: String,
    pub(crate) how: String,
}

/// The stage of the stop. It only advances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stop {
    No,
    /// Nodes with a gateway stop.
    Gateways,
    /// All nodes stop.
    All,
    /// All nodes are killed.
    Kill,
}

/// The running nodes of a deployment.
pub(crate) struct Supervisor {
    tasks: JoinSet<()>,
    /// What the task of every node needs.
    common: Common,
    /// Nodes that failed at their first start.
    refusals: mpsc::UnboundedReceiver<Refusal>,
    /// The names of the nodes that have left the cluster and ended.
    left: mpsc::UnboundedReceiver<String>,
    /// The nodes that are not started again when they end.
    unwanted: watch::Sender<BTreeSet<String>>,
    stop: watch::Sender<Stop>,
    gateways: watch::Receiver<Serving>,
}

/// The addresses, for other nodes, of the running nodes with a gateway, and the processes there.
type Serving = BTreeMap<u32, (String, Addressee)>;

#[derive(Clone)]
struct Common {
    places: DataPaths,
    /// The name of the cluster.
    cluster: String,
    program: PathBuf,
    restart: bool,
    /// Where nodes serve dashboard and metrics.
    http: Option<Http>,
    /// Whether the cluster has never run. Its first start needs all nodes.
    is_new: bool,
    /// Whether connections are secured.
    has_tls: bool,
    /// How long a stopping node may continue to answer its clients.
    drain: Duration,
    stop: watch::Receiver<Stop>,
    unwanted: watch::Receiver<BTreeSet<String>>,
    refusals: mpsc::UnboundedSender<Refusal>,
    left: mpsc::UnboundedSender<String>,
    gateways: watch::Sender<Serving>,
}

/// One node and what its process needs.
struct Watched {
    name: String,
    /// The nodes through which it joins the cluster, for `--join`; `None` for a founding node.
    contacts: Option<String>,
    /// Its address for other nodes.
    address: String,
    /// Where it serves dashboard and metrics.
    http: Option<SocketAddr>,
    has_gateway: bool,
    /// The directory of its certificate, with TLS.
    tls: Option<PathBuf>,
    /// The stage at which this node stops.
    stops_at: Stop,
    /// How long its log was when its process started.
    log_before: u64,
    common: Common,
}

/// How a process ended.
enum End {
    Stopped,
    ByItself(ExitStatus),
}

impl Supervisor {
    /// Starts no node yet.
    ///
    /// # Errors
    /// If the path of this program is unknown.
    pub(crate) fn new(
        places: &DataPaths,
        cluster: &str,
        (restart, is_new, has_tls): (bool, bool, bool),
        drain: Duration,
        http: Option<Http>,
    ) -> Result<Self> {
        let program =
            std::env::current_exe().context("cannot find the program that is to run the nodes")?;
        let (stop, stop_receiver) = watch::channel(Stop::No);
        let (unwanted_sender, unwanted) = watch::channel(BTreeSet::new());
        let (refused, refusals) = mpsc::unbounded_channel();
        let (left_sender, left) = mpsc::unbounded_channel();
        let (gateway_count, gateways) = watch::channel(Serving::new());
        let places = places.clone();
        let common = Common {
            places,
            cluster: cluster.to_owned(),
            program,
            restart,
            http,
            is_new,
            has_tls,
            drain,
            stop: stop_receiver,
            unwanted,
            refusals: refused,
            left: left_sender,
            gateways: gateway_count,
        };
        Ok(Supervisor {
            tasks: JoinSet::new(),
            common,
            refusals,
            left,
            unwanted: unwanted_sender,
            stop,
            gateways,
        })
    }

    /// Sets the nodes that are not started again when they end.
    pub(crate) fn set_unwanted(&self, names: &BTreeSet<String>) {
        self.unwanted.send_if_modified(|unwanted| {
            let is_new = *unwanted != *names;
            unwanted.clone_from(names);
            is_new
        });
    }

    /// The nodes that have left the cluster and ended since the last call.
    pub(crate) fn take_left(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.left.try_recv().ok()).collect()
    }

    /// Starts a node; a node that is not in the founding deployment joins through `contacts`.
    ///
    /// # Errors
    /// If the process cannot be started.
    pub(crate) fn start(
        &mut self,
        node: &Node,
        id: NodeId,
        contacts: Option<String>,
    ) -> Result<()> {
        let has_gateway = node.gateway.is_some();
        let Common {
            has_tls,
            places,
            cluster,
            ..
        } = &self.common;
        let tls = match has_tls {
            true => Some(certs::of_node(&places.tls(), cluster, node)?),
            false => None,
        };
        let mut watched = Watched {
            name: node.name.clone(),
            contacts,
            address: node.address.clone(),
            http: self.common.http.and_then(|http| http.of(id)),
            has_gateway,
            tls,
            stops_at: if has_gateway {
                Stop::Gateways
            } else {
                Stop::All
            },
            log_before: 0,
            common: self.common.clone(),
        };
        let child = watched.spawn()?;
        self.tasks.spawn(watched.run(child));
        Ok(())
    }

    /// Runs until `ready` completes. In a cluster that has run before, a node may refuse to run:
    /// `missing` receives its name, and the others continue.
    ///
    /// # Errors
    /// If a node of a new cluster does not start, if no node of an old one starts, or if all nodes
    /// have ended.
    pub(crate) async fn run_until_ready(
        &mut self,
        ready: impl Future<Output = ()>,
        mut missing: impl FnMut(Refusal),
    ) -> Result<(), Ended> {
        tokio::pin!(ready);
        let (nodes, mut refused) = (self.tasks.len(), 0);
        loop {
            tokio::select! {
                biased;
                Some(refusal) = self.refusals.recv() => {
                    refused += 1;
                    if self.common.is_new || refused == nodes {
                        return Err(Ended::AtStart(refusal));
                    }
                    missing(refusal);
                }
                () = &mut ready => break,
                ended = Self::all_ended(&mut self.tasks) => return Err(ended),
            }
        }
        // From now on a node that refuses to run does not stop the others. A last refusal may be in
        // the channel.
        self.refusals.close();
        match self.refusals.try_recv() {
            Ok(refusal) if self.common.is_new => Err(Ended::AtStart(refusal)),
            Ok(refusal) => {
                missing(refusal);
                Ok(())
            }
            Err(_) => Ok(()),
        }
    }

    /// Runs until every node has ended permanently. Calls `look`, which starts nodes that join, at
    /// this interval.
    pub(crate) async fn run(&mut self, every: Duration, mut look: impl FnMut(&mut Self)) -> Ended {
        let mut ticks = tokio::time::interval(every);
        loop {
            tokio::select! {
                ended = Self::all_ended(&mut self.tasks) => return ended,
                _ = ticks.tick() => look(self),
            }
        }
    }

    async fn all_ended(tasks: &mut JoinSet<()>) -> Ended {
        while let Some(ended) = tasks.join_next().await {
            ended.expect("the task of a node does not panic");
        }
        Ended::All
    }

    /// Stops in order: first all clients get their answers while every node still runs, then the
    /// nodes with a gateway stop, then the others. When `hurry` completes, kills all nodes.
    pub(crate) async fn stop(mut self, hurry: impl Future<Output = ()>) {
        let drain = self.common.drain;
        let in_order = async {
            let serving = self.gateways.borrow().clone();
            drain_all(serving, drain).await;
            self.stop.send_replace(Stop::Gateways);
            // Fails if no node has a gateway.
            let _ = self.gateways.wait_for(Serving::is_empty).await;
            self.stop.send_replace(Stop::All);
            Self::all_ended(&mut self.tasks).await
        };
        tokio::select! {
            _ = in_order => return,
            () = hurry => {}
        }
        self.stop.send_replace(Stop::Kill);
        Self::all_ended(&mut self.tasks).await;
    }
}

/// Drains these nodes. A node that does not answer counts as stopped.
async fn drain_all(serving: Serving, limit: Duration) {
    let mut drains = JoinSet::new();
    for (address, node) in serving.into_values() {
        let contact = contact::to(Some(&node.node), &address);
        drains.spawn(async move {
            request_drain(contact.clone(), &node, true, limit).await?;
            drain::until_drained(&contact, limit).await
        });
    }
    // The nodes report what is left when they stop.
    let _ = tokio::time::timeout(limit, drains.join_all()).await;
}

impl Watched {
    fn spawn(&mut self) -> Result<Child> {
        let (path, deployment) = (
            self.common.places.log(&self.name),
            self.common.places.deployment(),
        );
        let open = || File::options().create(true).append(true).open(&path);
        let log = open().with_context(|| format!("cannot open {}", path.display()))?;
        self.log_before = log.metadata().map_or(0, |it| it.len());
        let both = log.try_clone().context("cannot open the log twice")?;
        let child = Command::new(&self.common.program)
            .args(["node", &self.name, "--supervised"])
            .args(match &self.contacts {
                Some(contacts) => [OsStr::new("--join"), OsStr::new(contacts)],
                None => [OsStr::new("--config"), deployment.as_os_str()],
            })
            .args(
                self.http
                    .iter()
                    .flat_map(|http| ["--http".to_owned(), http.to_string()]),
            )
            .args(
                self.common
                    .http
                    .filter(|http| http.is_optional && self.http.is_some())
                    .map(|_| "--http-optional"),
            )
            .arg("--data")
            .arg(self.common.places.root())
            .args(
                self.tls
                    .iter()
                    .flat_map(|tls| [OsStr::new("--tls"), tls.as_os_str()]),
            )
            // Never written to. Its end shows the node that this process has ended, however it
            // ended.
            .stdin(Stdio::piped())
            .stdout(log)
            .stderr(both)
            // A separate process group, because Ctrl-C is for this process, which stops the nodes
            // in order.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start node {}", self.name))?;
        if let Some(pid) = child.id() {
            let path = self.common.places.pid(&self.name);
            fs::write(&path, format!("{pid}\n"))
                .with_context(|| format!("cannot write {}", path.display()))?;
            let _ = fs::remove_file(self.common.places.ended(&self.name));
        }
        if let Some(pid) = child.id().filter(|_| self.has_gateway) {
            let node = Addressee {
                cluster: self.common.cluster.clone(),
                node: self.name.clone(),
                process: Some(pid),
            };
            let serves = (self.address.clone(), node);
            self.common
                .gateways
                .send_modify(|running| drop(running.insert(pid, serves)));
        }
        Ok(child)
    }

    /// Records that the node's process has ended.
    fn ended(&self, pid: Option<u32>) {
        let _ = fs::remove_file(self.common.places.pid(&self.name));
        self.common
            .gateways
            .send_if_modified(|running| pid.and_then(|pid| running.remove(&pid)).is_some());
    }

    async fn run(mut self, first: Child) {
        let mut backoff = Backoff::default();
        let mut reported = Reported::default();
        let mut child = Some(first);
        let mut is_first = true;
        loop {
            let started = Instant::now();
            match child.take() {
                Some(child) => {
                    let pid = child.id();
                    let end = self.watch(child).await;
                    self.ended(pid);
                    let End::ByItself(status) = end else { return };
                    let how = self.describe(status);
                    // `ionian status` shows it, and does without if it cannot be written.
                    let _ = fs::write(self.common.places.ended(&self.name), &how);
                    let refusal = || Refusal {
                        node: self.name.clone(),
                        how: how.clone(),
                    };
                    // Received only while the cluster starts. A new cluster then gives up.
                    let refuses = is_first && status.code() == Some(1);
                    if refuses && self.common.refusals.send(refusal()).is_ok() && self.common.is_new
                    {
                        return;
                    }
                    is_first = false;
                    if status.code() == Some(0) && self.was_removed() {
                        let data = self.common.places.node(&self.name);
                        say_on_stderr!(
                            "node {} has left the cluster: {} can be deleted",
                            self.name,
                            data.display()
                        );
                        // Fails if the supervisor has ended.
                        let _ = self.common.left.send(self.name);
                        return;
                    }
                    if !self.common.restart {
                        return say_on_stderr!("node {} {how}", self.name);
                    }
                    let pause = backoff.after(started.elapsed(), status.code() == Some(1));
                    if !self.pause(pause, how, &mut reported).await {
                        return;
                    }
                }
                None if self.common.unwanted.borrow().contains(&self.name) => {
                    say_on_stderr!(
                        "node {} is not started again: it leaves, and another node has its addresses, or it has left",
                        self.name
                    );
                    let _ = self.common.left.send(self.name);
                    return;
                }
                None => match self.spawn() {
                    Ok(next) => child = Some(next),
                    Err(error) => {
                        let how = format!("cannot be started: {}", output::explain(&error));
                        if !self
                            .pause(backoff.after(Duration::ZERO, true), how, &mut reported)
                            .await
                        {
                            return;
                        }
                    }
                },
            }
        }
    }

    /// Whether the node knows that it is no longer a member.
    fn was_removed(&self) -> bool {
        let known = membership_file::stored(&self.common.places.node(&self.name));
        matches!(known, Ok(Some(known)) if known.member(&self.name).is_none())
    }

    /// Reports the end and waits; returns false if the node must not restart.
    async fn pause(
        &mut self,
        (delay, is_last): (Duration, bool),
        how: String,
        reported: &mut Reported,
    ) -> bool {
        if *self.common.stop.borrow() != Stop::No {
            return false;
        }
        let seconds = delay.as_secs_f64();
        let again = match is_last {
            true => format!("; restarting every {seconds:.1} s until that changes"),
            false => format!("; restarting in {seconds:.1} s"),
        };
        if let Some(how) = reported.shortened(how, is_last) {
            say_on_stderr!("node {} {how}{again}", self.name);
        }
        let stopped = self.common.stop.wait_for(|stop| *stop != Stop::No);
        tokio::time::timeout(delay, stopped).await.is_err()
    }

    /// Waits until the process ends by itself or is stopped.
    async fn watch(&mut self, mut child: Child) -> End {
        // `wait` closes the standard input of the process, if it still has it: the node would stop.
        let _stdin = child.stdin.take();
        let stops_at = self.stops_at;
        tokio::select! {
            biased;
            _ = self.common.stop.wait_for(|stop| *stop >= stops_at) => {}
            status = child.wait() => return End::ByItself(status.unwrap_or_default()),
        }
        if *self.common.stop.borrow() < Stop::Kill {
            terminate(&child);
            let limit = self.common.drain + STOP_LIMIT;
            let hurry = self.common.stop.wait_for(|stop| *stop == Stop::Kill);
            tokio::select! {
                _ = child.wait() => return End::Stopped,
                _ = hurry => {}
                () = tokio::time::sleep(limit) => {
                    say_on_stderr!("node {} does not stop within {:.1} s: killing it", self.name, limit.as_secs_f64());
                }
            }
        }
        // Fails if the process has ended, and then there is nothing to kill.
        let _ = child.kill().await;
        End::Stopped
    }

    fn describe(&self, status: ExitStatus) -> String {
        match (status.code(), status.signal()) {
            (Some(0), _) => "has stopped by itself".to_owned(),
            (Some(code), _) => {
                let why = reason(&self.common.places.log(&self.name), self.log_before);
                let why = why.unwrap_or_else(|| "its log has no reason".to_owned());
                format!("has ended with exit code {code}: {why}")
            }
            (None, Some(number)) => {
                let name =
                    Signal::try_from(number).map_or("a signal without a name", Signal::as_str);
                let commands = unfinished(&self.common.places.node(&self.name));
                let commands = commands.unwrap_or_default();
                let commands = commands.iter().map(|it| format!(": {it}"));
                let commands: String = commands.collect();
                format!("was killed by signal {number} ({name}){commands}")
            }
            (None, None) => "has ended for an unknown reason".to_owned(),
        }
    }
}

/// Sends SIGTERM to the process.
fn terminate(child: &Child) {
    // Without an id the process has ended and has been waited for.
    if let Some(pid) = child.id().and_then(|id| i32::try_from(id).ok()) {
        let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
    }
}
