//! Clusters whose nodes are child processes of this program.

use crate::ports::free_ports;
use anyhow::{Context, Result, bail};
use ionian_deployment::Deployment;
use ionian_kernel::level::Level;
use ionian_program::beside::path_of;
use std::fs::{self, File};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

/// The program `ionian`: the chosen one, or the one in the directory of this program.
///
/// # Errors
/// If it does not exist: names the command that builds it.
pub fn program(chosen: Option<&Path>) -> Result<PathBuf> {
    let path = match chosen {
        Some(path) => path.to_owned(),
        None => path_of("ionian", "ionian-cli")?,
    };
    path.canonicalize()
        .with_context(|| format!("there is no program {}", path.display()))
}

/// Changes the addresses of all nodes to free ports of this machine.
///
/// # Errors
/// If there are not enough.
pub fn place_on_free_ports(deployment: &mut Deployment) -> Result<()> {
    let mut ports = free_ports(2 * deployment.nodes.len(), &[])?.into_iter();
    let mut next = || format!("127.0.0.1:{}", ports.next().expect("two for each node"));
    for node in &mut deployment.nodes {
        node.address = next();
        node.gateway = node.gateway.as_ref().map(|_| next());
    }
    Ok(())
}

/// A cluster in its own directory. Dropping it kills its processes.
pub struct Cluster {
    ionian: PathBuf,
    /// An earlier program, which every second start uses.
    former: Option<PathBuf>,
    root: PathBuf,
    /// The directory of the nodes' certificates, by their names.
    certificates: Option<PathBuf>,
    deployment: Deployment,
    processes: Vec<Process>,
    starts: u64,
}

/// The processes of one node, one after the other.
#[derive(Default)]
struct Process {
    child: Option<Child>,
    starts: u32,
    /// The node through which it joins, if it is not one of the founding nodes.
    join: Option<String>,
    /// Offset of its wall clock in milliseconds from its next start on.
    clock_ahead_ms: i64,
    /// Its program from its next start on, if it is not the one that the others use.
    program: Option<PathBuf>,
}

/// A node that does not replace another one yet.
pub struct Member {
    described: ionian_deployment::Node,
    process: Process,
}

impl Cluster {
    /// Writes the deployment below `root`. Starts no node.
    ///
    /// # Errors
    /// If the directory cannot be written.
    pub fn new(ionian: &Path, root: &Path, deployment: Deployment) -> Result<Self> {
        let processes = deployment
            .nodes
            .iter()
            .map(|_| Process::default())
            .collect();
        let cluster = Cluster {
            ionian: ionian.to_owned(),
            former: None,
            root: root.to_owned(),
            certificates: None,
            deployment,
            processes,
            starts: 0,
        };
        let logs = cluster.logs();
        fs::create_dir_all(&logs).with_context(|| format!("cannot create {}", logs.display()))?;
        let path = cluster.config();
        // Programs that know no levels read it, too.
        let text = cluster.deployment.to_text();
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(cluster)
    }

    fn config(&self) -> PathBuf {
        self.root.join("deployment.toml")
    }

    /// From now on every second process is one of this earlier program; with `None` all are of the
    /// present one.
    pub fn mix_with(&mut self, former: Option<PathBuf>) {
        self.former = former;
    }

    /// From its next start on this node uses this program; with `None` the one that the others use.
    pub fn set_program(&mut self, node: usize, program: Option<PathBuf>) {
        self.processes[node].program = program;
    }

    /// From now on nodes accept only connections with certificates of the cluster. That of a node
    /// is in the directory `certificates/NAME`.
    pub fn secure(&mut self, certificates: PathBuf) {
        self.certificates = Some(certificates);
    }

    /// The program.
    pub fn program(&self) -> &Path {
        &self.ionian
    }

    /// The cluster's directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The directory with the output of the processes.
    pub fn logs(&self) -> PathBuf {
        self.root.join("logs")
    }

    /// The deployment.
    pub fn deployment(&self) -> &Deployment {
        &self.deployment
    }

    /// The directory with the nodes' data directories.
    pub fn stores(&self) -> PathBuf {
        self.root.join("nodes")
    }

    /// The data directory of this node.
    pub fn store(&self, node: usize) -> PathBuf {
        self.stores().join(self.name(node))
    }

    /// The number of nodes.
    #[expect(clippy::len_without_is_empty, reason = "there is always one")]
    pub fn len(&self) -> usize {
        self.processes.len()
    }

    /// The number of processes started so far.
    pub fn starts(&self) -> u64 {
        self.starts
    }

    /// The name of the node.
    pub fn name(&self, node: usize) -> &str {
        &self.deployment.nodes[node].name
    }

    /// The addresses of the gateways.
    ///
    /// # Errors
    /// If an address cannot be resolved.
    pub fn gateways(&self) -> Result<Vec<SocketAddr>> {
        let texts = self
            .deployment
            .nodes
            .iter()
            .filter_map(|node| node.gateway.as_deref());
        texts.map(address).collect()
    }

