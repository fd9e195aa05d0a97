//! `cargo xtask deny`: licences, versions and sources of all crates are those that `deny.toml`
//! allows. The tool reads nothing from the network but crates that are not here yet: known
//! vulnerabilities, which it would fetch, are no part of it.

use crate::{absent, cargo, repository};
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, ExitCode};

const TOOL: &str = "cargo-deny";
const SKIP: &str = "--skip-without-cargo-deny";

/// Runs the command.
pub(crate) fn run(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.collect();
    let skips = match &arguments[..] {
        [] => false,
        [word] if word == SKIP => true,
        _ => {
            eprintln!("usage: cargo xtask deny [{SKIP}]");
            return ExitCode::from(2);
        }
    };
    if !absent::has(TOOL) {
        let remedy = format!("cargo install --locked {TOOL}");
        eprintln!("==> NOT CHECKED: licences and sources of crates. Install {TOOL}: {remedy}");
        return match skips {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        };
    }
    match check(&repository().join("Cargo.toml")).status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("==> cannot run cargo: {error}");
            ExitCode::FAILURE
        }
    }
}

const CHECKS: [&str; 3] = ["licenses", "bans", "sources"];

/// Checks a workspace with our rules.
fn check(manifest: &Path) -> Command {
    let mut command = cargo();
    command
        .args(["deny", "--locked", "--log-level", "error"])
        .arg("--manifest-path")
        .arg(manifest)
        .arg("--config")
        .arg(repository().join("deny.toml"))
        .arg("check")
        .args(CHECKS);
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Output;
    use std::{env, fs};

    /// A workspace whose program depends on one crate.
    struct Workspace(std::path::PathBuf);

    impl Workspace {
        fn new(name: &str) -> Workspace {
            let name = format!("ionian-deny-{name}-{}", std::process::id());
            let workspace = Workspace(std::env::temp_dir().join(name));
            for folder in ["program/src", "crate/src"] {
                fs::create_dir_all(workspace.0.join(folder)).unwrap();
                fs::write(workspace.0.join(folder).join("lib.rs"), "").unwrap();
            }
            workspace
        }

        /// The manifests: the licence of the crate, and where the program has it from.
        fn write(&self, licence: &str, from: &str) {
            let manifest = |name: &str, more: &str| {
                let head = format!("[package]\nname = \"{name}\"\nversion = \"1.0.0\"\n");
                fs::write(self.0.join(name).join("Cargo.toml"), head + more).unwrap();
            };
            manifest("crate", &format!("license = \"{licence}\"\n[workspace]\n"));
            let program = "publish = false\n[workspace]\n[dependencies]\ncrate = ";
            manifest("program", &format!("{program}{from}\n"));
            let manifest = self.0.join("program/Cargo.toml");
            let mut lock = cargo();
            lock.args(["generate-lockfile", "--manifest-path"])
                .arg(manifest);
            self.runs(&mut lock);
        }

        fn runs(&self, command: &mut Command) {
            let output = self.output(command);
            assert!(output.status.success(), "{output:?}");
        }

        /// What it downloads from git stays in a folder of the workspace.
        fn output(&self, command: &mut Command) -> Output {
            command.env("CARGO_HOME", self.0.join("cargo"));
            command.env("PATH", env::join_paths(absent::folders()).unwrap());
            command.current_dir(&self.0).output().unwrap()
        }

        /// Why it is refused, unless it is accepted.
        fn refusal(&self) -> Option<String> {
            let manifest = self.0.join("program/Cargo.toml");
            let output = self.output(&mut check(&manifest));
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            (!output.status.success()).then_some(said)
        }
    }

    impl Drop for Workspace {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn another_licence_and_a_crate_from_git_are_refused() {
        if !absent::has(TOOL) {
            return eprintln!("skipped: {TOOL} is not installed");
        }
        let workspace = Workspace::new("refused");
        let path = r#"{ path = "../crate" }"#;
        workspace.write("MIT", path);
        assert_eq!(workspace.refusal(), None);
        workspace.write("GPL-3.0-only", path);
        let said = workspace.refusal().expect("it is refused");
        assert!(
            said.contains("GPL-3.0-only") && said.contains("rejected"),
            "{said}"
        );
        // The crate as a repository of git.
        workspace.write("MIT", path);
        let folder = workspace.0.join("crate");
        let git = || {
            let mut git = Command::new("git");
            git.arg("-C").arg(&folder);
            git.args(["-c", "user.name=test", "-c", "user.email=test@localhost"]);
            git
        };
        workspace.runs(git().args(["init", "--quiet"]));
        workspace.runs(git().args(["add", "."]));
        workspace.runs(git().args(["commit", "--quiet", "--message", "crate"]));
        workspace.write(
            "MIT",
            &format!(r#"{{ git = "file://{}" }}"#, folder.display()),
        );
        let said = workspace.refusal().expect("it is refused");
        assert!(said.contains("source-not-allowed"), "{said}");
    }
}
