//! The project's gates, one command each: `cargo xtask verify` only reads, `cargo xtask fix`
//! applies automatic fixes, `cargo xtask check` is the part of `verify` that takes less than a
//! minute once the tree is built. `cargo xtask features` tests what only builds with features
//! contain, `cargo xtask deep` what takes hours. `cargo xtask tests` runs all tests.
//! `cargo xtask tidy` checks the house rules of STYLE.md.
//! `cargo xtask costs` counts what a command costs each role, `cargo xtask weight` how heavy the
//! first build is, `cargo xtask deny` checks licences, `cargo xtask pages` tries the commands of
//! the documents. `cargo xtask torture` builds the program as clones do, and tortures it; `soak`,
//! `restart-time`, `group-commit` and `burden` build it as packages do, and measure it.
//! `cargo xtask dist` and the commands that follow it make packages.

mod absent;
mod check;
mod costs;
mod deep;
mod deny;
mod former;
mod packaging;
mod pages;
mod process;
mod releases;
mod test_programs;
mod tidy;
mod weight;

use process::{End, Group};
use std::env;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// How long a step may take that is stopped before it has ended, until it is killed.
const GRACE: Duration = Duration::from_secs(30);

/// A step of a gate: what it is for, and the cargo command that does it.
struct Step {
    what: &'static str,
    /// A program of the development build that is run instead of cargo, and its words.
    built: Option<&'static str>,
    arguments: &'static [&'static str],
    environment: &'static [(&'static str, &'static str)],
    /// The minutes after which it is stopped: several times what it takes on two busy processors,
    /// building included.
    limit_min: u64,
    /// Steps that run meanwhile, one after the other: they build elsewhere, and wait often. What
    /// they print is shown if they fail.
    beside: &'static [Step],
}

/// How pages are tried: what they show does not depend on how fast a program is, and a program that
/// is not optimized is built in a fifth of the time.
const UNOPTIMIZED_RELEASE: (&str, &str) = ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0");

