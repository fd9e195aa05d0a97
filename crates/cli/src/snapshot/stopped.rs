//! What the directory of a stopped node contains.

use crate::output::say_on_stderr;
use crate::protocols::{MACHINE, executors, protocol};
use anyhow::{Result, anyhow};
use ionian_kernel::level::Level;
use ionian_runtime::storage::membership_file;
use ionian_runtime::storage::offline::{StoppedNode, StoredSnapshot};
use std::path::Path;

/// The newest snapshot that a role of a stopped node has stored.
pub(super) fn newest(node: &StoppedNode) -> Result<Option<StoredSnapshot>> {
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
    let newest = found.into_iter().max_by_key(|snapshot| snapshot.stamp);
    newest.map(|newest| without_head(newest, node)).transpose()
}

/// A snapshot without what a protocol stores before the state machine.
fn without_head(stored: StoredSnapshot, node: &StoppedNode) -> Result<StoredSnapshot> {
    let state = protocol(node.protocol())?.state_in(&stored.snapshot);
    let snapshot = state.map_err(|why| anyhow!("{}: {why}", stored.path.display()))?;
    Ok(StoredSnapshot { snapshot, ..stored })
}

/// The state machine of a node's directory. A directory without a membership was made by an earlier
/// version of this program, for the key-value store.
pub(super) fn machine_in(directory: &Path) -> Result<String> {
    let known = membership_file::stored(directory)?;
    Ok(known.map_or_else(|| MACHINE.to_owned(), |known| known.deployment.machine))
}

/// The level of the cluster, as the node with this directory knew it.
pub(super) fn level_in(directory: &Path) -> Result<Level> {
    let known = membership_file::stored(directory)?;
    Ok(known.map_or(Level::FIRST, |known| known.membership.level))
}

/// Prints a warning about a file.
pub(super) fn warn(path: &Path, text: &str) {
    say_on_stderr!("ionian: {} {text}", path.display());
}
