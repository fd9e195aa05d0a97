//! The nodes: one process each, which this program starts, stops and buries itself.

use crate::ports::free_ports;
use anyhow::{Context, Result, bail, ensure};
use ionian_deployment::{Deployment, PresetOptions};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

/// Starts a program that cannot make any file longer than `$0` blocks of 512 bytes, and is told so by an
/// error and not by a signal.
const LIMITED: &str = "trap '' XFSZ; ulimit -f \"$0\"; exec \"$@\"";

/// The program `ionian`: the chosen one, or the one beside this program.
pub(crate) fn program(chosen: Option<&Path>) -> Result<PathBuf> {
    let beside = || Ok::<_, std::io::Error>(std::env::current_exe()?.with_file_name("ionian"));
    let path = chosen.map_or_else(beside, |path| Ok(path.to_owned()))?;
    path.canonicalize().with_context(|| format!("there is no program {}: build it, or say --ionian", path.display()))
}

/// A cluster in a directory of its own.
pub(crate) struct Cluster {
    ionian: PathBuf,
    root: PathBuf,
    pub(crate) deployment: Deployment,
    nodes: Vec<Node>,
    /// Processes started so far.
    pub(crate) starts: u64,
    /// Whether a change of the members is under way: there is one at a time.
    changing: bool,
}

struct Node {
    child: Option<Child>,
    /// A fault has it in hand.
    held: bool,
    starts: u32,
    /// Whom it was told to ask for the deployment, when it is not of the first nodes.
    join: Option<String>,
}

impl Cluster {
    /// Lays out the preset on free ports below `root`. Starts nothing.
    pub(crate) fn new(ionian: &Path, root: &Path, preset: &str, overrides: &[String]) -> Result<Self> {
        let mut deployment = Deployment::preset(preset, &PresetOptions::default())?;
        let mut ports = free_ports(2 * deployment.nodes.len(), &[])?.into_iter();
        let mut next = || format!("127.0.0.1:{}", ports.next().expect("two for each node"));
        for node in &mut deployment.nodes {
            node.address = next();
            node.gateway = node.gateway.as_ref().map(|_| next());
        }
        let disk = ["durability=disk".to_owned()];
        let deployment = deployment.with_overrides(&[&disk[..], overrides].concat())?;
        let node = || Node { child: None, held: false, starts: 0, join: None };
        let nodes = deployment.nodes.iter().map(|_| node()).collect();
        let cluster =
            Cluster { ionian: ionian.to_owned(), root: root.to_owned(), deployment, nodes, starts: 0, changing: false };
        let logs = cluster.root.join("logs");
        fs::create_dir_all(&logs).with_context(|| format!("cannot create {}", logs.display()))?;
        cluster.write_deployment()?;
        Ok(cluster)
    }

    fn write_deployment(&self) -> Result<()> {
        let path = self.config();
        fs::write(&path, self.deployment.to_toml()).with_context(|| format!("cannot write {}", path.display()))
    }

    fn config(&self) -> PathBuf {
        self.root.join("deployment.toml")
    }

    /// Where the nodes keep what survives them.
    pub(crate) fn stores(&self) -> PathBuf {
        self.root.join("nodes")
    }

