//! `ionian snapshot save`: from a running cluster, or a copy of a stopped node's snapshot.
//!
//! A write is acknowledged after a write quorum has voted for it, and every read quorum of
//! acceptors shares a member with that write quorum. So the highest vote watermark of a read
//! quorum, queried when the command starts, is above every write acknowledged before. A replica
//! that has executed all slots below it has all of these writes.
//!
//! Without a log no watermark says that, and replicas execute commands in different orders. There
//! the replica finds out what was acknowledged when it is asked for the snapshot.

use super::arguments;
use super::file::{self, Head, Origin};
use super::salvage;
use super::stopped::{level_in, machine_in, newest};
use crate::contact;
use crate::member;
use crate::output::{explain, say};
use crate::protocols::{self, ServiceNeeds, members};
use crate::source;
use crate::status::{ClusterStatus, ask_all};
use crate::waiting;
use anyhow::{Context, Result, bail};
use ionian_deployment::{Configuration, Deployment};
use ionian_runtime::status::RoleStatus;
use ionian_runtime::storage::offline::StoppedNode;
use ionian_runtime::{RemoteSnapshot, query_snapshot};
use std::path::Path;

pub(crate) fn run(arguments: &arguments::Save) -> Result<()> {
    file::refuse_existing(&arguments.file)?;
    if let Some(directory) = &arguments.stopped {
        return copy(directory, &arguments.file);
    }
    waiting::block_on(async {
        let given = source::running(&arguments.cluster_args).await?;
        protocols::check(&given.deployment)?;
        let known = member::newest_since(given).await;
        save(&known, &arguments.file, arguments.allow_stale).await
    })
}

async fn save(known: &Configuration, file: &Path, allow_stale: bool) -> Result<()> {
    let Deployment {
        cluster,
        protocol,
        machine,
        ..
    } = &known.deployment;
    let level = known.membership.level;
    let head = Head::new(cluster, protocol, machine, "", Origin::Saved, level);
    let status = ask_all(known, source::ANSWER_LIMIT).await;
    let wanted = wanted(known, &status)?;
    if wanted.is_none() && !allow_stale {
        let salvage = match salvage::is_possible(protocol) {
            true => ", and `ionian snapshot salvage` uses the acceptors' directories",
            false => "",
        };
        bail!(
            "too few acceptors answer to know what was acknowledged: {}. If they will not come back, --allow-stale \
             saves the state of the most advanced replica{salvage}",
            silent(&status)
        );
    }
    // The most advanced replica has executed the slot already, or will do so first.
    let mut replicas = replicas(&status);
    replicas.sort_by_key(|(executed, _)| std::cmp::Reverse(*executed));
    let most_advanced = replicas
        .first()
        .context("no node with a replica answers")?
        .0;
    // Replicas may stand still before what was ordered: its commands are lost.
    let stale = (Wanted::Below(most_advanced), false);
    let attempts = wanted.map(|wanted| (wanted, true)).into_iter();
    let attempts = attempts.chain(allow_stale.then_some(stale));
    let places: Vec<usize> = replicas.into_iter().map(|(_, place)| place).collect();
    let mut refusals = Vec::new();
    let each = attempts.flat_map(|attempt| places.iter().map(move |place| (attempt, *place)));
    for ((wanted, complete), place) in each {
        let at = match wanted {
            Wanted::Below(at) => Some(at),
            Wanted::Acknowledged => None,
        };
        let node = &status.nodes[place];
        let key = format!("node.{}.address", node.name);
        let contact = contact::to(Some(&node.name), &key, &node.address)?;
        let address = contact.address;
        match query_snapshot(contact, at).await {
            Ok(snapshot) => {
                let head = Head {
                    node: node.name.clone(),
                    slot: snapshot.stamp(),
                    complete,
                    ..head
                };
                let receiving = receive(snapshot, file, &head).await;
                return receiving.with_context(|| {
                    format!("node {} did not send the whole snapshot", node.name)
                });
            }
            Err(error) => {
                let reason = explain(&error.into());
                refusals.push(format!("node {} at {address}: {reason}", node.name));
            }
        }
    }
    bail!("no node has a snapshot: {}", refusals.join("; "))
}

