//! `cargo xtask tidy`: what the house rules of STYLE.md say about the text of the sources, as far
//! as a machine can check it. Every violation is reported with its file, its line and what is
//! allowed.
//!
//! What existed before a rule did is counted in `xtask/tidy.toml`. A count there may only go down:
//! a higher one in the tree is a violation, and so is a lower one, because the file would let it
//! grow again. `cargo xtask tidy --write` lowers what can be lowered, and never raises anything.

mod allowances;
mod links;
mod rules;

use allowances::Allowances;
use links::Targets;
use rules::{Finding, Rules};
use std::error::Error;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

const ALLOWANCES: &str = "xtask/tidy.toml";
const STYLE: &str = "STYLE.md";

/// Runs the command.
pub(crate) fn run(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<String> = arguments
        .map(|argument| argument.to_string_lossy().into_owned())
        .collect();
    let write = match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => false,
        ["--write"] => true,
        _ => {
            eprintln!("usage: cargo xtask tidy [--write]");
            return ExitCode::from(2);
        }
    };
    match tidy(write) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(violations) => {
            eprintln!("==> {violations} violations of {STYLE}");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("==> {error}");
            ExitCode::FAILURE
        }
    }
}

/// Checks the tree and prints what is wrong; returns the number of violations.
fn tidy(write: bool) -> Result<usize, Box<dyn Error>> {
    let root = &crate::repository();
    let read = |path: &str| {
        fs::read_to_string(root.join(path)).map_err(|error| format!("{path}: {error}"))
    };
    let mut allowances: Allowances =
        toml::from_str(&read(ALLOWANCES)?).map_err(|error| format!("{ALLOWANCES}: {error}"))?;
    let mut findings: Vec<Finding> = Vec::new();
    let mut texts = Vec::new();
    let files = files(root)?;
    for path in &files {
        match rules::stray(path) {
            Some(stray) => findings.push(stray),
            None if rules::is_text(path) => texts.push((path.clone(), read(path)?)),
            None => {}
        }
    }
    let rules = Rules {
        banned: rules::banned_words(&read(STYLE)?)?,
        protocols: rules::protocols(&texts)?,
        roles: allowances.roles.clone(),
    };
    let targets = Targets::new(&files, &texts);
    for (path, text) in &texts {
        if path.ends_with(".md") {
            findings.extend(targets.check(path, text));
        }
        findings.extend(rules.check(path, text));
    }
    if write {
        allowances.lower(&findings);
        fs::write(root.join(ALLOWANCES), allowances.to_string())?;
    }
    let violations = allowances.compare(&findings);
    for violation in &violations {
        eprintln!("{violation}");
    }
    Ok(violations.len())
}

/// The files that git tracks or would track, by their paths in the repository.
fn files(root: &Path) -> Result<Vec<String>, Box<dyn Error>> {
    let output = Command::new("git")
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .current_dir(root)
        .output()
        .map_err(|error| format!("cannot run git: {error}"))?;
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!("git ls-files failed: {}", reason.trim()).into());
    }
    let names = String::from_utf8(output.stdout)?;
    let mut files: Vec<String> = names
        .split_terminator('\0')
        .filter(|name| root.join(name).is_file())
        .map(str::to_owned)
        .collect();
    files.sort_unstable();
    files.dedup();
    Ok(files)
}
