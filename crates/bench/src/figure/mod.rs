//! To be written.

pub mod arguments;

use anyhow::Result;
use arguments::Figure;
use std::process::ExitCode;

/// Runs it.
///
/// # Errors
/// When it fails.
pub fn run(arguments: &Figure) -> Result<ExitCode> {
    let Figure {} = arguments;
    Ok(ExitCode::SUCCESS)
}
