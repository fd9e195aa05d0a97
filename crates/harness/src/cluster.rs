//! The nodes: one process each, which this program starts, stops and buries itself.

use crate::ports::free_ports;
use anyhow::{Context, Result, bail};
use ionian_deployment::Deployment;
use ionian_program::beside::path_of;
use std::fs::{self, File};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

/// The program `ionian`: the chosen one, or the one beside this program.
///
/// # Errors
/// When it is not there: says which command builds it.
pub fn program(chosen: Option<&Path>) -> Result<PathBuf> {
    let path = match chosen {
        Some(path) => path.to_owned(),
        None => path_of("ionian", "ionian-cli")?,
    };
    path.canonicalize()
        .with_context(|| format!("there is no program {}", path.display()))
}

/// Moves every node to ports of this machine that are free now.
///
/// # Errors
/// When there are fewer.
pub fn place_on_free_ports(deployment: &mut Deployment) -> Result<()> {
    let mut ports = free_ports(2 * deployment.nodes.len(), &[])?.into_iter();
    let mut next = || format!("127.0.0.1:{}", ports.next().expect("two for each node"));
    for node in &mut deployment.nodes {
        node.address = next();
        node.gateway = node.gateway.as_ref().map(|_| next());
    }
    Ok(())
}

/// A cluster in a directory of its own. Dropping it kills its processes.
pub struct Cluster {
    ionian: PathBuf,
    root: PathBuf,
    deployment: Deployment,
    processes: Vec<Process>,
    starts: u64,
}

/// One after the other, of one node.
#[derive(Default)]
struct Process {
    child: Option<Child>,
    starts: u32,
    /// The node to ask for the deployment, when it is not one of the first nodes.
    join: Option<String>,
    /// By how many milliseconds it misreads the wall clock from its next start on.
    clock_ahead_ms: i64,
}

/// A node that is not in its place yet.
pub struct Member {
    described: ionian_deployment::Node,
    process: Process,
}

impl Cluster {
    /// Lays out the deployment below `root`. Starts nothing.
    ///
    /// # Errors
    /// When the directory cannot be written to.
    pub fn new(ionian: &Path, root: &Path, deployment: Deployment) -> Result<Self> {
        let processes = deployment
            .nodes
            .iter()
            .map(|_| Process::default())
            .collect();
        let cluster = Cluster {
            ionian: ionian.to_owned(),
            root: root.to_owned(),
            deployment,
            processes,
            starts: 0,
        };
        let logs = cluster.logs();
        fs::create_dir_all(&logs).with_context(|| format!("cannot create {}", logs.display()))?;
        let path = cluster.config();
        let text = cluster.deployment.to_toml();
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(cluster)
    }

    fn config(&self) -> PathBuf {
        self.root.join("deployment.toml")
    }

    /// The program.
    pub fn program(&self) -> &Path {
        &self.ionian
    }

    /// The cluster's directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where what the processes say is kept.
    pub fn logs(&self) -> PathBuf {
        self.root.join("logs")
    }

    /// What runs here.
    pub fn deployment(&self) -> &Deployment {
        &self.deployment
    }

    /// Where the nodes keep what survives them.
    pub fn stores(&self) -> PathBuf {
        self.root.join("nodes")
    }

    /// Where this node keeps it.
    pub fn store(&self, node: usize) -> PathBuf {
        self.stores().join(self.name(node))
    }

    /// How many nodes there are.
    #[expect(clippy::len_without_is_empty, reason = "there is always one")]
    pub fn len(&self) -> usize {
        self.processes.len()
    }

    /// Processes started so far.
    pub fn starts(&self) -> u64 {
        self.starts
    }

    /// What the node is called.
    pub fn name(&self, node: usize) -> &str {
        &self.deployment.nodes[node].name
    }

