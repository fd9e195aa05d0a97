//! Which nodes run here: the nodes with which the cluster was founded, and those that have joined
//! it since on this machine, except nodes that have left. A node may have the name of one that
//! left.

use super::supervisor::Supervisor;
use super::{founded, ports};
use crate::data_paths::DataPaths;
use crate::output::{explain, say_on_stderr};
use crate::source::{self, Stamp};
use anyhow::{Context, Result};
use ionian_deployment::{Configuration, Deployment, Durability, Node};
use ionian_kernel::id::Epoch;
use ionian_kernel::layout::NodeId;
use ionian_runtime::has_taken_part;
use ionian_runtime::storage::membership_file;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::slice;
use std::time::Duration;

/// The membership as the nodes have stored it.
pub(crate) struct Members {
    places: DataPaths,
    known: Configuration,
    /// The cluster as it was founded, with the nodes that start from the deployment file.
    founded: Configuration,
    /// The hosts of the founding nodes. All of these run here, so a new node with one of these
    /// hosts is meant to run here, too.
    hosts: BTreeSet<String>,
    /// The nodes that were started here.
    started: BTreeSet<String>,
    /// The nodes that have joined and could not be started yet, with the reason that was reported.
    held_up: BTreeMap<String, String>,
    /// The files of the last look. Reading a deployment of dozens of nodes from each of their
    /// directories four times a second takes more processor time than the nodes do.
    looked_at: Vec<Stamp>,
}

impl Members {
    /// Interval between two looks into the nodes' directories.
    pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(250);

    /// The members of the cluster in the directory, which was founded with `founding`.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub(crate) fn look(places: &DataPaths, founding: &Deployment) -> Result<Self> {
        let founded = Configuration::founded(founding.clone());
        let stored = source::known_in(places.root())?;
        let later = |known: &Configuration| {
            known.founding == founded.founding && known.epoch() > founded.epoch()
        };
        let known = stored.filter(later).unwrap_or_else(|| founded.clone());
        Ok(Members {
            places: places.clone(),
            known,
            founded,
            hosts: (founding.nodes.iter().map(|node| host(node).to_owned())).collect(),
            started: BTreeSet::new(),
            held_up: BTreeMap::new(),
            looked_at: Vec::new(),
        })
    }

    /// The nodes that must run here.
    pub(crate) fn here(&self) -> Vec<Node> {
        let members = self.known.nodes().into_values();
        members
            .filter(|node| self.hosts.contains(host(node)))
            .cloned()
            .collect()
    }

    /// The configuration of the cluster, as far as is known here.
    pub(crate) fn known(&self) -> &Configuration {
        &self.known
    }

    /// The name of the cluster.
    pub(crate) fn cluster(&self) -> &str {
        &self.known.deployment.cluster
    }

    /// Starts a node.
    ///
    /// # Errors
    /// If the process cannot be started.
    pub(crate) fn start(&mut self, node: &Node, supervisor: &mut Supervisor) -> Result<()> {
        self.make_way(node)?;
        if self.founded.deployment.durability == Durability::Disk {
            founded::make(&self.places, slice::from_ref(node))?;
        }
        let others = self.known.nodes();
        // All of them: some may have failed, such as the one that it replaces.
        let others = others.values().filter(|other| other.name != node.name);
        let contacts: Vec<&str> = others.map(|other| other.address.as_str()).collect();
        let contacts = self.joins(node).then(|| contacts.join(","));
        let id = self.number(node).unwrap_or_default();
        supervisor.start(node, id, contacts)?;
        self.started.insert(node.name.clone());
        Ok(())
    }

    /// The number of a member.
    pub(crate) fn number(&self, node: &Node) -> Option<NodeId> {
        self.known.member(&node.name).map(|(id, _)| id)
    }

    /// Whether the node joins a running cluster, and does not start from the deployment file.
    fn joins(&self, node: &Node) -> bool {
        let is_new = || !has_taken_part(&self.places.node(&node.name));
        let name = &node.name;
        place(&self.founded, name) != place(&self.known, name) || (self.have_changed() && is_new())
    }

    /// Moves the directory of an earlier member of this name aside, which has left the cluster: the
    /// new member must not begin with what that one knew.
    fn make_way(&self, node: &Node) -> Result<()> {
        let (name, data) = (&node.name, self.places.node(&node.name));
        // The node itself reports a file that cannot be read.
        let Ok(Some(stored)) = membership_file::stored(&data) else {
            return Ok(());
        };
        let is_of_cluster = stored.founding == self.known.founding;
        let is_earlier = stored.epoch() < self.known.epoch();
        let is_same = place(&stored, name) == place(&self.known, name);
        if !is_of_cluster || !is_earlier || is_same {
            return Ok(());
        }
        let aside = self.places.left(name, stored.epoch());
        fs::rename(&data, &aside)
            .with_context(|| format!("cannot rename {} to {}", data.display(), aside.display()))?;
        say_on_stderr!(
            "node {name} is new and has the name of a node that has left, whose data is in {} now and can be deleted",
            aside.display()
        );
        Ok(())
    }

    /// Starts the nodes that have joined and do not run yet.
    pub(crate) fn start_newcomers(&mut self, supervisor: &mut Supervisor) {
        for name in supervisor.take_left() {
            self.started.remove(&name);
        }
        // Without the newest membership a node that has left would start again.
        if self.look_again().is_none() {
            return;
        }
        let unwanted = self.unwanted();
        supervisor.set_unwanted(&unwanted);
        let is_new = |name: &String| !self.started.contains(name) && !unwanted.contains(name);
        let here = self.here().into_iter();
        let new: Vec<Node> = here.filter(|node| is_new(&node.name)).collect();
        for node in new {
            let started = ports::check_joining(&node).and_then(|()| self.start(&node, supervisor));
            let name = &node.name;
            match started {
                Ok(()) => {
                    self.held_up.remove(name);
                    say_on_stderr!("node {name} has joined the cluster and starts");
                }
                // Tried again at the next call.
                Err(error) => {
                    let reason = explain(&error);
                    if self.held_up.get(name) != Some(&reason) {
                        say_on_stderr!(
                            "node {name} has joined the cluster and waits to start: {reason}"
                        );
                        self.held_up.insert(name.clone(), reason);
                    }
                }
            }
        }
    }

    /// The nodes that must not be started again: those that have left, and those that leave while a
    /// new node waits for their ports.
    fn unwanted(&self) -> BTreeSet<String> {
        let Configuration {
            deployment, next, ..
        } = &self.known;
        let successions = next.as_ref().map(|next| deployment.successions(next));
        let leaving = successions.into_iter().flatten().map(|(_, old)| old);
        let started = self.started.iter();
        let left = started.filter(|name| self.known.member(name).is_none());
        left.cloned().chain(leaving).collect()
    }

    /// Reads what the nodes have stored since; `None` if that is not possible now.
    fn look_again(&mut self) -> Option<()> {
        let stamps = source::stamps_in(self.places.root()).ok()?;
        if stamps == self.looked_at {
            return Some(());
        }
        let known = source::known_in(self.places.root()).ok()??;
        self.looked_at = stamps;
        if known.epoch() <= self.known.epoch() {
            return Some(());
        }
        self.known = known;
        let members = self.known.nodes();
        self.held_up
            .retain(|name, _| members.values().any(|member| member.name == *name));
        Some(())
    }

    /// Whether the deployment in force differs from the founding deployment.
    pub(crate) fn have_changed(&self) -> bool {
        self.known.epoch() > Epoch::default()
    }
}

