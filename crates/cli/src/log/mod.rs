//! `ionian log`: shows the logs of stopped nodes, and skips a command on which the state machine
//! fails.

pub(crate) mod arguments;
mod show;
mod skip;

use crate::places::Places;
use anyhow::Result;
use arguments::{Arguments, LogCommand};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    match &arguments.command {
        LogCommand::Show(arguments) => show::run(arguments)?,
        LogCommand::Skip(arguments) => skip::run(arguments)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The directories of the nodes in `data`, or `data` itself if it belongs to one node.
fn node_directories(data: &Path) -> Result<Vec<PathBuf>> {
    let mut nodes = Places::new(data).node_directories()?;
    nodes.sort_unstable();
    Ok(if nodes.is_empty() {
        vec![data.to_owned()]
    } else {
        nodes
    })
}
