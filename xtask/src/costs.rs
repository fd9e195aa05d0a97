//! `cargo xtask costs`: what a command costs each role, in instructions, against what
//! `docs/costs.toml` says. A role that has become slower is noticed in the commit that makes it so,
//! on a machine of whatever speed.
//!
//! callgrind counts the instructions of one role (`crates/costs`), which are the same on every run,
//! over a number of bursts and over twice as many: the difference is the steady state without the
//! way to it.

use crate::cargo;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::error::Error;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Output};
use std::{fs, io};

/// A role may cost this much more than recorded.
const ALLOWED: f64 = 1.05;

/// The bursts of one run; the other has twice as many.
const BURSTS: u32 = 500;

/// What is counted, with all that it calls.
const COUNTED: &str = "--toggle-collect=ionian_costs::stage::Stage::pass";

const HEADER: &str = "\
# How many instructions a command costs each role, counted by callgrind: `crates/costs` says what is driven and how.
# Commands are SET of 16 bytes, reads GET. The deployments are the presets \"compartmentalized\" (32 commands in a burst)
# and, where it says batched, \"batched\" (100 commands in a batch, 4 batches in a burst). Decoding of what arrives and
# encoding of what leaves are counted with it; system calls are not. Durability is \"memory\" where no disk is named.
# Mencius's are \"mencius-compartmentalized\" and \"mencius-batched\", where every leader suggests as much as the others;
# the leader that is driven hears of the others, and skips one slot, once a burst.
# S-Paxos's are \"spaxos-compartmentalized\" and \"spaxos-batched\": a command is a payload, or where it says batched a
# batch of 100 is. The stabilizer that is driven hands every payload that it stores to all replicas.
#
# `cargo xtask costs` fails when one has grown by more than 5 %. If that is intended, record it again with
# `cargo xtask costs --record`, and says why in the same commit.

";

const USAGE: &str = "usage: cargo xtask costs [--record | --skip-without-valgrind]";

/// The file.
#[derive(Debug, Deserialize, Serialize)]
struct Costs {
    /// Another compiler makes other instructions.
    compiler: String,
    /// So does another C library, where memory comes from and is copied.
    library: String,
    /// For each case, instructions a command.
    instructions: BTreeMap<String, f64>,
}

enum Mode {
    Compare,
    CompareIfPossible,
    Record,
}

/// Runs the command.
pub(crate) fn run(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<String> = arguments
        .map(|argument| argument.to_string_lossy().into_owned())
        .collect();
    let mode = match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => Mode::Compare,
        ["--skip-without-valgrind"] => Mode::CompareIfPossible,
        ["--record"] => Mode::Record,
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match costs(&mode) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("==> {error}");
            ExitCode::FAILURE
        }
    }
}

fn costs(mode: &Mode) -> Result<bool, Box<dyn Error>> {
    if !has_valgrind()? {
        eprintln!(
            "==> NOT CHECKED: what a command costs each role. valgrind is not installed, which counts it."
        );
        return Ok(matches!(mode, Mode::CompareIfPossible));
    }
    let now = measure()?;
    match mode {
        Mode::Record => {
            fs::write(file(), format!("{HEADER}{}", toml::to_string(&now)?))?;
            eprintln!("==> recorded in {}", file().display());
            Ok(true)
        }
        Mode::Compare | Mode::CompareIfPossible => {
            let recorded = fs::read_to_string(file())
                .map_err(|error| format!("{}: {error}", file().display()))?;
            Ok(compare(&toml::from_str(&recorded)?, &now))
        }
    }
}

fn file() -> PathBuf {
    crate::repository().join("docs").join("costs.toml")
}

