//! `cargo xtask costs`: what a command costs each role, in instructions, against what
//! `docs/costs.toml` says. A role that has become slower is noticed in the commit that makes it so,
//! on a machine of whatever speed.
//!
//! callgrind counts the instructions of all nodes with the same roles (`crates/costs`), which are
//! the same on every run.

use crate::cargo;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::error::Error;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{fs, io};

/// A role may cost this much more than recorded, as a factor and in instructions a command: what a
/// role does once for many commands is hardly above what it does without any.
const ALLOWED: (f64, f64) = (1.05, 2.0);

/// The bursts that are counted.
const BURSTS: u32 = 8;

/// Instructions a command: a role that needs fewer has nothing to do with the commands.
const LEAST: f64 = 5.0;

/// What is counted, with all that it calls.
const COUNTED: &str = "--toggle-collect=ionian_costs::count::group_*";

/// What counts a command's right, with all that it calls, and its cases: the first is without one.
const COUNTED_OF_RIGHTS: &str = "--toggle-collect=rights_cost::counted_*";
const RIGHTS: [&str; 3] = ["unjudged", "all-keys", "patterns"];

const HEADER: &str = "\
# How many instructions a command costs all instances of a role together, counted by callgrind in a deployment of
# every preset, with every role as it is (`crates/costs` says how). Decoding of what arrives and encoding of what leaves
# are counted, system calls are not. `node` is a node with every role, and here the sum of all nodes.
# Writes are SET of 16 bytes, reads linearizable GETs; 400 commands arrive at a time, from all client lanes together.
# Durability is \"memory\" unless the name says \"on disk\", which the first preset of each protocol is counted with
# too. The crates are not optimized together here, which costs about a quarter more than in
# packages: these numbers are to be compared with each other.
#
# `right of a command` is what a SET costs the connection of a user more than one of a cluster without users
# (`crates/gateway/examples/rights_cost.rs`).
#
# `cargo xtask costs` fails when one has grown by more than 5 % and 2 instructions. If that is intended, record it again with
# `cargo xtask costs --record`, and say why in the same commit.

";

const USAGE: &str = "usage: cargo xtask costs [--record | --skip-without-valgrind]";

/// The file.
#[derive(Debug, Deserialize, Serialize)]
struct Costs {
    /// Another compiler makes other instructions.
    compiler: String,
    /// So does another C library, where memory comes from and is copied.
    library: String,
    /// For each case and each role, instructions a command.
    instructions: BTreeMap<String, Instructions>,
}

/// For each role, instructions a command.
type Instructions = BTreeMap<String, f64>;

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
    let cases = words(run_program(&ROLE_COST, None, &[])?)?;
    let cases: Vec<&str> = cases.lines().collect();
    let mut instructions = count_all(&cases)?;
    instructions.insert("right of a command".to_owned(), count_rights()?);
    Ok(Costs {
        compiler: compiler()?,
        library: library(),
        instructions,
    })
}

/// What a command pays for its right: more than one that needs none.
fn count_rights() -> Result<Instructions, Box<dyn Error>> {
    let mut costs = Vec::new();
    for case in RIGHTS {
        let of_rights = Program {
            package: "ionian-gateway",
            kind: "--example",
            name: "rights_cost",
        };
        let (printed, counted) = profiled(&of_rights, COUNTED_OF_RIGHTS, case, &[case])?;
        let all = counted
            .iter()
            .filter(|it| it.0.starts_with("rights_cost::counted_"));
        let all: u64 = all.map(|(_, counted)| counted).sum();
        let commands: f64 = printed.trim().parse()?;
        costs.push((case, (all as f64 / commands * 10.0).round() / 10.0));
    }
    let without = costs[0].1;
    if without == 0.0 {
        return Err("callgrind has counted nothing of rights".into());
    }
    let more = |cost: f64| ((cost - without) * 10.0).round() / 10.0;
    let named = |(case, cost): &(&str, f64)| ((*case).to_owned(), more(*cost));
    Ok(costs[1..].iter().map(named).collect())
}

/// A program of the workspace.
struct Program {
    package: &'static str,
    kind: &'static str,
    name: &'static str,
}

const ROLE_COST: Program = Program {
    package: "ionian-costs",
    kind: "--bin",
    name: "role-cost",
};

/// What a program prints and, for each function, the instructions that callgrind has counted.
fn profiled(
    program: &Program,
    counted: &str,
    case: &str,
    arguments: &[&str],
) -> Result<(String, BTreeMap<String, u64>), Box<dyn Error>> {
    let file = format!("ionian-costs-{}-{case}", std::process::id());
    let profile = std::env::temp_dir().join(file);
    let file = format!("--callgrind-out-file={}", profile.display());
    let valgrind = ["valgrind", "--quiet", "--tool=callgrind", &file, counted];
    let printed = words(run_program(program, Some(&valgrind), arguments)?)?;
    let text = fs::read_to_string(&profile)?;
    fs::remove_file(&profile)?;
    let counted = inclusive(&text).into_iter();
    let counted = counted.map(|(function, counted)| (function.to_owned(), counted));
    Ok((printed, counted.collect()))
}

/// Counts some cases at the same time: what one takes does not depend on what else runs.
fn count_all(cases: &[&str]) -> Result<BTreeMap<String, Instructions>, Box<dyn Error>> {
    let workers = std::thread::available_parallelism()?.get();
    let next = AtomicUsize::new(0);
    let work = || {
        let turns = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
        let mine = turns.map_while(|turn| cases.get(turn));
        let counted = mine.map(|case| {
            let counted = count(case).map_err(|error| error.to_string());
            Ok(((*case).to_owned(), counted?))
        });
        counted.collect::<Result<Vec<_>, String>>()
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        let mut instructions = BTreeMap::new();
        for worker in workers {
            instructions.extend(worker.join().map_err(|_| "a count panicked")??);
        }
        Ok(instructions)
    })
}

