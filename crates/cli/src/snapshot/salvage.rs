//! `ionian snapshot salvage`: the newest snapshot of any replica, followed by what the log holds by
//! the records in the directories. What these say, the protocol knows
//! ([`Salvage`](ionian_kernel::salvage::Salvage)).
//!
//! If the directories are enough, no acknowledged write is lost. If not, it is the best possible
//! guess.

use super::file::{self, Head, Origin};
use super::stopped::{machine_in, newest, warn};
use super::{arguments, state};
use crate::output::say;
use crate::protocols::{MACHINE, protocol};
use crate::waiting;
use anyhow::{Context, Result, anyhow, bail};
use ionian_deployment::Configuration;
use ionian_kernel::id::Slot;
use ionian_kernel::salvage::{Salvage, Salvaged};
use ionian_kernel::wire::decode_all;
use ionian_replication::batch::Value;
use ionian_replication::executor::Executor;
use ionian_runtime::storage::membership_file;
use ionian_runtime::storage::offline::StoppedNode;
use std::path::Path;

pub(crate) fn run(arguments: &arguments::Salvage) -> Result<()> {
    file::refuse_existing(&arguments.output)?;
    let nodes = open_all(&arguments.directories)?;
    let (cluster, name) = (nodes[0].cluster(), nodes[0].protocol());
    let machine = machine_in(&arguments.directories[0])?;
    if ![MACHINE, ionian_netfs::NAME].contains(&machine.as_str()) {
        bail!(
            "these directories are of the state machine {machine:?}, this program contains {MACHINE:?} and {:?} only",
            ionian_netfs::NAME
        );
    }
    salvage_of(name)?;
    let (base, from) = furthest(&nodes, &machine)?;
    let stored = nodes
        .iter()
        .map(|node| membership_file::stored(node.path()));
    let stored = stored.collect::<Result<Vec<_>, _>>()?;
    let former = former(&nodes, &stored);
    let known = known(arguments, cluster, stored)?;
    let salvaged = read_all((&nodes, &former), known.as_ref(), base.slot)?;
    let mut executor = base.executor;
    let end = execute(&salvaged, &mut executor, base.slot, arguments.past_holes)?;
    // Members that joined with a change may know nothing of the slots below its frontier.
    let settled = known
        .map_or(Slot::ZERO, |known| known.membership.frontier)
        .max(salvaged.forgotten);
    let complete = salvaged.is_complete && base.slot >= settled;
    let level = executor.membership().level;
    let head = Head::new(cluster, name, &machine, &from, Origin::Salvaged, level);
    let head = Head {
        slot: end.0,
        complete,
        ..head
    };
    file::write(&arguments.output, &head, &executor.snapshot())?;
    for node in former {
        warn(
            &arguments.output,
            &format!(
                "takes {} for the directory of a former node {}: no directory with the newest membership has met it \
                 under that name. Its votes do not count",
                node.path().display(),
                node.name()
            ),
        );
    }
    report(
        &arguments.output,
        &salvaged,
        (base.slot, end),
        &from,
        complete,
    );
    Ok(())
}

/// The directories that may be those of former nodes: a later node can have the name of one that
/// left, and the numbers of its instances, without its votes. A directory is that of a member if it
/// knows the newest membership itself, or if one that does has met it: nodes forget the directory
/// of a node that leaves, and meet its successor.
///
/// `stored` is what they know of the membership, directory by directory.
fn former<'a>(nodes: &'a [StoppedNode], stored: &[Option<Configuration>]) -> Vec<&'a StoppedNode> {
    let epoch = |stored: &Option<Configuration>| stored.as_ref().map(Configuration::epoch);
    let newest = stored.iter().map(epoch).max().flatten();
    let (knowing, behind): (Vec<_>, Vec<_>) = nodes
        .iter()
        .zip(stored)
        .partition(|(_, stored)| epoch(stored) == newest);
    let is_known = |node| knowing.iter().any(|(other, _)| other.has_met(node));
    let behind = behind.into_iter().map(|(node, _)| node);
    behind.filter(|node| !is_known(node)).collect()
}

/// The newest membership in the directories, or else the deployment file, if there is one.
fn known(
    arguments: &arguments::Salvage,
    cluster: &str,
    stored: Vec<Option<Configuration>>,
) -> Result<Option<Configuration>> {
    let stored = stored.into_iter().flatten();
    let newest = stored.max_by_key(Configuration::epoch);
    let Some(file) = &arguments.config else {
        return Ok(newest);
    };
    let deployment = waiting::for_deployment(file)?;
    if deployment.cluster != cluster {
        bail!(
            "the deployment is of cluster {}, the directories are of cluster {cluster}",
            deployment.cluster
        );
    }
    Ok(newest.or(Some(Configuration::founded(deployment))))
}

fn open_all(directories: &[std::path::PathBuf]) -> Result<Vec<StoppedNode>> {
    let mut nodes: Vec<StoppedNode> = Vec::new();
    for path in directories {
        if nodes.iter().any(|other| same(other.path(), path)) {
            bail!("{} is given twice", path.display());
        }
        let node = StoppedNode::open(path)?;
        if let Some(first) = nodes
            .first()
            .filter(|first| first.cluster() != node.cluster())
        {
            bail!(
                "{} is of cluster {}, the others of {}",
                path.display(),
                node.cluster(),
                first.cluster()
            );
        }
        if let Some(first) = nodes
            .first()
            .filter(|first| first.protocol() != node.protocol())
        {
            bail!(
                "{} runs {}, the others run {}",
                path.display(),
                node.protocol(),
                first.protocol()
            );
        }
        if let Some(other) = nodes.iter().find(|other| other.name() == node.name()) {
            bail!(
                "{} and {} are both directories of a node {}: leave out that of the former node, which knows an \
                 older membership",
                other.path().display(),
                path.display(),
                node.name()
            );
        }
        nodes.push(node);
    }
    Ok(nodes)
}

