//! `ionian-tools` carries out `ionian bench` and `ionian sim`, and may be missing. The tests of
//! `crates/tools` cover what the real program does with the arguments.

use crate::common::{Directory, text};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A copy of `ionian` alone in a directory.
fn alone(directory: &Directory) -> PathBuf {
    let path = directory.path("ionian");
    fs::hard_link(env!("CARGO_BIN_EXE_ionian"), &path).unwrap();
    path
}

fn run(program: &Path, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).output().unwrap()
}

#[test]
fn ionian_execs_the_tools_with_all_arguments() {
    let directory = Directory::new();
    let ionian = alone(&directory);
    let tools = directory.path("ionian-tools");
    // A separate process writes the file, because a file that a fork of this process holds open
    // cannot be executed.
    let write = r#"printf '#!/bin/sh\necho "$$ $IONIAN_STARTED_BY"\nprintf "%%s\\n" "$@"\nexit 7\n' > "$0" && chmod +x "$0""#;
    let written = Command::new("sh").args(["-c", write]).arg(&tools).status();
    assert!(written.unwrap().success());
    for arguments in [
        &["sim", "--", "--help", "a b", ""][..],
        &["bench", "role", "--no-such-flag"],
        &["bench", "--help"],
        &["help", "sim"],
        &["help", "bench", "role"],
        &["completions", "bash", "--", "ionian", "sim", "--pre"],
        &["completions", "fish", "--", "ionian", "help", "bench", ""],
    ] {
        let mut command = Command::new(&ionian);
        let started = command.args(arguments).stdout(Stdio::piped());
        let process = started.spawn().unwrap();
        let id = process.id();
        let output = process.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(7), "{arguments:?}");
        let printed = text(&output.stdout);
        let (first, rest) = printed.split_once('\n').unwrap();
        assert!(
            first.starts_with(&format!("{id} {}", env!("CARGO_PKG_VERSION"))),
            "the same process: {first}"
        );
        assert_eq!(rest, arguments.join("\n") + "\n");
    }
}

#[test]
fn missing_tools_are_an_error_with_path_and_the_command_that_installs_them() {
    let directory = Directory::new();
    let ionian = alone(&directory);
    for arguments in [&["sim"][..], &["bench", "--help"], &["help", "bench"]] {
        let output = run(&ionian, arguments);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {error}");
        assert_eq!(
            error,
            format!(
                "ionian: there is no program {}: `cargo install --locked --path crates/tools` installs it\n",
                directory.path("ionian-tools").display()
            )
        );
        assert!(output.stdout.is_empty());
    }
    // All other commands work without the tools, and unknown commands fail as usual.
    let help = text(&run(&ionian, &["help"]).stdout);
    for line in ["  sim ", "  bench "] {
        assert!(help.contains(line), "{help}");
    }
    let unknown = run(&ionian, &["benhc"]);
    assert_eq!(unknown.status.code(), Some(2));
    let error = text(&unknown.stderr);
    assert!(
        error.contains("unrecognized subcommand 'benhc'") && error.contains("'bench'"),
        "{error}"
    );
}

/// The server is small, and contains nothing that measures or simulates.
#[test]
fn the_server_does_not_link_the_tools() {
    let tree = |package: &str| {
        let output = Command::new(env!("CARGO"))
            .args(["tree", "--offline", "--edges", "normal", "--prefix", "none"])
            .args(["--format", "{p}", "--package", package])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let tools = [
        "ionian-bench",
        "ionian-harness",
        "ionian-sim",
        "ionian-tools",
        "ionian-torture",
        "indicatif",
        "plotters",
    ];
    let found = |tree: &str| -> Vec<&str> {
        let names = tree.lines().filter_map(|line| line.split(' ').next());
        let names: Vec<&str> = names.collect();
        tools
            .into_iter()
            .filter(|tool| names.contains(tool))
            .collect()
    };
    assert_eq!(found(&tree("ionian-cli")), [""; 0]);
    // The names are right: the other program has them.
    let expected: Vec<&str> = tools
        .into_iter()
        .filter(|tool| *tool != "ionian-torture")
        .collect();
    assert_eq!(found(&tree("ionian-tools")), expected);
}