    /// Where this node keeps it.
    pub(crate) fn store(&self, node: usize) -> PathBuf {
        self.stores().join(self.name(node))
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn name(&self, node: usize) -> &str {
        &self.deployment.nodes[node].name
    }

    /// Where clients are served.
    pub(crate) fn gateways(&self) -> Result<Vec<SocketAddr>> {
        let texts = self.deployment.nodes.iter().filter_map(|node| node.gateway.as_deref());
        texts.map(address).collect()
    }

    /// Where nodes answer for their status.
    pub(crate) fn addresses(&self) -> Result<Vec<SocketAddr>> {
        self.deployment.nodes.iter().map(|node| address(&node.address)).collect()
    }

    /// Takes the node for a fault, unless another one has it.
    pub(crate) fn hold(&mut self, node: usize) -> bool {
        !std::mem::replace(&mut self.nodes[node].held, true)
    }

    /// Takes the node to be replaced, unless another fault has it or another node is being replaced.
    pub(crate) fn hold_to_replace(&mut self, node: usize) -> bool {
        let free = !self.changing && self.hold(node);
        self.changing |= free;
        free
    }

    pub(crate) fn release(&mut self, node: usize) {
        self.nodes[node].held = false;
    }

    /// Starts the node; with a limit, on a file system that takes no file longer than so many KiB.
    pub(crate) fn start(&mut self, node: usize, limit_kib: Option<u64>) -> Result<()> {
        let name = self.name(node).to_owned();
        self.nodes[node].starts += 1;
        let log = File::create(self.log(node))?;
        let mut command = match limit_kib {
            None => Command::new(&self.ionian),
            Some(kib) => {
                let mut shell = Command::new("sh");
                shell.args(["-c", LIMITED, &(2 * kib).to_string()]).arg(&self.ionian);
                shell
            }
        };
        command.arg("node").arg(&name).arg("--data").arg(&self.root);
        match &self.nodes[node].join {
            Some(peer) => command.args(["--join", peer]),
            None => command.arg("--config").arg(self.config()),
        };
        // With `--supervised` it ends when this program does, however that happens.
        command.arg("--supervised").stdin(Stdio::piped()).stdout(log.try_clone()?).stderr(log);
        self.nodes[node].child = Some(command.spawn().with_context(|| format!("cannot start node {name}"))?);
        self.starts += 1;
        Ok(())
    }

    /// The log of the node's latest process.
    fn log(&self, node: usize) -> PathBuf {
        self.root.join("logs").join(format!("{}.{}.log", self.name(node), self.nodes[node].starts))
    }

    /// The process of a node that runs.
    pub(crate) fn process(&self, node: usize) -> Result<u32> {
        let child = self.nodes[node].child.as_ref();
        child.map(Child::id).with_context(|| format!("node {} is down", self.name(node)))
    }

    /// Kills these nodes at once; returns how many ran. On return they are gone.
    pub(crate) fn kill(&mut self, nodes: &[usize]) -> Result<u64> {
        let mut killed = 0;
        for node in nodes {
            if let Some(child) = &mut self.nodes[*node].child {
                child.kill()?;
                killed += 1;
            }
        }
        for node in nodes {
            if let Some(mut child) = self.nodes[*node].child.take() {
                child.wait()?;
            }
        }
        Ok(killed)
    }

    pub(crate) fn signal(&self, node: usize, signal: Signal) -> Result<()> {
        Ok(kill(Pid::from_raw(i32::try_from(self.process(node)?)?), signal)?)
    }

    /// How the node has ended, if it has.
    pub(crate) fn ended(&mut self, node: usize) -> Result<Option<ExitStatus>> {
        let Some(child) = &mut self.nodes[node].child else { bail!("node {} is down", self.name(node)) };
        let status = child.try_wait()?;
        if status.is_some() {
            self.nodes[node].child = None;
        }
        Ok(status)
    }

    /// Makes sure that no node has ended that no fault has in hand.
    pub(crate) fn check(&mut self) -> Result<()> {
        for node in 0..self.len() {
            if !self.nodes[node].held
                && let Some(status) = self.ended(node)?
            {
                bail!("node {} has ended by itself: {}", self.name(node), self.describe(node, status));
            }
        }
        Ok(())
    }

    /// How the node's latest process ended, and the last that it said.
    pub(crate) fn describe(&self, node: usize, status: ExitStatus) -> String {
        describe(status, &self.log(node))
    }

    /// Ends every fault: all nodes run, and freely.
    pub(crate) fn heal(&mut self) -> Result<()> {
        for node in 0..self.len() {
            // Nobody knows what a fault that was interrupted has left: what it holds is started anew.
            if std::mem::take(&mut self.nodes[node].held) {
                self.kill(&[node])?;
            }
            if self.nodes[node].child.is_none() {
                self.start(node, None)?;
            }
        }
        Ok(())
    }

    /// Every line in which a process says that it panicked.
    pub(crate) fn panics(&self) -> Result<Vec<String>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(self.root.join("logs"))? {
            let path = entry?.path();
            let text = String::from_utf8_lossy(&fs::read(&path)?).into_owned();
            let panics = text.lines().filter(|line| line.contains("panicked at"));
            found.extend(panics.map(|line| format!("{}: {line}", path.display())));
        }
        Ok(found)
    }