/// Whether two paths lead to the same directory.
fn same(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().ok();
    real(one).is_some() && real(one) == real(other)
}

/// The state to start from.
struct Base {
    slot: Slot,
    executor: Executor,
}

/// The newest snapshot, with the name of its node; an empty state if no snapshot exists.
fn furthest(nodes: &[StoppedNode], machine: &str) -> Result<(Base, String)> {
    let mut best = None;
    for node in nodes {
        if let Some(stored) = newest(node)? {
            best = best.filter(
                |(_, before): &(_, ionian_runtime::storage::offline::StoredSnapshot)| {
                    before.stamp >= stored.stamp
                },
            );
            best = best.or(Some((node, stored)));
        }
    }
    let Some((node, stored)) = best else {
        let base = Base {
            slot: Slot::ZERO,
            executor: state::empty(machine),
        };
        return Ok((base, nodes[0].name().to_owned()));
    };
    let executor = state::restored(&stored.snapshot, machine)
        .with_context(|| stored.path.display().to_string())?;
    Ok((
        Base {
            slot: Slot(stored.stamp),
            executor,
        },
        node.name().to_owned(),
    ))
}

/// Whether the protocol reads records of stopped nodes.
pub(super) fn is_possible(protocol: &str) -> bool {
    salvage_of(protocol).is_ok()
}

/// What reads the records of stopped nodes.
fn salvage_of(name: &str) -> Result<Box<dyn Salvage>> {
    let salvage = protocol(name)?.salvage();
    salvage.map_err(|why| anyhow!("{name}: {why}"))
}

/// Reads the records of the nodes, some of which are no longer members, for the slots from `start`
/// on.
fn read_all(
    (nodes, former): (&[StoppedNode], &[&StoppedNode]),
    known: Option<&Configuration>,
    start: Slot,
) -> Result<Salvaged> {
    let name = nodes[0].protocol();
    let mut salvage = salvage_of(name)?;
    for node in nodes {
        // No member has a name with a space in it.
        let is_former = former.iter().any(|former| former.name() == node.name());
        let owner = match is_former {
            true => format!("former {}", node.name()),
            false => node.name().to_owned(),
        };
        for record in node.records()? {
            let (author, record) = record?;
            let read = salvage.read(&owner, author, &record);
            read.with_context(|| format!("a record of node {} cannot be read", node.name()))?;
        }
    }
    let kinds = protocol(name)?.description().kinds;
    let known = known.map(|known| known.layout(kinds)).transpose()?;
    let salvaged = salvage.finish(start, known);
    salvaged.map_err(|why| anyhow!("{name}: {why}"))
}

/// Executes the log from slot `start` on; returns the first slot that is not executed. Unless
/// `past_holes` it stops at a slot whose value may be elsewhere.
fn execute(
    salvaged: &Salvaged,
    executor: &mut Executor,
    start: Slot,
    past_holes: bool,
) -> Result<Slot> {
    let mut next = start;
    for (slot, value) in &salvaged.values {
        if *slot != next && !salvaged.is_complete && !past_holes {
            break;
        }
        match value {
            Some(value) => {
                let value = decode_all::<Value>(value);
                let value = value.with_context(|| format!("slot {} cannot be read", slot.0))?;
                executor.execute(*slot, &value, None);
                next = slot.next();
            }
            None if past_holes => {}
            None => break,
        }
    }
    Ok(next)
}

fn report(
    output: &Path,
    salvaged: &Salvaged,
    (start, end): (Slot, Slot),
    from: &str,
    complete: bool,
) {
    let values = &salvaged.values;
    let executed = values.range(..end).filter(|(_, value)| value.is_some());
    let executed = executed.count() as u64;
    let holes = (end.0 - start.0).saturating_sub(executed);
    say!(
        "wrote {}: the state at slot {}, from the snapshot of node {from} at slot {} and {executed} later slots from {}",
        output.display(),
        end.0,
        start.0,
        salvaged.sources
    );
    let left = values.range(end..).count();
    if left > 0 {
        warn(
            output,
            &format!(
                "ends before slot {}, whose value is not known; it lacks {left} later slots, which --past-holes would \
                 include as far as they are known",
                end.0
            ),
        );
    }
    if holes > 0 && !complete {
        warn(
            output,
            &format!("lacks {holes} slots in between, whose values are not known"),
        );
    }
    if start < salvaged.forgotten {
        warn(
            output,
            &format!(
                "lacks acknowledged writes: only replicas whose directories were not given have stored the slots below \
                 {}",
                salvaged.forgotten.0
            ),
        );
    } else if complete {
        say!("These are a read quorum: the snapshot contains every acknowledged write.");
    } else {
        say!(
            "Possibly lost: acknowledged writes that only nodes have whose directories were not given.\nPossibly \
             added: writes that were voted for here and never acknowledged, also in place of lost ones."
        );
    }
}
