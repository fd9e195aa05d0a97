//! The binary `ionian-tools` as `ionian` starts it: real processes on loopback ports.

mod bench;
#[path = "../../../cli/tests/ionian/common.rs"]
mod common;
mod pair;
mod sim;
#[cfg(feature = "toy")]
mod toy;

use std::process::{Command, Output};

fn tools() -> Command {
    Command::new(env!("CARGO_BIN_EXE_ionian-tools"))
}

fn run(arguments: &[&str]) -> Output {
    tools().args(arguments).output().unwrap()
}

#[test]
fn completions_know_the_subcommands_presets_and_settings_of_the_tools() {
    for (words, some) in [
        (&["bench", ""][..], "figure"),
        (&["help", "bench", "fig"], "figure"),
        (&["bench", "role", "--preset", "craq"], "craq-6"),
        (&["sim", "--protocol", ""], "scalog"),
        (&["sim", "--set", "options.window"], "options.window_slots="),
    ] {
        let line = [&["completions", "bash", "--", "ionian"], words].concat();
        let output = run(&line);
        let offered = common::text(&output.stdout);
        assert!(
            offered.lines().any(|it| it == some),
            "{words:?}: {output:?}"
        );
    }
}
