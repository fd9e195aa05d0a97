//! `ionian snapshot save`: from a running cluster, or a copy of a stopped node's snapshot.

use super::acknowledged::{self, Wanted};
use super::file::{self, Head, Origin};
use super::stopped::{level_in, machine_in, newest};
use super::{arguments, salvage, series, state};
use crate::contact;
use crate::member;
use crate::output::{explain, say};
use crate::protocols;
use crate::source;
use crate::waiting;
use anyhow::{Context, Result, bail};
use ionian_deployment::{Configuration, Deployment};
use ionian_runtime::storage::offline::StoppedNode;
use ionian_runtime::{QueryError, RemoteSnapshot, query_snapshot};
use std::path::Path;

pub(crate) fn run(arguments: &arguments::Save) -> Result<()> {
    let known = async || {
        let given = source::running(&arguments.cluster_args).await?;
        protocols::check(&given.deployment)?;
        anyhow::Ok(member::newest_since(given).await)
    };
    let file = match (&arguments.file, &arguments.series) {
        (_, Some(wanted)) => {
            series::check(wanted)?;
            return waiting::block_on(async { series::add(wanted, &known().await?).await });
        }
        (Some(file), None) => file,
        (None, None) => unreachable!("one of them is required"),
    };
    file::refuse_existing(file)?;
    if let Some(directory) = &arguments.stopped {
        return copy(directory, file);
    }
    waiting::block_on(async {
        let known = known().await?;
        save(&known, &head_of(&known), file, arguments.allow_stale).await
    })
}

/// The head of a snapshot that begins now, of which node and slot are not known yet.
pub(super) fn head_of(known: &Configuration) -> Head {
    let Deployment {
        cluster,
        protocol,
        machine,
        ..
    } = &known.deployment;
    let level = known.membership.level;
    Head::new(cluster, protocol, machine, "", Origin::Saved, level)
}

/// Writes the file and checks it.
pub(super) async fn save(
    known: &Configuration,
    head: &Head,
    file: &Path,
    allow_stale: bool,
) -> Result<()> {
    let protocol = &known.deployment.protocol;
    let (status, wanted) = acknowledged::ask(known, !allow_stale).await?;
    if let Err(unknown) = &wanted
        && !allow_stale
    {
        let salvage = match salvage::is_possible(protocol) {
            true => ", and `ionian snapshot salvage` uses the acceptors' directories",
            false => "",
        };
        bail!(
            "{}. If they will not come back, --allow-stale saves the state of the most advanced replica{salvage}",
            unknown.why
        );
    }
    // The most advanced replica has executed the slot already, or will do so first.
    let mut replicas = acknowledged::executed(&status)?;
    replicas.sort_by_key(|(executed, _)| std::cmp::Reverse(*executed));
    let most_advanced = replicas
        .first()
        .context("no node with a replica answers")?
        .0;
    // Replicas may stand still before what was ordered: its commands are lost.
    let stale = (Wanted::Below(most_advanced), false);
    let attempts = wanted.ok().map(|wanted| (wanted, true)).into_iter();
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
        let contact = contact::to(Some(&node.name), &node.address);
        let address = contact.address.clone();
        match query_snapshot(contact, at).await {
            Ok(snapshot) => {
                let head = Head {
                    node: node.name.clone(),
                    slot: snapshot.stamp(),
                    complete,
                    ..head.clone()
                };
                match receive(snapshot, file, &head).await? {
                    Ok(bytes) => {
                        check(file, &head)?;
                        report(file, &head, bytes);
                        return Ok(());
                    }
                    Err(error) => refusals.push(format!(
                        "node {} did not send the whole snapshot: {}",
                        node.name,
                        explain(&error.into())
                    )),
                }
            }
            Err(error) => {
                let reason = explain(&error.into());
                refusals.push(format!("node {} at {address}: {reason}", node.name));
            }
        }
    }
    bail!("no node has a snapshot: {}", refusals.join("; "))
}

/// Writes the file; returns the size of the state in bytes, or why the node did not send all of it.
/// Then, and if the file cannot be written, nothing stays of it.
async fn receive(
    mut snapshot: RemoteSnapshot,
    file: &Path,
    head: &Head,
) -> Result<Result<u64, QueryError>> {
    let mut writer = file::begin(file, head)?;
    let _draft = file::Draft::of(file);
    loop {
        match snapshot.next().await {
            Ok(Some(piece)) => writer.push(&piece)?,
            Ok(None) => break,
            Err(error) => return Ok(Err(error)),
        }
    }
    let bytes = writer.bytes();
    writer.finish()?;
    Ok(Ok(bytes))
}

fn report(file: &Path, head: &Head, bytes: u64) {
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
}

/// Reads what was written, and checks that a cluster can be restored from it. If not, it is
/// removed: it must not be taken for a backup.
fn check(file: &Path, head: &Head) -> Result<()> {
    let checked = file::open(file).and_then(|opened| state::checked(&opened).map(drop));
    if checked.is_err() {
        let removed = std::fs::remove_file(file);
        removed.with_context(|| format!("cannot remove {}, which is no backup", file.display()))?;
    }
    let about = || {
        format!(
            "what node {} gave cannot be restored and was removed",
            head.node
        )
    };
    checked.with_context(about)
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
    check(file, &head)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use ionian_kernel::level::Level;

    #[test]
    fn nothing_stays_of_a_file_that_was_not_completed() {
        let file = std::env::temp_dir().join(format!("ionian-draft-{}", std::process::id()));
        let draft = file.with_extension("tmp");
        let head = Head::new("c", "craq", "kv", "n1", Origin::Saved, Level::LATEST);
        let begun = (file::begin(&file, &head).unwrap(), file::Draft::of(&file));
        assert!(draft.exists());
        drop(begun);
        assert!(!draft.exists() && !file.exists());
    }

    #[test]
    fn what_cannot_be_restored_is_no_backup() {
        let file = std::env::temp_dir().join(format!("ionian-no-backup-{}", std::process::id()));
        let head = Head::new("c", "craq", "kv", "n1", Origin::Saved, Level::LATEST);
        file::write(&file, &head, b"the state of something else").unwrap();
        let why = explain(&check(&file, &head).unwrap_err());
        assert!(why.contains("what node n1 gave"), "{why}");
        assert!(!file.exists());
        let sound = state::empty("kv").snapshot();
        file::write(&file, &head, &sound).unwrap();
        check(&file, &head).unwrap();
        std::fs::remove_file(&file).unwrap();
    }
}
