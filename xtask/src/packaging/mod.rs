//! What is released: `cargo xtask dist` builds the program for packages, `sbom` lists what it
//! contains, `deb`, `rpm` and `image` make packages of it. All of them need minutes or tools that
//! `verify` does without. Everything is written to `target/packages`.
//!
//! | file | job |
//! |---|---|
//! | `build` | the program, so that equal sources give equal bytes |
//! | `crates` | the crates in it: their list, their licences |
//! | `deb` | a package for Debian |
//! | `rpm` | the same files for systems with rpm |
//! | `image` | an image for container engines |
//! | `floor` | the oldest glibc that runs the program |
//! | `attempt` | `try-packages`: packages are installed, the image is run |
//! | `scripts` | what it runs in namespaces of its own |

mod attempt;
mod build;
mod crates;
mod deb;
mod floor;
mod image;
mod rpm;
mod scripts;

use crate::repository;
use std::env;
use std::error::Error;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

pub(crate) type Done<T = ()> = Result<T, Box<dyn Error>>;

/// Runs one of the commands, if it is one.
pub(crate) fn run(name: &str) -> Option<ExitCode> {
    let done = match name {
        "dist" => build::dist(),
        "sbom" => crates::sbom(),
        "deb" => deb::deb(),
        "rpm" => rpm::rpm(),
        "image" => image::image(),
        "try-packages" => attempt::run(),
        _ => return None,
    };
    Some(match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("==> {error}");
            ExitCode::FAILURE
        }
    })
}

/// A file or a folder of what is released; its folder exists.
fn package(name: &str) -> Done<PathBuf> {
    let path = repository().join("target/packages").join(name);
    fs::create_dir_all(path.parent().unwrap_or(&path))?;
    Ok(path)
}

/// The program that `dist` has built.
fn program() -> Done<PathBuf> {
    let path = package("ionian")?;
    match path.is_file() {
        true => Ok(path),
        false => Err(format!("there is no {}: cargo xtask dist builds it", path.display()).into()),
    }
}

/// Runs a command to its end; `remedy` says how to install the tool that it is.
fn finish(command: &mut Command, remedy: &str) -> Done {
    let name = command.get_program().to_string_lossy().into_owned();
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{name} failed ({status})").into()),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(format!("{name} is not installed: {remedy}").into())
        }
        Err(error) => Err(format!("cannot run {name}: {error}").into()),
    }
}

/// What a command prints.
pub(crate) fn printed(command: &mut Command) -> Done<String> {
    let output = command.output()?;
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout)?),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned().into()),
    }
}

/// Makes sure that cargo has a subcommand of this name.
fn require_subcommand(name: &str) -> Done {
    let listed = crate::cargo().arg("--list").output()?;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let is_there = listed
        .lines()
        .any(|line| line.split_whitespace().next() == Some(name));
    match is_there {
        true => Ok(()),
        false => Err(
            format!("cargo-{name} is not installed: cargo install --locked cargo-{name}").into(),
        ),
    }
}

/// The time that packages carry, in seconds since 1970: that of the last commit, or the variable of
/// this name, where the sources have no history.
fn source_time() -> Done<String> {
    if let Ok(stated) = env::var("SOURCE_DATE_EPOCH") {
        return Ok(stated);
    }
    let output = Command::new("git")
        .args(["log", "-1", "--format=%ct"])
        .current_dir(repository())
        .output()?;
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout)?.trim().to_owned()),
        false => Err("there is no git history: set SOURCE_DATE_EPOCH to seconds since 1970".into()),
    }
}

/// The size of a file, as people read it.
fn size(path: &Path) -> Done<String> {
    Ok(format!(
        "{:.1} MiB",
        fs::metadata(path)?.len() as f64 / f64::from(1 << 20)
    ))
}
