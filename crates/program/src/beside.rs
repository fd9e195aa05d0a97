//! Finds another program of Ionian in the directory of the running one, where `cargo build` and
//! `cargo install` put both.

use crate::version::PROFILE;
use anyhow::{Context, Result, bail};
use std::path::PathBuf;

/// The path of `program`, which `package` of this workspace builds.
///
/// # Errors
/// If it does not exist: names the path, and the command that builds or installs it there.
pub fn path_of(program: &str, package: &str) -> Result<PathBuf> {
    let running = std::env::current_exe().context("cannot find the path of this program")?;
    let path = running.with_file_name(program);
    if !path.is_file() {
        // Cargo builds into a directory with the name of the profile.
        let is_built = path.parent().is_some_and(|it| it.ends_with(PROFILE));
        let remedy = match is_built {
            true => format!("{} builds it", build_command(&[package])),
            false => format!("{} installs it", install_command(package)),
        };
        bail!("there is no program {}: {remedy}", path.display());
    }
    Ok(path)
}

/// The command that installs a package from a clone of the repository.
fn install_command(package: &str) -> String {
    let folder = package.trim_start_matches("ionian-");
    format!("`cargo install --locked --path crates/{folder}`")
}

/// The command that builds these packages in the profile of the running program.
pub(crate) fn build_command(packages: &[&str]) -> String {
    let profile = match PROFILE {
        "debug" => String::new(),
        "release" => " --release".to_owned(),
        other => format!(" --profile {other}"),
    };
    let packages: Vec<String> = packages.iter().map(|name| format!(" -p {name}")).collect();
    format!("`cargo build{profile}{}`", packages.concat())
}
