//! `ionian log skip`: checks all nodes of a directory before it changes any.

use super::arguments::Skip;
use crate::data_paths::directories_of_nodes;
use crate::output::say;
use anyhow::Result;
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
        .map(|directory| SkipList::changed(directory, *command, !undo));
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
