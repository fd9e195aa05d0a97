//! `ionian` and `ionian-tools` beside each other are one command to their users.

use crate::common::{Directory, text};
use crate::{run, tools};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The server beside the tools. Cargo builds it with the tests of the whole workspace, and not with
/// those of this package alone.
fn ionian() -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_ionian-tools")).with_file_name("ionian");
    assert!(
        path.is_file(),
        "there is no {}: `cargo build -p ionian-cli` builds it",
        path.display()
    );
    path
}

fn as_typed(arguments: &[&str]) -> Output {
    Command::new(ionian()).args(arguments).output().unwrap()
}

#[test]
fn help_and_errors_of_the_tools_are_those_of_ionian() {
    for (arguments, code, prints) in [
        (&["bench", "--help"][..], 0, "Usage: ionian bench [OPTIONS]"),
        (&["help", "bench"], 0, "Usage: ionian bench [OPTIONS]"),
        (&["help", "bench", "role"], 0, "Usage: ionian bench role"),
        (&["sim", "-h"], 0, "ionian sim --canary no-fence"),
        (&["help", "sim"], 0, "Canaries of any protocol: no-fence"),
        (&["sim", "--seeds", "5..5"], 2, "--help"),
        (&["sim", "frobnicate"], 2, "Usage: ionian sim [OPTIONS]"),
        (
            &["bench", "--target", "127.0.0.1:6379"],
            2,
            "must be redis://HOST:PORT",
        ),
        (
            &["sim", "--config", "/nowhere.toml"],
            1,
            "ionian: /nowhere.toml: cannot be read",
        ),
    ] {
        let (typed, started) = (as_typed(arguments), run(arguments));
        let printed = text(&typed.stdout) + &text(&typed.stderr);
        assert_eq!(typed.status.code(), Some(code), "{arguments:?}: {printed}");
        assert!(printed.contains(prints), "{arguments:?}: {printed}");
        assert_eq!(typed, started, "{arguments:?}");
    }
}

#[test]
fn ionian_lists_the_tools_with_the_lines_that_they_print_themselves() {
    let lines = |output: Output| -> Vec<String> {
        let is_tool = |line: &&str| line.starts_with("  bench ") || line.starts_with("  sim ");
        let mut lines: Vec<String> = text(&output.stdout)
            .lines()
            .filter(is_tool)
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        lines.sort();
        lines
    };
    let listed = lines(as_typed(&["--help"]));
    assert_eq!(listed.len(), 2, "{listed:?}");
    assert_eq!(listed, lines(run(&["--help"])));
}

#[test]
fn tools_of_another_commit_refuse_to_work_for_this_ionian() {
    let output = tools()
        .args(["sim", "--seeds", "0..1"])
        .env("IONIAN_STARTED_BY", "0.0.1 (commit 0123456789ab)")
        .output()
        .unwrap();
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(
        error.starts_with("ionian: ionian is 0.0.1 (commit 0123456789ab), but ionian-tools")
            && error.contains("-p ionian-cli -p ionian-tools`")
            && error.lines().count() == 1,
        "{error}"
    );
}

#[test]
fn a_cluster_of_the_bench_needs_the_server_beside_the_tools() {
    let directory = Directory::new();
    std::fs::create_dir_all(directory.path("")).unwrap();
    let alone = directory.path("ionian-tools");
    std::fs::hard_link(env!("CARGO_BIN_EXE_ionian-tools"), &alone).unwrap();
    for arguments in [&["bench"][..], &["bench", "role", "leader"]] {
        let output = Command::new(&alone)
            .args(arguments)
            .env("TMPDIR", directory.path(""))
            .output()
            .unwrap();
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{error}");
        let expected = format!(
            "there is no program {}: `cargo install",
            alone.with_file_name("ionian").display()
        );
        assert!(error.contains(&expected), "{error}");
        assert!(error.contains("--path crates/cli` installs it"), "{error}");
    }
}
