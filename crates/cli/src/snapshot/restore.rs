//! `ionian snapshot restore`: gives every replica the snapshot, and marks the slots in it as
//! forgotten at every acceptor.
//!
//! docs/backup.md explains why that is safe.

use super::file::{self, Opened};
use super::{arguments, state};
use crate::data_paths::DataPaths;
use crate::output::say;
use crate::protocols::{none_of, protocol};
use crate::waiting;
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use ionian_deployment::{Deployment, Durability};
use ionian_kernel::id::Slot;
use ionian_kernel::layout::NodeId;
use ionian_kernel::protocol::AnyProtocol;
use ionian_program::BadUsage;
use ionian_replication::executor::refounded;
use ionian_runtime::storage::offline::NewNode;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// Size in bytes of the pieces in which the state is written.
const CHUNK: usize = 1 << 20;

pub(crate) fn run(arguments: &arguments::Restore) -> Result<()> {
    let deployment = waiting::for_deployment(&arguments.config)?;
    let nodes: Vec<NodeId> = match &arguments.node {
        Some(name) => vec![deployment.ids()[deployment.place(name)?]],
        None => deployment.ids(),
    };
    let snapshot = file::open(&arguments.file)?;
    check(&snapshot, &deployment, arguments.same_name)?;
    let need = state::checked(&snapshot)?.needs();
    if let Some(need) = need.filter(|need| need.level > deployment.level) {
        bail!(
            "the state of the snapshot has {}: the new cluster must have level {} or a later one, the deployment has \
             level {}",
            need.what,
            need.level,
            deployment.level
        );
    }
    let about = || arguments.file.display().to_string();
    // The new cluster does not start with the final membership of the old one.
    let state = refounded(&snapshot.state, deployment.level).with_context(about)?;
    let chunks: Vec<Bytes> = (0..state.len())
        .step_by(CHUNK)
        .map(|at| state.slice(at..state.len().min(at + CHUNK)))
        .collect();
    let made = Make {
        deployment: &deployment,
        nodes: &nodes,
        slot: snapshot.head.slot,
        chunks,
        data: &arguments.data,
    };
    made.make(protocol(&deployment.protocol)?)?;
    if nodes.len() < deployment.nodes.len() {
        say!(
            "Start no node of cluster {} before the directories of all its nodes are created from this file.",
            deployment.cluster
        );
    }
    Ok(())
}

fn check(snapshot: &Opened, deployment: &Deployment, same_name: bool) -> Result<()> {
    let head = &snapshot.head;
    if deployment.durability != Durability::Disk {
        bail!(
            "durability = \"memory\": nodes would lose the restored state when they stop; it must be \"disk\""
        );
    }
    if (&head.protocol, &head.machine) != (&deployment.protocol, &deployment.machine) {
        bail!(
            "the snapshot comes from {} replicating {}, the deployment is {} replicating {}",
            head.protocol,
            head.machine,
            deployment.protocol,
            deployment.machine
        );
    }
    if head.cluster == deployment.cluster && !same_name {
        let text = format!(
            "the deployment has the name of the cluster of the snapshot, {:?}: choose another name, so that nodes \
             of the two clusters refuse each other. If no node of the old cluster will ever start again, \
             --same-name is safe",
            head.cluster
        );
        return Err(BadUsage(text).into());
    }
    Ok(())
}

struct Make<'a> {
    deployment: &'a Deployment,
    nodes: &'a [NodeId],
    slot: u64,
    chunks: Vec<Bytes>,
    data: &'a Path,
}

impl Make<'_> {
    fn make(self, protocol: &dyn AnyProtocol) -> Result<()> {
        let Make {
            deployment,
            nodes,
            slot,
            chunks,
            data,
        } = self;
        let known = protocol.description();
        let layout = deployment.layout(known.kinds)?;
        let checked = protocol.configure(layout.clone());
        checked.with_context(|| none_of(known.name))?;
        let places = DataPaths::for_nodes(data)?;
        refuse_other_cluster(&places, deployment)?;
        let parent = places.nodes();
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&parent)
            .with_context(|| format!("cannot create {}", parent.display()))?;
        // Check all directories before creating any, so that a refusal leaves nothing behind.
        for node in nodes {
            ionian_runtime::storage::offline::refuse_used(&places.node(&name(deployment, *node)))?;
        }
        for node in nodes {
            let (path, name) = (
                places.node(&name(deployment, *node)),
                name(deployment, *node),
            );
            let hosted = layout.on_node(*node);
            let executors = hosted.iter().copied();
            let executors = executors.filter(|address| known.executors.contains(&address.kind));
            let mut records = Vec::new();
            for address in &hosted {
                let founding = protocol.founding_records(layout.clone(), *address, Slot(slot));
                let founding = founding.with_context(|| none_of(known.name))?;
                records.extend(founding.into_iter().map(|record| (*address, record)));
            }
            let made = NewNode {
                cluster: &deployment.cluster,
                protocol: &deployment.protocol,
                kinds: known.kinds,
                name: &name,
                peers: others(deployment, *node),
                snapshots: executors.collect(),
                stamp: slot,
                snapshot: &chunks,
                records,
            };
            made.make(&path)?;
            say!(
                "created {}: node {name} of cluster {} starts at slot {}",
                path.display(),
                deployment.cluster,
                made.stamp
            );
        }
        Ok(())
    }
}

/// `ionian up` would go on with the deployment that is there already.
fn refuse_other_cluster(places: &DataPaths, deployment: &Deployment) -> Result<()> {
    let file = places.deployment();
    if !file.exists() {
        return Ok(());
    }
    let there = waiting::for_deployment(&file)?;
    if there.cluster != deployment.cluster {
        bail!(
            "{} is of cluster {}, the snapshot is restored for cluster {}: choose another directory",
            file.display(),
            there.cluster,
            deployment.cluster
        );
    }
    Ok(())
}

/// The names of all other nodes.
fn others(deployment: &Deployment, node: NodeId) -> Vec<String> {
    let names = deployment.nodes.iter().map(|other| other.name.clone());
    names
        .filter(|other| *other != name(deployment, node))
        .collect()
}

fn name(deployment: &Deployment, node: NodeId) -> String {
    let place = deployment
        .ids()
        .iter()
        .position(|id| *id == node)
        .expect("it is one of the deployment's");
    deployment.nodes[place].name.clone()
}
