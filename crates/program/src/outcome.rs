//! How a command ends: its exit code, and a one-line error on standard error.

use crate::output::{explain, say_on_stderr};
use anyhow::{Error, Result};
use ionian_deployment::DeploymentError;
use std::fmt;
use std::process::ExitCode;

/// The exit code that shells report for a program ended by SIGINT.
pub const INTERRUPTED: u8 = 130;

/// An error in the arguments that shows only when they are used: exit code 2.
#[derive(Debug)]
pub struct BadUsage(pub String);

impl fmt::Display for BadUsage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadUsage {}

/// The exit code of a command. Prints the error first: `ionian: ` and its causes in one line.
pub fn exit_code(done: Result<ExitCode>) -> ExitCode {
    done.unwrap_or_else(|error| {
        say_on_stderr!("ionian: {}", explain(&error));
        ExitCode::from(code_of(&error))
    })
}

/// The exit code of a command that failed so.
pub fn code_of(error: &Error) -> u8 {
    match is_bad_usage(error) {
        true => 2,
        false => 1,
    }
}

/// Whether the arguments are wrong, as opposed to a file or the outcome of the work. A wrong
/// deployment that is not in a file comes from flags.
fn is_bad_usage(error: &Error) -> bool {
    let outermost = error.chain().next();
    let deployment = outermost.and_then(|cause| cause.downcast_ref::<DeploymentError>());
    deployment.is_some_and(|error| error.file.is_none()) || error.is::<BadUsage>()
}