    /// The addresses at which nodes answer status queries.
    ///
    /// # Errors
    /// If an address cannot be resolved.
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
    /// If the system cannot start the process.
    pub fn start(&mut self, node: usize) -> Result<()> {
        self.start_by(node, |program| Command::new(program))
    }

    /// Starts the node through another command, such as a shell with limits, which gets the node's
    /// arguments.
    ///
    /// # Errors
    /// If the system cannot start the process.
    pub fn start_by(&mut self, node: usize, command: impl FnOnce(&Path) -> Command) -> Result<()> {
        let name = self.name(node).to_owned();
        self.processes[node].starts += 1;
        let log = File::create(self.log(node))?;
        let former = self.former.as_ref().filter(|_| self.starts % 2 == 1);
        let own = self.processes[node].program.as_ref();
        let program = own.or(former).unwrap_or(&self.ionian);
        let mut command = command(program);
        command.arg("node").arg(&name).arg("--data").arg(&self.root);
        match &self.processes[node].join {
            Some(peer) => command.args(["--join", peer]),
            None => command.arg("--config").arg(self.config()),
        };
        // The file states no level then, which an earlier program would not know.
        let is_first = self.deployment.level == Level::FIRST;
        if is_first && *program == self.ionian && self.processes[node].join.is_none() {
            command.args(["--set", &format!("level={}", Level::FIRST)]);
        }
        if self.processes[node].clock_ahead_ms != 0 {
            command.arg(format!(
                "--clock-ahead-ms={}",
                self.processes[node].clock_ahead_ms
            ));
        }
        if let Some(certificates) = &self.certificates {
            command.arg("--tls").arg(certificates.join(&name));
            command.args(["--tls-mode", "required", "--client-tls", "required"]);
        }
        // With `--supervised` the node stops when this program ends, for whatever reason.
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

    /// Sets the offset of the node's wall clock, in milliseconds, from its next start on.
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

    /// Whether the node was started and has not ended as far as known.
    pub fn is_started(&self, node: usize) -> bool {
        self.processes[node].child.is_some()
    }

    /// The process of a running node.
    ///
    /// # Errors
    /// If the node is down.
    pub fn process(&self, node: usize) -> Result<u32> {
        let child = self.processes[node].child.as_ref();
        child
            .map(Child::id)
            .with_context(|| format!("node {} is down", self.name(node)))
    }

    /// Kills these nodes; returns how many were running. All have ended on return.
    ///
    /// # Errors
    /// If the system refuses.
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
    /// If the system refuses.
    pub fn kill_all(&mut self) -> Result<()> {
        let all: Vec<usize> = (0..self.len()).collect();
        self.kill(&all).map(drop)
    }

    /// How the node has ended, if it has.
    ///
    /// # Errors
    /// If the node was not started.
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

    /// Checks that this node, which was started, has not ended.
    ///
    /// # Errors
    /// If it has: describes how.
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

    /// Checks that no started node has ended.
    ///
    /// # Errors
    /// If one has: describes how.
    pub fn check_all(&mut self) -> Result<()> {
        (0..self.len()).try_for_each(|node| {
            if self.is_started(node) {
                self.check(node)
            } else {
                Ok(())
            }
        })
    }

    /// How the node's latest process ended, and its last line of output.
    pub fn describe(&self, node: usize, status: ExitStatus) -> String {
        describe(status, &self.log(node))
    }

    /// The last line of output of the node's latest process, if any.
    pub fn last_output(&self, node: usize) -> Option<String> {
        last_output(&self.log(node))
    }

    /// Every line in which a process reports a panic.
    ///
    /// # Errors
    /// If a log cannot be read.
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

    /// Starts an additional node, which joins through the node at `peer`.
    ///
    /// # Errors
    /// If the system cannot start the process.
    pub fn start_joining(
        &mut self,
        described: ionian_deployment::Node,
        peer: String,
    ) -> Result<Member> {
        // It has a temporary index while it starts.
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

    /// Replaces `node` by the member. The process of the old node must have ended.
    pub fn put(&mut self, node: usize, member: Member) {
        self.deployment.nodes[node] = member.described;
        self.processes[node] = member.process;
    }
}

impl Member {
    /// The name of the node.
    pub fn name(&self) -> &str {
        &self.described.name
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // A failure here cannot be reported.
        let _ = self.kill_all();
    }
}

/// How a process ended, and its last line of output.
pub fn describe(status: ExitStatus, log: &Path) -> String {
    let last = last_output(log).unwrap_or_else(|| "no output".to_owned());
    format!("{status}: {last} ({})", log.display())
}

/// The last line that is not empty.
fn last_output(log: &Path) -> Option<String> {
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
