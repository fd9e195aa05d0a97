//! What the directory of a stopped node contains.

use crate::output::say_on_stderr;
use crate::protocols::{MACHINE, Work, executors, with_protocol};
use anyhow::{Result, anyhow};
use bytes::Bytes;
use ionian_kernel::level::Level;
use ionian_kernel::machine::RestoreError;
use ionian_kernel::protocol::Protocol;
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
    struct StateIn<'a>(&'a Bytes);
    impl Work for StateIn<'_> {
        type Output = Result<Bytes, RestoreError>;
        fn run<P: Protocol>(self) -> Self::Output {
            P::state_in(self.0)
        }
    }
    let state = with_protocol(node.protocol(), StateIn(&stored.snapshot))?;
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
