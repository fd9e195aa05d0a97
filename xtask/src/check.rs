//! `cargo xtask check --package PACKAGE`: one package between two edits.

use crate::{cargo, test_programs};
use std::process::ExitCode;

/// Checks one package between two edits: format, lints, the rules of STYLE.md, and its unit
/// tests and those of its roles, without optimization.
pub(crate) fn run(mut arguments: impl Iterator<Item = String>) -> ExitCode {
    let (Some("-p" | "--package"), Some(package), None) = (
        arguments.next().as_deref(),
        arguments.next(),
        arguments.next(),
    ) else {
        eprintln!("usage: cargo xtask check [--package PACKAGE]");
        return ExitCode::from(2);
    };
    let tests = match test_programs::quick_tests_of(&package) {
        Ok(tests) => tests,
        Err(error) => {
            eprintln!("==> {error}");
            return ExitCode::FAILURE;
        }
    };
    let tests: Vec<&str> = tests.iter().map(String::as_str).collect();
    let of = ["--package", &package];
    let passed = [
        [&["fmt", "--check"], &of[..]].concat(),
        [&["xtask", "tidy"][..]].concat(),
        [&["test", "--profile", "quick"], &of[..], &tests].concat(),
        [
            &["clippy", "--all-targets"],
            &of[..],
            &["--", "-D", "warnings"],
        ]
        .concat(),
    ]
    .iter()
    .all(|words| {
        eprintln!("==> cargo {}", words.join(" "));
        cargo().args(words).status().is_ok_and(|it| it.success())
    });
    match passed {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}