    /// Has a new node take the place of this one, through a command to the running cluster. On return the
    /// command and the new node run; the command ends when the change is made.
    pub(crate) fn begin_replacement(&mut self, node: usize, name: &str) -> Result<Replacement> {
        let ports = free_ports(2, &self.ports()?)?;
        let mut ports = ports.iter().map(|port| format!("127.0.0.1:{port}"));
        let address = ports.next().expect("two were asked for");
        let gateway = self.deployment.nodes[node].gateway.as_ref().and(ports.next());
        let mut command = Command::new(&self.ionian);
        command.args(["member", "replace", self.name(node), name, "--address", &address]);
        command.args(gateway.iter().flat_map(|gateway| ["--gateway", gateway]));
        let log = self.root.join("logs").join(format!("replace-{name}.log"));
        let file = File::create(&log)?;
        command.arg("--data").arg(&self.root).stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = command.spawn().context("cannot run `ionian member replace`")?;
        let peer = (node + 1) % self.len();
        let join = Some(self.deployment.nodes[peer].address.clone());
        let new = Node { child: None, held: true, starts: 0, join };
        let described = ionian_deployment::Node { name: name.to_owned(), address, gateway, ..Default::default() };
        // It has a place of its own until the change is made.
        self.nodes.push(new);
        self.deployment.nodes.push(described);
        let place = self.len() - 1;
        self.start(place, None)?;
        let new = self.nodes.pop().expect("just pushed");
        let described = self.deployment.nodes.pop().expect("just pushed");
        Ok(Replacement { child, log, new, described })
    }

    /// The place of `node` is the new node's from now on. The process of the old one must have ended.
    pub(crate) fn finish_replacement(&mut self, node: usize, replacement: Replacement) {
        let Replacement { new, described, .. } = replacement;
        self.changing = false;
        self.deployment.nodes[node] = described;
        self.nodes[node] = new;
    }

    /// The ports of all nodes.
    fn ports(&self) -> Result<Vec<u16>> {
        let addresses = self.addresses()?.into_iter().chain(self.gateways()?);
        Ok(addresses.map(|address| address.port()).collect())
    }
}

/// A change of the cluster's members that is under way.
pub(crate) struct Replacement {
    /// The command.
    child: Child,
    log: PathBuf,
    new: Node,
    described: ionian_deployment::Node,
}

impl Replacement {
    /// Whether the change is made.
    ///
    /// # Errors
    /// When it failed.
    pub(crate) fn is_made(&mut self) -> Result<bool> {
        match self.child.try_wait()? {
            None => Ok(false),
            Some(status) if status.success() => Ok(true),
            Some(status) => {
                bail!("`ionian member replace` to {} failed: {}", self.described.name, describe(status, &self.log))
            }
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let all: Vec<usize> = (0..self.len()).collect();
        // When even that fails there is nobody to tell.
        let _ = self.kill(&all);
    }
}

/// How a process ended, and the last that it said.
fn describe(status: ExitStatus, log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
    format!("{status}: {} ({})", last.trim(), log.display())
}

fn address(text: &str) -> Result<SocketAddr> {
    text.to_socket_addrs()?.next().with_context(|| format!("{text:?} has no address"))
}

/// Tries the limit of file lengths on a file in `root`.
///
/// # Errors
/// Says why the fault cannot be had here.
pub(crate) fn try_file_limit(root: &Path) -> Result<()> {
    let file = root.join("limit");
    let mut shell = Command::new("sh");
    shell.args(["-c", LIMITED, "2", "sh", "-c", "head -c 4096 /dev/zero > \"$0\""]).arg(&file);
    let status = shell.stderr(Stdio::null()).status().context("there is no sh")?;
    let length = fs::metadata(&file).map_or(0, |file| file.len());
    let _ = fs::remove_file(&file);
    ensure!(!status.success() && length == 1024, "`ulimit -f` limits nothing here");
    Ok(())
}