const fn step(what: &'static str, arguments: &'static [&'static str]) -> Step {
    Step {
        what,
        built: None,
        arguments,
        environment: &[],
        limit_min: 30,
        beside: &[],
    }
}

/// Runs a harness that is built already, with these words.
const fn run_built(what: &'static str, command: &'static str) -> Step {
    Step {
        built: Some(command),
        ..step(what, &[])
    }
}

const FORMATTED: Step = step("the code is formatted", &["fmt", "--all", "--check"]);

const LINTS: Step = step(
    "no lint is broken",
    &[
        "clippy",
        "--workspace",
        "--all-targets",
        "--features",
        LINTED,
        "--",
        "-D",
        "warnings",
    ],
);

const TIDY: Step = step("the rules of STYLE.md hold", &["xtask", "tidy"]);

const NUMBERS: Step = step(
    "numbers in documents are those of the files that they come from",
    &["xtask", "numbers"],
);

/// What must hold at every commit. What takes too long for that is `deep`.
/// The tests come last, so that theirs is the closing line.
const VERIFY: &[Step] = &[
    FORMATTED,
    TIDY,
    NUMBERS,
    step(
        "licences and sources of crates are those that deny.toml allows",
        &["xtask", "deny", "--skip-without-cargo-deny"],
    ),
    LINTS,
    Step {
        environment: &[("RUSTDOCFLAGS", "-D warnings")],
        ..step(
            "the documentation builds, every link in it leads somewhere",
            &[
                "doc",
                "--workspace",
                "--no-deps",
                "--document-private-items",
            ],
        )
    },
    // The tests below use the same build.
    step(
        "all that is tested builds",
        &[
            "build",
            "--quiet",
            "--workspace",
            "--exclude",
            test_programs::DEEP,
            "--lib",
            "--bins",
            "--tests",
            "--examples",
            "--features",
            TESTED,
        ],
    ),
    Step {
        beside: &[
            run_built(
                "torture finds nothing in seconds",
                "torture --seconds 8 --members --seed 1",
            ),
            step(
                "commands of the README do what it says",
                &["xtask", "pages", "README.md"],
            ),
            step(
                "the first build of a clone, which that was, is not heavier than before",
                &["xtask", "weight", "--built"],
            ),
            step(
                "commands of other documents do what the documents say",
                &["xtask", "pages", "--without", "README.md"],
            ),
        ],
        ..step("the tests pass", &["xtask", "tests"])
    },
];

/// The features with which everything is tested: those of packages.
const TESTED: &str = "ionian-cli/mount";

/// The features with which everything is linted: what only they contain, too.
const LINTED: &str = "ionian-cli/mount,ionian-tools/canaries";

/// What can be checked in less than a minute, for the time between two edits: nothing is built for
/// release, and no process is started.
const CHECK: &[Step] = &[
    FORMATTED,
    LINTS,
    TIDY,
    NUMBERS,
    step(
        "the unit tests pass",
        &[
            "test",
            "--workspace",
            "--exclude",
            test_programs::DEEP,
            "--features",
            TESTED,
            "--lib",
            "--bins",
            "--no-fail-fast",
        ],
    ),
];

const FIX: &[Step] = &[
    step(
        "fix lints",
        &[
            "clippy",
            "--workspace",
            "--all-targets",
            "--features",
            LINTED,
            "--fix",
            "--allow-dirty",
            "--allow-staged",
        ],
    ),
    step("format", &["fmt", "--all"]),
    step(
        "write numbers in documents anew",
        &["xtask", "numbers", "--write"],
    ),
    step(
        "lower the allowances of the house rules",
        &["xtask", "tidy", "--write"],
    ),
];

/// What is built before a harness runs: the program, and the harnesses that run the one beside
/// them.
const HARNESSES: Step = step(
    "build for release",
    &[
        "build",
        "--quiet",
        "--release",
        "--package",
        "ionian-cli",
        "--package",
        "ionian-torture",
    ],
);

/// The same as packages are built, for what is measured.
const MEASURED: Step = step(
    "build as packages are",
    &[
        "build",
        "--quiet",
        "--profile",
        "dist",
        "--package",
        "ionian-cli",
        "--package",
        "ionian-torture",
    ],
);

fn main() -> ExitCode {
    let steps = match env::args().nth(1).as_deref() {
        Some("verify") => VERIFY,
        Some("check") if env::args().len() > 2 => return check::run(env::args().skip(2)),
        Some("check") => CHECK,
        Some("fix") => FIX,
        Some("features") => deep::WITH_FEATURES,
        Some("deep") => deep::DEEP,
        Some("seeds") => return deep::seeds(env::args().skip(2)),
        Some("tests") => return test_programs::run(),
        Some("tidy") => return tidy::run(env::args_os().skip(2)),
        Some("costs") => return costs::run(env::args_os().skip(2)),
        Some("weight") => return weight::run(env::args_os().skip(2)),
        Some("deny") => return deny::run(env::args_os().skip(2)),
        Some("pages") => return pages::run_commands(env::args_os().skip(2)),
        Some("numbers") if !releases::agree(&repository()) => return ExitCode::FAILURE,
        Some("numbers") => return pages::run_numbers(env::args_os().skip(2)),
        Some("former") => return former::run(env::args_os().skip(2)),
        Some("torture") => {
            return harness(&HARNESSES, ("release", "torture"), env::args_os().skip(2));
        }
        Some("soak" | "restart-time" | "group-commit" | "burden") => {
            return harness(&MEASURED, ("dist", "measure"), env::args_os().skip(1));
        }
        name => {
            if let Some(code) = name.and_then(packaging::run) {
                return code;
            }
            eprintln!(
                "usage: cargo xtask verify|check|fix|features|deep|seeds|tests|tidy|costs|weight|deny|pages|numbers|former|torture|soak|restart-time|group-commit|burden|dist|sbom|deb|rpm|image|try-packages"
            );
            let gates = [
                ("verify", VERIFY),
                ("check", CHECK),
                ("fix", FIX),
                ("features", deep::WITH_FEATURES),
                ("deep", deep::DEEP),
            ];
            for (name, steps) in gates {
                for step in steps.iter().flat_map(|it| it.beside.iter().chain([it])) {
                    eprintln!("  {name}: {} ({})", step.what, step.line());
                }
            }
            eprintln!(
                "  seeds: simulate many seeds of each preset (A..B: these; without it 0..10000)"
            );
            eprintln!(
                "  tests: run the tests of `verify`, those that start processes beside those that compute"
            );
            eprintln!(
                "  tidy: check the rules of STYLE.md (--write: lower the counts in xtask/tidy.toml)"
            );
            eprintln!(
                "  costs: how many instructions a command costs each role (--record: keep them in docs/costs.toml)"
            );
            eprintln!(
                "  weight: how heavy the first build is (--record: keep it in xtask/weight.toml, --built: of what pages have built)"
            );
            eprintln!("  deny: check licences and sources of crates (deny.toml) with cargo-deny");
            eprintln!(
                "  pages: run the commands of the documents (PAGE...: of these, --without PAGE...: of all others), compare what they print"
            );
            eprintln!(
                "  numbers: compare the numbers of the documents with their files (--write: write them anew)"
            );
            eprintln!(
                "  former: build the program of an earlier commit, for torture --former (COMMIT)"
            );
            eprintln!(
                "  torture: kill real processes under load, check what they said (see its --help)"
            );
            eprintln!("  soak: whether memory and disk stay flat under load (see its --help)");
            eprintln!("  restart-time: how soon a killed node is back (see its --help)");
            eprintln!(
                "  group-commit: how many commands share a sync of the disk (see its --help)"
            );
            eprintln!(
                "  burden: whether small commands are answered among burdensome clients (see its --help)"
            );
            eprintln!(
                "  dist: build the program for packages, with its manual pages and completions"
            );
            eprintln!(
                "  sbom: list the crates that it is built from; deb, rpm, image: make a package of it"
            );
            eprintln!("  try-packages: install, run and remove what deb and image have made");
            return ExitCode::from(2);
        }
    };
    let mut times = Vec::with_capacity(steps.len());
    let is_deep = std::ptr::eq(steps, deep::DEEP);
    // What takes hours does not end with its first failure.
    let mut passed = true;
    for step in steps {
        passed &= run_all(step, &mut times);
        if !passed && !is_deep {
            break;
        }
    }
    for (what, took) in times {
        eprintln!("==> {:5.0} s  {what}", took.as_secs_f64());
    }
    if std::ptr::eq(steps, VERIFY) || is_deep {
        absent::tell();
    }
    match passed {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Builds, and runs the harness of this profile and name with these arguments; its exit code is the
/// command's.
fn harness(
    build: &Step,
    (profile, name): (&str, &str),
    arguments: impl Iterator<Item = OsString>,
) -> ExitCode {
    if !run(build, None) {
        return ExitCode::FAILURE;
    }
    let mut command = Command::new(target().join(profile).join(name));
    match command.args(arguments).status() {
        Ok(status) => status
            .code()
            .and_then(|code| u8::try_from(code).ok())
            .map_or(ExitCode::FAILURE, ExitCode::from),
        Err(error) => {
            eprintln!("==> cannot run {name}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The folder of the repository. Cargo names this package's folder when it starts the program; the
/// one in which it was built may be that of another checkout with a copy of the target folder.
fn repository() -> PathBuf {
    let built = env!("CARGO_MANIFEST_DIR").into();
    let package = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or(built));
    package
        .parent()
        .map_or_else(|| ".".into(), Path::to_path_buf)
}

/// Where cargo puts what it builds.
fn target() -> PathBuf {
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    repository().join(target)
}

fn cargo() -> Command {
    let mut command = Command::new(env::var("CARGO").unwrap_or_else(|_| "cargo".into()));
    without_package(&mut command);
    command
}

/// Removes the variables that cargo sets about this package. Some build scripts run again when
/// these differ, and all that depends on their crates is compiled again: whenever this program and
/// a person run cargo in turn.
fn without_package(command: &mut Command) {
    for (name, _) in env::vars_os() {
        let of_package =
            |it: &str| it.starts_with("CARGO_PKG_") || it.starts_with("CARGO_MANIFEST_");
        if name.to_str().is_some_and(of_package) {
            command.env_remove(name);
        }
    }
}

impl Step {
    /// What a person runs.
    fn line(&self) -> String {
        match self.built {
            Some(command) => format!("target/debug/{command}"),
            None => format!("cargo {}", self.arguments.join(" ")),
        }
    }

    fn command(&self) -> Command {
        let mut command = match self.built {
            Some(words) => {
                let mut words = words.split(' ');
                let program = words.next().unwrap_or_default();
                let mut command = Command::new(target().join("debug").join(program));
                command.args(words);
                command
            }
            None => {
                let mut command = cargo();
                command.args(self.arguments);
                command
            }
        };
        command.envs(self.environment.iter().copied());
        command
    }
}

/// Runs a step and those beside it, and adds what each took.
fn run_all(step: &'static Step, times: &mut Vec<(&'static str, Duration)>) -> bool {
    let timed = |step: &'static Step, log: Option<&Path>| {
        let began = Instant::now();
        let passed = run(step, log);
        (passed, (step.what, began.elapsed()))
    };
    std::thread::scope(|scope| {
        let others = scope.spawn(|| {
            let log = target().join("beside.log");
            let others = step.beside.iter();
            others.map(|it| timed(it, Some(&log))).collect::<Vec<_>>()
        });
        let own = timed(step, None);
        let others = others.join().expect("no step panics");
        let all = others.into_iter().chain([own]);
        all.fold(true, |all_passed, (passed, took)| {
            times.push(took);
            all_passed & passed
        })
    })
}

/// Runs one step; says which one failed, and how to run it alone. With a log, what it prints goes
/// there, and is shown if it fails.
fn run(step: &Step, log: Option<&Path>) -> bool {
    eprintln!("==> {}", step.what);
    let mut command = step.command();
    if let Some(file) = log.map(std::fs::File::create) {
        match file.and_then(|it| Ok((it.try_clone()?, it))) {
            Ok((out, err)) => command.stdout(out).stderr(err),
            Err(error) => {
                eprintln!("==> cannot write a log for {}: {error}", step.what);
                return false;
            }
        };
    }
    let how = || format!("{}; run it alone with: {}", step.what, step.line());
    let mut group = match Group::start(&mut command) {
        Ok(group) => group,
        Err(error) => {
            eprintln!("==> {error}; cannot run {}", how());
            return false;
        }
    };
    let fault = match group.wait(Duration::from_secs(60 * step.limit_min)) {
        Ok(End::Done(status)) if status.success() => return true,
        Ok(End::Done(status)) => format!("failed ({status})"),
        Ok(End::TooLong) => format!(
            "failed (stopped: not done after {} minutes)",
            step.limit_min
        ),
        Ok(End::Interrupted) => "interrupted".to_owned(),
        Err(error) => format!("failed ({error})"),
    };
    // A step that starts groups of its own has time to end them.
    group.stop(GRACE);
    if let Some(mut said) = log.and_then(|it| std::fs::File::open(it).ok()) {
        let _ = io::copy(&mut said, &mut io::stderr());
    }
    eprintln!("==> {fault}: {}", how());
    false
}
