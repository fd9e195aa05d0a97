//! The Debian package. What is in it is listed in `crates/cli/Cargo.toml`.

use super::{Done, crates, finish, package, program, require_subcommand, size};
use crate::repository;
use std::fs;
use std::process::Command;

const MAINTAINER: &str = "Ionian maintainers <maintainers@ionian-project.org>";

/// Makes the package of the program that `dist` has built.
pub(super) fn deb() -> Done {
    require_subcommand("deb")?;
    let program = program()?;
    let root = repository();
    fs::write(package("share/doc/copyright")?, crates::copyright()?)?;
    let example = Command::new(program)
        .args(["config", "init", "-"])
        .output()?;
    fs::write(package("share/doc/cluster.toml")?, example.stdout)?;
    let seconds = super::source_time()?;
    let date = date(&seconds)?;
    let version = format!("{}-1", env!("CARGO_PKG_VERSION"));
    let changelog = format!(
        "ionian ({version}) unstable; urgency=medium\n\n  * Built from the sources of this version.\n\n \
         -- {MAINTAINER}  {date}\n"
    );
    fs::write(package("share/doc/changelog")?, changelog)?;
    let path = package("ionian.deb")?;
    let mut command = crate::cargo();
    command
        .args([
            "deb",
            "--no-build",
            "--no-strip",
            "--locked",
            "--package",
            "ionian-cli",
        ])
        .args(["--maintainer", MAINTAINER, "--output"])
        .arg(&path)
        .current_dir(&root)
        .env("SOURCE_DATE_EPOCH", seconds);
    finish(&mut command, "https://rustup.rs installs it")?;
    eprintln!("==> {}: {}", path.display(), size(&path)?);
    Ok(())
}

/// A time in seconds since 1970, as changelogs have it.
fn date(seconds: &str) -> Done<String> {
    let output = Command::new("date")
        .args(["--utc", "--rfc-email", "--date", &format!("@{seconds}")])
        .output()?;
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout)?.trim().to_owned()),
        false => Err(format!("SOURCE_DATE_EPOCH={seconds}: must be seconds since 1970").into()),
    }
}
