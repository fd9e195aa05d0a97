//! To be written.

pub mod arguments;

use anyhow::Result;
use arguments::Load;
use std::process::ExitCode;

/// Runs it.
///
/// # Errors
/// When it fails.
pub fn run(arguments: &Load) -> Result<ExitCode> {
    let Load {} = arguments;
    Ok(ExitCode::SUCCESS)
}
