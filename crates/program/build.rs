//! Gives the program the profile that it is built with, and the commit, where that is known from
//! the environment or from git. In a tarball it is not, and nothing depends on it.

use std::process::Command;

fn main() {
    // target/PROFILE/build/ionian-program-HASH/out: cargo names the profile nowhere else.
    let out = std::env::var_os("OUT_DIR").map(std::path::PathBuf::from);
    let profile = out
        .as_ref()
        .and_then(|out| out.ancestors().nth(3)?.file_name());
    let profile = profile.and_then(|name| name.to_str()).unwrap_or("unknown");
    println!("cargo:rustc-env=IONIAN_PROFILE={profile}");
    println!("cargo:rerun-if-env-changed=IONIAN_COMMIT");
    if std::env::var_os("IONIAN_COMMIT").is_some() {
        return;
    }
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else {
        return;
    };
    // Whatever moves HEAD writes here. (A file that is not there would count as changed each time.)
    let log = git(&[
        "rev-parse",
        "--path-format=absolute",
        "--git-path",
        "logs/HEAD",
    ]);
    if let Some(log) = log.filter(|log| std::path::Path::new(log).exists()) {
        println!("cargo:rerun-if-changed={log}");
    }
    println!("cargo:rustc-env=IONIAN_COMMIT={commit}");
}

/// What git says in one line, if it is there and this is a repository of this program, and not one
/// around a tarball.
fn git(arguments: &[&str]) -> Option<String> {
    let tracked = Command::new("git")
        .args(["ls-files", "--error-unmatch", "build.rs"])
        .output()
        .ok()?;
    let output = Command::new("git").args(arguments).output().ok()?;
    let said = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (tracked.status.success() && output.status.success() && !said.is_empty()).then_some(said)
}
