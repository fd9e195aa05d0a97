//! `ionian snapshot`: backups.
//!
//! | file | job |
//! |---|---|
//! | `arguments` | command-line arguments |
//! | `file` | the format of a backup: head and checks |
//! | `state` | the state machine and the sessions in a backup |
//! | `save` | from a running cluster, or a copy of a stopped node's snapshot |
//! | `inspect` | the origin of a backup, and whether it is intact |
//! | `restore` | the data directories of a new cluster |
//! | `salvage` | from the remains of a cluster that has lost its quorum |

pub(crate) mod arguments;
mod file;
mod inspect;
mod restore;
mod salvage;
mod save;
mod state;

pub(crate) use file::FORMAT;

use anyhow::{Context, Result};
use arguments::{Arguments, SnapshotCommand};
use ionian_protocols::registry;
use std::path::Path;
use std::process::ExitCode;

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    match &arguments.command {
        SnapshotCommand::Save(arguments) => save::run(arguments)?,
        SnapshotCommand::Inspect(arguments) => inspect::run(arguments)?,
        SnapshotCommand::Restore(arguments) => restore::run(arguments)?,
        SnapshotCommand::Salvage(arguments) => salvage::run(arguments)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The newest snapshot that a role of a stopped node has stored.
fn newest(
    node: &ionian_runtime::storage::offline::StoppedNode,
) -> Result<Option<ionian_runtime::storage::offline::StoredSnapshot>> {
    let mut found = Vec::new();
    for role in executors(node.protocol())? {
        found.extend(node.snapshots(role)?);
    }
    for snapshot in &found {
        if let Some(rejected) = &snapshot.rejected {
            warn(
                &snapshot.path,
                &format!("is used, because the newer one is damaged: {rejected}"),
            );
        }
    }
    Ok(found.into_iter().max_by_key(|snapshot| snapshot.stamp))
}

/// The names of the role kinds that store snapshots.
fn executors(protocol: &str) -> Result<impl Iterator<Item = &'static str>> {
    let known = registry::description(protocol);
    let known = known.with_context(|| format!("unknown protocol {protocol:?}"))?;
    let names = known.executors.iter();
    Ok(names.map(|kind| known.kinds[usize::from(*kind)]))
}

/// The state machine of a node's directory. A directory without a membership was made by an earlier
/// version of this program, for the key-value store.
fn machine_in(directory: &Path) -> Result<String> {
    let known = ionian_runtime::storage::membership_file::stored(directory)?;
    Ok(known.map_or_else(
        || crate::family::MACHINE.to_owned(),
        |known| known.deployment.machine,
    ))
}

fn warn(path: &Path, text: &str) {
    eprintln!("ionian: {} {text}", path.display());
}
