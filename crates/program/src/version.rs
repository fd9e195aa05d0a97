//! What `--version` prints of both programs, and how they notice that they differ.

use anyhow::{Result, bail};
use ionian_kernel::wire::WIRE_VERSION;
use std::sync::LazyLock;

/// Release, the commit where it is known, and what must agree between nodes, and between a node and
/// its files.
pub static TEXT: LazyLock<String> =
    LazyLock::new(|| format!("{}\nwire version and data format {WIRE_VERSION}", release()));

/// The variable by which `ionian` passes its [`release`] on to `ionian-tools`.
pub(crate) const STARTED_BY: &str = "IONIAN_STARTED_BY";

/// Release, and the commit where it is known.
pub(crate) fn release() -> String {
    let commit = option_env!("IONIAN_COMMIT")
        .map_or_else(String::new, |commit| format!(" (commit {commit})"));
    format!("{}{commit}", env!("CARGO_PKG_VERSION"))
}

/// Makes sure that the `ionian` that started this program, if one did, is of the same commit. A
/// simulator of another commit would silently try another protocol.
///
/// # Errors
/// When it is not; the text says how to build both.
pub fn check_starter() -> Result<()> {
    let (theirs, ours) = (std::env::var(STARTED_BY), release());
    match theirs {
        Ok(theirs) if theirs != ours => bail!(
            "ionian is {theirs}, and ionian-tools beside it is {ours}: {} makes both the same",
            crate::beside::build_command(&["ionian-cli", "ionian-tools"])
        ),
        _ => Ok(()),
    }
}