async fn receive(mut snapshot: RemoteSnapshot, file: &Path, head: &Head) -> Result<()> {
    let mut writer = file::begin(file, head)?;
    while let Some(piece) = snapshot.next().await? {
        writer.push(&piece)?;
    }
    let bytes = writer.bytes();
    writer.finish()?;
    let which = match head.complete {
        true => "with every write acknowledged before the command started",
        false => "which may lack acknowledged writes",
    };
    say!(
        "wrote {}: {bytes} bytes from node {}, the state at slot {}, {which}",
        file.display(),
        head.node,
        head.slot
    );
    Ok(())
}

/// What a snapshot must contain.
#[derive(Clone, Copy)]
enum Wanted {
    /// All slots below this one.
    Below(u64),
    /// What was acknowledged before the replica is asked.
    Acknowledged,
}

/// What contains every write that was acknowledged before; `None` if too few acceptors answer.
fn wanted(known: &Configuration, status: &ClusterStatus) -> Result<Option<Wanted>> {
    let service_needs = ServiceNeeds::of(known, known.epoch())?;
    let Some(voters) = &service_needs.service.voters else {
        // A single server, which acknowledges what it has executed.
        let executed = replicas(status).into_iter().map(|(executed, _)| executed);
        return Ok(executed.max().map(Wanted::Below));
    };
    let name = service_needs.name(voters.read.kind);
    // An acceptor that has lost its memory does not know its votes.
    let knowing = || {
        let voters = roles(status).filter(|(_, role)| role.role == name);
        voters.filter(|(_, role)| role.remembers == Some(true))
    };
    let present = members(knowing().map(|(_, role)| role.index));
    let highest = || knowing().filter_map(|(_, role)| role.voted).max();
    Ok(voters.read.is_met(present).then(|| match voters.is_log {
        true => Wanted::Below(highest().unwrap_or(0)),
        false => Wanted::Acknowledged,
    }))
}

/// The executed slot of each node with an executor, with the index of its answer.
fn replicas(status: &ClusterStatus) -> Vec<(u64, usize)> {
    let executed = roles(status).filter_map(|(place, role)| Some((role.executed?, place)));
    executed.collect()
}

/// The instances that answered, each with the index of its node.
fn roles(status: &ClusterStatus) -> impl Iterator<Item = (usize, &RoleStatus)> {
    let nodes = status.nodes.iter().enumerate();
    let answered = nodes.filter_map(|(place, node)| Some((place, node.status.as_ref()?)));
    answered.flat_map(|(place, status)| status.roles.iter().map(move |instance| (place, instance)))
}

fn silent(status: &ClusterStatus) -> String {
    let silent = status.nodes.iter().filter(|node| !node.up);
    let silent: Vec<_> = silent
        .map(|node| format!("{}: {}", node.name, node.error.as_deref().unwrap_or("down")))
        .collect();
    if silent.is_empty() {
        "some have lost their memory".into()
    } else {
        silent.join("; ")
    }
}

fn copy(directory: &Path, file: &Path) -> Result<()> {
    let node = StoppedNode::open(directory)?;
    let none = || {
        format!(
            "node {} in {} has stored no snapshot yet",
            node.name(),
            directory.display()
        )
    };
    let stored = newest(&node)?.with_context(none)?;
    let head = Head::new(
        node.cluster(),
        node.protocol(),
        &machine_in(directory)?,
        node.name(),
        Origin::Copied,
        level_in(directory)?,
    );
    let head = Head {
        slot: stored.stamp,
        ..head
    };
    file::write(file, &head, &stored.snapshot)?;
    let later = match salvage::is_possible(node.protocol()) {
        true => "`ionian snapshot salvage` adds those in the acceptors' logs",
        false => "only a cluster that runs again can add them",
    };
    say!(
        "wrote {}: the state at slot {} as node {} had stored it. It lacks later acknowledged writes: {later}",
        file.display(),
        stored.stamp,
        node.name()
    );
    Ok(())
}
