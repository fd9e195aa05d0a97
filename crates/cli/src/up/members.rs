//! Which nodes run here: the nodes with which the cluster was founded, and those that have joined
//! it since on this machine, except nodes that have left.

use super::ports;
use super::supervisor::Supervisor;
use crate::data_paths::DataPaths;
use crate::output::explain;
use crate::source;
use anyhow::Result;
use ionian_deployment::{Configuration, Deployment, Node};
use ionian_kernel::id::Epoch;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The membership as the nodes have stored it.
pub(crate) struct Members {
    places: DataPaths,
    known: Configuration,
    /// The names of the founding nodes, which start from the deployment file and do not join.
    founders: BTreeSet<String>,
    /// The hosts of the founding nodes. All of these run here, so a new node with one of these
    /// hosts is meant to run here, too.
    hosts: BTreeSet<String>,
    /// The nodes that were started here.
    started: BTreeSet<String>,
    /// The nodes that have joined and could not be started yet, with the reason that was reported.
    held_up: BTreeMap<String, String>,
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
        let known = stored.filter(later).unwrap_or(founded);
        let nodes = || founding.nodes.iter();
        Ok(Members {
            places: places.clone(),
            known,
            founders: nodes().map(|node| node.name.clone()).collect(),
            hosts: nodes().map(|node| host(node).to_owned()).collect(),
            started: BTreeSet::new(),
            held_up: BTreeMap::new(),
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

    /// The name of the cluster.
    pub(crate) fn cluster(&self) -> &str {
        &self.known.deployment.cluster
    }

    /// Starts a node.
    ///
    /// # Errors
    /// If the process cannot be started.
    pub(crate) fn start(&mut self, node: &Node, supervisor: &mut Supervisor) -> Result<()> {
        let others = self.known.nodes();
        let contact = others
            .values()
            .find(|other| other.name != node.name)
            .map(|other| other.address.clone());
        supervisor.start(
            node,
            contact.filter(|_| !self.founders.contains(&node.name)),
        )?;
        self.started.insert(node.name.clone());
        Ok(())
    }

    /// Starts the nodes that have joined and do not run yet.
    pub(crate) fn start_newcomers(&mut self, supervisor: &mut Supervisor) {
        self.look_again();
        let new: Vec<Node> = self
            .here()
            .into_iter()
            .filter(|node| !self.started.contains(&node.name))
            .collect();
        for node in new {
            let started = ports::check_joining(&node).and_then(|()| self.start(&node, supervisor));
            let name = &node.name;
            match started {
                Ok(()) => {
                    self.held_up.remove(name);
                    eprintln!("node {name} has joined the cluster and starts");
                }
                // Tried again at the next call.
                Err(error) => {
                    let reason = explain(&error);
                    if self.held_up.get(name) != Some(&reason) {
                        eprintln!(
                            "node {name} has joined the cluster and waits to start: {reason}"
                        );
                        self.held_up.insert(name.clone(), reason);
                    }
                }
            }
        }
    }

    /// Reads what the nodes have stored since.
    fn look_again(&mut self) {
        // Tried again at the next call.
        let Ok(Some(known)) = source::known_in(self.places.root()) else {
            return;
        };
        if known.epoch() <= self.known.epoch() {
            return;
        }
        self.known = known;
        // A node that has left may join again.
        let members: BTreeSet<String> = self
            .known
            .nodes()
            .into_values()
            .map(|node| node.name.clone())
            .collect();
        self.started.retain(|name| members.contains(name));
        self.held_up.retain(|name, _| members.contains(name));
    }

    /// Whether the deployment in force differs from the founding deployment.
    pub(crate) fn have_changed(&self) -> bool {
        self.known.epoch() > Epoch::default()
    }
}

fn host(node: &Node) -> &str {
    node.address
        .rsplit_once(':')
        .map_or(&node.address, |(host, _)| host)
}
