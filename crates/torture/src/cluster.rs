//! A cluster with faults: which fault holds which node, and which node is being replaced.

use crate::certificates::Certificates;
use crate::gateway::Gateway;
use crate::network::{Network, Place};
use anyhow::{Context, Result, ensure};
use ionian_deployment::{Deployment, PresetOptions};
use ionian_harness::cluster::{describe, place_on_free_ports};
use ionian_harness::ports::free_ports;
use ionian_harness::{Cluster as Processes, Member};
use ionian_runtime::Contact;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Starts a program that cannot write files longer than `$0` blocks of 512 bytes, and gets an error
/// instead of a signal.
const LIMITED: &str = "trap '' XFSZ; ulimit -f \"$0\"; exec \"$@\"";

/// How long a leader uses the report of a node's clock (decision 23); until then the clock counts
/// as wrong.
const REMEMBERED: Duration = Duration::from_secs(25);

/// The error of a command if all nodes are down.
const NO_ANSWER: &str = "no node of the cluster answers";

/// The preset on free ports of this machine, with durability `disk` unless `overrides` say
/// otherwise.
pub(crate) fn deployment(preset: &str, overrides: &[String]) -> Result<Deployment> {
    let mut deployment = Deployment::preset(preset, &PresetOptions::default())?;
    place_on_free_ports(&mut deployment)?;
    let disk = ["durability=disk".to_owned()];
    Ok(deployment.with_overrides(&[&disk[..], overrides].concat())?)
}

/// Puts a forwarder in front of every node.
fn forwarders(deployment: &mut Deployment) -> Result<Network> {
    let taken = deployment
        .nodes
        .iter()
        .flat_map(|node| [Some(&node.address), node.gateway.as_ref()])
        .flatten();
    let taken: Vec<u16> = taken
        .filter_map(|text| text.parse::<SocketAddr>().ok())
        .map(|at| at.port())
        .collect();
    let mut places = Vec::new();
    for (node, port) in deployment
        .nodes
        .iter_mut()
        .zip(free_ports(taken.len(), &taken)?)
    {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let listens = std::mem::replace(&mut node.address, address.to_string());
        places.push(Place {
            name: node.name.clone(),
            address,
            listens: listens.parse()?,
        });
        node.listen = Some(listens);
    }
    Network::start(places)
}

/// A cluster with faults.
pub(crate) struct Cluster {
    processes: Processes,
    /// The certificates, if connections are secured.
    pub(crate) certificates: Option<Certificates>,
    /// Whether a fault holds the node.
    held: Vec<bool>,
    /// Whether a membership change is in progress; there is one at a time.
    changing: bool,
    /// The network between the nodes, if it can be cut, and the number of cuts.
    network: Option<Network>,
    cuts: usize,
    /// Whether no other fault may start.
    reserved: bool,
    /// The node whose clock is wrong, or was wrong last, and since when it is correct again.
    wrong_clock: Option<(usize, Option<Instant>)>,
}

impl Deref for Cluster {
    type Target = Processes;

    fn deref(&self) -> &Processes {
        &self.processes
    }
}

impl DerefMut for Cluster {
    fn deref_mut(&mut self) -> &mut Processes {
        &mut self.processes
    }
}

impl Cluster {
    /// Lays out the preset on free ports below `root`. Starts no node. `forwards` says whether the
    /// network between them can be cut.
    pub(crate) fn new(
        ionian: &Path,
        root: &Path,
        preset: &str,
        overrides: &[String],
        forwards: bool,
    ) -> Result<Self> {
        let mut deployment = deployment(preset, overrides)?;
        let network = if forwards {
            Some(forwarders(&mut deployment)?)
        } else {
            None
        };
        let processes = Processes::new(ionian, root, deployment)?;
        let held = vec![false; processes.len()];
        Ok(Cluster {
            processes,
            certificates: None,
            held,
            changing: false,
            network,
            cuts: 0,
            reserved: false,
            wrong_clock: None,
        })
    }

    /// Secures all connections with certificates that are valid for so long.
    pub(crate) fn secure(&mut self, valid: Duration, seed: u64) -> Result<()> {
        let nodes = &self.deployment().nodes;
        let nodes: Vec<&str> = nodes.iter().map(|node| &*node.name).collect();
        let (directory, cluster) = (self.root().join("tls"), &self.deployment().cluster);
        let made = Certificates::create(directory, cluster, &nodes, valid, seed)?;
        self.processes.secure(made.nodes());
        self.certificates = Some(made);
        Ok(())
    }

    /// The gateways.
    pub(crate) fn gateways(&self) -> Result<Vec<Gateway>> {
        let client = self.certificates.as_ref().map(Certificates::client);
        let gateways = self.processes.gateways()?.into_iter();
        let gateway = |address| Gateway::new(address, client.clone());
        Ok(gateways.map(gateway).collect())
    }

    /// How an operator reaches the nodes.
    pub(crate) fn contacts(&self) -> Result<Vec<Contact>> {
        let operator = self.certificates.as_ref().map(Certificates::operator);
        let addresses = self.addresses()?.into_iter().enumerate();
        let contact = |(node, address)| Contact {
            tls: operator.clone(),
            name: Some(self.name(node).to_owned()),
            ..Contact::from(address)
        };
        Ok(addresses.map(contact).collect())
    }

