//! `ionian log skip`: checks all nodes of a directory before it changes any.

use super::arguments::Skip;
use crate::data_paths::directories_of_nodes;
use crate::output::say;
use crate::protocols;
use anyhow::Result;
use bytes::Bytes;
use ionian_kernel::id::{SessionId, Slot};
use ionian_kernel::machine::RestoreError;
use ionian_runtime::storage::offline::{SkipError, SkipList};

pub(crate) fn run(arguments: &Skip) -> Result<()> {
    let Skip {
        command,
        data,
        undo,
    } = arguments;
    let directories = directories_of_nodes(data)?;
    let lists = directories
        .iter()
        .map(|directory| SkipList::changed(directory, *command, !undo, executed_in));
    let lists: Vec<SkipList> = lists.collect::<Result<_, SkipError>>()?;
    for (directory, list) in directories.iter().zip(lists) {
        let done = match (list.write()?, undo) {
            (true, false) => "is skipped",
            (true, true) => "is no longer skipped",
            (false, false) => "was skipped already",
            (false, true) => "was not skipped",
        };
        say!("{}: command {command} {done}", directory.display());
    }
    say!("Do the same for every other node of the cluster before any of them is started.");
    Ok(())
}

/// How far the log of a session was executed in a snapshot, as the protocol tells.
fn executed_in(
    protocol: &str,
    stored: &Bytes,
    stamp: Slot,
    session: SessionId,
) -> Result<Slot, RestoreError> {
    let protocol = protocols::protocol(protocol);
    let protocol = protocol.map_err(|unknown| RestoreError(unknown.to_string()))?;
    protocol.executed_in(stored, stamp, session)
}
