//! The Debian package. What is in it is listed in `crates/cli/Cargo.toml`.

use super::{Done, crates, finish, package, program, require_subcommand, size};
use crate::repository;
use std::env;
use std::fs;
use std::process::Command;

/// A package names a mailbox. The project has none, and no mail reaches a domain that ends so (RFC
/// 2606).
const NO_MAILBOX: (&str, &str) = ("The Ionian contributors", "no-mailbox@ionian.invalid");

/// The person that makes the package, from the variables that Debian's tools read.
fn maintainer(variable: impl Fn(&str) -> Option<String>) -> Done<String> {
    match (variable("DEBFULLNAME"), variable("DEBEMAIL")) {
        (Some(name), Some(mailbox)) => Ok(format!("{name} <{mailbox}>")),
        (None, None) => Ok(format!("{} <{}>", NO_MAILBOX.0, NO_MAILBOX.1)),
        _ => Err("set both DEBFULLNAME and DEBEMAIL, or neither".into()),
    }
}

/// Writes what packages contain besides the program and its manual pages.
pub(super) fn documents() -> Done {
    let example = Command::new(program()?)
        .args(["config", "init", "-"])
        .output()?;
    fs::write(package("share/doc/cluster.toml")?, example.stdout)?;
    fs::write(package("share/doc/copyright")?, crates::copyright()?)?;
    Ok(())
}

/// Makes the package of the program that `dist` has built.
pub(super) fn deb() -> Done {
    require_subcommand("deb")?;
    let maintainer = maintainer(|name| env::var(name).ok())?;
    documents()?;
    let root = repository();
    let seconds = super::source_time()?;
    let date = date(&seconds)?;
    let version = format!("{}-1", env!("CARGO_PKG_VERSION"));
    let changelog = format!(
        "ionian ({version}) unstable; urgency=medium\n\n  * Built from the sources of this version.\n\n \
         -- {maintainer}  {date}\n"
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
        .args(["--maintainer", &maintainer, "--output"])
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_names_the_person_that_makes_it_or_no_mailbox() {
        let of = |name: Option<&str>, mailbox: Option<&str>| {
            let (name, mailbox) = (name.map(str::to_owned), mailbox.map(str::to_owned));
            maintainer(|variable| match variable {
                "DEBFULLNAME" => name.clone(),
                "DEBEMAIL" => mailbox.clone(),
                _ => None,
            })
        };
        assert_eq!(of(Some("Eva"), Some("eva@a.b")).unwrap(), "Eva <eva@a.b>");
        assert!(of(None, None).unwrap().ends_with(".invalid>"));
        assert!(of(Some("Eva"), None).is_err());
        assert!(of(None, Some("eva@a.b")).is_err());
    }
}