    /// Where clients are served.
    ///
    /// # Errors
    /// When an address cannot be resolved.
    pub fn gateways(&self) -> Result<Vec<SocketAddr>> {
        let texts = self
            .deployment
            .nodes
            .iter()
            .filter_map(|node| node.gateway.as_deref());
        texts.map(address).collect()
    }

    /// Where nodes answer for their status.
    ///
    /// # Errors
    /// When an address cannot be resolved.
    pub fn addresses(&self) -> Result<Vec<SocketAddr>> {
        self.deployment
            .nodes
            .iter()
            .map(|node| address(&node.address))
            .collect()
    }

    /// Every port of the nodes.
    ///
    /// # Errors
    /// When an address cannot be resolved.
    pub fn ports(&self) -> Result<Vec<u16>> {
        let listens: Result<Vec<SocketAddr>> = self
            .deployment
            .nodes
            .iter()
            .map(|node| address(node.listens_at()))
            .collect();
        let addresses = self
            .addresses()?
            .into_iter()
            .chain(listens?)
            .chain(self.gateways()?);
        Ok(addresses.map(|address| address.port()).collect())
    }

    /// Starts the node.
    ///
    /// # Errors
    /// When the system starts no process.
    pub fn start(&mut self, node: usize) -> Result<()> {
        self.start_by(node, |program| Command::new(program))
    }

    /// Starts the node by a command to which the arguments are added, such as a shell that limits
    /// it.
    ///
    /// # Errors
    /// When the system starts no process.
    pub fn start_by(&mut self, node: usize, command: impl FnOnce(&Path) -> Command) -> Result<()> {
        let name = self.name(node).to_owned();
        self.processes[node].starts += 1;
        let log = File::create(self.log(node))?;
        let mut command = command(&self.ionian);
        command.arg("node").arg(&name).arg("--data").arg(&self.root);
        match &self.processes[node].join {
            Some(peer) => command.args(["--join", peer]),
            None => command.arg("--config").arg(self.config()),
        };
        if self.processes[node].clock_ahead_ms != 0 {
            command.arg(format!(
                "--clock-ahead-ms={}",
                self.processes[node].clock_ahead_ms
            ));
        }
        // With `--supervised` it ends when this program does, however that happens.
        command
            .arg("--supervised")
            .stdin(Stdio::piped())
            .stdout(log.try_clone()?)
            .stderr(log);
        self.processes[node].child = Some(
            command
                .spawn()
                .with_context(|| format!("cannot start node {name}"))?,
        );
        self.starts += 1;
        Ok(())
    }

    /// From its next start on the node misreads the wall clock by this number of milliseconds.
    pub fn set_clock(&mut self, node: usize, ahead_ms: i64) {
        self.processes[node].clock_ahead_ms = ahead_ms;
    }

    /// The log of the node's latest process.
    fn log(&self, node: usize) -> PathBuf {
        self.logs().join(format!(
            "{}.{}.log",
            self.name(node),
            self.processes[node].starts
        ))
    }

    /// Whether it has been started, and has not been seen to end.
    pub fn is_started(&self, node: usize) -> bool {
        self.processes[node].child.is_some()
    }

    /// The process of a node that runs.
    ///
    /// # Errors
    /// When it is down.
    pub fn process(&self, node: usize) -> Result<u32> {
        let child = self.processes[node].child.as_ref();
        child
            .map(Child::id)
            .with_context(|| format!("node {} is down", self.name(node)))
    }

    /// Kills these nodes at once; returns how many ran. On return they are gone.
    ///
    /// # Errors
    /// When the system does not let it.
    pub fn kill(&mut self, nodes: &[usize]) -> Result<u64> {
        let mut killed = 0;
        for node in nodes {
            if let Some(child) = &mut self.processes[*node].child {
                child.kill()?;
                killed += 1;
            }
        }
        for node in nodes {
            if let Some(mut child) = self.processes[*node].child.take() {
                child.wait()?;
            }
        }
        Ok(killed)
    }