/// The number and the address of a member, which stay the same until it leaves.
fn place(known: &Configuration, name: &str) -> Option<(NodeId, String)> {
    let (id, member) = known.member(name)?;
    Some((id, member.address.clone()))
}

fn host(node: &Node) -> &str {
    node.address
        .rsplit_once(':')
        .map_or(&node.address, |(host, _)| host)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ionian_deployment::PresetOptions;
    use std::fs::File;
    use std::io::Write;

    #[test]
    fn files_are_read_again_when_they_have_changed_only() {
        let root = std::env::temp_dir().join(format!("ionian-members-{}", std::process::id()));
        let places = DataPaths::new(&root);
        fs::create_dir_all(&root).unwrap();
        let founding = Deployment::preset("baseline", &PresetOptions::default()).unwrap();
        let file = places.deployment();
        fs::write(&file, founding.to_toml()).unwrap();
        let mut members = Members::look(&places, &founding).unwrap();
        assert_eq!(members.look_again(), Some(()));

        // The same file, of the same length and time, that nothing can read.
        let metadata = fs::metadata(&file).unwrap();
        let mut same = File::options().write(true).open(&file).unwrap();
        let length = usize::try_from(metadata.len()).unwrap();
        same.write_all(&vec![b'?'; length]).unwrap();
        same.set_modified(metadata.modified().unwrap()).unwrap();
        assert_eq!(members.look_again(), Some(()), "it is not read");

        same.write_all(b"?").unwrap();
        for _ in 0..2 {
            assert_eq!(members.look_again(), None, "it is read, and cannot be");
        }
        fs::remove_dir_all(root).unwrap();
    }
}
