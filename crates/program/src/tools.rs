//! The subcommands of `ionian` that `ionian-tools` carries out. Load generator, figures and
//! simulator are not linked into the server. `ionian` passes their arguments on unchanged.

use crate::{beside, version};
use anyhow::{Context, Error, Result};
use std::convert::Infallible;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The line of `ionian bench` in `ionian --help`.
pub const BENCH: &str =
    "Measure servers under load, the service demand of a role, or the papers' figures";

/// The line of `ionian sim` in `ionian --help`.
pub const SIM: &str = "Test a protocol in the deterministic simulator, under faults";

/// Whether this command line of `ionian` is for a tool, or for the help of one.
pub fn are_asked_for(mut arguments: impl Iterator<Item = OsString>) -> bool {
    let is_tool =
        |word: Option<OsString>| word.is_some_and(|word| word == "bench" || word == "sim");
    let first = arguments.nth(1);
    match first {
        Some(word) if word == "help" => is_tool(arguments.next()),
        word => is_tool(word),
    }
}

/// Replaces this process by `ionian-tools` with the same arguments. Returns only on failure.
///
/// # Errors
/// If `ionian-tools` is missing in the directory of this program, or cannot be executed.
pub fn start() -> Result<Infallible> {
    let mut typed = std::env::args_os();
    let name = typed.next().unwrap_or_else(|| "ionian".into());
    let path = beside::path_of("ionian-tools", "ionian-tools")?;
    let error = Command::new(&path)
        // So that usage and errors name the command that the user typed.
        .arg0(name)
        .args(typed)
        .env(version::STARTED_BY, version::release())
        .exec();
    Err(Error::new(error)).with_context(|| format!("cannot run {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_word_and_its_help_ask_for_a_tool() {
        let asks = |line: &str| are_asked_for(line.split(' ').map(Into::into));
        for line in [
            "ionian bench",
            "ionian sim --help",
            "ionian help bench role",
        ] {
            assert!(asks(line), "{line}");
        }
        for line in [
            "ionian",
            "ionian help",
            "ionian exec sim",
            "ionian --help bench",
        ] {
            assert!(!asks(line), "{line}");
        }
    }
}
