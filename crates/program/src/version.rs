//! What `--version` prints of both programs, and how they notice that they differ.

use crate::beside::build_command;
use anyhow::{Result, ensure};
use ionian_kernel::wire::WIRE_VERSION;

/// The variable by which `ionian` passes its release on to `ionian-tools`.
pub(crate) const STARTED_BY: &str = "IONIAN_STARTED_BY";

/// The release of a program, with its commit where that is known: `IONIAN_COMMIT`, as the build
/// script of the program sets it.
pub fn release(commit: Option<&str>) -> String {
    let commit = commit.map_or_else(String::new, |commit| format!(" (commit {commit})"));
    format!("{}{commit}", env!("CARGO_PKG_VERSION"))
}

/// The release, and what must agree between nodes, and between a node and its files.
pub fn text(release: &str) -> String {
    format!("{release}\nwire version and data format {WIRE_VERSION}")
}

/// Makes sure that the `ionian` that started this program, if one did, is of the same release. A
/// simulator of another commit would try another protocol and not say so.
///
/// # Errors
/// When it is not; the text says how to build both.
pub fn check_starter(release: &str) -> Result<()> {
    if let Ok(starter) = std::env::var(STARTED_BY) {
        ensure!(
            starter == release,
            "ionian is {starter}, and ionian-tools beside it is {release}: {} makes both the same",
            build_command(&["ionian-cli", "ionian-tools"])
        );
    }
    Ok(())
}
