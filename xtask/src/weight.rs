//! `cargo xtask weight`: how heavy the first build of a clone is, in numbers that do not depend on
//! the machine: the crates that are compiled for the server, and the bytes of its code. Seconds
//! follow them. `xtask/weight.toml` has what they were; 5 % more fails. `--record` writes the file,
//! `--built` takes the program that `cargo xtask pages README.md` has built.

use crate::costs::compiler;
use crate::packaging::{Done, printed};
use crate::{UNOPTIMIZED_RELEASE, cargo, repository, target};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::process::ExitCode;

/// Where the recorded weight is.
const RECORDED: &str = "xtask/weight.toml";

/// How many more percent are too many.
const TOLERANCE: u64 = 5;

/// How many percent less a program that is there already has only if it was built otherwise.
const MUCH_LESS: u64 = 20;

/// The package of the server.
const SERVER: [&str; 2] = ["--package", "ionian-cli"];

#[derive(Debug, Deserialize, PartialEq, Serialize)]
struct Weight {
    /// The compiler. Another one makes other code.
    compiler: String,
    /// Crates that are compiled for the server, procedural macros and build scripts included.
    crates: u64,
    /// Bytes of the code of the server without optimization.
    code_bytes: u64,
}

/// Compares with what is recorded, or records.
pub(crate) fn run(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let words: Vec<OsString> = arguments.collect();
    let (record, built) = match &words[..] {
        [] => (false, false),
        [word] if word == "--record" => (true, false),
        [word] if word == "--built" => (false, true),
        _ => {
            eprintln!("usage: cargo xtask weight [--record | --built]");
            return ExitCode::from(2);
        }
    };
    match compare(record, built) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("==> {error}");
            ExitCode::FAILURE
        }
    }
}

fn compare(record: bool, built: bool) -> Done {
    if !built {
        build()?;
    }
    let now = Weight {
        compiler: compiler()?,
        crates: crates()?,
        code_bytes: code_bytes()?,
    };
    let path = repository().join(RECORDED);
    eprintln!(
        "==> the server: {} crates, {} bytes of code without optimization",
        now.crates, now.code_bytes
    );
    if record {
        return Ok(fs::write(path, toml::to_string(&now)?)?);
    }
    let before: Weight = toml::from_str(&fs::read_to_string(path)?)?;
    if before.compiler != now.compiler {
        eprintln!(
            "==> not compared: {} was recorded with {}",
            RECORDED, before.compiler
        );
        return Ok(());
    }
    if built && now.code_bytes * 100 < before.code_bytes * (100 - MUCH_LESS) {
        return Err(format!(
            "{} bytes of code are {MUCH_LESS} % less than {RECORDED} has: is the program optimized? \
             `cargo xtask weight` builds it; if it is lighter, record it",
            now.code_bytes
        )
        .into());
    }
    let faults = faults(&before, &now);
    match faults.is_empty() {
        true => Ok(()),
        false => Err(faults.join("\n==> ").into()),
    }
}

/// What has become too much.
fn faults(before: &Weight, now: &Weight) -> Vec<String> {
    let all = [
        ("crates", before.crates, now.crates),
        ("bytes of code", before.code_bytes, now.code_bytes),
    ];
    let heavier = all
        .into_iter()
        .filter(|(_, before, now)| now * 100 > before * (100 + TOLERANCE));
    let texts = heavier.map(|(what, before, now)| {
        format!(
            "the server has {now} {what}, {before} are recorded in {RECORDED}: more than {TOLERANCE} % more. \
             `cargo build --timings` shows where time goes"
        )
    });
    texts.collect()
}

/// Counts the crates that are compiled for the server.
fn crates() -> Done<u64> {
    let mut command = cargo();
    command.args(["tree", "--locked", "--edges", "normal,build"]);
    let tree = printed(command.args(["--prefix", "none"]).args(SERVER))?;
    let names = tree.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        Some((words.next()?, words.next()?))
    });
    Ok(names.collect::<BTreeSet<_>>().len() as u64)
}

/// Builds the server as pages are tried.
fn build() -> Done {
    let mut command = cargo();
    command.args(["build", "--quiet", "--release"]).args(SERVER);
    match command.envs([UNOPTIMIZED_RELEASE]).status()?.success() {
        true => Ok(()),
        false => Err("the server does not build".into()),
    }
}

/// Adds up the sections of the server with code.
fn code_bytes() -> Done<u64> {
    let path = target().join("release/ionian");
    let program = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    code_in(&program).ok_or_else(|| "the server is not a 64-bit little-endian ELF file".into())
}

/// The bytes of the sections of an ELF file that can be executed.
fn code_in(program: &[u8]) -> Option<u64> {
    /// Offsets in the header of the file: the table of sections, the size and the number of its
    /// entries; and in an entry: its flags and its size.
    const TABLE: usize = 0x28;
    const ENTRY_SIZE: usize = 0x3a;
    const ENTRIES: usize = 0x3c;
    const FLAGS: usize = 0x08;
    const SIZE: usize = 0x20;
    const EXECUTABLE: u64 = 4;
    let long = |at: usize| {
        let bytes = program.get(at..at + 8)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    };
    let short = |at: usize| {
        let bytes = program.get(at..at + 2)?;
        Some(usize::from(u16::from_le_bytes(bytes.try_into().ok()?)))
    };
    if program.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let table = usize::try_from(long(TABLE)?).ok()?;
    let size = short(ENTRY_SIZE)?;
    let mut sum = 0;
    for entry in (0..short(ENTRIES)?).map(|number| table + number * size) {
        if long(entry + FLAGS)? & EXECUTABLE != 0 {
            sum += long(entry + SIZE)?;
        }
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weight(crates: u64, code_bytes: u64) -> Weight {
        Weight {
            compiler: "rustc".into(),
            crates,
            code_bytes,
        }
    }

    #[test]
    fn more_than_a_twentieth_more_is_too_heavy() {
        let before = weight(200, 1000);
        assert!(faults(&before, &weight(210, 1050)).is_empty());
        assert!(faults(&before, &weight(1, 1)).is_empty());
        assert_eq!(faults(&before, &weight(211, 1050)).len(), 1);
        assert_eq!(faults(&before, &weight(211, 1051)).len(), 2);
    }

    #[test]
    fn code_is_what_can_be_executed() {
        let own = fs::read(std::env::current_exe().unwrap()).unwrap();
        let code = code_in(&own).expect("an ELF file");
        assert!(code > 10_000 && code < own.len() as u64, "{code}");
        assert_eq!(code_in(&own[..100]), None);
        assert_eq!(code_in(b"#!/bin/sh"), None);
    }

    #[test]
    fn the_recorded_weight_is_read() {
        let text = fs::read_to_string(repository().join(RECORDED)).unwrap();
        toml::from_str::<Weight>(&text).unwrap();
    }
}
