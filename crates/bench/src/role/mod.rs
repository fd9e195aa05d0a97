//! To be written.

pub mod arguments;

use anyhow::Result;
use arguments::Role;
use std::process::ExitCode;

/// Runs it.
///
/// # Errors
/// When it fails.
pub fn run(arguments: &Role) -> Result<ExitCode> {
    let Role {} = arguments;
    Ok(ExitCode::SUCCESS)
}