    /// How an operator reaches the node with this name, if there is one.
    pub(crate) fn contact(&self, name: &str) -> Result<Option<Contact>> {
        let mut contacts = self.contacts()?;
        let place = self.names().iter().position(|known| known == name);
        Ok(place.map(|node| contacts.swap_remove(node)))
    }

    /// The process of the node with this name, if it runs.
    pub(crate) fn process_of(&self, name: &str) -> Option<u32> {
        let node = self.names().iter().position(|known| known == name)?;
        self.process(node).ok()
    }

    /// The nodes' names.
    pub(crate) fn names(&self) -> Vec<String> {
        (0..self.len())
            .map(|node| self.name(node).to_owned())
            .collect()
    }

    /// Whether a node is being replaced.
    pub(crate) fn is_changing(&self) -> bool {
        self.changing
    }

    /// Reserves the node for a fault, unless another fault holds it.
    pub(crate) fn hold(&mut self, node: usize) -> bool {
        !self.reserved && !std::mem::replace(&mut self.held[node], true)
    }

    /// Prevents other faults from starting; returns false if they were prevented already.
    pub(crate) fn reserve(&mut self) -> bool {
        !std::mem::replace(&mut self.reserved, true)
    }

    /// Allows other faults again.
    pub(crate) fn unreserve(&mut self) {
        self.reserved = false;
    }

    /// Whether no fault holds a node.
    pub(crate) fn is_free(&self) -> bool {
        self.cuts == 0 && !self.held.contains(&true)
    }

    /// Cuts these links, unless all nodes are reserved for another fault.
    pub(crate) fn cut(&mut self, ways: &[(usize, usize)]) -> Option<Vec<(String, String)>> {
        let network = self
            .network
            .as_ref()
            .filter(|_| !self.reserved && !ways.is_empty())?;
        let name = |node: usize| self.name(node).to_owned();
        let ways: Vec<_> = ways
            .iter()
            .map(|(from, to)| (name(*from), name(*to)))
            .collect();
        network.cut(&ways);
        self.cuts += 1;
        Some(ways)
    }

    /// The end of a cut.
    pub(crate) fn join(&mut self, ways: &[(String, String)]) {
        self.cuts -= 1;
        self.network.iter().for_each(|network| network.join(ways));
    }

    /// The number of times that a cut held back traffic.
    pub(crate) fn held_back(&self) -> u64 {
        self.network.as_ref().map_or(0, Network::held)
    }

    /// Takes a node for the fault for which all nodes are reserved.
    pub(crate) fn hold_reserved(&mut self, node: usize) {
        assert!(
            self.reserved && !std::mem::replace(&mut self.held[node], true),
            "no other fault has begun"
        );
    }

    /// Takes a node that will be replaced, unless another fault holds it or another node is being
    /// replaced.
    pub(crate) fn hold_to_replace(&mut self, node: usize) -> bool {
        let free = !self.changing && self.hold(node);
        self.changing |= free;
        free
    }

    /// Whether this fault, which holds a node, may replace it.
    pub(crate) fn may_replace(&mut self) -> bool {
        !self.reserved && !std::mem::replace(&mut self.changing, true)
    }

    pub(crate) fn release(&mut self, node: usize) {
        self.held[node] = false;
    }

    /// Starts the node with a file size limit in KiB.
    pub(crate) fn start_limited(&mut self, node: usize, limit_kib: u64) -> Result<()> {
        self.start_by(node, |program| {
            let mut shell = Command::new("sh");
            shell
                .args(["-c", LIMITED, &(2 * limit_kib).to_string()])
                .arg(program);
            shell
        })
    }

    pub(crate) fn signal(&self, node: usize, signal: Signal) -> Result<()> {
        Ok(kill(
            Pid::from_raw(i32::try_from(self.process(node)?)?),
            signal,
        )?)
    }

    /// Changes the clock of this node at its next start, or that of the node whose clock must be
    /// corrected first; returns which node. Does nothing if another fault holds that node.
    pub(crate) fn jump(&mut self, node: usize, ahead_ms: i64) -> Option<usize> {
        let remembered =
            |right: &Option<Instant>| right.is_none_or(|since| since.elapsed() < REMEMBERED);
        let last = self.wrong_clock.filter(|(_, right)| remembered(right));
        let (node, ahead_ms) = match last {
            Some((wrong, None)) => (wrong, 0),
            Some((wrong, Some(_))) => (wrong, ahead_ms),
            None => (node, ahead_ms),
        };
        if !self.hold(node) {
            return None;
        }
        self.wrong_clock = Some((node, (ahead_ms == 0).then(Instant::now)));
        self.set_clock(node, ahead_ms);
        Some(node)
    }

