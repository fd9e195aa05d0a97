//! How a command ends: its exit code, and on standard error one line that says why it failed.

use crate::output::explain;
use anyhow::{Error, Result};
use ionian_deployment::DeploymentError;
use std::fmt;
use std::process::ExitCode;

/// The exit code that shells give a program that SIGINT has ended.
pub const INTERRUPTED: u8 = 130;

/// An error in what was typed, of a kind that shows only when it is used: exit code 2.
#[derive(Debug)]
pub struct BadUsage(pub String);

impl fmt::Display for BadUsage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadUsage {}

/// The exit code of a command. An error is printed first: `ionian: ` and its causes in one line.
pub fn exit_code(done: Result<ExitCode>) -> ExitCode {
    done.unwrap_or_else(|error| {
        eprintln!("ionian: {}", explain(&error));
        match is_bad_usage(&error) {
            true => ExitCode::from(2),
            false => ExitCode::FAILURE,
        }
    })
}

/// Whether what was typed is wrong, as opposed to a file or the outcome of the work. A wrong
/// deployment that is in no file comes from flags.
fn is_bad_usage(error: &Error) -> bool {
    let outermost = error.chain().next();
    let deployment = outermost.and_then(|cause| cause.downcast_ref::<DeploymentError>());
    deployment.is_some_and(|error| error.file.is_none()) || error.is::<BadUsage>()
}
