//! `ionian snapshot`: backups.
//!
//! | file | job |
//! |---|---|
//! | `arguments` | command-line arguments |
//! | `file` | the format of a backup: head and checks |
//! | `state` | the state machine and the sessions in a backup |
//! | `acknowledged` | what a backup of a running cluster must contain |
//! | `save` | from a running cluster, or a copy of a stopped node's snapshot |
//! | `series` | backups at regular times in a directory, which has the newest ones |
//! | `inspect` | the origin of a backup, and whether it is intact |
//! | `restore` | the data directories of a new cluster |
//! | `salvage` | from the remains of a cluster that has lost its quorum |

mod acknowledged;
mod arguments;
mod file;
mod inspect;
mod restore;
mod salvage;
mod save;
mod series;
mod state;
mod stopped;

pub(crate) use file::FORMAT;

use anyhow::Result;
pub(crate) use arguments::Arguments;
use arguments::SnapshotCommand;
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