fn has_valgrind() -> io::Result<bool> {
    match Command::new("valgrind").arg("--version").output() {
        Ok(output) => Ok(output.status.success()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn measure() -> Result<Costs, Box<dyn Error>> {
    let cases = words(role_cost(None, &[])?)?;
    let mut instructions = BTreeMap::new();
    for case in cases.lines() {
        let (counted, commands) = count(case, BURSTS)?;
        let (counted_of_both, commands_of_both) = count(case, 2 * BURSTS)?;
        let cost = (counted_of_both - counted) / (commands_of_both - commands);
        instructions.insert(case.to_owned(), (cost * 10.0).round() / 10.0);
    }
    Ok(Costs {
        compiler: compiler()?,
        library: library(),
        instructions,
    })
}

/// How many instructions were counted, and for how many commands.
fn count(case: &str, bursts: u32) -> Result<(f64, f64), Box<dyn Error>> {
    let valgrind = [
        "valgrind",
        "--tool=callgrind",
        "--callgrind-out-file=/dev/null",
        COUNTED,
    ];
    let output = role_cost(Some(&valgrind), &[case, &bursts.to_string()])?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let counted = said
        .lines()
        .find_map(|line| line.split_once("Collected : ")?.1.trim().parse().ok());
    let commands = words(output)?.trim().parse()?;
    Ok((
        counted
            .ok_or_else(|| format!("{case}: callgrind has not said what it counted:\n{said}"))?,
        commands,
    ))
}

/// Has cargo build the program and run it, by another if one is given.
fn role_cost(runner: Option<&[&str]>, arguments: &[&str]) -> io::Result<Output> {
    let mut command = cargo();
    if let Some(runner) = runner {
        command
            .arg("--config")
            .arg(format!("target.'cfg(all())'.runner={runner:?}"));
    }
    command.args([
        "run",
        "--quiet",
        "--release",
        "--package",
        "ionian-costs",
        "--bin",
        "role-cost",
        "--",
    ]);
    command.args(arguments).output()
}

/// What a program that has done its work has printed.
fn words(output: Output) -> Result<String, Box<dyn Error>> {
    if !output.status.success() {
        return Err(format!(
            "{}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        )
        .into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

fn compiler() -> Result<String, Box<dyn Error>> {
    let about = words(Command::new("rustc").arg("-vV").output()?)?;
    let host = about
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .unwrap_or_default();
    Ok(format!(
        "{} for {host}",
        about.lines().next().unwrap_or_default()
    ))
}

/// Empty where it is not the GNU one.
fn library() -> String {
    let asked = Command::new("getconf").arg("GNU_LIBC_VERSION").output();
    asked
        .ok()
        .and_then(|output| words(output).ok())
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// Says what differs. False when something costs too much.
fn compare(recorded: &Costs, now: &Costs) -> bool {
    eprintln!(
        "{:<40} {:>12} {:>12} {:>8}",
        "instructions a command", "recorded", "now", ""
    );
    let mut faults = Vec::new();
    for (case, cost) in &now.instructions {
        let Some(before) = recorded.instructions.get(case) else {
            eprintln!("{case:<40} {:>12} {cost:>12.1}", "-");
            faults.push(format!("{case} is not recorded"));
            continue;
        };
        let growth = (cost / before - 1.0) * 100.0;
        eprintln!("{case:<40} {before:>12.1} {cost:>12.1} {growth:>+7.1}%");
        if *cost > before * ALLOWED {
            faults.push(format!(
                "{case} costs {cost:.1} instructions a command, {growth:.1} % more than recorded"
            ));
        }
    }
    let gone = recorded
        .instructions
        .keys()
        .filter(|case| !now.instructions.contains_key(*case));
    faults.extend(gone.map(|case| format!("{case} is recorded, and there is no such case")));
    faults.iter().for_each(|fault| eprintln!("==> {fault}"));
    let (made_with, with) = (
        (&recorded.compiler, &recorded.library),
        (&now.compiler, &now.library),
    );
    if faults.is_empty() {
        return true;
    }
    if made_with != with {
        eprintln!(
            "==> no failure: recorded with {made_with:?}, counted with {with:?}, which may be all the difference"
        );
        return true;
    }
    eprintln!(
        "==> if that is intended, cargo xtask costs --record writes docs/costs.toml again; commit that with the change"
    );
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs(compiler: &str, instructions: &[(&str, f64)]) -> Costs {
        let instructions = instructions
            .iter()
            .map(|(case, cost)| ((*case).to_owned(), *cost))
            .collect();
        Costs {
            compiler: compiler.into(),
            library: "glibc".into(),
            instructions,
        }
    }

    #[test]
    fn more_than_a_twentieth_more_is_too_much() {
        let recorded = costs("rustc", &[("leader", 1000.0), ("replica", 10.0)]);
        assert!(compare(
            &recorded,
            &costs("rustc", &[("leader", 1050.0), ("replica", 1.0)])
        ));
        assert!(!compare(
            &recorded,
            &costs("rustc", &[("leader", 1050.1), ("replica", 10.0)])
        ));
    }

    #[test]
    fn the_file_names_what_there_is() {
        let recorded = costs("rustc", &[("leader", 1000.0)]);
        assert!(!compare(
            &recorded,
            &costs("rustc", &[("leader", 1000.0), ("replica", 10.0)])
        ));
        assert!(!compare(&recorded, &costs("rustc", &[])));
    }

    #[test]
    fn another_compiler_only_makes_a_warning() {
        let recorded = costs("rustc", &[("leader", 1000.0)]);
        assert!(compare(
            &recorded,
            &costs("another rustc", &[("leader", 2000.0)])
        ));
    }
}
