//! A program of ours in the directory of the one that runs, where `cargo build` and `cargo install`
//! put both.

use anyhow::{Context, Result, bail};
use std::path::PathBuf;

/// The path of `program`, which `package` of this workspace builds.
///
/// # Errors
/// When it is not there: says where it was expected, and which command builds it.
pub fn path_of(program: &str, package: &str) -> Result<PathBuf> {
    let running =
        std::env::current_exe().context("the system does not say where this program is")?;
    let path = running.with_file_name(program);
    if !path.is_file() {
        bail!(
            "there is no program {}: {} builds it",
            path.display(),
            build_command(&[package])
        );
    }
    Ok(path)
}

/// The command that builds these packages in the profile of the running program.
pub(crate) fn build_command(packages: &[&str]) -> String {
    let profile = if cfg!(debug_assertions) {
        ""
    } else {
        " --release"
    };
    let packages: Vec<String> = packages.iter().map(|name| format!(" -p {name}")).collect();
    format!("`cargo build{profile}{}`", packages.concat())
}
