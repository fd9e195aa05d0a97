//! `ionian sim`: seeds, canaries, and the replay of a failed seed.

use crate::common::{Directory, text};
use crate::run;
use std::fs;

fn fails(arguments: &[&str], code: i32, says: &str) {
    let output = run(arguments);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
    assert!(error.contains(says), "{arguments:?}: {error}");
}

fn works(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        text(&output.stderr)
    );
    text(&output.stdout)
}

#[test]
fn sim_runs_seeds() {
    let printed = works(&["sim", "--seeds", "0..6"]);
    assert!(
        printed.contains("multipaxos: 6 runs in") && printed.contains("0 failed"),
        "{printed}"
    );
    works(&[
        "sim",
        "--protocol",
        "unreplicated",
        "--seeds",
        "0..6",
        "--durability",
        "memory",
    ]);
    works(&["sim", "--protocol", "spaxos", "--seeds", "0..6"]);
    works(&[
        "sim",
        "--preset",
        "batched",
        "--seeds",
        "0..3",
        "--reads",
        "sequential",
        "--operations",
        "20",
    ]);

    fails(
        &["sim", "--protocol", "spaxos", "--canary", "s99"],
        2,
        "unknown canary",
    );
    fails(&["sim", "--canary", "none"], 2, "unknown canary");
    fails(&["sim", "--seed", "18446744073709551615"], 2, "is not in");
    fails(
        &["sim", "--protocol", "unreplicated", "--preset", "batched"],
        1,
        "the deployment runs multipaxos",
    );
}

#[test]
fn a_canary_of_the_driver_is_caught_and_its_seed_replayed() {
    let directory = Directory::new();
    let trace = directory.path("trace");
    let caught = works(&[
        "sim",
        "--canary",
        "no-fence",
        "--trace",
        trace.to_str().unwrap(),
    ]);
    assert!(
        caught.contains("canary no-fence was caught by seed"),
        "{caught}"
    );
    replays(&caught, &directory, &fs::read(&trace).unwrap());
}

/// The command that a run has printed for its first failed seed gives the same trace.
fn replays(caught: &str, directory: &Directory, trace: &[u8]) {
    assert!(trace.len() > 1000);
    let replay = caught
        .lines()
        .find_map(|line| line.trim().strip_prefix("replay: ionian "))
        .unwrap();
    let again: Vec<String> = replay
        .split(' ')
        .map(|word| word.replace("seed-", directory.path("seed-").to_str().unwrap()))
        .collect();
    works(&again.iter().map(String::as_str).collect::<Vec<_>>());
    // The same seed is the same run, byte for byte.
    assert!(fs::read(again.last().unwrap()).unwrap() == trace);
}

#[cfg(feature = "canaries")]
#[test]
fn canaries_of_roles_are_caught() {
    let directory = Directory::new();
    let trace = directory.path("trace");
    let caught = works(&["sim", "--canary", "s8", "--trace", trace.to_str().unwrap()]);
    assert!(caught.contains("canary s8 was caught by seed"), "{caught}");
    replays(&caught, &directory, &fs::read(&trace).unwrap());

    // With a disk every acceptor comes back, and a proxy leader that never asks another quorum gets
    // away.
    fails(
        &[
            "sim",
            "--canary",
            "l8",
            "--durability",
            "disk",
            "--seeds",
            "0..5",
        ],
        1,
        "NOT caught",
    );
    // Without saying so it gets what shows it.
    works(&["sim", "--canary", "l8"]);
    works(&["sim", "--canary", "s7"]);
    works(&["sim", "--protocol", "spaxos", "--canary", "amnesia"]);
    works(&["sim", "--protocol", "spaxos", "--canary", "void"]);
}

#[test]
fn a_play_is_compared_with_what_happens_or_written_anew() {
    let directory = Directory::new();
    let file = directory.path("some.play");
    let file = file.to_str().unwrap();
    let play = "protocol unreplicated\nnodes 1 client\nnodes 1 server\ntolerates 0\nrun for 1s\n\
                submit c0 append x 7\n> what?\nrun until quiet\nexpect reply c0 length 1\n";
    fs::write(file, play).unwrap();
    fails(&["sim", "--play", file], 1, "line 6: expected");
    works(&["sim", "--play", file, "--rewrite"]);
    let anew = play.replace(
        "> what?",
        "> c0 asks append x 7\n> n0 sends server::Execute to n1",
    );
    assert_eq!(fs::read_to_string(file).unwrap(), anew);
    works(&["sim", "--play", file]);
    fs::write(file, play.replace("length 1", "length 2")).unwrap();
    fails(
        &["sim", "--play", file, "--rewrite"],
        1,
        "line 9: c0 was told",
    );
    fs::write(file, play.replace("nodes 1 server", "nodes 1 sever")).unwrap();
    fails(
        &["sim", "--play", file],
        1,
        "has no role \"sever\"; its roles are client",
    );
    fs::write(file, "run for 1s\n").unwrap();
    fails(&["sim", "--play", file], 1, "it names no cluster");
    fails(&["sim", "--rewrite"], 2, "--play");
}