    /// Kills all nodes.
    ///
    /// # Errors
    /// When the system does not let it.
    pub fn kill_all(&mut self) -> Result<()> {
        let all: Vec<usize> = (0..self.len()).collect();
        self.kill(&all).map(drop)
    }

    /// How the node has ended, if it has.
    ///
    /// # Errors
    /// When it was not started.
    pub fn ended(&mut self, node: usize) -> Result<Option<ExitStatus>> {
        let Some(child) = &mut self.processes[node].child else {
            bail!("node {} is down", self.name(node))
        };
        let status = child.try_wait()?;
        if status.is_some() {
            self.processes[node].child = None;
        }
        Ok(status)
    }

    /// Makes sure that this node, which was started, has not ended.
    ///
    /// # Errors
    /// When it has: says how.
    pub fn check(&mut self, node: usize) -> Result<()> {
        match self.ended(node)? {
            Some(status) => bail!(
                "node {} has ended by itself: {}",
                self.name(node),
                self.describe(node, status)
            ),
            None => Ok(()),
        }
    }

    /// Makes sure that no node has ended that was started.
    ///
    /// # Errors
    /// When one has: says how.
    pub fn check_all(&mut self) -> Result<()> {
        (0..self.len()).try_for_each(|node| {
            if self.is_started(node) {
                self.check(node)
            } else {
                Ok(())
            }
        })
    }

    /// How the node's latest process ended, and the last that it said.
    pub fn describe(&self, node: usize, status: ExitStatus) -> String {
        describe(status, &self.log(node))
    }

    /// The last that the node's latest process said, if it said anything.
    pub fn last_words(&self, node: usize) -> Option<String> {
        last_words(&self.log(node))
    }

    /// Every line in which a process says that it panicked.
    ///
    /// # Errors
    /// When a log cannot be read.
    pub fn panics(&self) -> Result<Vec<String>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(self.logs())? {
            let path = entry?.path();
            let text = String::from_utf8_lossy(&fs::read(&path)?).into_owned();
            let panics = text.lines().filter(|line| line.contains("panicked at"));
            found.extend(panics.map(|line| format!("{}: {line}", path.display())));
        }
        Ok(found)
    }

    /// Starts a node beside those of the cluster, which asks the node at `peer` for the deployment.
    ///
    /// # Errors
    /// When the system starts no process.
    pub fn start_joining(
        &mut self,
        described: ionian_deployment::Node,
        peer: String,
    ) -> Result<Member> {
        // It has a place of its own while it is started.
        self.processes.push(Process {
            join: Some(peer),
            ..Process::default()
        });
        self.deployment.nodes.push(described);
        let started = self.start(self.len() - 1);
        let process = self.processes.pop().expect("just pushed");
        let described = self.deployment.nodes.pop().expect("just pushed");
        started.map(|()| Member { described, process })
    }

    /// The place of `node` is the member's from now on. The process of the old one must have ended.
    pub fn put(&mut self, node: usize, member: Member) {
        self.deployment.nodes[node] = member.described;
        self.processes[node] = member.process;
    }
}

impl Member {
    /// What it is called.
    pub fn name(&self) -> &str {
        &self.described.name
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // When even that fails there is no way to report it.
        let _ = self.kill_all();
    }
}

/// How a process ended, and the last that it said.
pub fn describe(status: ExitStatus, log: &Path) -> String {
    let last = last_words(log).unwrap_or_else(|| "it said nothing".to_owned());
    format!("{status}: {last} ({})", log.display())
}

/// The last line that is not empty.
fn last_words(log: &Path) -> Option<String> {
    let text = fs::read_to_string(log).unwrap_or_default();
    text.lines()
        .map(str::trim)
        .rfind(|line| !line.is_empty())
        .map(str::to_owned)
}

fn address(text: &str) -> Result<SocketAddr> {
    text.to_socket_addrs()?
        .next()
        .with_context(|| format!("{text:?} has no address"))
}