    /// A command of an operator of this cluster.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(self.program());
        command.args(words).arg("--data").arg(self.root());
        command.stdin(Stdio::null());
        command
    }

    /// Checks that no node has ended without a fault.
    pub(crate) fn check(&mut self) -> Result<()> {
        (0..self.len()).try_for_each(|node| {
            if self.held[node] {
                Ok(())
            } else {
                self.processes.check(node)
            }
        })
    }

    /// Checks that a node that a fault holds, and has started, has not ended.
    pub(crate) fn check_held(&mut self, node: usize) -> Result<()> {
        self.processes.check(node)
    }

    /// Ends every fault: all nodes run without restrictions.
    pub(crate) fn heal(&mut self) -> Result<()> {
        self.reserved = false;
        self.cuts = 0;
        self.network.iter().for_each(Network::heal);
        for node in 0..self.len() {
            // The effect of an interrupted fault is unknown, so its nodes restart.
            if std::mem::take(&mut self.held[node]) {
                self.kill(&[node])?;
            }
            if !self.is_started(node) {
                self.start(node)?;
            }
        }
        Ok(())
    }

    /// Replaces this node by a new one, through a command to the running cluster. On return the
    /// command and the new node run; the command ends when the change is finished.
    pub(crate) fn begin_replacement(&mut self, node: usize, name: &str) -> Result<Replacement> {
        if let Some(certificates) = &mut self.certificates {
            certificates.add(name)?;
        }
        let ports = free_ports(2, &self.ports()?)?;
        let mut ports = ports.iter().map(|port| format!("127.0.0.1:{port}"));
        let address = ports.next().expect("two were asked for");
        let gateway = self.deployment().nodes[node]
            .gateway
            .as_ref()
            .and(ports.next());
        let name_now = self.name(node);
        let words = ["member", "replace", name_now, name, "--address", &address];
        let mut command = self.command(&words);
        command.args(gateway.iter().flat_map(|gateway| ["--gateway", gateway]));
        let log = self.logs().join(format!("replace-{name}.log"));
        let file = File::create(&log)?;
        command.stdout(file.try_clone()?).stderr(file);
        let child = command
            .spawn()
            .context("cannot run `ionian member replace`")?;
        let peer = self.deployment().nodes[(node + 1) % self.len()]
            .address
            .clone();
        let described = ionian_deployment::Node {
            name: name.to_owned(),
            address,
            gateway,
            ..Default::default()
        };
        Ok(Replacement {
            command,
            child,
            log,
            new: self.start_joining(described, peer)?,
        })
    }

    /// Replaces `node` by the new node. The process of the old node must have ended.
    pub(crate) fn finish_replacement(&mut self, node: usize, replacement: Replacement) {
        self.changing = false;
        let old = self.name(node).to_owned();
        self.put(node, replacement.new);
        if let Some(certificates) = &mut self.certificates {
            certificates.remove(&old);
        }
    }
}

/// A membership change in progress.
pub(crate) struct Replacement {
    /// The command, and its process.
    command: Command,
    child: Child,
    log: PathBuf,
    new: Member,
}

impl Replacement {
    /// Whether the change is finished.
    ///
    /// # Errors
    /// If it failed.
    pub(crate) fn is_made(&mut self) -> Result<bool> {
        match self.child.try_wait()? {
            None => Ok(false),
            Some(status) if status.success() => Ok(true),
            Some(status) => {
                let how = describe(status, &self.log);
                // Other faults may have stopped all nodes that it could ask; then it is tried
                // again.
                ensure!(
                    how.contains(NO_ANSWER),
                    "`ionian member replace` to {} failed: {how}",
                    self.new.name()
                );
                self.child = self.command.spawn()?;
                Ok(false)
            }
        }
    }
}

/// Tests the file size limit on a file in `root`.
///
/// # Errors
/// Why this machine does not support the fault.
pub(crate) fn try_file_limit(root: &Path) -> Result<()> {
    let file = root.join("limit");
    let mut shell = Command::new("sh");
    shell
        .args([
            "-c",
            LIMITED,
            "2",
            "sh",
            "-c",
            "head -c 4096 /dev/zero > \"$0\"",
        ])
        .arg(&file);
    let status = shell
        .stderr(Stdio::null())
        .status()
        .context("there is no sh")?;
    let length = fs::metadata(&file).map_or(0, |file| file.len());
    let _ = fs::remove_file(&file);
    ensure!(
        !status.success() && length == 1024,
        "`ulimit -f` limits nothing here"
    );
    Ok(())
}

/// Checks that this earlier program can secure connections.
///
/// # Errors
/// If its nodes have no option for that.
pub(crate) fn try_tls(former: &Path) -> Result<()> {
    let help = Command::new(former).args(["node", "--help"]).output();
    let help = help.with_context(|| format!("cannot run {}", former.display()))?;
    ensure!(
        String::from_utf8_lossy(&help.stdout).contains("--client-tls"),
        "--tls needs programs with TLS, and the --former program {} has no `node --client-tls`",
        former.display()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_former_program_without_tls_is_refused_by_name() {
        // It writes what it is given, which is no help.
        let error = try_tls(Path::new("echo")).unwrap_err().to_string();
        assert!(error.contains("--former program echo has no"), "{error}");
        let none = try_tls(Path::new("/no/program")).unwrap_err().to_string();
        assert!(none.contains("cannot run /no/program"), "{none}");
    }
}
