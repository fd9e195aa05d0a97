//! `ionian log`: shows the logs of stopped nodes, and skips a command on which the state machine
//! fails.

mod arguments;
mod show;
mod skip;

use anyhow::Result;
pub(crate) use arguments::Arguments;
use arguments::LogCommand;
use std::process::ExitCode;

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    match &arguments.command {
        LogCommand::Show(arguments) => show::run(arguments)?,
        LogCommand::Skip(arguments) => skip::run(arguments)?,
    }
    Ok(ExitCode::SUCCESS)
}
