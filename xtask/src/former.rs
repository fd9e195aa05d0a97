//! `cargo xtask former`: the program `ionian` of an earlier commit, for `torture --former`. It is
//! built in a worktree of its own below `target`, and kept under a name that says what it is.
//!
//! With `--canary` it has one of the known defects of `crates/canaries`: a release that must not
//! pass as an earlier one.

// The build script of that crate reads more of a patch.
#[expect(dead_code, reason = "shared with the build script of ionian-canaries")]
#[path = "../../crates/canaries/build/patch.rs"]
mod patch;

use crate::{cargo, repository, target};
use patch::Patch;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Earlier commits optimized all crates of a release together, which takes twice as long.
const QUICK_RELEASE: [(&str, &str); 3] = [
    ("CARGO_PROFILE_RELEASE_LTO", "off"),
    ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16"),
    ("CARGO_PROFILE_RELEASE_DEBUG", "0"),
];

const USAGE: &str = "usage: cargo xtask former COMMIT [--canary PROTOCOL/NAME]";

/// Where the protocols are in a tree.
const PROTOCOLS: &str = "crates/protocols/src";

/// Runs the command: prints the path of the program.
pub(crate) fn run(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<String> = arguments
        .map(|argument| argument.to_string_lossy().into_owned())
        .collect();
    let (commit, canary) = match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [commit] if !commit.starts_with('-') => (*commit, None),
        [commit, "--canary", canary] => (*commit, Some(*canary)),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match former(commit, canary) {
        Ok(program) => {
            println!("{}", program.display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("==> {error}");
            ExitCode::FAILURE
        }
    }
}

/// Builds the program, unless it was built before.
fn former(commit: &str, canary: Option<&str>) -> Result<PathBuf, String> {
    let canary = canary.map(read).transpose()?;
    let full = output(
        "git",
        &["rev-parse", "--verify", &format!("{commit}^{{commit}}")],
    )?;
    let short = &full.trim()[..12];
    let folder = target().join("former");
    let name = match &canary {
        None => format!("ionian-{short}"),
        Some(canary) => format!("ionian-{short}-{}", canary.id.replace('/', "-")),
    };
    let program = folder.join(name);
    // The same commit is the same program; with a defect, the patch may be another by now.
    if canary.is_none() && program.exists() {
        return Ok(program);
    }
    fs::create_dir_all(&folder).map_err(about(&folder))?;
    let tree = folder.join("tree");
    let tree_name = tree.to_string_lossy();
    if tree.exists() {
        output("git", &["worktree", "remove", "--force", &tree_name])?;
    }
    let add = ["worktree", "add", "--force", "--detach", &tree_name, short];
    output("git", &add)?;
    let built = canary
        .map_or(Ok(()), |canary| plant(&tree, canary))
        .and_then(|()| build(&tree, &folder.join("build"), &program));
    output("git", &["worktree", "remove", "--force", &tree_name])?;
    built.map(|()| program)
}

/// The patch of this name.
fn read(id: &str) -> Result<Patch, String> {
    let file = repository().join(format!("crates/canaries/patches/{id}.patch"));
    let text = fs::read_to_string(&file).map_err(about(&file))?;
    Patch::parse(id, &text).map_err(|error| format!("{}: {error}", file.display()))
}

/// Builds a defect into a tree, where it is always active.
fn plant(tree: &Path, canary: Patch) -> Result<(), String> {
    let root = tree.join(PROTOCOLS);
    let files = canary.hunks.iter().map(|hunk| {
        let path = root.join(&hunk.file);
        let text = fs::read_to_string(&path).map_err(about(&path))?;
        Ok((hunk.file.clone(), text))
    });
    let mut files = files.collect::<Result<BTreeMap<String, String>, String>>()?;
    let is_active = format!("crate::canary::is({:?})", canary.id);
    patch::apply(&mut files, &[canary]).map_err(|errors| errors.join("\n"))?;
    for (file, text) in files {
        let path = root.join(file);
        fs::write(&path, text.replace(&is_active, "true")).map_err(about(&path))?;
    }
    Ok(())
}

/// Builds the program of a tree for release, and copies it.
fn build(tree: &Path, built: &Path, program: &Path) -> Result<(), String> {
    let mut command = cargo();
    command
        .current_dir(tree)
        .args([
            "build",
            "--quiet",
            "--release",
            "--package",
            "ionian-cli",
            "--bin",
            "ionian",
        ])
        .env("CARGO_TARGET_DIR", built)
        .envs(QUICK_RELEASE)
        // The worktree decides which toolchain and which manifest.
        .env_remove("CARGO_MANIFEST_DIR");
    let status = command
        .status()
        .map_err(|error| format!("cannot run cargo: {error}"))?;
    if !status.success() {
        return Err(format!("the program does not build ({status})"));
    }
    // A running program cannot be overwritten, but another can get its name.
    let copy = program.with_extension("new");
    fs::copy(built.join("release/ionian"), &copy).map_err(about(&copy))?;
    fs::rename(&copy, program).map_err(about(program))
}

fn about(path: &Path) -> impl Fn(std::io::Error) -> String {
    move |error| format!("{}: {error}", path.display())
}

/// What a command prints, if it works.
fn output(program: &str, arguments: &[&str]) -> Result<String, String> {
    let what = || format!("{program} {}", arguments.join(" "));
    let output = Command::new(program)
        .args(arguments)
        .current_dir(repository())
        .output()
        .map_err(|error| format!("cannot run {}: {error}", what()))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => {
            let why = String::from_utf8_lossy(&output.stderr);
            Err(format!("{}: {}", what(), why.trim_end()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_defect_is_built_in_without_its_condition() {
        let tree = std::env::temp_dir().join(format!("ionian-former-{}", std::process::id()));
        let file = tree.join(PROTOCOLS).join("parts/leader.rs");
        fs::create_dir_all(file.parent().expect("a folder")).expect("it is made");
        let original = repository().join(PROTOCOLS).join("parts/leader.rs");
        fs::copy(&original, &file).expect("it is copied");
        plant(&tree, read("multipaxos/other-form").expect("a patch")).expect("it applies");
        let text = fs::read_to_string(&file).expect("it is there");
        assert_ne!(text, fs::read_to_string(&original).expect("it is there"));
        assert!(!text.contains("canary::is") && text.contains("if true"));
        fs::remove_dir_all(&tree).expect("it is removed");
        let error = read("multipaxos/none").unwrap_err();
        assert!(error.contains("multipaxos/none.patch"), "{error}");
    }
}
