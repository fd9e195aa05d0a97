//! `cargo xtask deep`: what takes hours, before a release and after a change of many roles.
//! `cargo xtask features`: what only builds with features contain.

use crate::{Step, cargo, step, target};
use std::io;
use std::process::{Command, ExitCode};

const FEATURES: &str =
    "ionian-cli/toy,ionian-cli/otel,ionian-tools/toy,ionian-sim/toy,ionian-sim/hundreds";

/// What only builds with features contain. They build the workspace anew, which takes longer than
/// their few tests.
pub(crate) const WITH_FEATURES: &[Step] = &[SETS_OF_HUNDREDS, FEATURES_WORK];

const SETS_OF_HUNDREDS: Step = step(
    "sets of hundreds of instances work",
    &[
        "test",
        "--package",
        "ionian-kernel",
        "--features",
        "hundreds",
        "--lib",
        "set::",
    ],
);

const FEATURES_WORK: Step = step(
    "a protocol that is a folder and a line of the registry works everywhere, and so do hundreds of nodes",
    &[
        "test",
        "--package",
        "ionian-cli",
        "--package",
        "ionian-tools",
        "--package",
        "ionian-sim",
        "--features",
        FEATURES,
        "--bin",
        "ionian",
        "--test",
        "ionian",
        "--test",
        "tools",
        "--test",
        "simulator",
        "--test",
        "hundreds",
        "--",
        "toy::",
        "hundreds_of",
        "trace::export",
    ],
);

const CANARIES_ARE_CAUGHT: Step = step(
    "every known defect is caught by a test",
    &["test", "--package", crate::test_programs::DEEP],
);

const fn long(what: &'static str, arguments: &'static [&'static str]) -> Step {
    Step {
        limit_min: 24 * 60,
        ..step(what, arguments)
    }
}

/// What takes hours.
pub(crate) const DEEP: &[Step] = &[
    SETS_OF_HUNDREDS,
    FEATURES_WORK,
    CANARIES_ARE_CAUGHT,
    // Tests of the tools start the server, which a step above has built with other features.
    step(
        "the tools build with canaries",
        &[
            "build",
            "--package",
            "ionian-cli",
            "--package",
            "ionian-tools",
            "--features",
            "ionian-tools/canaries",
        ],
    ),
    step(
        "`ionian sim --canary` catches them",
        &[
            "test",
            "--package",
            "ionian-cli",
            "--package",
            "ionian-tools",
            "--features",
            "ionian-tools/canaries",
            "--bin",
            "ionian-tools",
            "--test",
            "tools",
        ],
    ),
    // Left out is the one that measures a release build, on a machine that does nothing else.
    long(
        "the tests that take minutes pass",
        &[
            "test",
            "--workspace",
            "--exclude",
            crate::test_programs::DEEP,
            "--features",
            crate::TESTED,
            "--no-fail-fast",
            "--",
            "--ignored",
            "--skip",
            "spends_what_its_plan_says",
        ],
    ),
    step(
        "no role costs more than it did",
        &["xtask", "costs", "--skip-without-valgrind"],
    ),
    // That what measures works, and not how fast.
    long(
        "group-commit works",
        &[
            "xtask",
            "group-commit",
            "--rounds",
            "1",
            "--seconds",
            "1",
            "--in-flight",
            "16",
        ],
    ),
    long(
        "restart-time works",
        &[
            "xtask",
            "restart-time",
            "--rounds",
            "1",
            "--keys",
            "2000",
            "--tail",
            "50000",
            "--shape",
            "pipelined",
            "--limit",
            "60",
        ],
    ),
    long(
        "memory and disk stay flat",
        &["xtask", "soak", "--minutes", "10"],
    ),
    long(
        "small commands are answered beside burdensome clients, and memory and disk stay within their limits",
        &["xtask", "burden", "--askers", "6"],
    ),
    long(
        "10,000 seeds of each preset find nothing",
        &["xtask", "seeds"],
    ),
    long(
        "torture finds nothing in ten minutes",
        &["xtask", "torture", "--seconds", "600", "--members"],
    ),
    long(
        "nor do cuts, damaged logs and orderly stops",
        &[
            "xtask",
            "torture",
            "--seconds",
            "60",
            "--faults",
            "lose,cut,roll",
            "--gap-ms",
            "700",
        ],
    ),
    long(
        "nor do certificates and an authority that are replaced",
        &[
            "xtask",
            "torture",
            "--seconds",
            "60",
            "--no-faults",
            "--tls",
            "--certificate-seconds",
            "9",
        ],
    ),
    long("the program of packages builds", &["xtask", "dist"]),
    long("its list of crates is complete", &["xtask", "sbom"]),
    long("the Debian package is made", &["xtask", "deb"]),
    long("the rpm package is made", &["xtask", "rpm"]),
    long("the image is made", &["xtask", "image"]),
    long("packages can be installed", &["xtask", "try-packages"]),
];

/// `cargo xtask seeds [A..B]`: simulates these seeds of each preset, while members change where the
/// protocol allows that.
pub(crate) fn seeds(mut arguments: impl Iterator<Item = String>) -> ExitCode {
    let seeds = arguments.next().unwrap_or_else(|| "0..10000".to_owned());
    match simulate_all(&seeds) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("==> {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns whether no seed fails.
fn simulate_all(seeds: &str) -> io::Result<bool> {
    let built = cargo()
        .args(["build", "--quiet", "--release"])
        .args(["--package", "ionian-cli", "--package", "ionian-tools"])
        .status()?;
    if !built.success() {
        return Ok(false);
    }
    let run = |words: &[&str]| {
        let mut command = Command::new(target().join("release/ionian"));
        command.args(words);
        command
    };
    let presets = run(&["config", "presets"]).output()?.stdout;
    let presets = String::from_utf8_lossy(&presets).into_owned();
    let mut passed = !presets.trim().is_empty();
    for preset in presets
        .lines()
        .filter_map(|it| it.split_whitespace().next())
    {
        let sim = ["sim", "--preset", preset, "--seeds"];
        let changing = [&sim[..], &["0..1", "--changes"]].concat();
        // 2: the members of the protocol cannot be changed. A seed that fails is found below.
        let changes = run(&changing).output()?.status.code() != Some(2);
        let words = [
            &sim[..],
            &[seeds],
            if changes { &["--changes"] } else { &[] },
        ]
        .concat();
        eprintln!("==> ionian {}", words.join(" "));
        passed &= run(&words).status()?.success();
    }
    Ok(passed)
}