/// What a command of this case costs each role.
fn count(case: &str) -> Result<Instructions, Box<dyn Error>> {
    let arguments = [case, &BURSTS.to_string()];
    let (printed, inclusive) = profiled(&ROLE_COST, COUNTED, case, &arguments)?;
    let (commands, groups) = printed.split_once('\n').unwrap_or_default();
    let commands: f64 = commands.parse()?;
    let mut instructions = Instructions::new();
    for (function, role) in groups.lines().filter_map(|line| line.split_once(' ')) {
        let function = format!("ionian_costs::count::{function}");
        let counted = inclusive.get(&function).copied().unwrap_or(0);
        let cost = (counted as f64 / commands * 10.0).round() / 10.0;
        // What is left out are heartbeats.
        if cost >= LEAST {
            instructions.insert(role.to_owned(), cost);
        }
    }
    match instructions.is_empty() {
        true => Err(format!("{case}: callgrind has counted nothing").into()),
        false => Ok(instructions),
    }
}

/// For each function of a profile, its instructions with those of all that it calls. Every line
/// below `fn=(number) name` that ends in two numbers is a position and instructions: of the
/// function itself, or behind a `calls=` line of what it calls.
fn inclusive(profile: &str) -> BTreeMap<&str, u64> {
    let mut names: BTreeMap<&str, &str> = BTreeMap::new();
    let mut counted: BTreeMap<&str, u64> = BTreeMap::new();
    let mut function = "";
    for line in profile.lines() {
        let named = line.strip_prefix("fn=").or(line.strip_prefix("cfn="));
        if let Some((number, name)) = named.and_then(|it| it.split_once(')')) {
            // The name stands only where the number is used first.
            if !name.is_empty() {
                names.insert(number, name.trim());
            }
            if line.starts_with("fn=") {
                function = names.get(number).copied().unwrap_or_default();
            }
        } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
            let instructions = line
                .split(' ')
                .nth(1)
                .and_then(|count| count.parse::<u64>().ok());
            *counted.entry(function).or_default() += instructions.unwrap_or(0);
        }
    }
    counted
}

/// Has cargo build the program and run it, by another if one is given. An incremental build divides
/// the code differently, and calls what another would inline.
fn run_program(
    program: &Program,
    runner: Option<&[&str]>,
    arguments: &[&str],
) -> io::Result<Output> {
    let mut command = cargo();
    command.env("CARGO_INCREMENTAL", "0");
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
        program.package,
        program.kind,
        program.name,
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

/// The compiler and the machine that it compiles for.
pub(crate) fn compiler() -> Result<String, Box<dyn Error>> {
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
        "{:<50} {:>12} {:>12} {:>8}",
        "instructions a command", "recorded", "now", ""
    );
    let (before, after) = (flat(recorded), flat(now));
    let mut faults = Vec::new();
    for (name, cost) in &after {
        let Some(before) = before.get(name) else {
            eprintln!("{name:<50} {:>12} {cost:>12.1}", "-");
            faults.push(format!("{name} is not recorded"));
            continue;
        };
        let growth = (cost / before - 1.0) * 100.0;
        eprintln!("{name:<50} {before:>12.1} {cost:>12.1} {growth:>+7.1}%");
        if *cost > (before * ALLOWED.0).max(before + ALLOWED.1) {
            faults.push(format!(
                "{name} costs {cost:.1} instructions a command, {growth:.1} % more than recorded"
            ));
        }
    }
    let gone = before.keys().filter(|name| !after.contains_key(*name));
    faults.extend(gone.map(|name| format!("{name} is recorded, and was not counted")));
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

/// All of them by case and role.
fn flat(costs: &Costs) -> BTreeMap<String, f64> {
    let of = |(case, roles): (&String, &Instructions)| {
        let named = |(role, cost): (&String, &f64)| (format!("{case}: {role}"), *cost);
        roles.iter().map(named).collect::<Vec<_>>()
    };
    costs.instructions.iter().flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs(compiler: &str, instructions: &[(&str, f64)]) -> Costs {
        let roles = instructions
            .iter()
            .map(|(role, cost)| ((*role).to_owned(), *cost));
        Costs {
            compiler: compiler.into(),
            library: "glibc".into(),
            instructions: [("a preset".to_owned(), roles.collect())].into(),
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
        assert!(compare(
            &recorded,
            &costs("rustc", &[("leader", 1000.0), ("replica", 12.0)])
        ));
        assert!(!compare(
            &recorded,
            &costs("rustc", &[("leader", 1000.0), ("replica", 12.1)])
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
    #[test]
    fn calls_count_for_the_function_that_makes_them() {
        let profile = "\
            events: Ir\n\
            fl=(1) file.rs\n\
            fn=(1) count::group_0\n\
            16 2\n\
            cfn=(2) settle\n\
            calls=3 40\n\
            +1 100\n\
            \n\
            fn=(2)\n\
            40 70\n\
            cfn=(3) memcpy\n\
            calls=3 1\n\
            * 30\n\
            fn=(1)\n\
            -3 4\n\
            totals: 206\n";
        let counted = [("count::group_0", 106), ("settle", 100)];
        assert_eq!(inclusive(profile), counted.into());
    }
}
