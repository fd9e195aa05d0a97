//! `cargo xtask tests`: the tests of `verify`, in less time than `cargo test` takes.
//!
//! `cargo test` runs one test program after the other. Those that start processes or nodes mostly
//! wait for them, so they run beside all others here.

use crate::process::{End, Group};
use crate::{cargo, target};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

/// The test programs that run one after the other, beside all others.
const BESIDE: [&str; 5] = ["ionian", "live", "nodes", "runtime", "tools"];

/// The package whose tests `cargo xtask deep` alone runs: they compile a copy of the protocols.
pub(crate) const DEEP: &str = "ionian-canaries";

/// How many tests of a program that runs beside the others run at a time: they mostly wait.
const BESIDE_THREADS: &str = "3";

/// The test program that calls roles directly.
const ROLES: &str = "roles";

/// Longer than the gate gives all tests.
const LIMIT: Duration = Duration::from_secs(90 * 60);

/// What `cargo metadata` says, as far as it is needed.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
    /// Whether `cargo test` runs it.
    test: bool,
    #[serde(default, rename = "required-features")]
    required_features: Vec<String>,
}

/// Runs them. The closing line of the output is that of the last test program.
pub(crate) fn run() -> ExitCode {
    match passed() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("==> the tests cannot be run: {error}");
            ExitCode::FAILURE
        }
    }
}

fn passed() -> io::Result<bool> {
    let others = others(&programs()?);
    // Tests start programs, which `cargo test` builds only when it runs all of a package.
    let mut build = cargo();
    build.args(["build", "--quiet", "--workspace", "--exclude", DEEP]);
    build.args(["--bins", "--examples", "--features", crate::TESTED]);
    if !ended_well(&mut build)? {
        return Ok(false);
    }
    let path = target().join("tests-beside.log");
    let beside = Beside::start(path)?;
    let words = others.iter().map(String::as_str);
    let mut passed = ended_well(test(["--lib", "--bins"]).args(words))?;
    passed &= beside.ended_well()?;
    passed &= ended_well(&mut test(["--doc"]))?;
    Ok(passed)
}

/// `cargo test` of the whole workspace, so that every part has the features that it was built with.
fn test<'a>(words: impl IntoIterator<Item = &'a str>) -> Command {
    let mut command = cargo();
    command.args(["test", "--workspace", "--exclude", DEEP, "--no-fail-fast"]);
    command.args(["--features", crate::TESTED]);
    command.args(words);
    command
}

fn ended_well(command: &mut Command) -> io::Result<bool> {
    wait(&mut Group::start(command)?)
}

fn wait(group: &mut Group) -> io::Result<bool> {
    match group.wait(LIMIT)? {
        End::Done(status) => Ok(status.success()),
        End::TooLong => Err(io::Error::other("they do not end")),
        End::Interrupted => Err(io::Error::other("interrupted")),
    }
}

/// The test programs that run beside the others. What they say is kept until those have ended.
struct Beside {
    group: Group,
    said: PathBuf,
}

impl Beside {
    fn start(said: PathBuf) -> io::Result<Beside> {
        let file = File::create(&said)?;
        let mut command = test(BESIDE.iter().flat_map(|name| ["--test", name]));
        command.stdout(file.try_clone()?).stderr(file);
        command.env("RUST_TEST_THREADS", BESIDE_THREADS);
        let group = Group::start(&mut command)?;
        Ok(Beside { group, said })
    }

    fn ended_well(mut self) -> io::Result<bool> {
        let passed = wait(&mut self.group);
        io::copy(&mut File::open(&self.said)?, &mut io::stdout())?;
        passed
    }
}

/// The test programs of the workspace that need no feature, by the kind of target (`test` or
/// `example`) and the name.
fn programs() -> io::Result<BTreeSet<(String, String)>> {
    let packages = packages()?.into_iter().filter(|it| it.name != DEEP);
    let targets = packages.flat_map(|it| it.targets);
    Ok(targets.filter_map(program).collect())
}

/// The words that name the unit tests of a package, and the tests of its roles: they start no
/// processes, and draw little at random.
///
/// # Errors
/// If there is no such package.
pub(crate) fn quick_tests_of(package: &str) -> io::Result<Vec<String>> {
    let mut packages = packages()?.into_iter();
    let known = packages.find(|it| it.name == package);
    let known = known.ok_or_else(|| io::Error::other(format!("there is no package {package}")))?;
    let has = |wanted: &str| known.targets.iter().any(|it| it.kind == [wanted]);
    let mut words = Vec::new();
    words.extend(has("lib").then(|| "--lib".to_owned()));
    words.extend(has("bin").then(|| "--bins".to_owned()));
    let roles = known.targets.iter().any(|it| it.name == ROLES);
    let roles = roles.then(|| ["--test", ROLES].map(str::to_owned));
    words.extend(roles.into_iter().flatten());
    Ok(words)
}

fn packages() -> io::Result<Vec<Package>> {
    let words = ["metadata", "--no-deps", "--locked", "--format-version", "1"];
    let output = cargo().args(words).output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(io::Error::other(format!("cargo metadata: {said}")));
    }
    let metadata: Metadata = serde_json::from_slice(&output.stdout)?;
    Ok(metadata.packages)
}

/// The kind and the name of a target that is a test program and needs no feature.
fn program(target: Target) -> Option<(String, String)> {
    if !target.test || !target.required_features.is_empty() {
        return None;
    }
    match &target.kind[..] {
        [kind] if kind == "test" || kind == "example" => Some((kind.clone(), target.name)),
        _ => None,
    }
}

fn is_beside(name: &str) -> bool {
    BESIDE.contains(&name)
}

/// The words that name all of these programs but those beside.
fn others(programs: &BTreeSet<(String, String)>) -> Vec<String> {
    let others = programs.iter().filter(|(_, name)| !is_beside(name));
    others
        .flat_map(|(kind, name)| [format!("--{kind}"), name.clone()])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `cargo test` runs what is neither named nor beside not at all.
    #[test]
    fn every_test_program_is_run_once() {
        let programs = programs().unwrap();
        let has = |kind: &str, name: &str| programs.contains(&(kind.into(), name.into()));
        assert!(has("test", "simulator"), "{programs:?}");
        for name in BESIDE {
            assert!(has("test", name), "{name} is no test program");
        }
        // Its test is in the example.
        assert!(has("example", "counter"), "{programs:?}");
        let others = others(&programs);
        let count = 2 * (programs.len() - BESIDE.len());
        assert_eq!(others.len(), count, "{others:?}");
        assert!(!others.iter().any(|it| is_beside(it)), "{others:?}");
    }
}
