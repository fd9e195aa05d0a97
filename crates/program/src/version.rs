//! The text of `--version` of both programs, and how they detect that they differ.

use anyhow::{Result, bail};
use ionian_kernel::level::Level;
use std::sync::LazyLock;

/// The release, the commit if known, and the levels of clusters that it supports.
pub static TEXT: LazyLock<String> = LazyLock::new(|| {
    format!(
        "{}\nsupports levels {} to {}",
        release(),
        Level::OLDEST,
        Level::LATEST
    )
});

/// The folder of cargo's target directory in which this program was built: `debug`, `release`, or
/// the name of another profile.
pub const PROFILE: &str = env!("IONIAN_PROFILE");

/// The profile of packages, and of everything that is measured.
pub const MEASURED: &str = "dist";

/// The variable in which `ionian` passes its [`release`] to `ionian-tools`.
pub(crate) const STARTED_BY: &str = "IONIAN_STARTED_BY";

/// The release, and the commit if known.
pub(crate) fn release() -> String {
    let commit = option_env!("IONIAN_COMMIT")
        .map_or_else(String::new, |commit| format!(" (commit {commit})"));
    format!("{}{commit}", env!("CARGO_PKG_VERSION"))
}

/// Checks that the `ionian` that started this program, if any, is of the same commit. A simulator
/// of another commit would silently simulate another protocol.
///
/// # Errors
/// If it is not; the text names the command that builds both.
pub fn check_starter() -> Result<()> {
    let (theirs, ours) = (std::env::var(STARTED_BY), release());
    match theirs {
        Ok(theirs) if theirs != ours => bail!(
            "ionian is {theirs}, but ionian-tools in the same directory is {ours}: {} builds both",
            crate::beside::build_command(&["ionian-cli", "ionian-tools"])
        ),
        _ => Ok(()),
    }
}
